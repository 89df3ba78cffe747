// One execution: the code with the line of an error marked, what it wrote, the files that it left, and what
// it used of what it was allowed.

import { useEffect, useState } from "preact/hooks";
import { messageOf } from "../api/client";
import { readArtifact } from "../api/executions";
import type { Artifact, Block, Execution, ExecutionError, Output } from "../api/executions";
import { location } from "../lib/router";
import { useStore } from "../lib/store";
import { duration } from "../lib/time";
import { ContentPreview, isImage, saveAs } from "./content";
import { Id } from "./copy";
import { Fact } from "./facts";
import { Icon } from "./icons";
import { JsonView } from "./json_view";
import { FieldProblem } from "./states";
import { Text } from "./text";

/** Lines of code that are shown. */
const LINES_MAX = 2000;
/** Images up to this size are shown at once. */
const INLINE_BYTES = 4 * 1024 * 1024;
/** Characters of an output that are shown. */
const OUTPUT_SHOWN = 100_000;

export function ExecutionView({
  job,
  cell,
  execution,
}: {
  job: string;
  cell: readonly Block[];
  execution: Execution;
}) {
  const { error, stdout, stderr, result, artifacts, logs, logsDropped } = execution;
  return (
    <>
      {execution.hint !== undefined && <WaitingHint hint={execution.hint} />}
      {error && <ErrorView error={error} />}
      {cell.length > 0 && (
        <section class="card" aria-label="Code">
          <h2>Code</h2>
          {cell.map((block, index) => (
            <Code key={index} block={block} error={error} isOnly={cell.length === 1} />
          ))}
        </section>
      )}
      {artifacts.length > 0 && (
        <section class="card" aria-label="Artifacts">
          <h2>Artifacts</h2>
          <ul class="artifacts">
            {artifacts.map((artifact) => (
              <ArtifactView key={artifact.id} job={job} artifact={artifact} />
            ))}
          </ul>
        </section>
      )}
      <div class="columns">
        <OutputView title="stdout" output={stdout} />
        <OutputView title="stderr" output={stderr} />
      </div>
      {result !== undefined && result !== null && (
        <section class="card">
          <h2>Result</h2>
          <JsonView value={result} label="the result" />
        </section>
      )}
      <section class="card" aria-label="Where it ran">
        <h2>Where it ran, and what it used</h2>
        <Facts execution={execution} />
        <UsageTable execution={execution} />
      </section>
      {logs.length > 0 && (
        <section class="card" aria-label="Log">
          <h2>Log</h2>
          <Log execution={execution} />
          {logsDropped > 0 && <p class="muted">{logsDropped.toLocaleString("en")} more were dropped.</p>}
        </section>
      )}
      <details>
        <summary>The result as JSON</summary>
        <JsonView value={execution.all} label="the result envelope" />
      </details>
    </>
  );
}

/** Why code that has not started waits, and what to do about it. */
export function WaitingHint({ hint }: { hint: string }) {
  return (
    <section class="callout waiting" aria-label="Why it waits">
      <Icon name="clock" />
      <div>
        <p class="callout-text">
          <Text text={hint} />
        </p>
      </div>
    </section>
  );
}

function ErrorView({ error }: { error: ExecutionError }) {
  return (
    <section class="callout bad" aria-label="Error of the execution">
      <Icon name="warn" />
      <div>
        <p class="callout-text">
          <Text text={error.message} />
        </p>
        <p class="muted">
          <Text text={error.category} most={60} /> <Text text={error.code} most={60} />
          {error.line !== undefined && (
            <>
              {", "}
              <a href={`#line-${error.line}`}>line {error.line}</a>
              {error.column !== undefined && `, column ${error.column}`}
              {error.block !== undefined && (
                <>
                  {" of block "}
                  <Text text={error.block} most={60} />
                </>
              )}
            </>
          )}
        </p>
        {error.traceback !== undefined && (
          <details>
            <summary>Traceback</summary>
            <pre class="excerpt" tabIndex={0} role="group" aria-label="Traceback">
              <Text text={error.traceback} most={20_000} />
            </pre>
          </details>
        )}
      </div>
    </section>
  );
}

/** Code with line numbers, of which each can be linked to. */
function Code({
  block,
  error,
  isOnly,
}: {
  block: Block;
  error: ExecutionError | undefined;
  isOnly: boolean;
}) {
  const { hash } = useStore(location);
  const lines = block.source.replace(/\n$/, "").split("\n");
  const isHere = error !== undefined && (isOnly || error.block === block.id);
  const linked = Number(/^line-(\d+)$/.exec(hash)?.[1] ?? NaN);
  useEffect(() => {
    if (isHere || isOnly) document.getElementById(`line-${linked}`)?.scrollIntoView({ block: "center" });
  }, [linked]);
  return (
    <div class="code" tabIndex={0} role="group" aria-label={isOnly ? "Code" : `Code of block ${block.id}`}>
      {!isOnly && (
        <p class="muted small">
          Block <Text text={block.id ?? ""} most={60} />
        </p>
      )}
      <ol>
        {lines.slice(0, LINES_MAX).map((line, index) => {
          const isFault = isHere && error.line === index + 1;
          return (
            <li
              key={index}
              id={isOnly || isHere ? `line-${index + 1}` : undefined}
              class={isFault ? "fault" : linked === index + 1 ? "linked" : undefined}
            >
              <span class="line-number" aria-hidden="true">
                {index + 1}
              </span>
              <code>
                <Text text={line} most={1000} />
                {isFault && <span class="fault-note"> ← {error.code}</span>}
              </code>
            </li>
          );
        })}
      </ol>
      {lines.length > LINES_MAX && (
        <p class="muted">{(lines.length - LINES_MAX).toLocaleString("en")} more lines are not shown.</p>
      )}
    </div>
  );
}

