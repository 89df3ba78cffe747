// The verification of one job in this browser: fetches the records page by page, hands their text to
// the worker, and keeps the state that the badge shows.

import { ApiError, isAbort, messageOf } from "../api/client";
import { readHistoryBytes } from "../api/jobs";
import { Store } from "../lib/store";
import { Mismatch, VerifySession } from "./client";
import type { FaultInfo, SubjobInfo } from "./messages";
import type { Expected, Report } from "@verify/verify";

export type Verification =
  | { readonly state: "none"; readonly checked: number; readonly total: number | undefined }
  | { readonly state: "running"; readonly checked: number; readonly total: number | undefined }
  | {
      readonly state: "verified";
      readonly report: Report;
      readonly subjobs: readonly SubjobInfo[];
      readonly tree: Tree | undefined;
    }
  | { readonly state: "mismatch"; readonly fault: FaultInfo; readonly subjob: string | undefined }
  | { readonly state: "error"; readonly message: string };

/** What the verification of the sub-jobs found. */
export interface Tree {
  readonly isRunning: boolean;
  readonly verified: number;
  /** Sub-jobs that are no longer stored, or run on another venue. */
  readonly unavailable: number;
}

/** Records per request; the most that a venue returns. */
const PAGE = 1000;

export class ChainVerification {
  readonly state = new Store<Verification>({ state: "none", checked: 0, total: undefined });
  private readonly session = new VerifySession();
  private readonly abort = new AbortController();
  private checked = 0;
  private isRunning = false;
  private next: { expected: Expected; pages: number } | undefined;

  constructor(private readonly job: string) {}

  /**
   * Verifies what has not been verified yet, at most this many pages of it. A call while another is
   * running is carried out after it.
   */
  async run(expected: Expected, pages = Infinity): Promise<void> {
    const { state } = this.state.get();
    if (state === "mismatch") return;
    if (this.isRunning) {
      this.next = { expected, pages };
      return;
    }
    this.isRunning = true;
    try {
      await this.continue(expected, pages);
    } catch (error) {
      if (isAbort(error) || this.abort.signal.aborted) return;
      this.state.set(
        error instanceof Mismatch
          ? { state: "mismatch", fault: error.fault, subjob: undefined }
          : { state: "error", message: messageOf(error) },
      );
    } finally {
      this.isRunning = false;
    }
    const { next } = this;
    this.next = undefined;
    if (next) await this.run(next.expected, next.pages);
  }

  private async continue(expected: Expected, pages: number): Promise<void> {
    for (let page = 0; ; page++) {
      const { signal } = this.abort;
      const bytes = await readHistoryBytes(this.job, this.checked, PAGE, "full", signal);
      const result = await this.session.page(bytes);
      const isStuck = result.hasMore && result.count === this.checked;
      this.checked = result.count;
      const progress = { checked: result.count, total: result.total };
      if (!result.hasMore || isStuck) break;
      if (page + 1 >= pages) return this.state.set({ state: "none", ...progress });
      this.state.set({ state: "running", ...progress });
    }
    const { report, subjobs } = await this.session.finish(expected);
    this.state.set({ state: "verified", report, subjobs, tree: undefined });
  }

  /** Verifies every sub-job that this venue stores, and compares each with what the parent committed to. */
  async runSubjobs(): Promise<void> {
    const current = this.state.get();
    if (current.state !== "verified" || current.tree?.isRunning) return;
    let verified = 0;
    let unavailable = 0;
    const show = (isRunning: boolean): void =>
      this.state.set({ ...current, tree: { isRunning, verified, unavailable } });
    show(true);
    for (const { job, isRemote } of current.subjobs) {
      if (this.abort.signal.aborted) return;
      if (isRemote) {
        unavailable++;
        continue;
      }
      try {
        await this.runSubjob(job, current.report.venue);
        verified++;
      } catch (error) {
        if (error instanceof ApiError && error.status === 404) unavailable++;
        else if (error instanceof Mismatch) {
          return this.state.set({ state: "mismatch", fault: error.fault, subjob: job });
        } else return this.state.set({ state: "error", message: messageOf(error) });
      }
      show(true);
    }
    show(false);
  }

  private async runSubjob(job: string, venue: string): Promise<void> {
    const session = new VerifySession();
    try {
      for (let from = 0; ; ) {
        const bytes = await readHistoryBytes(job, from, PAGE, "full", this.abort.signal);
        const { count, hasMore } = await session.page(bytes);
        if (!hasMore || count === from) break;
        from = count;
      }
      await session.finish({ job, venue });
      await session.checkAgainst(this.session);
    } finally {
      session.close();
    }
  }

  close(): void {
    this.abort.abort();
    this.session.close();
  }
}
