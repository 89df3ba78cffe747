// Schedules: operations that the venue invokes later, once or again and again.

import { useEffect, useState } from "preact/hooks";
import { run } from "../api/jobs";
import { controlSchedule, listSchedules, readOperation, SCHEDULE_TAG } from "../api/operations";
import type { Schedule } from "../api/operations";
import { Id } from "../components/copy";
import { Confirm } from "../components/dialog";
import { Fact } from "../components/facts";
import { SchemaForm } from "../components/form";
import { Icon } from "../components/icons";
import { JsonView } from "../components/json_view";
import { Empty, FieldProblem, Result } from "../components/states";
import { Description, Text } from "../components/text";
import { Time } from "../components/time";
import { useAction } from "../lib/action";
import { useInterval, useLoad } from "../lib/load";
import { location, paths } from "../lib/router";
import { useStore } from "../lib/store";

export function SchedulesPage() {
  const schedules = useLoad(listSchedules, []);
  useInterval(schedules.reload, 5000);
  const { hash } = useStore(location);
  const isLoaded = schedules.value !== undefined;
  useEffect(() => {
    if (isLoaded && hash !== "") document.getElementById(hash)?.scrollIntoView();
  }, [hash, isLoaded]);
  return (
    <>
      <header class="page-head">
        <h1 tabIndex={-1}>Schedules</h1>
      </header>
      <Result loaded={schedules} what="the schedules">
        {(all) =>
          all.length === 0 ? (
            <Empty title="Nothing is scheduled.">
              <p>Use the form below to invoke an operation later, or regularly.</p>
            </Empty>
          ) : (
            <ul class="cards">
              {all.map((schedule) => (
                <ScheduleCard
                  key={schedule.handle}
                  schedule={schedule}
                  reload={schedules.reload}
                />
              ))}
            </ul>
          )
        }
      </Result>
      <NewSchedule onCreated={schedules.reload} />
    </>
  );
}

function ScheduleCard({ schedule, reload }: { schedule: Schedule; reload: () => void }) {
  const { problem, act } = useAction();
  const [said, setSaid] = useState<string | undefined>(undefined);
  const [isAsked, setIsAsked] = useState(false);
  const runs = paths.jobsWhere({ tag: SCHEDULE_TAG + schedule.handle });
  const control = (action: "cancel" | "trigger"): Promise<void> =>
    act(async () => {
      await controlSchedule(action, schedule.handle);
      setSaid(action === "trigger" ? "It was invoked now." : undefined);
      reload();
    });
  return (
    <li class="card" id={`schedule-${schedule.handle}`}>
      <div class="row wrap spread">
        <h2>
          <a href={paths.operation(schedule.operation)}>
            <Text text={schedule.operation} most={100} />
          </a>
        </h2>
        <span class="row wrap">
          <button type="button" class="button small" onClick={() => void control("trigger")}>
            <Icon name="play" /> Invoke now
          </button>
          <button type="button" class="button small" onClick={() => setIsAsked(true)}>
            <Icon name="trash" /> Remove
          </button>
        </span>
      </div>
      <dl class="facts">
        <Fact name="Next">
          {schedule.time === undefined ? (
            <span class="muted">–</span>
          ) : (
            <Time at={schedule.time} />
          )}
        </Fact>
        <Fact name="Repeats">
          {schedule.cron === undefined ? (
            "no"
          ) : (
            <code>
              <Text text={schedule.cron} most={80} />
            </code>
          )}
        </Fact>
        <Fact name="Latest run">
          {schedule.lastJob === undefined ? (
            <span class="muted">none yet</span>
          ) : (
            <span class="row wrap">
              <Id id={schedule.lastJob} href={paths.job(schedule.lastJob)} label="the job's ID" />
              {schedule.lastTime !== undefined && <Time at={schedule.lastTime} />}
            </span>
          )}
        </Fact>
        <Fact name="Runs">
          <a href={runs}>Jobs that it started</a>
        </Fact>
        <Fact name="Handle">
          <Id id={schedule.handle} label="the schedule's handle" />
        </Fact>
      </dl>
      <details>
        <summary>Everything about it</summary>
        <JsonView value={schedule.all} label="the schedule" />
      </details>
      {said && (
        <p class="muted" role="status">
          {said} <a href={runs}>Show its runs</a>
        </p>
      )}
      <FieldProblem text={problem} />
      {isAsked && (
        <Confirm
          title="Remove this schedule?"
          action="Remove it"
          isDangerous
          onConfirm={() => void control("cancel")}
          onClose={() => setIsAsked(false)}
        >
          <p>The operation is not invoked any more. Jobs that it created stay.</p>
        </Confirm>
      )}
    </li>
  );
}

function NewSchedule({ onCreated }: { onCreated: () => void }) {
  const operation = useLoad((signal) => readOperation("v/ops/scheduler/schedule", signal), []);
  const [round, setRound] = useState(0);
  const { isBusy, problem, act } = useAction();
  const create = (input: string): Promise<void> =>
    act(async () => {
      await run("scheduler:schedule", input);
      setRound(round + 1);
      onCreated();
    });
  return (
    <section class="card">
      <h2>New schedule</h2>
      <Result loaded={operation} what="the form">
        {({ description, input }) => (
          <>
            {description && (
              <p class="muted">
                <Description text={description} />
              </p>
            )}
            <SchemaForm
              key={round}
              schema={input}
              action="Schedule"
              isBusy={isBusy}
              onSubmit={(text) => void create(text)}
            />
          </>
        )}
      </Result>
      <FieldProblem text={problem} />
    </section>
  );
}
