// The records of a job, page by page.

import { useEffect, useRef, useState } from "preact/hooks";
import { omittedOf, readHistoryBytes } from "../../api/jobs";
import type { Values } from "../../api/jobs";
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

/** The first records of a chain, which grow as its head changes. */
export function useRecords(id: string, head: string): readonly ListedRecord[] {
  const [state, setState] = useState<{ id: string; records: readonly ListedRecord[] }>({
    id,
    records: [],
  });
  const known = useRef(state);
  useEffect(() => {
    const abort = new AbortController();
    const before = known.current.id === id ? known.current.records : [];
    if (before.length >= RECORDS_MAX) return;
    readRecords(id, before.length, RECORDS_MAX - before.length, abort.signal).then(
      ({ records }) => {
        if (abort.signal.aborted) return;
        known.current = { id, records: [...before, ...records] };
        setState(known.current);
      },
      () => undefined,
    );
    return () => abort.abort();
  }, [id, head]);
  return state.id === id ? state.records : [];
}
