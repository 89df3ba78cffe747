// The fold of a chain: checks each record against everything known at that point and applies it
// (`crates/job/src/chain.rs`).

import { Calls } from "./calls.js";
import { ChainError } from "./chain_error.js";
import { compareKeys, isSame } from "./encode.js";
import { fieldText, missing, wrong } from "./fields.js";
import { parseJobId } from "./ids.js";
import type { Note, Outcome } from "./note.js";
import { checkEvent } from "./record.js";
import type { Parent, StateRecord } from "./record.js";
import { canFollow, isAllowedIn, isTerminal } from "./status.js";
import type { Status } from "./status.js";
import { Steps } from "./steps.js";
import { asI64, asMap, asText, U32_MAX } from "./value.js";
import type { Value } from "./value.js";

/** Fields that identify the job. No later record may change one. */
const IDENTITY = [
  "id",
  "venue",
  "op",
  "operation",
  "input",
  "caller",
  "created",
  "parent",
] as const;

/** Fields that every annotation may have. */
const ANNOTATION_FIELDS: readonly string[] = [
  "status",
  "prev",
  "updated",
  "note",
  "message",
  "trigger",
  "by",
  "deadline",
];

export class Job {
  status: Status;
  head: string;
  count = 1;
  readonly steps = new Steps();
  readonly calls = new Calls();
  /** The latest output. */
  output: Value | undefined;
  private updated: bigint;
  /** Whether an outcome arrived while the job was paused, and which if the record says so. */
  private held: Outcome | undefined;
  /** Held outcome whose record must come next, because the job was resumed. */
  due: Outcome | undefined;
  private readonly identity: ReadonlyMap<string, Value>;

  private constructor(
    readonly id: string,
    readonly venue: string,
    readonly parent: Parent | undefined,
    record: StateRecord,
  ) {
    this.status = record.status;
    this.head = record.id;
    this.first = record.id;
    this.updated = record.updated;
    this.output = record.fields.get("output");
    const fields = [...record.fields];
    this.identity = new Map(fields.filter(([name]) => IDENTITY.some((own) => own === name)));
  }

  readonly first: string;

  /** The job whose chain starts with this record. */
  static fromFirstRecord(record: StateRecord): Job {
    if (record.prev !== undefined) {
      const reason = `\`prev\` of the first record must be null, but it names ${record.prev}`;
      throw new ChainError("bad_start", reason);
    }
    if (record.status !== "PENDING" && record.status !== "REJECTED") {
      throw new ChainError("bad_start", `a chain cannot start with status ${record.status}`);
    }
    if (record.note) {
      throw new ChainError("bad_annotation", "the first record cannot be an annotation");
    }
    checkEvent(record);
    const { fields } = record;
    const required = (name: string): string => {
      const text = fieldText(fields, name);
      if (text === undefined) throw missing(name);
      return text;
    };
    const id = parseJobId(required("id"));
    if (id === undefined) throw wrong("id", "a job ID");
    const venue = required("venue");
    required("op");
    required("caller");
    fieldText(fields, "operation");
    if (!fields.has("created")) throw missing("created");
    const created = asI64(fields.get("created"));
    if (created === undefined || created < 0n || created > record.updated) {
      throw wrong("created", "a time that is not after `updated`");
    }
    const parent = fields.get("parent");
    return new Job(id, venue, parent === undefined ? undefined : parseParent(parent), record);
  }

  /** Checks the next record and applies it. */
  follow(record: StateRecord): void {
    if (record.prev !== this.head) {
      const found = record.prev ?? "null";
      const reason = `\`prev\` names ${found}, but the previous record is ${this.head}`;
      throw new ChainError("broken_link", reason);
    }
    if (isTerminal(this.status)) {
      const reason = `the job has already ended as ${this.status}; no record may follow`;
      throw new ChainError("finality", reason);
    }
    checkAnnotation(this.status, record);
    if (!record.note) {
      if (record.status !== "PENDING") checkEvent(record);
      if (!canFollow(this.status, record.status)) {
        const reason = `status ${record.status} cannot follow ${this.status}`;
        throw new ChainError("illegal_transition", reason);
      }
    }
    if (record.updated < this.updated) {
      const reason =
        `\`updated\` is ${record.updated}, which is earlier than ${this.updated} ` +
        "in the previous record";
      throw new ChainError("time_reversed", reason);
    }
    this.checkIdentity(record);
    this.checkDue(record);
    this.checkCommitments(record);
    this.apply(record);
  }

