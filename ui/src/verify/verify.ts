// Verification: whether a history is complete, untampered and follows the rules
// (`crates/job/src/verify.rs`). The same documents get the same verdict, at the same record, as from
// `catena verify`.

import { Job } from "./chain";
import { ChainError } from "./chain_error";
import type { ChainCode } from "./chain_error";
import { valueId } from "./encode";
import { BadField } from "./fields";
import { childDocument, parseEntry, parseHistory, ShapeError } from "./history";
import type { Entry, History } from "./history";
import { readBytes } from "./json";
import { SUBJOB_DEPTH_MAX } from "./limits";
import { parseRecord } from "./record";
import type { Parent, StateRecord } from "./record";
import type { Status } from "./status";
import type { StepState } from "./steps";
import type { Value } from "./value";

/** What the verifying party already knows about the job. */
export interface Expected {
  readonly job?: string | undefined;
  readonly venue?: string | undefined;
  readonly head?: string | undefined;
}

/** The result of a successful verification. */
export interface Report {
  readonly job: string;
  readonly venue: string;
  readonly status: Status;
  readonly records: number;
  readonly first: string;
  readonly head: string;
  readonly subjobsVerified: number;
  readonly subjobsUnavailable: number;
  readonly signaturesUnchecked: number;
}

export type Code =
  | ChainCode
  | "malformed_history"
  | "malformed_record"
  | "hash_mismatch"
  | "duplicate_record"
  | "fork"
  | "incomplete"
  | "unexpected";

/** The first fault that verification found. */
export class Fault extends Error {
  constructor(
    readonly code: Code,
    readonly reason: string,
    /** Index of the first invalid record. Undefined if the fault concerns the entire history. */
    readonly record?: number,
    /** Sub-job in which the fault is. */
    readonly subjob?: string,
  ) {
    super(reason);
  }

  inSubjob(job: string): Fault {
    return new Fault(this.code, this.reason, this.record, this.subjob ?? job);
  }
}

/** Verifies the text of a history document and every sub-job history it carries. */
export function verify(text: Uint8Array, expected: Expected = {}): Report {
  return verifyValue(readBytes(text), expected);
}

export function verifyValue(document: Value, expected: Expected = {}): Report {
  return verifyHistory(readHistory(document), expected, 0).report;
}

export function readHistory(document: Value): History {
  try {
    return parseHistory(document);
  } catch (error) {
    if (error instanceof ShapeError) throw new Fault("malformed_history", error.message);
    throw error;
  }
}

interface Verified {
  readonly job: Job;
  readonly report: Report;
}

function verifyHistory(history: History, expected: Expected, depth: number): Verified {
  const verifier = new Verifier();
  for (const entry of history.records) verifier.push(entry);
  const found = history.records.length;
  if (history.total !== undefined && history.total !== found) {
    throw incomplete(found, history.total);
  }
  if (history.hasMore) {
    const reason = `the history has ${found} records and says that more follow`;
    throw new Fault("incomplete", reason, found);
  }
  const job = verifier.finish(expected);
  let verified = 0;
  let unavailable = 0;
  let signatures = verifier.signatures;
  for (const [step, state] of job.steps.sorted()) {
    const document = childDocument(history, state.start.job);
    if (document === undefined) {
      unavailable++;
      continue;
    }
    if (depth === SUBJOB_DEPTH_MAX) {
      const reason = `sub-jobs nest deeper than ${SUBJOB_DEPTH_MAX}`;
      throw new Fault("malformed_history", reason);
    }
    try {
      const child = readHistory(document);
      const { job: subjob, report } = verifyHistory(child, expectedChild(job, state), depth + 1);
      checkChild(job, step, state, subjob.parent, report);
      verified += 1 + report.subjobsVerified;
      unavailable += report.subjobsUnavailable;
      signatures += report.signaturesUnchecked;
    } catch (error) {
      throw error instanceof Fault ? error.inSubjob(state.start.job) : error;
    }
  }
  const report = {
    ...verifier.report(job),
    subjobsVerified: verified,
    subjobsUnavailable: unavailable,
    signaturesUnchecked: signatures,
  };
  return { job, report };
}

export function incomplete(found: number, total: number): Fault {
  const reason = `the history has ${found} of ${total} records`;
  return new Fault("incomplete", reason, Math.min(found, total));
}

export function expectedChild(parent: Job, state: StepState): Expected {
  return { job: state.start.job, venue: state.start.venue ?? parent.venue };
}

