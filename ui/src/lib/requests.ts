// Questions of agents and jobs to people, and which of them a page shows.

import { asList, asMap, asText } from "@verify/value";
import type { Value, ValueMap } from "@verify/value";

export interface Asker {
  readonly kind: "agent" | "job";
  readonly id: string;
}

export interface HumanRequest {
  readonly id: string;
  /** Who asks. Undefined if neither an agent nor a job is named. */
  readonly asker: Asker | undefined;
  /** `OPEN`, `ANSWERED` or `CLOSED`. */
  readonly status: string;
  readonly created: number;
  readonly question: Value;
  /** The answers that are accepted. Undefined if any is. */
  readonly options: readonly Value[] | undefined;
  /** The JSON Schema of the answers that are accepted. Undefined if there is none. */
  readonly schema: Value | undefined;
  readonly session: string | undefined;
  /** Undefined unless it was answered. */
  readonly answer: Value | undefined;
}

export function requestOf(value: Value): HumanRequest {
  const map = asMap(value);
  return {
    id: asText(map?.get("id")) ?? "",
    asker: askerOf(map),
    status: asText(map?.get("status")) ?? "",
    created: Number(map?.get("created") ?? 0),
    question: map?.get("question") ?? null,
    options: asList(map?.get("options")),
    schema: map?.get("schema") ?? undefined,
    session: asText(map?.get("sessionId")),
    answer: map?.get("answer"),
  };
}

function askerOf(request: ValueMap | undefined): Asker | undefined {
  const agent = asText(request?.get("agentId"));
  if (agent !== undefined) return { kind: "agent", id: agent };
  const job = asText(request?.get("job"));
  return job === undefined ? undefined : { kind: "job", id: job };
}

/** How the page takes the answer: with a button for each option, a form of the schema, or a text. */
export function answerForm({ options, schema }: HumanRequest): "options" | "schema" | "text" {
  if (options !== undefined) return "options";
  return schema === undefined ? "text" : "schema";
}

/** What became of a question that is no longer open, unless it has an answer. */
export function endSentence({ status, asker }: HumanRequest): string | undefined {
  const who = asker?.kind === "job" ? "job" : "agent";
  if (status === "CLOSED") return `Closed: the ${who} ended before an answer came.`;
  return status === "ANSWERED" ? `Answered by a message to the ${who}.` : undefined;
}

/**
 * The message that answers the question of a job with a schema. An answer is wrapped, because one with members such
 * as `content` would be read as a message; other jobs get what was entered. Both are JSON text.
 */
export function answerMessage(output: Value | undefined, answer: string): string {
  return asText(asMap(output)?.get("requestId")) === undefined ? answer : `{"answer":${answer}}`;
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