  private checkIdentity(record: StateRecord): void {
    const changed = IDENTITY.find((name) => {
      const value = record.fields.get(name);
      return value !== undefined && !isSame(this.identity.get(name), value);
    });
    if (changed) {
      const reason = `\`${changed}\` is part of the job's identity and cannot change`;
      throw new ChainError("binding", reason);
    }
  }

  private checkDue(record: StateRecord): void {
    const { due } = this;
    if (!due) return;
    const carries =
      !record.note &&
      record.status === due.status &&
      isSame(record.fields.get("output"), due.output) &&
      asText(record.fields.get("error")) === due.error &&
      asText(record.fields.get("message")) === due.message;
    if (!carries) {
      const reason = `this record must carry the ${due.status} outcome that was held during the pause`;
      throw new ChainError("illegal_transition", reason);
    }
  }

  private checkCommitments(record: StateRecord): void {
    const { note } = record;
    if (!note) {
      if (record.status === "COMPLETE") this.checkComplete();
    } else if (note.kind === "held") {
      if (this.held) throw new ChainError("bad_annotation", "an outcome is already held");
      if (note.outcome?.status === "COMPLETE") this.checkComplete();
    } else if (note.kind === "step") {
      this.steps.check(note.started, note.ended, this.held !== undefined);
    } else if (note.kind === "call") {
      this.calls.check(note.started, note.ended, this.held !== undefined);
    }
  }

  private checkComplete(): void {
    this.steps.checkComplete();
    this.calls.checkComplete();
  }

  /** Applies a record that has passed every check. */
  private apply(record: StateRecord): void {
    this.due = undefined;
    if (record.note) {
      this.applyNote(record.note);
    } else {
      if (this.status === "PAUSED" && record.status === "STARTED") this.due = this.held;
      this.held = undefined;
    }
    this.status = record.status;
    this.head = record.id;
    this.updated = record.updated;
    if (record.fields.has("output")) this.output = record.fields.get("output");
    this.count++;
  }

  private applyNote(note: Note): void {
    if (note.kind === "step") this.steps.record(note.started, note.ended);
    if (note.kind === "call") this.calls.record(note.started, note.ended);
    if (note.kind === "held") this.held = note.outcome;
  }
}

function parseParent(value: Value): Parent {
  const map = asMap(value);
  if (!map) throw wrong("parent", "an object");
  const job = parseJobId(fieldText(map, "job"));
  if (job === undefined) throw wrong("parent", "an object with the `job` ID");
  for (const link of ["step", "call"] as const) {
    const number = asI64(map.get(link));
    if (number === undefined || number < 0n || number > U32_MAX) continue;
    return { job, link, number: Number(number) };
  }
  throw wrong("parent", "an object with the index of a `step`");
}

/**
 * Checks the rules for annotations: a record that keeps the status must have a note and only the
 * fields that its kind of note allows; a record that changes the status must not have a note.
 */
function checkAnnotation(before: Status, record: StateRecord): void {
  const refuse = (reason: string): ChainError => new ChainError("bad_annotation", reason);
  const { note } = record;
  if (!note) {
    if (record.status !== before) return;
    throw refuse(`the record keeps status ${before} but has no \`note\``);
  }
  if (record.status !== before) {
    throw refuse("a record that changes the status cannot have a `note`");
  }
  if (!isAllowedIn(note.kind, before)) {
    throw refuse(`a note of kind ${note.kind} is not allowed while the job is ${before}`);
  }
  const isInteractive = before === "INPUT_REQUIRED" || before === "AUTH_REQUIRED";
  const maySetOutput = note.kind === "message" || isInteractive;
  const isAllowed = (name: string): boolean =>
    ANNOTATION_FIELDS.includes(name) || (maySetOutput && name === "output");
  const others = [...record.fields.keys()].filter((name) => !isAllowed(name)).sort(compareKeys);
  if (others[0] !== undefined) {
    throw refuse(`a note of kind ${note.kind} cannot set ${JSON.stringify(others[0])}`);
  }
}