/** Checks that a sub-job is the one that its parent committed to. */
export function checkChild(
  parent: Job,
  step: number,
  state: StepState,
  childParent: Parent | undefined,
  report: Report,
): void {
  const refuse = (record: number, reason: string): Fault =>
    new Fault("commitment", reason, record);
  const { start, end } = state;
  if (report.first !== start.record) {
    throw refuse(0, `the parent job committed to ${start.record} as the first record`);
  }
  if (start.venue === undefined && !isStepOf(childParent, parent.id, step)) {
    throw refuse(0, `\`parent\` must name step ${step} of job ${parent.id}`);
  }
  const last = report.records - 1;
  if (end && end.record !== report.head) {
    throw refuse(last, `the parent job committed to ${end.record} as the last record`);
  }
  if (end && end.status !== report.status) {
    throw refuse(last, `the parent job committed to ${end.status} as the final status`);
  }
}

function isStepOf(parent: Parent | undefined, job: string, step: number): boolean {
  return parent?.job === job && parent.step === step;
}

/** Verifies a chain record by record, so that it need not be in memory all at once. */
export class Verifier {
  private job: Job | undefined;
  /** Index of each record, to distinguish forks and duplicates from broken links. */
  private readonly seen = new Map<string, number>();
  signatures = 0;

  get count(): number {
    return this.seen.size;
  }

  /** Checks the next entry of a history. Throws a `Fault` if it is invalid. */
  push(value: Value): StateRecord {
    const at = this.seen.size;
    let entry: Entry;
    try {
      entry = parseEntry(value);
    } catch (error) {
      if (error instanceof ShapeError) throw new Fault("malformed_history", error.message, at);
      throw error;
    }
    const found = valueId(entry.record);
    if (entry.id !== found) {
      const reason = `the record is listed as ${entry.id}, but its ID is ${found}`;
      throw new Fault("hash_mismatch", reason, at);
    }
    const earlier = this.seen.get(found);
    if (earlier !== undefined) {
      const reason = `the same record already occurs at index ${earlier}`;
      throw new Fault("duplicate_record", reason, at);
    }
    const record = this.follow(entry, found, at);
    this.seen.set(found, at);
    if (entry.isSigned) this.signatures++;
    return record;
  }

  private follow(entry: Entry, id: string, at: number): StateRecord {
    let record: StateRecord;
    try {
      record = parseRecord(entry.record, id);
    } catch (error) {
      if (error instanceof BadField) throw new Fault("malformed_record", error.message, at);
      throw error;
    }
    try {
      if (this.job) this.job.follow(record);
      else this.job = Job.fromFirstRecord(record);
    } catch (error) {
      throw this.fault(error, record, at);
    }
    return record;
  }

  private fault(error: unknown, record: StateRecord, at: number): unknown {
    if (error instanceof BadField) {
      return new Fault(at === 0 ? "bad_start" : "malformed_record", error.message, at);
    }
    if (!(error instanceof ChainError)) return error;
    const earlier = record.prev === undefined ? undefined : this.seen.get(record.prev);
    if (error.code === "broken_link" && earlier !== undefined) {
      const reason = `records ${earlier + 1} and ${at} both follow record ${earlier}`;
      return new Fault("fork", reason, at);
    }
    return new Fault(error.code, error.message, at);
  }

  /** Compares the completed chain with what was expected and returns the job. */
  finish(expected: Expected): Job {
    const { job } = this;
    if (!job) throw new Fault("bad_start", "the history has no records");
    if (job.due) {
      const reason = `the job was resumed, but its held outcome ${job.due.status} is missing`;
      throw new Fault("incomplete", reason, job.count);
    }
    const check = (what: string, wanted: string | undefined, found: string): void => {
      if (wanted !== undefined && wanted !== found) {
        throw new Fault("unexpected", `expected ${what} ${wanted}, found ${found}`);
      }
    };
    check("job", expected.job, job.id);
    check("venue", expected.venue, job.venue);
    check("head", expected.head, job.head);
    return job;
  }

  /** The report on a job that this verifier has finished. Sub-jobs count as unavailable. */
  report(job: Job): Report {
    return {
      job: job.id,
      venue: job.venue,
      status: job.status,
      records: job.count,
      first: job.first,
      head: job.head,
      subjobsVerified: 0,
      subjobsUnavailable: job.steps.sorted().length,
      signaturesUnchecked: this.signatures,
    };
  }
}
