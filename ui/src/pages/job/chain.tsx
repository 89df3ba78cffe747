// The chain of a job: every record with its ID, what it changed, who caused it, and what this browser
// found when it verified it.

import { useEffect, useRef, useState } from "preact/hooks";
import { isAbort } from "../../api/client";
import { generation } from "../../api/connection";
import type { Job } from "../../api/jobs";
import { Id, shorten } from "../../components/copy";
import { Fact } from "../../components/facts";
import { Icon } from "../../components/icons";
import { JsonView } from "../../components/json_view";
import { FieldProblem, Loading, Problem } from "../../components/states";
import { lookOf, StatusChip } from "../../components/status";
import { Text } from "../../components/text";
import { VirtualRows } from "../../components/virtual";
import { useAction } from "../../lib/action";
import { changes } from "../../lib/diff";
import { jsonText } from "../../lib/json_text";
import { location, navigate, paths } from "../../lib/router";
import { useStore } from "../../lib/store";
import { onShortcut } from "../../lib/shortcuts";
import { absolute, duration } from "../../lib/time";
import { valueId } from "@verify/encode";
import type { FaultInfo } from "../../verify/messages";
import { asMap, asText } from "@verify/value";
import type { Value } from "@verify/value";
import type { ChainVerification, Verification } from "../../verify/verification";
import { readRecords } from "./records";
import type { ListedRecord } from "./records";

const ROW = 40;
const PAGE = 100;
/** Pages that are kept; a chain of any length needs no more memory than these. */
const PAGES_MAX = 12;

export function Chain({
  job,
  chain,
  verification,
}: {
  job: Job;
  chain: ChainVerification;
  verification: Verification;
}) {
  const { hash } = useStore(location);
  const { record, total, error, ensure, reload } = usePages(job);
  const complete = useComplete(job.id);
  const fault = verification.state === "mismatch" && !verification.subjob ? verification.fault : undefined;
  const linked = /^record-(\d+)$/.exec(hash)?.[1];
  const chosen = linked === undefined ? (fault?.record ?? 0) : Number(linked);
  const [scrollTo, setScrollTo] = useState({ index: chosen });
  useEffect(() => setScrollTo({ index: chosen }), [chosen]);
  const choose = (index: number): void => {
    if (index < 0 || (total !== undefined && index >= total)) return;
    navigate(paths.record(job.id, index), { replace: true });
  };
  useEffect(() => onShortcut("j", () => choose(chosen + 1)), [chosen, total]);
  useEffect(() => onShortcut("k", () => choose(chosen - 1)), [chosen, total]);
  useEffect(() => ensure(Math.max(0, chosen - 1), chosen + 1), [chosen, total]);
  return (
    <section class="card">
      <h2>Chain</h2>
      <Summary job={job} chain={chain} verification={verification} />
      {error !== undefined && <Problem error={error} retry={reload} />}
      {total === undefined ? (
        error === undefined && <Loading what="the records" />
      ) : (
        <div class="chain">
          <VirtualRows
            count={total}
            rowHeight={ROW}
            label="Records"
            onRange={ensure}
            scrollTo={scrollTo}
            row={(index) => (
              <RecordRow
                key={index}
                index={index}
                entry={record(index)}
                previous={record(index - 1)}
                isChosen={index === chosen}
                mark={markOf(verification, index)}
                onChoose={choose}
              />
            )}
          />
          <RecordDetail
            job={job.id}
            index={chosen}
            total={total}
            entry={complete.of(record(chosen))}
            previous={record(chosen - 1)}
            fault={fault?.record === chosen ? fault : undefined}
            onLoad={complete.load}
          />
        </div>
      )}
    </section>
  );
}

/** The record with large values that the reader has asked for. */
function useComplete(job: string): {
  of: (entry: ListedRecord | undefined) => ListedRecord | undefined;
  load: (index: number) => Promise<void>;
} {
  const [loaded, setLoaded] = useState<ListedRecord | undefined>(undefined);
  return {
    of: (entry) => (entry && entry.index === loaded?.index ? loaded : entry),
    load: async (index) => {
      const { records } = await readRecords(job, index, 1, undefined, "full");
      setLoaded(records[0]);
    },
  };
}

