// One state record with its fields parsed (`crates/job/src/record.rs`).

import { fieldText, missing, shortText, wrong } from "./fields.js";
import { parseRecordId } from "./ids.js";
import { parseNote } from "./note.js";
import type { Note } from "./note.js";
import { parseStatus } from "./status.js";
import type { Status } from "./status.js";
import { asI64, asMap } from "./value.js";
import type { ValueMap } from "./value.js";

export interface StateRecord {
  readonly id: string;
  readonly fields: ValueMap;
  readonly status: Status;
  readonly prev: string | undefined;
  /** Unix time in ms. */
  readonly updated: bigint;
  readonly note: Note | undefined;
}

/** Parses a record whose ID has been computed. */
export function parseRecord(fields: ValueMap, id: string): StateRecord {
  const word = fieldText(fields, "status");
  if (word === undefined) throw missing("status");
  const status = parseStatus(word);
  if (status === undefined) throw wrong("status", "one of the ten statuses");
  const prev = parsePrev(fields);
  if (!fields.has("updated")) throw missing("updated");
  const updated = asI64(fields.get("updated"));
  if (updated === undefined || updated < 0n) {
    throw wrong("updated", "a Unix time in whole milliseconds");
  }
  const noted = fields.get("note");
  const note = noted === undefined ? undefined : parseNote(noted);
  checkTrigger(fields);
  return { id, fields, status, prev, updated, note };
}

function parsePrev(fields: ValueMap): string | undefined {
  const value = fields.get("prev");
  if (value === undefined) throw missing("prev");
  if (value === null) return undefined;
  const text = shortText(value);
  // Only the canonical spelling: the ID of this record depends on it.
  if (text !== undefined && parseRecordId(text) === text) return text;
  throw wrong("prev", "null or `0x` and 64 lower-case hex digits");
}

function checkTrigger(fields: ValueMap): void {
  const trigger = fields.get("trigger");
  if (trigger === undefined) return;
  const text = (name: string): string | undefined => shortText(asMap(trigger)?.get(name));
  if (text("messageId") !== undefined || parseRecordId(text("control")) !== undefined) return;
  throw wrong("trigger", "an object with a `messageId` or the `control` record");
}

/** Which sub-job of its parent a job is: the step with an index, or the call with a number. */
export interface Link {
  readonly link: "step" | "call";
  readonly number: number;
}

/** The position of a sub-job: its parent job, and what it is there. */
export interface Parent extends Link {
  readonly job: string;
}

/** The fields that the event of this record needs, given that the record is not an annotation. */
export function checkEvent(record: StateRecord): void {
  switch (record.status) {
    case "COMPLETE":
      if (!record.fields.has("output")) throw missing("output");
      return;
    case "FAILED":
    case "CANCELLED":
    case "REJECTED":
    case "TIMEOUT":
      if (fieldText(record.fields, "error") === undefined) throw missing("error");
      return;
    case "INPUT_REQUIRED":
    case "AUTH_REQUIRED":
      fieldText(record.fields, "message");
  }
}
