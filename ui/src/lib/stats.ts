// The statistics of the last hour, as the charts of the home page need them.

import { asList, asMap, asText } from "@verify/value";
import type { Value } from "@verify/value";

export interface Minute {
  /** When the minute began, as Unix time in ms. */
  readonly at: number;
  readonly created: number;
  readonly started: number;
  readonly ended: number;
  readonly failed: number;
  /** Upper bounds in ms; undefined if nothing was measured. */
  readonly waitingP99: number | undefined;
  readonly runningP50: number | undefined;
  readonly runningP99: number | undefined;
  readonly queueDepth: number | undefined;
}

export interface Hour {
  /** Whether it is about the jobs of all owners. */
  readonly isEveryone: boolean;
  readonly minutes: readonly Minute[];
  readonly queued: number;
}

/** Statuses with which something went wrong. */
const FAILED = ["FAILED", "REJECTED", "TIMEOUT"];

export function hourOf(value: Value): Hour {
  const map = asMap(value);
  return {
    isEveryone: asText(map?.get("scope")) === "all",
    minutes: (asList(map?.get("minutes")) ?? []).map(minuteOf),
    queued: Number(map?.get("queued") ?? 0),
  };
}

function minuteOf(value: Value): Minute {
  const map = asMap(value);
  const count = (name: string): number => Number(map?.get(name) ?? 0);
  const bound = (name: string, percentile: string): number | undefined => {
    const found = asMap(map?.get(name))?.get(percentile);
    return found === undefined ? undefined : Number(found);
  };
  let ended = 0;
  let failed = 0;
  for (const [status, jobs] of asMap(map?.get("ended")) ?? []) {
    ended += Number(jobs);
    if (FAILED.includes(String(status))) failed += Number(jobs);
  }
  const queueDepth = map?.get("queueDepth");
  return {
    at: count("at"),
    created: count("created"),
    started: count("started"),
    ended,
    failed,
    waitingP99: bound("waitingMs", "p99"),
    runningP50: bound("runningMs", "p50"),
    runningP99: bound("runningMs", "p99"),
    queueDepth: queueDepth === undefined ? undefined : Number(queueDepth),
  };
}

/** The largest of the values that were measured. */
export function most(values: readonly (number | undefined)[]): number | undefined {
  const known = values.filter((value) => value !== undefined);
  return known.length === 0 ? undefined : Math.max(...known);
}