function OutputView({ title, output }: { title: string; output: Output | undefined }) {
  return (
    <section class="card" aria-label={title}>
      <h2>
        <code>{title}</code>
      </h2>
      {output === undefined ? (
        <p class="muted">It was not returned.</p>
      ) : output.text === "" ? (
        <p class="muted">Nothing was written.</p>
      ) : (
        <pre class="excerpt" tabIndex={0} role="group" aria-label={title}>
          <Text text={output.text} most={OUTPUT_SHOWN} />
        </pre>
      )}
      {output?.isTruncated && (
        <p class="row">
          <Icon name="warn" /> Cut off at the limit of the job: there was more.
        </p>
      )}
    </section>
  );
}

function ArtifactView({ job, artifact }: { job: string; artifact: Artifact }) {
  const [blob, setBlob] = useState<Blob | undefined>(undefined);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const isInline = isImage(artifact.type) && artifact.bytes <= INLINE_BYTES;
  const load = async (): Promise<Blob | undefined> => {
    if (blob) return blob;
    setProblem(undefined);
    try {
      const loaded = await readArtifact(job, artifact.id);
      setBlob(loaded);
      return loaded;
    } catch (error) {
      setProblem(messageOf(error));
      return undefined;
    }
  };
  useEffect(() => {
    if (isInline) void load();
  }, [artifact.id]);
  const save = async (): Promise<void> => {
    const content = await load();
    if (content) saveAs(content, artifact.name);
  };
  return (
    <li class="artifact">
      <div class="row wrap spread">
        <span class="row wrap">
          <strong>
            <Text text={artifact.name} most={120} />
          </strong>
          <span class="muted">
            <Text text={artifact.type || "unknown type"} most={80} />, {artifact.bytes.toLocaleString("en")} bytes
          </span>
        </span>
        <span class="row">
          {!blob && !isInline && (
            <button type="button" class="button small" onClick={() => void load()}>
              Show
            </button>
          )}
          <button type="button" class="button small" onClick={() => void save()}>
            Save
          </button>
        </span>
      </div>
      {blob && <ContentPreview blob={blob} type={artifact.type} name={artifact.name} />}
      <FieldProblem text={problem} />
      <Id id={artifact.digest} label="the digest" />
    </li>
  );
}

function Facts({ execution }: { execution: Execution }) {
  const { executor, tier, environment, network, attempt, durationMs, key } = execution;
  const facts: readonly (readonly [string, string | undefined])[] = [
    ["Executor", executor],
    ["Isolation", tier],
    ["Environment", environment],
    ["Network", network],
    ["Took", durationMs === undefined ? undefined : duration(durationMs)],
    ["Attempt", String(attempt)],
  ];
  return (
    <dl class="facts">
      {facts.map(
        ([name, text]) =>
          text !== undefined && (
            <Fact key={name} name={name}>
              <Text text={text} most={120} />
            </Fact>
          ),
      )}
      {key !== undefined && (
        <Fact name="Execution key">
          <Id id={key} label="the execution key" />
        </Fact>
      )}
    </dl>
  );
}

function UsageTable({ execution }: { execution: Execution }) {
  if (execution.usage.length === 0) return <p class="muted">Nothing has been measured yet.</p>;
  return (
    <div class="table-scroll" tabIndex={0} role="group" aria-label="What was used">
      <table class="table">
        <thead>
          <tr>
            <th scope="col">Resource</th>
            <th scope="col">Used</th>
            <th scope="col">Limit</th>
            <th scope="col">Share</th>
          </tr>
        </thead>
        <tbody>
          {execution.usage.map(({ title, used, limit, unit }) => (
            <tr key={title}>
              <th scope="row">{title}</th>
              <td>{used === undefined ? "–" : `${used.toLocaleString("en")} ${unit}`}</td>
              <td>{limit === undefined ? "–" : `${limit.toLocaleString("en")} ${unit}`}</td>
              <td>
                {used !== undefined && limit !== undefined && limit > 0 && (
                  <meter min={0} max={limit} value={Math.min(used, limit)} aria-label={`${title}: share of the limit`} />
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Log({ execution }: { execution: Execution }) {
  const { hash } = useStore(location);
  const linked = /^log-(\d+)$/.exec(hash)?.[1];
  useEffect(() => {
    if (linked !== undefined) document.getElementById(hash)?.scrollIntoView({ block: "center" });
  }, [linked]);
  return (
    <ol class="log">
      {execution.logs.map(({ level, message, at }, index) => (
        <li key={index} id={`log-${index}`} class={linked === String(index) ? "linked" : undefined}>
          <a class="line-number" href={`#log-${index}`} aria-label={`Log line ${index}`}>
            {index}
          </a>
          <span class="muted" title={at}>
            <Text text={at.slice(11, 23)} most={20} />
          </span>
          <span class={level === "error" ? "level bad" : "level"}>
            <Text text={level} most={20} />
          </span>
          <Text text={message} />
        </li>
      ))}
    </ol>
  );
}
