// A short list of jobs: status, operation, and when each last changed.

import type { ListedJob } from "../api/jobs";
import { paths } from "../lib/router";
import type { JobTab } from "../lib/router";
import { operationName } from "./copy";
import { StatusChip } from "./status";
import { Text } from "./text";
import { Time } from "./time";

export function JobLinks({ jobs, tab }: { jobs: readonly ListedJob[]; tab?: JobTab }) {
  return (
    <ul class="job-links">
      {jobs.map((job) => (
        <li key={job.id}>
          <a href={paths.job(job.id, tab)}>
            <StatusChip status={job.status} />
            <span class="job-op">
              <Text text={operationName(job.op)} most={80} />
            </span>
            <span class="muted">
              <Time at={job.updated} />
            </span>
          </a>
        </li>
      ))}
    </ul>
  );
}
