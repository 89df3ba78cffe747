// The records of a job, page by page.

import { useEffect, useRef, useState } from "preact/hooks";
import { generation } from "../../api/connection";
import { omittedOf, readHistoryBytes } from "../../api/jobs";
import type { Values } from "../../api/jobs";
import { useStore } from "../../lib/store";
import type { Moment } from "../../lib/timeline";
import { parseEntry, parseHistory } from "@verify/history";
import { readBytes } from "@verify/json";
import { parseStatus } from "@verify/status";
import { asMap, asText } from "@verify/value";
import type { ValueMap } from "@verify/value";

export interface ListedRecord {
  readonly index: number;
  readonly id: string;
  readonly record: ValueMap;
  /** Members of the record that were left out because they are large. */
  readonly omitted: readonly string[];
}

export interface RecordPage {
  readonly records: readonly ListedRecord[];
  readonly total: number;
}

export async function readRecords(
  id: string,
  from: number,
  limit: number,
  signal?: AbortSignal,
  values: Values = "brief",
): Promise<RecordPage> {
  const bytes = await readHistoryBytes(id, from, limit, values, signal);
  const history = parseHistory(readBytes(new Uint8Array(bytes)));
  const records = history.records.map((entry, at) => {
    const { id, record } = parseEntry(entry);
    return { index: from + at, id, record, omitted: omittedOf(asMap(entry)) };
  });
  return { records, total: history.total ?? from + records.length };
}

/** Records that the timeline and the list of calls look at; a longer chain is shown up to there. */
export const RECORDS_MAX = 1000;

export function momentOf({ index, record }: ListedRecord): Moment {
  const note = asMap(record.get("note"));
  const attempt = note?.get("attempt");
  return {
    index,
    status: parseStatus(asText(record.get("status"))) ?? "PENDING",
    at: Number(record.get("updated") ?? 0),
    kind: asText(note?.get("kind")),
    by: asText(record.get("by")),
    hasMessage: asMap(record.get("trigger"))?.has("messageId") ?? false,
    isFailedAttempt: asText(note?.get("kind")) === "attempt" && note?.has("reason") === true,
    attempt: typeof attempt === "bigint" ? Number(attempt) : undefined,
  };
}

/** The first records of a chain as far as they were read. */
export interface Records {
  readonly records: readonly ListedRecord[];
  /** Why the latest ones could not be read. */
  readonly error: unknown;
  readonly reload: () => void;
}

/** The first records of a chain, which grow as its head changes. They are read again when the venue is back. */
export function useRecords(id: string, head: string): Records {
  const [state, setState] = useState<{ id: string; records: readonly ListedRecord[]; error: unknown }>({
    id,
    records: [],
    error: undefined,
  });
  const known = useRef(state);
  const [round, setRound] = useState(0);
  const current = useStore(generation);
  useEffect(() => {
    const abort = new AbortController();
    const before = known.current.id === id ? known.current.records : [];
    const show = (records: readonly ListedRecord[], error?: unknown): void => {
      if (abort.signal.aborted) return;
      known.current = { id, records, error };
      setState(known.current);
    };
    if (before.length >= RECORDS_MAX) return;
    readRecords(id, before.length, RECORDS_MAX - before.length, abort.signal).then(
      ({ records }) => show([...before, ...records]),
      (error: unknown) => show(before, error),
    );
    return () => abort.abort();
  }, [id, head, round, current]);
  const isCurrent = state.id === id;
  return {
    records: isCurrent ? state.records : [],
    error: isCurrent ? state.error : undefined,
    reload: () => setRound((n) => n + 1),
  };
}