/** The pages of records that are near the view. */
function usePages(job: Job): {
  record: (index: number) => ListedRecord | undefined;
  total: number | undefined;
  /** Why records could not be read. */
  error: unknown;
  ensure: (from: number, to: number) => void;
  reload: () => void;
} {
  const current = useStore(generation);
  const pages = useRef(new Map<number, readonly ListedRecord[]>());
  const loading = useRef(new Set<number>());
  const abort = useRef(new AbortController());
  const [total, setTotal] = useState<number | undefined>(undefined);
  const [error, setError] = useState<unknown>(undefined);
  const failed = useRef(new Set<number>());
  const [, setRound] = useState(0);
  useEffect(() => () => abort.current.abort(), []);
  const load = (page: number): void => {
    if (loading.current.has(page)) return;
    loading.current.add(page);
    readRecords(job.id, page * PAGE, PAGE, abort.current.signal).then(
      (found) => {
        loading.current.delete(page);
        failed.current.delete(page);
        const kept = pages.current;
        kept.delete(page);
        kept.set(page, found.records);
        for (const old of kept.keys()) {
          if (kept.size <= PAGES_MAX) break;
          kept.delete(old);
        }
        setTotal(found.total);
        setError(undefined);
        setRound((n) => n + 1);
      },
      (error: unknown) => {
        loading.current.delete(page);
        if (isAbort(error)) return;
        failed.current.add(page);
        setError(error);
      },
    );
  };
  // When the chain grows, its last page is read again.
  useEffect(() => load(total === undefined ? 0 : Math.floor(total / PAGE)), [job.head]);
  const reload = (): void => [...failed.current].forEach(load);
  useEffect(reload, [current]);
  const ensure = (from: number, to: number): void => {
    for (let page = Math.floor(from / PAGE); page * PAGE < Math.max(to, from + 1); page++) {
      if (!pages.current.has(page)) load(page);
    }
  };
  const record = (index: number): ListedRecord | undefined =>
    index < 0 ? undefined : pages.current.get(Math.floor(index / PAGE))?.[index % PAGE];
  return { record, total, error, ensure, reload };
}

function markOf(verification: Verification, index: number): "ok" | "bad" | "open" {
  switch (verification.state) {
    case "verified":
      return index < verification.report.records ? "ok" : "open";
    case "mismatch": {
      const { record } = verification.fault;
      if (verification.subjob !== undefined) return "ok";
      if (record === undefined) return "open";
      return index < record ? "ok" : index === record ? "bad" : "open";
    }
    case "none":
    case "running":
      return index < verification.checked ? "ok" : "open";
    case "error":
      return "open";
  }
}

const MARKS = {
  ok: { icon: "check", word: "verified here" },
  bad: { icon: "warn", word: "mismatch" },
  open: { icon: "clock", word: "not yet verified" },
} as const;

function RecordRow({
  index,
  entry,
  previous,
  isChosen,
  mark,
  onChoose,
}: {
  index: number;
  entry: ListedRecord | undefined;
  previous: ListedRecord | undefined;
  isChosen: boolean;
  mark: "ok" | "bad" | "open";
  onChoose: (index: number) => void;
}) {
  const { icon, word } = MARKS[mark];
  const updated = Number(entry?.record.get("updated") ?? NaN);
  const before = Number(previous?.record.get("updated") ?? NaN);
  const kind = asText(asMap(entry?.record.get("note"))?.get("kind"));
  const status = asText(entry?.record.get("status")) ?? "";
  return (
    <div role="listitem" class="record-item">
      <button
        type="button"
        class={`record-row mark-${mark}`}
        aria-current={isChosen ? "true" : undefined}
        data-record={index}
        onClick={() => onChoose(index)}
      >
        <span class="record-index">{index}</span>
        <span class="record-mark" title={word}>
          <Icon name={icon} />
          <span class="sr-only">{word}</span>
        </span>
        {entry ? (
          <>
            <span class="record-status">{kind ? `note: ${kind}` : lookOf(status).word}</span>
            <span class="muted record-gap" title={absolute(updated)}>
              {Number.isNaN(before) ? absolute(updated).slice(11, 23) : `+${duration(updated - before)}`}
            </span>
            <code class="record-id">{shorten(entry.id, 8, 4)}</code>
          </>
        ) : (
          <span class="muted">…</span>
        )}
      </button>
    </div>
  );
}

