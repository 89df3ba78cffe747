// Statuses, kinds of notes, and the transition table (`crates/job/src/state.rs`).

export const STATUSES = [
  "PENDING",
  "STARTED",
  "COMPLETE",
  "FAILED",
  "CANCELLED",
  "REJECTED",
  "TIMEOUT",
  "PAUSED",
  "INPUT_REQUIRED",
  "AUTH_REQUIRED",
] as const;

export type Status = (typeof STATUSES)[number];

const TERMINAL: readonly Status[] = ["COMPLETE", "FAILED", "CANCELLED", "REJECTED", "TIMEOUT"];

export function parseStatus(name: string | undefined): Status | undefined {
  return STATUSES.find((status) => status === name);
}

/** Whether the job has ended. */
export function isTerminal(status: Status): boolean {
  return TERMINAL.includes(status);
}

export type Kind = "step" | "call" | "attempt" | "message" | "held" | "recovered";

/** The statuses in which a job may be annotated with each kind of note. */
const ALLOWED_IN: Readonly<Record<Kind, readonly Status[]>> = {
  step: ["STARTED", "PAUSED", "INPUT_REQUIRED", "AUTH_REQUIRED"],
  call: ["STARTED", "PAUSED", "INPUT_REQUIRED", "AUTH_REQUIRED"],
  attempt: ["STARTED"],
  message: ["STARTED", "INPUT_REQUIRED", "AUTH_REQUIRED"],
  held: ["PAUSED"],
  recovered: ["PENDING", "STARTED"],
};

export const KINDS = Object.keys(ALLOWED_IN) as readonly Kind[];

export function isAllowedIn(kind: Kind, status: Status): boolean {
  return ALLOWED_IN[kind].includes(status);
}

/** The statuses that each status may change to. A note keeps the status and is checked apart. */
const NEXT: Readonly<Record<Status, readonly Status[]>> = {
  PENDING: ["STARTED", "REJECTED", "PAUSED", "CANCELLED", "TIMEOUT"],
  STARTED: [
    "COMPLETE",
    "FAILED",
    "INPUT_REQUIRED",
    "AUTH_REQUIRED",
    "PAUSED",
    "CANCELLED",
    "TIMEOUT",
  ],
  PAUSED: ["STARTED", "CANCELLED", "TIMEOUT"],
  INPUT_REQUIRED: ["PAUSED", "STARTED", "CANCELLED", "TIMEOUT"],
  AUTH_REQUIRED: ["PAUSED", "STARTED", "CANCELLED", "TIMEOUT"],
  COMPLETE: [],
  FAILED: [],
  CANCELLED: [],
  REJECTED: [],
  TIMEOUT: [],
};

export function canFollow(from: Status, to: Status): boolean {
  return NEXT[from].includes(to);
}
