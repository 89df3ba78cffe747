// Annotations: records that keep the status (`crates/job/src/note.rs`).

import { fieldText, missing, wrong } from "./fields.js";
import { parseJobId, parseRecordId } from "./ids.js";
import { CALLS_MAX, STEPS_MAX } from "./limits.js";
import { isTerminal, KINDS, parseStatus } from "./status.js";
import type { Kind, Status } from "./status.js";
import { asI64, asList, asMap, U32_MAX } from "./value.js";
import type { Value, ValueMap } from "./value.js";

/** Commits a parent to a sub-job that started. */
export interface StepStart {
  readonly step: number;
  readonly job: string;
  readonly record: string;
  readonly venue: string | undefined;
}

/** Commits a parent to the end of a sub-job. */
export interface StepEnd {
  readonly step: number;
  readonly status: Status;
  readonly record: string;
}

/** Commits a job to an operation that it invoked. */
export interface CallStart {
  readonly call: number;
  /** Identifies the call within the job. */
  readonly key: string;
  readonly op: string;
  readonly job: string;
  readonly record: string;
  /** Whether the calling job may end before the called one. */
  readonly isDetached: boolean;
}

/** Commits a job to the end of an operation that it invoked. */
export interface CallEnd {
  readonly call: number;
  readonly status: Status;
  readonly record: string;
}

/** The outcome of an operation, from which the next record is made. */
export interface Outcome {
  readonly status: Status;
  readonly output: Value | undefined;
  readonly error: string | undefined;
  readonly message: string | undefined;
}

export type Note =
  | { readonly kind: "step"; readonly started: StepStart[]; readonly ended: StepEnd[] }
  | { readonly kind: "call"; readonly started: CallStart[]; readonly ended: CallEnd[] }
  | { readonly kind: "held"; readonly outcome: Outcome | undefined }
  | { readonly kind: "message" | "attempt" | "recovered" };

const HOLDABLE: readonly Status[] = [
  "COMPLETE",
  "FAILED",
  "PAUSED",
  "INPUT_REQUIRED",
  "AUTH_REQUIRED",
];

export function parseNote(value: Value): Note {
  const map = asMap(value);
  if (!map) throw wrong("note", "an object");
  const word = fieldText(map, "kind");
  if (word === undefined) throw missing("note.kind");
  const kind = KINDS.find((kind): kind is Kind => kind === word);
  switch (kind) {
    case undefined:
      throw wrong("note.kind", "one of step, call, attempt, message, held, recovered");
    case "step":
      return {
        kind,
        started: parseList(map, "started", parseStart),
        ended: parseList(map, "ended", parseEnd),
      };
    case "call":
      return {
        kind,
        started: parseList(map, "started", parseCallStart),
        ended: parseList(map, "ended", parseCallEnd),
      };
    case "message":
      return { kind };
    case "held": {
      const outcome = map.get("outcome");
      return { kind, outcome: outcome === undefined ? undefined : parseOutcome(outcome) };
    }
    // The verdict does not depend on the content of the others, as long as it is well-formed.
    case "attempt":
      parseNumber(map, "attempt", 1);
      for (const name of ["reason", "code", "by", "environment", "tier"]) fieldText(map, name);
      return { kind };
    case "recovered":
      parseNumber(map, "attempt", 1);
      fieldText(map, "reason");
      parseNumber(map, "interruptions", 0);
      return { kind };
  }
}

function parseOutcome(value: Value): Outcome {
  const map = asMap(value);
  if (!map) throw wrong("note.outcome", "an object");
  const status = parseStatusField(map, "note.outcome.status");
  if (!HOLDABLE.includes(status)) {
    throw wrong("note.outcome.status", "a status that an operation can lead to");
  }
  const output = map.get("output");
  return { status, output, error: fieldText(map, "error"), message: fieldText(map, "message") };
}

function parseStart(map: ValueMap): StepStart {
  const job = parseJobId(fieldText(map, "job"));
  const step = parseStepIndex(map);
  if (job === undefined) throw wrong("note.started.job", "a job ID");
  const record = parseRecordField(map, "note.started.record");
  return { step, job, record, venue: fieldText(map, "venue") };
}

function parseEnd(map: ValueMap): StepEnd {
  return { ...parseEndOfJob(map), step: parseStepIndex(map) };
}

function parseCallStart(map: ValueMap): CallStart {
  const job = parseJobId(fieldText(map, "job"));
  const key = fieldText(map, "key");
  if (key === undefined) throw missing("note.started.key");
  const op = fieldText(map, "op");
  if (op === undefined) throw missing("note.started.op");
  const isDetached = map.has("detached") ? map.get("detached") : false;
  if (typeof isDetached !== "boolean") {
    throw wrong("note.started.detached", "true or false");
  }
  const call = parseCallNumber(map);
  if (job === undefined) throw wrong("note.started.job", "a job ID");
  return { call, key, op, job, record: parseRecordField(map, "note.started.record"), isDetached };
}

function parseCallEnd(map: ValueMap): CallEnd {
  return { ...parseEndOfJob(map), call: parseCallNumber(map) };
}

function parseEndOfJob(map: ValueMap): { status: Status; record: string } {
  const status = parseStatusField(map, "note.ended.status");
  if (!isTerminal(status)) throw wrong("note.ended.status", "a terminal status");
  return { status, record: parseRecordField(map, "note.ended.record") };
}

function parseStatusField(map: ValueMap, name: string): Status {
  const status = parseStatus(fieldText(map, "status"));
  if (status === undefined) throw wrong(name, "a status");
  return status;
}

function parseRecordField(map: ValueMap, name: string): string {
  const record = parseRecordId(fieldText(map, "record"));
  if (record === undefined) throw wrong(name, "a record ID");
  return record;
}

function parseStepIndex(map: ValueMap): number {
  const index = asI64(map.get("step"));
  if (index === undefined || index < 0n || index >= BigInt(STEPS_MAX)) {
    throw wrong("note.step", "the index of a step");
  }
  return Number(index);
}

function parseCallNumber(map: ValueMap): number {
  const number = parseNumber(map, "call", 0);
  if (number === undefined || number >= CALLS_MAX) throw wrong("note.call", "the number of a call");
  return number;
}

/** A whole number of at least `min`. */
function parseNumber(map: ValueMap, name: string, min: 0 | 1): number | undefined {
  const value = map.get(name);
  if (value === undefined) return undefined;
  const number = asI64(value);
  if (number === undefined || number < BigInt(min) || number > U32_MAX) {
    throw wrong(`note.${name}`, `a whole number, ${min} or more`);
  }
  return Number(number);
}

function parseList<T>(map: ValueMap, name: string, item: (map: ValueMap) => T): T[] {
  const value = map.get(name);
  if (value === undefined) return [];
  const list = asList(value);
  if (!list) throw wrong(name, "an array");
  if (list.length > Math.max(STEPS_MAX, CALLS_MAX)) {
    throw wrong(name, "at most one entry per step or call");
  }
  return list.map((entry) => {
    const fields = asMap(entry);
    if (!fields) throw wrong(name, "an array of objects");
    return item(fields);
  });
}
