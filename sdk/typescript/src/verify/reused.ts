// The steps whose outputs a rerun claims to have reused (`crates/job/src/verify/reused.rs`).
//
// A first record that also has `reusedOutputs` carries the outputs, and only such a chain must not
// start the steps that it reused: venues that wrote no outputs could run a step after all.

import type { Job } from "./chain.js";
import { isSame } from "./encode.js";
import { Fault } from "./fault.js";
import { shortText } from "./fields.js";
import { parseJobId, parseRecordId } from "./ids.js";
import type { StateRecord } from "./record.js";
import { asI64, asList, asMap, U32_MAX } from "./value.js";
import type { Value } from "./value.js";
import type { Report } from "./verify.js";

/** A step whose output a rerun claims to have reused. */
export interface Claim {
  readonly step: number;
  readonly job: string;
  /** Last record of the job. */
  readonly record: string;
  readonly isRemote: boolean;
  /** Undefined if the record does not carry outputs. */
  readonly output: Value | undefined;
}

/** Everything that a rerun claims to have reused. */
export class Claims {
  readonly all: Claim[] = [];
  /** Steps that the chain must not start. */
  private readonly closed = new Set<number>();

  static fromFirstRecord(record: StateRecord): Claims {
    const malformed = (reason: string): Fault => new Fault("malformed_record", reason, 0);
    const claims = new Claims();
    const outputs = asList(record.fields.get("reusedOutputs"));
    const list = asList(record.fields.get("reused"));
    if (!list) {
      if (outputs) throw malformed("`reusedOutputs` needs `reused`");
      return claims;
    }
    if (outputs && outputs.length !== list.length) {
      throw malformed("`reusedOutputs` must have one output for each entry of `reused`");
    }
    list.forEach((entry, at) => {
      const claim = parseClaim(entry, outputs?.[at]);
      if (claim) claims.add(claim);
      else if (outputs) {
        throw malformed("an entry of `reused` must have `step`, `job` and `record`");
      }
    });
    return claims;
  }

  private add(claim: Claim): void {
    if (claim.output !== undefined) {
      if (this.closed.has(claim.step)) {
        throw new Fault("commitment", `step ${claim.step} is in \`reused\` twice`, 0);
      }
      this.closed.add(claim.step);
    }
    this.all.push(claim);
  }

  /** Checks that a record starts no step that was reused. */
  checkRecord(at: number, { note }: StateRecord): void {
    if (note?.kind !== "step") return;
    const start = note.started.find(({ step }) => this.closed.has(step));
    if (!start) return;
    const reason = `step ${start.step} starts although its output was reused`;
    throw new Fault("commitment", reason, at);
  }
}

function parseClaim(entry: Value, output: Value | undefined): Claim | undefined {
  const map = asMap(entry);
  if (!map) return undefined;
  const step = asI64(map.get("step"));
  const job = parseJobId(shortText(map.get("job")));
  const record = parseRecordId(shortText(map.get("record")));
  if (step === undefined || step < 0n || step > U32_MAX) return undefined;
  if (job === undefined || record === undefined) return undefined;
  return { step: Number(step), job, record, isRemote: map.has("venue"), output };
}

/** Checks that a job of the earlier run, which is valid in itself, is the one that was reused. */
export function checkReused(claim: Claim, job: Job, report: Report): void {
  const refuse = (record: number, reason: string): Fault =>
    new Fault("commitment", reason, record);
  const last = report.records - 1;
  if (report.head !== claim.record) {
    throw refuse(last, `the rerun committed to ${claim.record} as the last record`);
  }
  if (report.status !== "COMPLETE") {
    throw refuse(last, `the rerun reused its output, but it is ${report.status}`);
  }
  const isSameStep = job.parent?.link === "step" && job.parent.number === claim.step;
  if (!claim.isRemote && !isSameStep) {
    throw refuse(0, `\`parent\` must name step ${claim.step} of the earlier run`);
  }
  if (claim.output !== undefined && !isSame(claim.output, job.output)) {
    throw refuse(last, "the rerun reused another output than this");
  }
}
