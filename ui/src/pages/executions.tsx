// Executions: a playground, the latest executions, and the executors that run them.

import { useState } from "preact/hooks";
import { messageOf, newKey } from "../api/client";
import { listExecutions } from "../api/executions";
import { invoke } from "../api/jobs";
import type { Job } from "../api/jobs";
import { capabilities, readStats } from "../api/venue";
import { operationName, shorten } from "../components/copy";
import { TextArea } from "../components/form";
import { Icon } from "../components/icons";
import { Result } from "../components/states";
import { StatusChip } from "../components/status";
import { Text } from "../components/text";
import { Time } from "../components/time";
import { jsonText } from "../lib/json_text";
import { useInterval, useLoad } from "../lib/load";
import { paths } from "../lib/router";
import { useStore } from "../lib/store";
import { isTerminal } from "@verify/status";
import { asList, asMap, asText } from "@verify/value";
import type { Value } from "@verify/value";
import { ExecutionTab } from "./job/execution";
import { useJob } from "./job/follow";

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
  return (
    <>
      <header class="page-head">
        <h1 tabIndex={-1}>Executions</h1>
      </header>
      <Playground />
      <div class="columns">
        <Latest />
        <Executors />
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
        <p class="muted">The code waits for an executor, or runs.</p>
      )}
    </section>
  );
}

function Latest() {
  const latest = useLoad((signal) => listExecutions(LISTED, signal), []);
  useInterval(latest.reload, REFRESH_MS);
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

/** What the venue says about its executors: name, tier, slots, and when they were last heard of. */
function Executors() {
  const { hasStats } = useStore(capabilities);
  const stats = useLoad((signal) => (hasStats ? readStats(signal) : Promise.resolve(null)), [hasStats]);
  useInterval(stats.reload, REFRESH_MS);
  const executors = asList(asMap(stats.value)?.get("executors")) ?? [];
  return (
    <section class="card">
      <h2>Executors</h2>
      {executors.length === 0 ? (
        <p class="muted">The venue names no executors.</p>
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

/** Unix times in ms are shown as times, anything else as it is. */
function Member({ value }: { value: Value }) {
  if (typeof value === "bigint" && value > 1_000_000_000_000n && value < 10_000_000_000_000n) {
    return <Time at={Number(value)} />;
  }
  return <Text text={asText(value) ?? jsonText(value)} most={200} />;
}
