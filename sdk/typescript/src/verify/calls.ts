// The operations that a job invoked, as recorded in its chain: each call starts once and ends once,
// and the job becomes COMPLETE only after all calls that are not detached have ended
// (`crates/job/src/chain/calls.rs`).

import { ChainError } from "./chain_error.js";
import type { CallEnd, CallStart } from "./note.js";

export interface CallState {
  readonly start: CallStart;
  end: CallEnd | undefined;
}

function refused(call: number, what: string): ChainError {
  return new ChainError("commitment", `call ${call} ${what}`);
}

export class Calls {
  private readonly states: CallState[] = [];
  private readonly keys = new Set<string>();

  /** The calls, in the order of their numbers. */
  all(): readonly CallState[] {
    return this.states;
  }

  /** Checks that these calls may start and end now. */
  check(started: readonly CallStart[], ended: readonly CallEnd[], isOutcomeHeld: boolean): void {
    const first = started[0];
    if (isOutcomeHeld && first) {
      throw refused(first.call, "starts although the job's outcome is already held");
    }
    const keys = new Set<string>();
    started.forEach(({ call, key }, at) => {
      if (call !== this.states.length + at) throw refused(call, "is not the next call");
      if (keys.has(key) || this.keys.has(key)) throw refused(call, "has the key of an earlier call");
      keys.add(key);
    });
    const ending = new Set<number>();
    for (const { call } of ended) {
      if (ending.has(call) || this.states[call]?.end) throw refused(call, "ends a second time");
      if (call >= this.states.length + started.length) {
        throw refused(call, "ends without having started");
      }
      ending.add(call);
    }
  }

  /** Checks that every call that is not detached has ended. */
  checkComplete(): void {
    const open = this.states.find(({ start, end }) => !end && !start.isDetached);
    if (!open) return;
    const reason = `the job is COMPLETE, but call ${open.start.call} has not ended`;
    throw new ChainError("commitment", reason);
  }

  /** Records calls that have been checked. */
  record(started: readonly CallStart[], ended: readonly CallEnd[]): void {
    for (const start of started) {
      this.states.push({ start, end: undefined });
      this.keys.add(start.key);
    }
    for (const end of ended) {
      const state = this.states[end.call];
      if (state) state.end = end;
    }
  }
}
