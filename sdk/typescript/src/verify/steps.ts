// The steps of a job as recorded in its chain: each starts once and ends once, and the job becomes
// COMPLETE only after all of its steps are COMPLETE (`crates/job/src/chain/steps.rs`).

import { ChainError } from "./chain_error.js";
import type { StepEnd, StepStart } from "./note.js";

export interface StepState {
  readonly start: StepStart;
  end: StepEnd | undefined;
}

function refused(step: number, what: string): ChainError {
  return new ChainError("commitment", `step ${step} ${what}`);
}

export class Steps {
  private readonly byIndex = new Map<number, StepState>();

  /** The steps that have started, in the order of their index. */
  sorted(): [number, StepState][] {
    return [...this.byIndex].sort(([a], [b]) => a - b);
  }

  /** Checks that these steps may start and end now. */
  check(started: readonly StepStart[], ended: readonly StepEnd[], isOutcomeHeld: boolean): void {
    const first = started[0];
    if (isOutcomeHeld && first) {
      throw refused(first.step, "starts although the job's outcome is already held");
    }
    const starting = new Set<number>();
    for (const { step } of started) {
      if (starting.has(step) || this.byIndex.has(step)) throw refused(step, "starts a second time");
      starting.add(step);
    }
    const ending = new Set<number>();
    for (const { step } of ended) {
      const state = this.byIndex.get(step);
      if (ending.has(step) || state?.end) throw refused(step, "ends a second time");
      if (!state && !starting.has(step)) throw refused(step, "ends without having started");
      ending.add(step);
    }
  }

  /** Checks that every step that started is COMPLETE. */
  checkComplete(): void {
    for (const [step, { end }] of this.sorted()) {
      if (end?.status === "COMPLETE") continue;
      const what = end ? `ended as ${end.status}` : "has not ended";
      throw new ChainError("commitment", `the job is COMPLETE, but step ${step} ${what}`);
    }
  }

  /** Records steps that have been checked. */
  record(started: readonly StepStart[], ended: readonly StepEnd[]): void {
    for (const start of started) this.byIndex.set(start.step, { start, end: undefined });
    for (const end of ended) {
      const state = this.byIndex.get(end.step);
      if (state) state.end = end;
    }
  }
}
