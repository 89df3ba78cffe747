// The faults that verification reports.

import type { ChainCode } from "./chain_error.js";

export type Code =
  | ChainCode
  | "malformed_history"
  | "malformed_record"
  | "hash_mismatch"
  | "duplicate_record"
  | "fork"
  | "incomplete"
  | "unexpected"
  | "signature";

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
