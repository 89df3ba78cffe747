// What the page and the worker say to each other.

import type { Code } from "@verify/fault";
import type { Expected, Report } from "@verify/verify";

/** A verification in progress is identified by a number that the page chooses. */
export type Request =
  /** The bytes of the next page of a history, exactly as they were received. */
  | { readonly type: "page"; readonly session: number; readonly bytes: ArrayBuffer }
  /** There are no more pages for now: compare with what is expected. */
  | { readonly type: "finish"; readonly session: number; readonly expected: Expected }
  /** Compare a finished sub-job with what its finished parent committed to. */
  | { readonly type: "child"; readonly parent: number; readonly session: number }
  | { readonly type: "close"; readonly session: number };

export interface PageResult {
  /** Records verified so far. */
  readonly count: number;
  readonly total: number | undefined;
  /** Whether the history says that more records follow. */
  readonly hasMore: boolean;
}

export interface FaultInfo {
  readonly code: Code | "invalid_json";
  readonly reason: string;
  readonly record: number | undefined;
}

/** A job that the chain commits to: a step, a call, or a job whose output was reused. */
export interface SubjobInfo {
  readonly job: string;
  /** Whether another venue runs it. */
  readonly isRemote: boolean;
}

export interface FinishResult {
  readonly report: Report;
  readonly subjobs: readonly SubjobInfo[];
}

export type Response =
  | { readonly type: "page"; readonly result: PageResult }
  | { readonly type: "finish"; readonly result: FinishResult }
  | { readonly type: "child" }
  | { readonly type: "fault"; readonly fault: FaultInfo }
  | { readonly type: "error"; readonly message: string };
