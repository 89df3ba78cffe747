// Agents: persistent processes with a state, an inbox and a timeline. Their records are read like values.

import { asList, asMap, asText } from "@verify/value";
import type { Value } from "@verify/value";
import { grantsOf } from "../lib/agents";
import { newKey, readJson } from "./client";
import { invoke, run } from "./jobs";
import type { Job } from "./jobs";
import { readEntries, readValue } from "./values";

export interface ListedAgent {
  readonly id: string;
  readonly status: string;
  /** Runs that are in progress or wait. */
  readonly tasks: number;
  readonly error: string | undefined;
}

export interface Agent extends ListedAgent {
  readonly config: Value | undefined;
  readonly turns: number;
  readonly waiting: number;
  /** Turns that failed in a row. */
  readonly failures: number;
  readonly created: number | undefined;
  /** When it was last changed. */
  readonly changed: number | undefined;
  /** The job of the run that is in progress. */
  readonly job: string | undefined;
  /** Everything that the venue says about it. */
  readonly all: Value;
}

const numberOf = (value: Value | undefined): number | undefined =>
  typeof value === "bigint" || typeof value === "number" ? Number(value) : undefined;

function listedOf(value: Value): ListedAgent {
  const map = asMap(value);
  return {
    id: asText(map?.get("agentId")) ?? "",
    status: asText(map?.get("status")) ?? "",
    tasks: numberOf(map?.get("tasks")) ?? 0,
    error: asText(map?.get("error")),
  };
}

export async function listAgents(hasTerminated: boolean, signal?: AbortSignal): Promise<ListedAgent[]> {
  const path = `/api/v1/agents${hasTerminated ? "?includeTerminated=true" : ""}`;
  const map = asMap(await readJson(path, { signal }));
  return (asList(map?.get("agents")) ?? []).map(listedOf);
}

export async function readAgent(id: string, signal?: AbortSignal): Promise<Agent> {
  const value = await readJson(`/api/v1/agents/${encodeURIComponent(id)}`, { signal });
  const map = asMap(value);
  return {
    ...listedOf(value),
    config: map?.get("config"),
    turns: numberOf(map?.get("timelineLength")) ?? 0,
    waiting: numberOf(map?.get("inboxLength")) ?? 0,
    failures: numberOf(map?.get("failures")) ?? 0,
    created: numberOf(map?.get("created")),
    changed: numberOf(map?.get("ts")),
    job: asText(map?.get("run")),
    all: value,
  };
}

export interface AgentMessage {
  readonly id: string;
  readonly at: number | undefined;
  readonly from: string;
  readonly content: Value;
  readonly session: string | undefined;
}

function messageOf(value: Value): AgentMessage {
  const map = asMap(value);
  return {
    id: asText(map?.get("id")) ?? "",
    at: numberOf(map?.get("ts")),
    from: asText(map?.get("from")) ?? "",
    content: map?.get("content") ?? null,
    session: asText(map?.get("sessionId")),
  };
}

export async function readInbox(id: string, limit: number, signal?: AbortSignal): Promise<AgentMessage[]> {
  const { items } = await readEntries(`g/${id}/inbox`, 0, limit, signal);
  return items.flatMap(({ value }) => (value === undefined ? [] : [messageOf(value)]));
}

/** A turn that succeeded, as the timeline records it. */
export interface AgentTurn {
  readonly index: number;
  readonly start: number;
  readonly end: number;
  readonly op: string;
  /** The state that it received. */
  readonly before: Value | undefined;
  /** The state that the next turn received, or the current one. Undefined if it is not known. */
  readonly after: Value | undefined;
  readonly messages: readonly AgentMessage[];
  readonly result: Value | undefined;
  /** Whether the turn is too large to be shown in a list. */
  readonly isLarge: boolean;
}

/** Turns from a position on, oldest first. The state after the last one is that of the turn that follows. */
export async function readTurns(
  id: string,
  from: number,
  limit: number,
  signal?: AbortSignal,
): Promise<AgentTurn[]> {
  const { items, total } = await readEntries(`g/${id}/timeline`, from, limit + 1, signal);
  const isEnd = from + limit >= total;
  const state = isEnd ? (await readValue(`g/${id}/state`, signal)).value : undefined;
  return items.slice(0, limit).map(({ value }, at) => {
    const map = asMap(value);
    const next = items[at + 1];
    return {
      index: from + at,
      start: numberOf(map?.get("start")) ?? 0,
      end: numberOf(map?.get("end")) ?? 0,
      op: asText(map?.get("op")) ?? "",
      before: map?.get("state"),
      after: next ? asMap(next.value)?.get("state") : state,
      messages: (asList(map?.get("messages")) ?? []).map(messageOf),
      result: map?.get("result"),
      isLarge: value === undefined,
    };
  });
}

/** What an agent may do, as sentences. Undefined if it is not restricted. */
export async function readGrants(id: string, signal?: AbortSignal): Promise<string[] | undefined> {
  const { value } = await readValue(`g/${id}/caps`, signal);
  return value === undefined || value === null ? undefined : grantsOf(value);
}

export interface AgentSession {
  readonly id: string;
  readonly title: string | undefined;
  readonly turns: number;
}

export async function listSessions(id: string, signal?: AbortSignal): Promise<AgentSession[]> {
  const map = asMap(await run("agent:sessions", JSON.stringify({ agentId: id }), signal));
  return (asList(map?.get("sessions")) ?? []).map((value) => {
    const session = asMap(value);
    return {
      id: asText(session?.get("sessionId")) ?? "",
      title: asText(session?.get("title")),
      turns: numberOf(session?.get("turnCount")) ?? 0,
    };
  });
}

/** One entry of the conversation of a session. */
export interface Said {
  /** `user`, `assistant`, `tool` or `system`. */
  readonly role: string;
  readonly at: number | undefined;
  readonly content: Value;
  /** Names of the tools that a model asked for. */
  readonly tools: readonly string[];
}

export interface Conversation {
  readonly said: readonly Said[];
  /** Whether there was more before. */
  readonly isTruncated: boolean;
}

/** The latest turns of a session. Agents without a model keep no conversation; it is then empty. */
export async function readConversation(
  id: string,
  session: string,
  turns: number,
  signal?: AbortSignal,
): Promise<Conversation> {
  const input = JSON.stringify({ agentId: id, sessionId: session, maxTurns: turns });
  const map = asMap(await run("agent:session-read", input, signal));
  return {
    isTruncated: map?.get("truncated") === true,
    said: (asList(map?.get("messages")) ?? []).map((value) => {
      const message = asMap(value);
      const tools = asList(message?.get("toolCalls")) ?? [];
      return {
        role: asText(message?.get("role")) ?? "",
        at: numberOf(message?.get("ts")),
        content: message?.get("content") ?? null,
        tools: tools.map((tool) => asText(asMap(tool)?.get("name")) ?? ""),
      };
    }),
  };
}

export type AgentAction = "trigger" | "suspend" | "resume" | "delete";

/** Invokes an operation on an agent, with an object or JSON text. Fails with the words of a job that failed. */
export async function actOnAgent(name: string, input: object | string, wait = 10_000): Promise<Job> {
  const text = typeof input === "string" ? input : JSON.stringify(input);
  const job = await invoke(`agent:${name}`, text, newKey(), { wait });
  if (job.error !== undefined) throw new Error(job.error);
  return job;
}
