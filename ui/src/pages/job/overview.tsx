// What a job is and what became of it.

import { useMemo } from "preact/hooks";
import type { ComponentChildren } from "preact";
import type { Job } from "../../api/jobs";
import { listSchedules } from "../../api/operations";
import { Id, operationName } from "../../components/copy";
import { Icon } from "../../components/icons";
import { JsonView } from "../../components/json_view";
import { Text } from "../../components/text";
import { Duration, Elapsed, Time } from "../../components/time";
import { TimelineView } from "../../components/timeline";
import { useLoad, useNow } from "../../lib/load";
import { paths } from "../../lib/router";
import { timeline } from "../../lib/timeline";
import { isTerminal } from "@verify/status";
import { momentOf } from "./records";
import type { ListedRecord } from "./records";

export function Overview({ job, records }: { job: Job; records: readonly ListedRecord[] }) {
  const hasEnded = isTerminal(job.status);
  const now = useNow(1000);
  const moments = useMemo(() => records.map(momentOf), [records]);
  const shown = useMemo(
    () => timeline(moments, hasEnded ? job.updated : now),
    [moments, hasEnded ? 0 : now],
  );
  return (
    <>
      {job.error !== undefined && (
        <section class="callout bad" aria-label="Error">
          <Icon name="warn" />
          <div>
            <p class="callout-text">
              <Text text={job.error} />
            </p>
            {job.errorCode && <p class="muted">{job.errorCode}</p>}
          </div>
        </section>
      )}
      {job.message !== undefined && !hasEnded && (
        <section class="callout waiting" aria-label="Message of the job">
          <Icon name="message" />
          <div>
            <p class="callout-text">
              <Text text={job.message} />
            </p>
            <a href={paths.job(job.id, "messages")}>Answer</a>
          </div>
        </section>
      )}
      <section class="card">
        <h2>Timeline</h2>
        {moments.length > 0 ? (
          <TimelineView job={job.id} timeline={shown} />
        ) : (
          <p class="muted">Loading the records…</p>
        )}
      </section>
      <section class="card">
        <h2>Facts</h2>
        <Facts job={job} />
      </section>
      <div class="columns">
        <section class="card">
          <h2>Input</h2>
          <JsonView value={job.input ?? null} label="the input" />
        </section>
        <section class="card">
          <h2>Output</h2>
          {job.output === undefined ? (
            <p class="muted">{hasEnded ? "There is no output." : "There is no output yet."}</p>
          ) : (
            <JsonView value={job.output} label="the output" />
          )}
        </section>
      </div>
    </>
  );
}

function Facts({ job }: { job: Job }) {
  const hasEnded = isTerminal(job.status);
  return (
    <dl class="facts">
      <Fact name="Operation">
        <a href={paths.operation(job.op)}>
          <Text text={operationName(job.op)} most={200} />
        </a>
      </Fact>
      <Fact name="Definition">
        <Id id={job.operation} href={paths.asset(job.operation)} label="the definition's ID" />
      </Fact>
      <Fact name="Caller">
        <Id id={job.caller} label="the caller's DID" />
      </Fact>
      <Fact name="Created">
        <Time at={job.created} />
      </Fact>
      <Fact name={hasEnded ? "Ended" : "Last change"}>
        <Time at={job.updated} />
      </Fact>
      <Fact name={hasEnded ? "Took" : "Age"}>
        {hasEnded ? <Duration ms={job.updated - job.created} /> : <Elapsed since={job.created} />}
      </Fact>
      {job.attempt > 1 && <Fact name="Attempt">{job.attempt}</Fact>}
      {job.nextAttemptAt !== undefined && !hasEnded && (
        <Fact name="Next attempt">
          <Time at={job.nextAttemptAt} />
        </Fact>
      )}
      {job.deadline !== undefined && !hasEnded && (
        <Fact name="Deadline">
          <Time at={job.deadline} />
        </Fact>
      )}
      {job.parent && (
        <Fact name={job.parentStep === undefined ? "Called by" : "Step of"}>
          <Id id={job.parent} href={paths.subjob(job.parent, job.parentStep)} label="the parent's ID" />
        </Fact>
      )}
      {job.rerunOf && (
        <Fact name="Run again from">
          <Id id={job.rerunOf} href={paths.job(job.rerunOf)} label="the earlier job's ID" />
        </Fact>
      )}
      {job.tags.includes(SCHEDULED) && (
        <Fact name="Started by">
          <SchedulesOf job={job} />
        </Fact>
      )}
      {job.tags.length > 0 && (
        <Fact name="Tags">
          <span class="row wrap">
            {job.tags.map((tag) => (
              <a key={tag} class="tag" href={paths.jobsWhere({ tag })}>
                <Text text={tag} most={80} />
              </a>
            ))}
          </span>
        </Fact>
      )}
      <Fact name="Head">
        <Id id={job.head} label="the ID of the last record" />
      </Fact>
    </dl>
  );
}

/** The tag of every job that a schedule started. */
const SCHEDULED = "scheduled";

/** The schedule that started the job: the one whose latest run it is, else those that may have. */
function SchedulesOf({ job }: { job: Job }) {
  const schedules = useLoad(listSchedules, []);
  const all = schedules.value ?? [];
  const exact = all.filter(({ lastJob }) => lastJob === job.id);
  const found = exact.length > 0 ? exact : all.filter(({ operation }) => operation === job.op);
  if (found.length === 0) {
    return <span class="muted">a schedule{schedules.value && " that no longer exists"}</span>;
  }
  return (
    <span class="row wrap">
      <span class="muted">{exact.length > 0 ? "the schedule" : "a schedule, perhaps"}</span>
      {found.slice(0, 5).map(({ handle, cron }) => (
        <a key={handle} href={paths.schedule(handle)}>
          <Text text={cron ?? handle} most={40} />
        </a>
      ))}
    </span>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="fact">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
