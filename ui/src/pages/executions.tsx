// Executions: a playground, the latest executions, and the executors that are connected.

import { useState } from "preact/hooks";
import { listExecutions, readExecution } from "../api/executions";
import { readExecutors, submitCode } from "../api/executors";
import type { Environment, Executors, Submitted } from "../api/executors";
import type { Job } from "../api/jobs";
import { capabilities } from "../api/venue";
import { shorten } from "../components/copy";
import { WaitingHint } from "../components/execution";
import { ExecutorList } from "../components/executors";
import { TextArea } from "../components/form";
import { Icon } from "../components/icons";
import { JobLinks } from "../components/job_links";
import { FieldProblem, Result } from "../components/states";
import { StatusChip } from "../components/status";
import { Time } from "../components/time";
import { useAction } from "../lib/action";
import { useInterval, useLoad } from "../lib/load";
import type { Loaded } from "../lib/load";
import { paths } from "../lib/router";
import { useStore } from "../lib/store";
import { visible } from "../lib/visible";
import { isTerminal } from "@verify/status";
import { ExecutionTab } from "./job/execution";
import { useJob } from "./job/follow";
import { ProgressBar } from "./job/progress";

const EXAMPLE = `squares = [n * n for n in range(10)]
print("the sum is", sum(squares))

with open("squares.svg", "w") as file:
    file.write('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 100">')
    for n, square in enumerate(squares):
        file.write(f'<rect x="{n * 20}" y="{100 - square}" width="16" height="{square}" fill="teal"/>')
    file.write("</svg>")

def main():
    return {"squares": squares}
`;

const LISTED = 20;
const REFRESH_MS = 5000;

export function ExecutionsPage() {
  const { hasExecutors } = useStore(capabilities);
  const executors = useLoad(
    (signal) => (hasExecutors ? readExecutors(signal) : Promise.resolve(undefined)),
    [hasExecutors],
  );
  useInterval(executors.reload, REFRESH_MS);
  return (
    <>
      <header class="page-head">
        <h1 tabIndex={-1}>Executions</h1>
      </header>
      <Playground environments={executors.value?.environments ?? []} />
      <div class="columns">
        <Latest />
        {hasExecutors && <ConnectedExecutors executors={executors} />}
      </div>
    </>
  );
}

function Playground({ environments }: { environments: readonly Environment[] }) {
  const [source, setSource] = useState(EXAMPLE);
  const [environment, setEnvironment] = useState("");
  const [mayReuse, setMayReuse] = useState(false);
  const [submitted, setSubmitted] = useState<Submitted | undefined>(undefined);
  const { isBusy, problem, act } = useAction();
  const run = (): Promise<void> =>
    act(async () => {
      setSubmitted(await submitCode({ source, environment: environment || undefined, mayReuse }));
    });
  return (
    <>
      <form
        class="card form"
        onSubmit={(event) => {
          event.preventDefault();
          void run();
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void run();
        }}
      >
        <h2>Playground</h2>
        <TextArea
          label="Python"
          text={source}
          onText={setSource}
          rows={12}
          hint="Runs in a sandbox without a network. Files that it writes become artifacts; what main returns is the result."
        />
        <div class="row wrap options">
          {environments.length > 0 && (
            <label class="option">
              <span>Environment</span>
              <select value={environment} onChange={(event) => setEnvironment(event.currentTarget.value)}>
                {environments.map((known) => (
                  <option key={known.version} value={known.isDefault ? "" : known.version}>
                    {titleOf(known)}
                  </option>
                ))}
              </select>
            </label>
          )}
          <label class="check">
            <input
              type="checkbox"
              checked={mayReuse}
              onChange={(event) => setMayReuse(event.currentTarget.checked)}
            />
            <span>Reuse the result if equal code has run before</span>
          </label>
        </div>
        <div class="form-actions">
          <button type="submit" class="button primary" disabled={isBusy || source.trim() === ""}>
            <Icon name="play" /> {isBusy ? "Sending…" : "Run"}
          </button>
          <span class="muted wide-only">Ctrl Enter</span>
          <FieldProblem text={problem} />
        </div>
      </form>
      {submitted && <Ran key={submitted.job} submitted={submitted} />}
    </>
  );
}

/** An environment as it is offered: one that no connected executor has would wait. */
function titleOf({ version, isDefault, executors }: Environment): string {
  const notes = [isDefault ? "default" : "", executors === 0 ? "not connected" : ""].filter(Boolean);
  return visible(version) + (notes.length > 0 ? ` (${notes.join(", ")})` : "");
}

/** The execution that was started or found here, as it goes on. */
function Ran({ submitted }: { submitted: Submitted }) {
  const { job: id, isDeduplicated } = submitted;
  const { job } = useJob(id);
  if (!job) return null;
  return (
    <section class="cards" aria-label="The execution">
      <p class="row wrap" role="status">
        <StatusChip status={job.status} />
        {isDeduplicated && <span>deduplicated from</span>}
        <a href={paths.job(id, "execution")}>
          Job <code>{shorten(id)}</code>
        </a>
        {isDeduplicated && (
          <span class="muted">
            of <Time at={job.created} />: equal code was not run again
          </span>
        )}
      </p>
      {isTerminal(job.status) ? <ExecutionTab job={job} /> : <Unfinished job={job} />}
    </section>
  );
}

/** Code that has not ended: what it waits for, or how far it is. */
function Unfinished({ job }: { job: Job }) {
  const execution = useLoad((signal) => readExecution(job, signal), [job.id, job.head]);
  // The environment may appear without a change of the job.
  useInterval(execution.reload, REFRESH_MS);
  const hint = execution.value?.hint;
  if (hint !== undefined) return <WaitingHint hint={hint} />;
  if (job.progress) return <ProgressBar progress={job.progress} />;
  return <p class="muted">{job.status === "STARTED" ? "The code runs." : "The code waits for an executor."}</p>;
}

function Latest() {
  const latest = useLoad((signal) => listExecutions(LISTED, signal), []);
  useInterval(latest.reload, REFRESH_MS);
  return (
    <section class="card" aria-label="Latest executions">
      <h2>Latest executions</h2>
      <Result loaded={latest} what="the executions">
        {(jobs) =>
          jobs.length === 0 ? (
            <p class="muted">No code has run yet.</p>
          ) : (
            <JobLinks jobs={jobs} tab="execution" />
          )
        }
      </Result>
    </section>
  );
}

function ConnectedExecutors({ executors }: { executors: Loaded<Executors | undefined> }) {
  return (
    <section class="card" aria-label="Executors">
      <h2>Executors</h2>
      <Result loaded={executors} what="the executors">
        {(value) => value && <ExecutorList executors={value} />}
      </Result>
    </section>
  );
}