function Summary({
  job,
  chain,
  verification,
}: {
  job: Job;
  chain: ChainVerification;
  verification: Verification;
}) {
  if (verification.state === "verified") {
    const { report, subjobs, tree } = verification;
    return (
      <div class="callout good">
        <Icon name="chain" />
        <div>
          <p class="callout-text">
            This browser recomputed the IDs of {report.records.toLocaleString("en")}{" "}
            {report.records === 1 ? "record" : "records"}, followed every link and checked every
            transition, from the text that the venue sent. The venue's own word was not used.
          </p>
          {subjobs.length > 0 && (
            <p class="row wrap">
              {tree ? (
                <span role="status">
                  Sub-jobs: {tree.verified} verified, {tree.unavailable} unavailable
                  {tree.isRunning ? "…" : "."}
                </span>
              ) : (
                <>
                  <span>{subjobs.length} sub-jobs are committed to.</span>
                  <button
                    type="button"
                    class="button small"
                    onClick={() => void chain.runSubjobs()}
                  >
                    Verify the sub-jobs too
                  </button>
                </>
              )}
            </p>
          )}
        </div>
      </div>
    );
  }
  if (verification.state === "mismatch") {
    const { fault, subjob } = verification;
    return (
      <div class="callout bad" role="alert">
        <Icon name="warn" />
        <div>
          <p class="callout-text">
            {fault.record === undefined ? "Mismatch in the history" : `Mismatch at record ${fault.record}`}
            {subjob !== undefined && (
              <>
                {" of sub-job "}
                <Id id={subjob} href={paths.job(subjob, "chain")} label="the sub-job's ID" />
              </>
            )}
            : <Text text={fault.reason} />
          </p>
          <p class="muted">
            Kind: {fault.code}. Compare with <code>catena verify {shorten(job.id)}</code>.
          </p>
        </div>
      </div>
    );
  }
  return (
    <p class="muted">
      Each record names the ID of the one before it, so that none can be changed, dropped or moved
      without a trace.
    </p>
  );
}

