// The status of a job: an icon and a word, never a colour alone.

import { Icon } from "./icons";
import type { IconName } from "./icons";

interface Look {
  readonly icon: IconName;
  readonly word: string;
  readonly tone: "neutral" | "active" | "good" | "bad" | "waiting";
}

export const LOOKS: Readonly<Record<string, Look>> = {
  PENDING: { icon: "clock", word: "Queued", tone: "neutral" },
  STARTED: { icon: "play", word: "Running", tone: "active" },
  COMPLETE: { icon: "check", word: "Complete", tone: "good" },
  FAILED: { icon: "cross", word: "Failed", tone: "bad" },
  CANCELLED: { icon: "stop", word: "Cancelled", tone: "neutral" },
  REJECTED: { icon: "warn", word: "Rejected", tone: "bad" },
  TIMEOUT: { icon: "clock", word: "Timed out", tone: "bad" },
  PAUSED: { icon: "pause", word: "Paused", tone: "waiting" },
  INPUT_REQUIRED: { icon: "message", word: "Needs input", tone: "waiting" },
  AUTH_REQUIRED: { icon: "key", word: "Needs authorisation", tone: "waiting" },
  SLEEPING: { icon: "pause", word: "Sleeping", tone: "neutral" },
  RUNNING: { icon: "play", word: "Running", tone: "active" },
  SUSPENDED: { icon: "warn", word: "Suspended", tone: "waiting" },
  TERMINATED: { icon: "stop", word: "Terminated", tone: "neutral" },
  SKIPPED: { icon: "skip", word: "Skipped", tone: "neutral" },
  WAITING: { icon: "clock", word: "Not started", tone: "neutral" },
};

export function lookOf(status: string): Look {
  return LOOKS[status] ?? { icon: "warn", word: status, tone: "neutral" };
}

export function StatusChip({ status }: { status: string }) {
  const { icon, word, tone } = lookOf(status);
  return (
    <span class={`chip tone-${tone}`} title={status} data-status={status}>
      <Icon name={icon} />
      <span>{word}</span>
    </span>
  );
}
