// The history document: a chain as JSON, or one page of it (`crates/job/src/history.rs`).

import { shortText } from "./fields.js";
import { asI64, asList, asMap } from "./value.js";
import type { Value, ValueMap } from "./value.js";

export interface History {
  readonly records: readonly Value[];
  readonly total: number | undefined;
  /** Index of the first record of the next page. */
  readonly next: number | undefined;
  /** Whether the document is one page of several and more records follow. */
  readonly hasMore: boolean;
  readonly children: ValueMap | undefined;
}

export interface Entry {
  /** Record ID that the document states; not verified. */
  readonly id: string;
  readonly record: ValueMap;
  /** What whoever ended the job signed. Undefined if there is no signature. */
  readonly signature: Value | undefined;
}

/** The document or an entry does not have the required shape. */
export class ShapeError extends Error {}

/** Checks the shape of a document, without looking at the records. */
export function parseHistory(document: Value): History {
  const shape = (what: string): ShapeError => new ShapeError(`not a history document: ${what}`);
  const map = asMap(document);
  if (!map) throw shape("expected an object with `records`");
  const listed = map.get("records");
  if (listed === undefined) throw shape("`records` is missing");
  const records = asList(listed);
  if (!records) throw shape("`records` must be an array");
  let total: number | undefined;
  if (map.has("total")) {
    const count = asI64(map.get("total"));
    if (count === undefined || count < 0n) {
      throw shape("`total` must be a whole number of at least 0");
    }
    total = Number(count);
  }
  const children = asMap(map.get("children"));
  if (map.has("children") && !children) throw shape("`children` must be an object");
  const following = map.get("next");
  const next = asI64(following);
  return {
    records,
    total,
    next: next === undefined ? undefined : Number(next),
    hasMore: following !== undefined && following !== null,
    children,
  };
}

export function parseEntry(value: Value): Entry {
  const map = asMap(value);
  if (!map) throw new ShapeError("expected an object with `id` and `record`");
  if (!map.has("id")) throw new ShapeError("`id` is missing");
  const id = shortText(map.get("id"));
  if (id === undefined) throw new ShapeError("`id` must be a string");
  if (!map.has("record")) throw new ShapeError("`record` is missing");
  const record = asMap(map.get("record"));
  if (!record) throw new ShapeError("`record` must be an object");
  return { id, record, signature: map.get("signature") };
}

/** The history of a sub-job as a document. Undefined if the history does not carry it. */
export function childDocument(history: History, job: string): Value | undefined {
  const { children } = history;
  return children?.has(job) ? children.get(job) : children?.get(job.slice(2));
}
