// The shape of an orchestration: which step needs which, in which column it is drawn, and the path
// that decides how long the whole takes.

import { asList, asMap, asText } from "@verify/value";
import type { Value } from "@verify/value";

export interface PlanStep {
  readonly index: number;
  readonly name: string | undefined;
  readonly op: string;
  readonly venue: string | undefined;
  /** Indexes of the steps whose outputs it uses. */
  readonly needs: readonly number[];
}

/** The steps of an operation's metadata. Undefined if it is not an orchestration. */
export function planOf(metadata: Value): PlanStep[] | undefined {
  const operation = asMap(asMap(metadata)?.get("operation"));
  const steps = asList(operation?.get("steps"));
  if (!steps) return undefined;
  return steps.map((value, index) => {
    const step = asMap(value);
    const needs = new Set<number>();
    collectNeeds(step?.get("input"), index, needs);
    collectNeeds(step?.get("after"), index, needs);
    return {
      index,
      name: asText(step?.get("name")),
      op: asText(step?.get("op")) ?? "",
      venue: asText(step?.get("venue")),
      needs: [...needs].sort((a, b) => a - b),
    };
  });
}

/** Finds the sources `[n, …path]` in the input of a step. Constants are not looked into. */
function collectNeeds(source: Value | undefined, index: number, needs: Set<number>): void {
  const list = asList(source);
  if (list) {
    const [first, ...rest] = list;
    if (typeof first === "bigint") {
      if (first >= 0n && first < BigInt(index)) needs.add(Number(first));
    } else if (first !== "const" && first !== "input") {
      for (const part of rest) collectNeeds(part, index, needs);
    }
    return;
  }
  for (const value of asMap(source)?.values() ?? []) collectNeeds(value, index, needs);
}

/** The column of each step: one more than the furthest step that it needs. */
export function columns(steps: readonly PlanStep[]): number[] {
  const column: number[] = [];
  for (const step of steps) {
    column[step.index] = step.needs.reduce((most, need) => Math.max(most, column[need]! + 1), 0);
  }
  return column;
}

/**
 * The critical path: the chain of dependent steps with the largest sum of `weight`, which is a step's
 * duration, or 1 while durations are not known.
 */
export function criticalPath(
  steps: readonly PlanStep[],
  weight: (step: number) => number,
): number[] {
  const best: number[] = [];
  const from: (number | undefined)[] = [];
  let end: number | undefined;
  for (const { index, needs } of steps) {
    let before: number | undefined;
    for (const need of needs) {
      if (before === undefined || best[need]! > best[before]!) before = need;
    }
    from[index] = before;
    best[index] = (before === undefined ? 0 : best[before]!) + Math.max(0, weight(index));
    if (end === undefined || best[index]! > best[end]!) end = index;
  }
  const path: number[] = [];
  for (let at = end; at !== undefined; at = from[at]) path.push(at);
  return path.reverse();
}