function RecordDetail({
  job,
  index,
  total,
  entry,
  previous,
  fault,
  onLoad,
}: {
  job: string;
  index: number;
  /** Number of records in the chain. */
  total: number;
  entry: ListedRecord | undefined;
  previous: ListedRecord | undefined;
  fault: FaultInfo | undefined;
  /** Loads what was left out of the record. */
  onLoad: (index: number) => Promise<void>;
}) {
  const { isBusy, problem, act } = useAction();
  const isPartial = (entry?.omitted.length ?? 0) > 0;
  const load = (): Promise<void> => act(() => onLoad(index));
  // What was computed here can be compared with the complete record only.
  useEffect(() => {
    if (fault && isPartial) void load();
  }, [fault, isPartial, index]);
  if (index >= total) {
    return <p class="muted record-detail">The chain has no record {index}.</p>;
  }
  if (!entry) {
    return (
      <div class="record-detail">
        <Loading what={`record ${index}`} />
      </div>
    );
  }
  const by = asText(entry.record.get("by"));
  const prev = asText(entry.record.get("prev"));
  return (
    <article class="record-detail" aria-label={`Record ${index}`}>
      <header class="row wrap spread">
        <h3>Record {index}</h3>
        <StatusChip status={asText(entry.record.get("status")) ?? ""} />
      </header>
      <dl class="facts narrow">
        <Fact name="ID">
          <Id id={entry.id} label="the record's ID" />
        </Fact>
        <Fact name="Previous">
          {prev === undefined ? (
            <span class="muted">none: the chain starts here</span>
          ) : (
            <Id id={prev} href={paths.record(job, index - 1)} label="the previous record's ID" />
          )}
        </Fact>
        <Fact name="Caused by">
          {by === undefined ? (
            <span class="muted">{index === 0 ? "the caller" : "the venue"}</span>
          ) : (
            <Id id={by} label="the DID" />
          )}
        </Fact>
      </dl>
      {fault && !isPartial && <FaultDetail entry={entry} previous={previous} fault={fault} />}
      <h4>{index === 0 ? "Fields" : "Changes from the previous record"}</h4>
      <table class="diff">
        <tbody>
          {changes(previous?.record, entry.record).map(({ name, kind, before, after }) => (
            <tr key={name} class={`diff-${kind}`}>
              <td class="diff-sign" title={kind}>
                {kind === "added" ? "+" : kind === "changed" ? "~" : "="}
                <span class="sr-only">{kind}</span>
              </td>
              <th scope="row">
                <Text text={name} most={80} />
              </th>
              <td>
                {kind === "changed" && before !== undefined && (
                  <>
                    <del>
                      <Brief value={before} />
                    </del>{" "}
                    →{" "}
                  </>
                )}
                <Brief value={after} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {isPartial ? (
        <div class="row wrap">
          <span class="muted">
            Larger than 64 kB and not loaded: <Text text={entry.omitted.join(", ")} most={200} />
          </span>
          <button type="button" class="button small" disabled={isBusy} onClick={() => void load()}>
            {isBusy ? "Loading…" : "Load the complete record"}
          </button>
          <FieldProblem text={problem} />
        </div>
      ) : (
        <details>
          <summary>The record as JSON</summary>
          <JsonView value={entry.record} label={`record ${index}`} />
        </details>
      )}
    </article>
  );
}

/** What the record says, next to what this browser computed. */
function FaultDetail({
  entry,
  previous,
  fault,
}: {
  entry: ListedRecord;
  previous: ListedRecord | undefined;
  fault: FaultInfo;
}) {
  const computed = valueId(entry.record);
  const prev = asText(entry.record.get("prev")) ?? "null";
  return (
    <div class="callout bad">
      <Icon name="warn" />
      <div>
        <p class="callout-text">
          <Text text={fault.reason} />
        </p>
        <table class="diff">
          <tbody>
            <tr class={computed === entry.id ? "diff-same" : "diff-changed"}>
              <th scope="row">ID as received</th>
              <td>
                <code class="breakable">{entry.id}</code>
              </td>
            </tr>
            <tr class={computed === entry.id ? "diff-same" : "diff-changed"}>
              <th scope="row">ID as computed here</th>
              <td>
                <code class="breakable">{computed}</code>
              </td>
            </tr>
            {previous && (
              <>
                <tr class={prev === previous.id ? "diff-same" : "diff-changed"}>
                  <th scope="row">Names as previous</th>
                  <td>
                    <code class="breakable">
                      <Text text={prev} most={100} />
                    </code>
                  </td>
                </tr>
                <tr class={prev === previous.id ? "diff-same" : "diff-changed"}>
                  <th scope="row">Previous record</th>
                  <td>
                    <code class="breakable">{previous.id}</code>
                  </td>
                </tr>
              </>
            )}
          </tbody>
        </table>
      </div>
    </div>
  );
}

/** A value in one line. */
function Brief({ value }: { value: Value }) {
  if (typeof value === "string") return <Text text={value} most={160} />;
  if (typeof value === "object" && value !== null) {
    const size = value instanceof Map ? value.size : (value as readonly Value[]).length;
    if (size > 20) return <span class="muted">{value instanceof Map ? `{ ${size} members }` : `[ ${size} items ]`}</span>;
    const text = jsonText(value);
    return (
      <code>
        <Text text={text} most={160} />
      </code>
    );
  }
  return <code>{jsonText(value)}</code>;
}
