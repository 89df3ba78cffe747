// Verification: whether a history is complete, untampered and follows the rules
// (`crates/job/src/verify.rs`). The same documents get the same verdict, at the same record, as from
// `catena verify`.

import { Job } from "./chain.js";
import { ChainError } from "./chain_error.js";
import { valueId } from "./encode.js";
import { Fault } from "./fault.js";
import { BadField } from "./fields.js";
import { childDocument, parseEntry, parseHistory, ShapeError } from "./history.js";
import type { Entry, History } from "./history.js";
import { readBytes } from "./json.js";
import { SUBJOB_DEPTH_MAX } from "./limits.js";
import { parseRecord } from "./record.js";
import type { Link, StateRecord } from "./record.js";
import { checkReused, Claims } from "./reused.js";
import { checkSignature } from "./signature.js";
import type { Status } from "./status.js";
import type { Value } from "./value.js";

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
  /** Ends that whoever ran the job has signed. */
  readonly signaturesVerified: number;
  /** Signatures of another form. */
  readonly signaturesUnchecked: number;
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
  const counts = new Counts(verifier);
  for (const subjob of subjobsOf(job, verifier.claims)) {
    const document = childDocument(history, subjob.job);
    if (document === undefined) {
      counts.subjobsUnavailable++;
      continue;
    }
    if (depth === SUBJOB_DEPTH_MAX) {
      const reason = `sub-jobs nest deeper than ${SUBJOB_DEPTH_MAX}`;
      throw new Fault("malformed_history", reason);
    }
    try {
      const wanted = { job: subjob.job, venue: subjob.venue };
      const { job: child, report } = verifyHistory(readHistory(document), wanted, depth + 1);
      subjob.check(child, report);
      counts.add(report);
    } catch (error) {
      throw error instanceof Fault ? error.inSubjob(subjob.job) : error;
    }
  }
  return { job, report: { ...verifier.report(job), ...counts } };
}

/** What was found in a job and its sub-jobs. */
export class Counts {
  subjobsVerified = 0;
  subjobsUnavailable = 0;
  signaturesVerified: number;
  signaturesUnchecked: number;

  constructor(verifier: Verifier) {
    this.signaturesVerified = verifier.signaturesVerified;
    this.signaturesUnchecked = verifier.signaturesUnchecked;
  }

  /** Counts a sub-job that was verified, and its own. */
  add(report: Report): void {
    this.subjobsVerified += 1 + report.subjobsVerified;
    this.subjobsUnavailable += report.subjobsUnavailable;
    this.signaturesVerified += report.signaturesVerified;
    this.signaturesUnchecked += report.signaturesUnchecked;
  }
}

export function incomplete(found: number, total: number): Fault {
  const reason = `the history has ${found} of ${total} records`;
  return new Fault("incomplete", reason, Math.min(found, total));
}

/** A job that another one names as its part, and what it must be. */
export interface Subjob {
  readonly job: string;
  /** DID of the venue that it must belong to. Undefined if any will do. */
  readonly venue: string | undefined;
  /** Whether another venue runs it. */
  readonly isRemote: boolean;
  /** Compares a job that is valid in itself. Throws a `Fault` if it is not the one that was named. */
  readonly check: (job: Job, report: Report) => void;
}

/** The steps and calls that a job committed to, and the jobs whose outputs it claims to have reused. */
export function subjobsOf(job: Job, claims: Claims): Subjob[] {
  const subjob = (commitment: Commitment): Subjob => ({
    job: commitment.job,
    venue: commitment.venue ?? job.venue,
    isRemote: commitment.venue !== undefined,
    check: (child, report) => checkChild(job, commitment, child, report),
  });
  const reused = claims.all.map((claim) => ({
    job: claim.job,
    venue: claim.isRemote ? undefined : job.venue,
    isRemote: claim.isRemote,
    check: (earlier: Job, report: Report) => checkReused(claim, earlier, report),
  }));
  return [...commitments(job).map(subjob), ...reused];
}

/** What a job committed to about one of its sub-jobs. */
interface Commitment extends Link {
  readonly job: string;
  /** First record. */
  readonly first: string;
  readonly end: { readonly status: Status; readonly record: string } | undefined;
  /** DID of the venue. Undefined if it is that of the parent. */
  readonly venue: string | undefined;
}

function commitments(job: Job): Commitment[] {
  const steps = job.steps.sorted().map(([number, { start, end }]): Commitment => {
    const { job, record: first, venue } = start;
    return { link: "step", number, job, first, end, venue };
  });
  const calls = job.calls.all().map(({ start, end }): Commitment => {
    const { call: number, job, record: first } = start;
    return { link: "call", number, job, first, end, venue: undefined };
  });
  return [...steps, ...calls];
}

/** Checks that a sub-job is the one that its parent committed to. */
function checkChild(parent: Job, commitment: Commitment, child: Job, report: Report): void {
  const refuse = (record: number, reason: string): Fault =>
    new Fault("commitment", reason, record);
  const { link, number, first, end, venue } = commitment;
  if (report.first !== first) {
    throw refuse(0, `the parent job committed to ${first} as the first record`);
  }
  const own = child.parent;
  const isNamed = own?.job === parent.id && own.link === link && own.number === number;
  if (venue === undefined && !isNamed) {
    throw refuse(0, `\`parent\` must name ${link} ${number} of job ${parent.id}`);
  }
  const last = report.records - 1;
  if (end && end.record !== report.head) {
    throw refuse(last, `the parent job committed to ${end.record} as the last record`);
  }
  if (end && end.status !== report.status) {
    throw refuse(last, `the parent job committed to ${end.status} as the final status`);
  }
}

/** Verifies a chain record by record, so that it need not be in memory all at once. */
export class Verifier {
  private job: Job | undefined;
  /** Index of each record, to distinguish forks and duplicates from broken links. */
  private readonly seen = new Map<string, number>();
  signaturesVerified = 0;
  signaturesUnchecked = 0;
  /** What the job claims to have reused. */
  claims = new Claims();

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
    if (at === 0) this.claims = Claims.fromFirstRecord(record);
    else this.claims.checkRecord(at, record);
    this.seen.set(found, at);
    if (entry.signature !== undefined && this.job) this.checkSignature(this.job.id, record, entry.signature, at);
    return record;
  }

  private checkSignature(job: string, record: StateRecord, signature: Value, at: number): void {
    const checked = checkSignature(job, record, signature);
    if (typeof checked === "string") throw new Fault("signature", checked, at);
    if (checked) this.signaturesVerified++;
    else this.signaturesUnchecked++;
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
      subjobsUnavailable: subjobsOf(job, this.claims).length,
      signaturesVerified: this.signaturesVerified,
      signaturesUnchecked: this.signaturesUnchecked,
    };
  }
}
