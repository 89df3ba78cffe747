// Annotations: records that keep the status (`crates/job/src/note.rs`).

import { fieldText, missing, wrong } from "./fields";
import { parseJobId, parseRecordId } from "./ids";
import { STEPS_MAX } from "./limits";
import { isTerminal, KINDS, parseStatus } from "./status";
import type { Kind, Status } from "./status";
import { asI64, asList, asMap } from "./value";
import type { Value, ValueMap } from "./value";

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

/** The outcome of an operation, from which the next record is made. */
export interface Outcome {
  readonly status: Status;
  readonly output: Value | undefined;
  readonly error: string | undefined;
  readonly message: string | undefined;
}

export type Note =
  | { readonly kind: "step"; readonly started: StepStart[]; readonly ended: StepEnd[] }
  | { readonly kind: "held"; readonly outcome: Outcome | undefined }
  | { readonly kind: "message" }
  | {
      readonly kind: "attempt" | "recovered";
      readonly attempt: number | undefined;
      readonly reason: string | undefined;
    };

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
      throw wrong("note.kind", "one of step, attempt, message, held, recovered");
    case "step":
      return {
        kind,
        started: parseList(map, "started", parseStart),
        ended: parseList(map, "ended", parseEnd),
      };
    case "message":
      return { kind };
    case "held": {
      const outcome = map.get("outcome");
      return { kind, outcome: outcome === undefined ? undefined : parseOutcome(outcome) };
    }
    default:
      return { kind, attempt: parseAttempt(map), reason: fieldText(map, "reason") };
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
  const status = parseStatusField(map, "note.ended.status");
  if (!isTerminal(status)) throw wrong("note.ended.status", "a terminal status");
  const record = parseRecordField(map, "note.ended.record");
  return { step: parseStepIndex(map), status, record };
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

const U32_MAX = 2n ** 32n - 1n;

function parseAttempt(map: ValueMap): number | undefined {
  const value = map.get("attempt");
  if (value === undefined) return undefined;
  const number = asI64(value);
  if (number === undefined || number < 1n || number > U32_MAX) {
    throw wrong("note.attempt", "a whole number of at least 1");
  }
  return Number(number);
}

function parseList<T>(map: ValueMap, name: string, item: (map: ValueMap) => T): T[] {
  const value = map.get(name);
  if (value === undefined) return [];
  const list = asList(value);
  if (!list) throw wrong(name, "an array");
  if (list.length > STEPS_MAX) throw wrong(name, "at most one entry per step");
  return list.map((entry) => {
    const fields = asMap(entry);
    if (!fields) throw wrong(name, "an array of objects");
    return item(fields);
  });
}
