// Executions: a playground, the latest executions, and the executors that run them.

import { useRef, useState } from "preact/hooks";
import { messageOf, newKey } from "../api/client";
import { listExecutions, readEnded, readExecution } from "../api/executions";
import { invoke } from "../api/jobs";
import type { Job, ListedJob } from "../api/jobs";
import { capabilities, readStats } from "../api/venue";
import { operationName, shorten } from "../components/copy";
import { WaitingHint } from "../components/execution";
import { TextArea } from "../components/form";
import { Icon } from "../components/icons";
import { Result } from "../components/states";
import { StatusChip } from "../components/status";
import { Text } from "../components/text";
import { Time } from "../components/time";
import { jsonText } from "../lib/json_text";
import { useInterval, useLoad } from "../lib/load";
import type { Loaded } from "../lib/load";
import { placesOf } from "../lib/places";
import type { Place } from "../lib/places";
import { paths } from "../lib/router";
import { useStore } from "../lib/store";
import { isTerminal } from "@verify/status";
import { asList, asMap, asText } from "@verify/value";
import type { Value } from "@verify/value";
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
  const latest = useLoad((signal) => listExecutions(LISTED, signal), []);
  useInterval(latest.reload, REFRESH_MS);
  return (
    <>
      <header class="page-head">
        <h1 tabIndex={-1}>Executions</h1>
      </header>
      <Playground />
      <div class="columns">
        <Latest latest={latest} />
        <Executors latest={latest.value ?? []} />
      </div>
    </>
  );
}

function Playground() {
  const [code, setCode] = useState(EXAMPLE);
  const [job, setJob] = useState<Job | undefined>(undefined);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const [isBusy, setIsBusy] = useState(false);
  const run = async (): Promise<void> => {
    setIsBusy(true);
    setProblem(undefined);
    try {
      setJob(await invoke("exec:python", `{"code":${JSON.stringify(code)}}`, newKey()));
    } catch (error) {
      setProblem(messageOf(error));
    } finally {
      setIsBusy(false);
    }
  };
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
          text={code}
          onText={setCode}
          rows={12}
          hint="Runs in a sandbox without a network. Files that it writes become artifacts; what main returns is the result."
        />
        <div class="form-actions">
          <button type="submit" class="button primary" disabled={isBusy || code.trim() === ""}>
            <Icon name="play" /> {isBusy ? "Sending…" : "Run"}
          </button>
          <span class="muted wide-only">Ctrl Enter</span>
          {problem !== undefined && (
            <p class="field-problem" role="alert">
              <Text text={problem} />
            </p>
          )}
        </div>
      </form>
      {job && <Ran key={job.id} id={job.id} />}
    </>
  );
}

/** The execution that was started here, as it goes on. */
function Ran({ id }: { id: string }) {
  const { job } = useJob(id);
  if (!job) return null;
  return (
    <section class="cards" aria-label="The execution">
      <p class="row wrap" role="status">
        <StatusChip status={job.status} />
        <a href={paths.job(id, "execution")}>
          Job <code>{shorten(id)}</code>
        </a>
      </p>
      {isTerminal(job.status) ? (
        <ExecutionTab job={job} />
      ) : (
        <Unfinished job={job} />
      )}
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

function Latest({ latest }: { latest: Loaded<ListedJob[]> }) {
  return (
    <section class="card">
      <h2>Latest executions</h2>
      <Result loaded={latest} what="the executions">
        {(jobs) =>
          jobs.length === 0 ? (
            <p class="muted">No code has run yet.</p>
          ) : (
            <ul class="job-links">
              {jobs.map((job) => (
                <li key={job.id}>
                  <a href={paths.job(job.id, "execution")}>
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
          )
        }
      </Result>
    </section>
  );
}

/**
 * What the venue says about its executors: name, tier, slots, and when they were last heard of. If it says
 * nothing, those that the latest executions name.
 */
function Executors({ latest }: { latest: readonly ListedJob[] }) {
  const { hasStats } = useStore(capabilities);
  const stats = useLoad((signal) => (hasStats ? readStats(signal) : Promise.resolve(null)), [hasStats]);
  useInterval(stats.reload, REFRESH_MS);
  const executors = asList(asMap(stats.value)?.get("executors")) ?? [];
  return (
    <section class="card">
      <h2>Executors</h2>
      {executors.length === 0 ? (
        <Places latest={latest} />
      ) : (
        <ul class="cards">
          {executors.map((executor, index) => (
            <li key={index}>
              <dl class="facts narrow">
                {[...(asMap(executor) ?? [])].map(([name, value]) => (
                  <div class="fact" key={name}>
                    <dt>
                      <Text text={name} most={60} />
                    </dt>
                    <dd>
                      <Member value={value} />
                    </dd>
                  </div>
                ))}
              </dl>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

/** Executions whose executors are looked at. */
const LOOKED_AT = 10;

function Places({ latest }: { latest: readonly ListedJob[] }) {
  const ids = latest
    .filter(({ status }) => isTerminal(status))
    .slice(0, LOOKED_AT)
    .map(({ id }) => id);
  const loaded = useLoad((signal) => readEnded(ids, signal), [ids]);
  const known = useRef<readonly Place[]>([]);
  if (loaded.value) known.current = placesOf(loaded.value);
  const places = known.current;
  if (places.length === 0) return <p class="muted">The venue names no executors.</p>;
  return (
    <>
      <p class="muted">Those of the latest executions. The venue does not say which are connected.</p>
      <ul class="cards">
        {places.map(({ executor, tiers, environments, executions, last }) => (
          <li key={executor}>
            <h3>
              <Text text={executor} most={80} />
            </h3>
            <dl class="facts narrow">
              <Fact name="Isolation" text={tiers.join(", ")} />
              <Fact name="Environments" text={environments.join(", ")} />
              <Fact name="Executions" text={String(executions)} />
              {last !== undefined && (
                <div class="fact">
                  <dt>Last one ended</dt>
                  <dd>
                    <Time at={last} />
                  </dd>
                </div>
              )}
            </dl>
          </li>
        ))}
      </ul>
    </>
  );
}

function Fact({ name, text }: { name: string; text: string }) {
  return (
    <div class="fact">
      <dt>{name}</dt>
      <dd>
        <Text text={text === "" ? "–" : text} most={300} />
      </dd>
    </div>
  );
}

/** Unix times in ms are shown as times, anything else as it is. */
function Member({ value }: { value: Value }) {
  if (typeof value === "bigint" && value > 1_000_000_000_000n && value < 10_000_000_000_000n) {
    return <Time at={Number(value)} />;
  }
  return <Text text={asText(value) ?? jsonText(value)} most={200} />;
}
