// The operations that a job invoked while it ran, as its chain records them.

import type { Job } from "../../api/jobs";
import { Id } from "../../components/copy";
import { Empty } from "../../components/states";
import { StatusChip } from "../../components/status";
import { Text } from "../../components/text";
import { Duration, Elapsed } from "../../components/time";
import type { Call } from "../../lib/calls";
import { paths } from "../../lib/router";
import { isTerminal } from "@verify/status";
import { NoRecords } from "./no_records";
import { RECORDS_MAX } from "./records";
import type { Records } from "./records";

export function Calls({
  job,
  calls,
  read,
}: {
  job: Job;
  calls: readonly Call[];
  /** The records that the calls were read from. */
  read: Records;
}) {
  const recordsRead = read.records.length;
  if (recordsRead === 0) return <NoRecords {...read} />;
  if (calls.length === 0) return <Empty title="This job has invoked no other operations." />;
  return (
    <section class="card">
      <h2>Calls</h2>
      <p class="muted small">
        Operations that this job invoked while it ran, as its chain records them.
        {recordsRead >= RECORDS_MAX &&
          ` Only the first ${RECORDS_MAX.toLocaleString("en")} records are read here.`}
      </p>
      <div class="table-scroll" tabIndex={0} role="group" aria-label="Table of the calls">
        <table class="table stacked" role="table">
          <thead>
            <tr>
              <th scope="col">Call</th>
              <th scope="col">Key</th>
              <th scope="col">Status</th>
              <th scope="col">Took</th>
              <th scope="col">Job</th>
            </tr>
          </thead>
          <tbody>
            {calls.map((call) => (
              <CallRow key={call.call} call={call} isJobEnded={isTerminal(job.status)} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function CallRow({ call, isJobEnded }: { call: Call; isJobEnded: boolean }) {
  return (
    <tr role="row">
      <th scope="row" role="rowheader">
        <a href={paths.job(call.job)}>
          {call.call} <Text text={call.op} most={60} />
        </a>
        {call.isDetached && <span class="tag">detached</span>}
      </th>
      <td role="cell" data-name="Key">
        <Text text={call.key} most={60} />
      </td>
      <td role="cell" data-name="Status">
        {call.status === undefined ? (
          <span class="muted">{isJobEnded ? "not recorded" : "not ended"}</span>
        ) : (
          <StatusChip status={call.status} />
        )}
      </td>
      <td role="cell" data-name="Took">
        <Took call={call} isJobEnded={isJobEnded} />
      </td>
      <td role="cell" data-name="Job">
        <Id id={call.job} href={paths.job(call.job)} label="the called job's ID" />
      </td>
    </tr>
  );
}

function Took({ call, isJobEnded }: { call: Call; isJobEnded: boolean }) {
  if (call.ended !== undefined) return <Duration ms={Math.max(0, call.ended - call.started)} />;
  // Nothing more is recorded about a call after the job has ended.
  return isJobEnded ? <span class="muted">–</span> : <Elapsed since={call.started} />;
}
