// The execution of a job that runs code.

import { useMemo } from "preact/hooks";
import { cellOf, readExecution } from "../../api/executions";
import { readMember } from "../../api/jobs";
import type { Job } from "../../api/jobs";
import { ExecutionView } from "../../components/execution";
import { Result } from "../../components/states";
import { useLoad } from "../../lib/load";

export function ExecutionTab({ job }: { job: Job }) {
  const execution = useLoad((signal) => readExecution(job, signal), [job.id, job.head]);
  const isLarge = job.omitted.includes("input");
  const large = useLoad(
    async (signal) => (isLarge ? readMember(job.id, "input", signal) : null),
    [job.id, isLarge],
  );
  const input = isLarge ? large.value : job.input;
  const cell = useMemo(() => cellOf(input), [input]);
  return (
    <Result loaded={execution} what="the execution">
      {(value) => <ExecutionView job={job.id} cell={cell} execution={value} />}
    </Result>
  );
}
