// Questions of agents to people, and which of them a page shows.

import { asList, asMap, asText } from "@verify/value";
import type { Value } from "@verify/value";

export interface HumanRequest {
  readonly id: string;
  readonly agent: string;
  /** `OPEN`, `ANSWERED` or `CLOSED`. */
  readonly status: string;
  readonly created: number;
  readonly question: Value;
  /** The answers that are accepted. Undefined if any is. */
  readonly options: readonly Value[] | undefined;
  readonly session: string | undefined;
  /** Undefined unless it was answered. */
  readonly answer: Value | undefined;
}

export function requestOf(value: Value): HumanRequest {
  const map = asMap(value);
  return {
    id: asText(map?.get("id")) ?? "",
    agent: asText(map?.get("agentId")) ?? "",
    status: asText(map?.get("status")) ?? "",
    created: Number(map?.get("created") ?? 0),
    question: map?.get("question") ?? null,
    options: asList(map?.get("options")),
    session: asText(map?.get("sessionId")),
    answer: map?.get("answer"),
  };
}

/** The text of a question that is one, or has one and nothing else. */
export function questionText(question: Value): string | undefined {
  const map = asMap(question);
  return asText(question) ?? (map?.size === 1 ? asText(map.get("text")) : undefined);
}

/**
 * What a page shows: everything that the venue lists and, so that nothing vanishes under somebody's hands,
 * those in use that it no longer lists. Oldest first.
 */
export function shownRequests(
  listed: readonly HumanRequest[],
  used: ReadonlyMap<string, HumanRequest>,
): HumanRequest[] {
  const ids = new Set(listed.map(({ id }) => id));
  const kept = [...used.values()].filter(({ id }) => !ids.has(id));
  return [...listed, ...kept].sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
}
