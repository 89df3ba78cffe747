// What a job is and what became of it.

import { useMemo, useState } from "preact/hooks";
import { readMember } from "../../api/jobs";
import type { Job } from "../../api/jobs";
import { listSchedules, SCHEDULE_TAG } from "../../api/operations";
import { Id, operationName, shorten } from "../../components/copy";
import { Fact } from "../../components/facts";
import { Icon } from "../../components/icons";
import { JsonView } from "../../components/json_view";
import { FieldProblem } from "../../components/states";
import { Text } from "../../components/text";
import { Duration, Elapsed, Time } from "../../components/time";
import { TimelineView } from "../../components/timeline";
import { useAction } from "../../lib/action";
import { useLoad, useNow } from "../../lib/load";
import { paths } from "../../lib/router";
import { timeline } from "../../lib/timeline";
import { isTerminal } from "@verify/status";
import type { Value } from "@verify/value";
import { momentOf } from "./records";
import type { Records } from "./records";
import { NoRecords } from "./no_records";

export function Overview({ job, read }: { job: Job; read: Records }) {
  const { records } = read;
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
          <NoRecords {...read} />
        )}
      </section>
      <section class="card">
        <h2>Facts</h2>
        <Facts job={job} />
      </section>
      <div class="columns">
        <section class="card">
          <h2>Input</h2>
          <MemberValue job={job} name="input" />
        </section>
        <section class="card">
          <h2>Output</h2>
          <MemberValue job={job} name="output" />
        </section>
      </div>
    </>
  );
}

/** The input or the output. A large one is loaded on request. */
function MemberValue({ job, name }: { job: Job; name: "input" | "output" }) {
  const [loaded, setLoaded] = useState<{ head: string; value: Value } | undefined>(undefined);
  const { isBusy, problem, act } = useAction();
  const value = job[name];
  const label = `the ${name}`;
  if (value !== undefined) return <JsonView value={value} label={label} />;
  if (!job.omitted.includes(name)) {
    return <p class="muted">{isTerminal(job.status) ? `There is no ${name}.` : `There is no ${name} yet.`}</p>;
  }
  if (loaded && (name === "input" || loaded.head === job.head)) {
    return <JsonView value={loaded.value} label={label} isRequested />;
  }
  const load = (): Promise<void> =>
    act(async () => setLoaded({ head: job.head, value: await readMember(job.id, name) }));
  return (
    <div class="json-large">
      <p class="muted">This value is larger than 64 kB and was not loaded.</p>
      <button type="button" class="button small" disabled={isBusy} onClick={() => void load()}>
        {isBusy ? "Loading…" : "Load it"}
      </button>
      <FieldProblem text={problem} />
    </div>
  );
}

function Facts({ job }: { job: Job }) {
  const hasEnded = isTerminal(job.status);
  const schedule = job.tags.find((tag) => tag.startsWith(SCHEDULE_TAG));
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
      {schedule !== undefined && (
        <Fact name="Started by">
          <ScheduleOf handle={schedule.slice(SCHEDULE_TAG.length)} />
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

/** The schedule that started the job, which a tag names. */
function ScheduleOf({ handle }: { handle: string }) {
  const schedules = useLoad(listSchedules, []);
  const found = schedules.value?.find((schedule) => schedule.handle === handle);
  return (
    <span class="row wrap">
      {found ? (
        <>
          <span class="muted">the schedule</span>
          <a href={paths.schedule(handle)}>
            <Text text={found.cron ?? shorten(handle)} most={40} />
          </a>
        </>
      ) : (
        <span class="muted">a schedule{schedules.value && " that no longer exists"}</span>
      )}
      <a href={paths.jobsWhere({ tag: SCHEDULE_TAG + handle })}>All its runs</a>
    </span>
  );
}
