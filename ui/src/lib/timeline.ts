// The time of a job, from its chain: when it waited, when it worked, and what happened in between.

import { isTerminal } from "@verify/status";
import type { Status } from "@verify/status";

/** The part of a record that the timeline needs. */
export interface Moment {
  readonly index: number;
  readonly status: Status;
  /** Unix time in ms. */
  readonly at: number;
  readonly kind: string | undefined;
  readonly by: string | undefined;
  readonly hasMessage: boolean;
  readonly attempt: number | undefined;
  /** Whether the record says that an attempt failed; the next one waits from then on. */
  readonly isFailedAttempt: boolean;
}

export type Activity = "waiting" | "working" | "paused" | "input" | "auth";

export interface Span {
  readonly activity: Activity;
  readonly from: number;
  readonly to: number;
  /** Whether the span is still going on. */
  readonly isOpen: boolean;
  /** Index of the record that began it. */
  readonly record: number;
}

export interface Mark {
  readonly kind: "attempt" | "recovered" | "message" | "step" | "call" | "held" | "end";
  readonly at: number;
  readonly record: number;
  readonly label: string;
}

export interface Timeline {
  readonly from: number;
  readonly to: number;
  readonly spans: readonly Span[];
  readonly marks: readonly Mark[];
}

const ACTIVITY: Partial<Record<Status, Activity>> = {
  PENDING: "waiting",
  STARTED: "working",
  PAUSED: "paused",
  INPUT_REQUIRED: "input",
  AUTH_REQUIRED: "auth",
};

export const ACTIVITY_NAMES: Readonly<Record<Activity, string>> = {
  waiting: "waiting to run",
  working: "working",
  paused: "paused",
  input: "waiting for input",
  auth: "waiting for authorisation",
};

/** The timeline of a chain's records, oldest first. `now` ends a span that is still going on. */
export function timeline(moments: readonly Moment[], now: number): Timeline {
  const first = moments[0];
  const last = moments[moments.length - 1];
  if (!first || !last) return { from: now, to: now, spans: [], marks: [] };
  const spans: Span[] = [];
  const marks: Mark[] = [];
  const end = isTerminal(last.status) ? last.at : Math.max(now, last.at);
  let begun = first;
  let isBetweenAttempts = false;
  const close = (to: number, isOpen: boolean): void => {
    const activity = isBetweenAttempts ? "waiting" : ACTIVITY[begun.status];
    if (activity) spans.push({ activity, from: begun.at, to, isOpen, record: begun.index });
  };
  for (const [at, moment] of moments.entries()) {
    const mark = markOf(moment);
    if (mark) marks.push(mark);
    const waits = isFollowedByClaim(moments, at);
    const isClaim = isBetweenAttempts && moment.kind === "attempt" && !moment.isFailedAttempt;
    if (moment === first || (moment.status === begun.status && !waits && !isClaim)) continue;
    close(moment.at, false);
    begun = moment;
    isBetweenAttempts = waits;
  }
  if (!isTerminal(last.status)) close(end, true);
  return { from: first.at, to: end, spans, marks };
}

/**
 * Whether a failed attempt is followed by the claim of the next one, so that the time in between is known to be
 * waiting. A retry in the process of the venue is not recorded when it starts.
 */
function isFollowedByClaim(moments: readonly Moment[], at: number): boolean {
  const failed = moments[at];
  if (!failed?.isFailedAttempt) return false;
  for (let next = at + 1; next < moments.length; next++) {
    const { kind, status, isFailedAttempt } = moments[next]!;
    if (kind === "attempt") return !isFailedAttempt;
    if (status !== failed.status) return false;
  }
  return false;
}

function markOf({ index, status, at, kind, hasMessage, attempt }: Moment): Mark | undefined {
  const mark = (kind: Mark["kind"], label: string): Mark => ({ kind, at, record: index, label });
  switch (kind) {
    case "attempt":
      return mark("attempt", attempt === undefined ? "next attempt" : `attempt ${attempt}`);
    case "recovered":
      return mark("recovered", "recovered after a restart");
    case "message":
      return mark("message", "message");
    case "step":
      return mark("step", "steps started or ended");
    case "call":
      return mark("call", "calls started or ended");
    case "held":
      return mark("held", "an outcome is held");
  }
  if (hasMessage) return mark("message", "message");
  if (isTerminal(status)) return mark("end", status);
  return undefined;
}

/** The total time per activity, in ms. */
export function totals({ spans }: Timeline): Map<Activity, number> {
  const sums = new Map<Activity, number>();
  for (const { activity, from, to } of spans) {
    sums.set(activity, (sums.get(activity) ?? 0) + (to - from));
  }
  return sums;
}
