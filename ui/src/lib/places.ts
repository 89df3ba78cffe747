// Where code ran: executors, their isolation and their environments, as ended executions tell.

import type { Execution } from "../api/executions";

export interface Place {
  readonly executor: string;
  readonly tiers: readonly string[];
  readonly environments: readonly string[];
  /** Executions among those that were looked at. */
  readonly executions: number;
  /** When the last of them ended. Undefined if none tells. */
  readonly last: number | undefined;
}

/** Groups executions by their executor, the one that was used last first. */
export function placesOf(executions: readonly Execution[]): Place[] {
  const groups = new Map<string, Execution[]>();
  for (const execution of executions) {
    if (execution.executor === undefined) continue;
    const group = groups.get(execution.executor);
    if (group) group.push(execution);
    else groups.set(execution.executor, [execution]);
  }
  const places = [...groups].map(([executor, group]): Place => {
    const times = group.flatMap(({ finished }) => (finished === undefined ? [] : [finished]));
    return {
      executor,
      tiers: distinct(group.map(({ tier }) => tier)),
      environments: distinct(group.map(({ environment }) => environment)),
      executions: group.length,
      last: times.length === 0 ? undefined : Math.max(...times),
    };
  });
  return places.sort((a, b) => (b.last ?? 0) - (a.last ?? 0) || (a.executor < b.executor ? -1 : 1));
}

const distinct = (texts: readonly (string | undefined)[]): string[] =>
  [...new Set(texts.filter((text) => text !== undefined))].sort();
