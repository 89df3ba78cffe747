// Jobs: lists, single jobs, their records, and what can be done with them.

import { isTerminal, parseStatus } from "@verify/status";
import type { Status } from "@verify/status";
import { asList, asMap, asText } from "@verify/value";
import type { Value, ValueMap } from "@verify/value";
import { newKey, readJson, send } from "./client";
import type { RequestOptions } from "./client";

/** An entry of a list. */
export interface ListedJob {
  readonly id: string;
  readonly status: Status;
  readonly op: string;
  readonly created: number;
  readonly updated: number;
}

/** One filter for the list, the event stream and bulk actions, with the names of the API. */
export interface JobFilter {
  readonly status?: string;
  readonly op?: string;
  readonly tag?: string;
  readonly owner?: string;
  readonly since?: string;
  readonly until?: string;
  readonly parent?: string;
  readonly text?: string;
}

export const FILTER_NAMES = [
  "status",
  "op",
  "tag",
  "owner",
  "since",
  "until",
  "parent",
  "text",
] as const satisfies readonly (keyof JobFilter)[];

export interface JobPage {
  readonly items: readonly ListedJob[];
  readonly total: number;
  /** Whether there may be more than `total`. */
  readonly isTotalAtLeast: boolean;
}

export function filterOf(query: URLSearchParams): JobFilter {
  const filter: Record<string, string> = {};
  for (const name of FILTER_NAMES) {
    const value = query.get(name);
    if (value) filter[name] = value;
  }
  return filter;
}

export async function listJobs(
  filter: JobFilter,
  offset: number,
  limit: number,
  order: "newest" | "oldest" = "newest",
  signal?: AbortSignal,
): Promise<JobPage> {
  const query = new URLSearchParams({ ...filter, order, expand: "true" } as Record<string, string>);
  query.set("offset", String(offset));
  query.set("limit", String(limit));
  const response = await send(`/api/v1/jobs?${query}`, { signal });
  // IDs, words and times only: nothing in a list needs more than JSON.parse keeps.
  const page = (await response.json()) as { items: unknown[]; total: unknown };
  const items = page.items.map(listedJob).filter((job) => job !== undefined);
  const { total } = page;
  if (typeof total === "number") return { items, total, isTotalAtLeast: false };
  const atLeast = (total as { atLeast?: unknown } | null)?.atLeast;
  return { items, total: Number(atLeast ?? items.length), isTotalAtLeast: true };
}

export function listedJob(value: unknown): ListedJob | undefined {
  const job = value as Partial<Record<keyof ListedJob, unknown>> | null;
  const status = parseStatus(typeof job?.status === "string" ? job.status : undefined);
  if (!job || typeof job.id !== "string" || status === undefined) return undefined;
  return {
    id: job.id,
    status,
    op: typeof job.op === "string" ? job.op : "",
    created: Number(job.created ?? 0),
    updated: Number(job.updated ?? 0),
  };
}

/** A resolved job, with the members that the console uses read out. */
export interface Job {
  readonly id: string;
  readonly status: Status;
  readonly op: string;
  readonly operation: string;
  readonly caller: string;
  readonly venue: string | undefined;
  readonly created: number;
  readonly updated: number;
  readonly head: string;
  readonly input: Value | undefined;
  readonly output: Value | undefined;
  /** What an executor said about code that it ran. */
  readonly execution: Value | undefined;
  readonly error: string | undefined;
  readonly errorCode: string | undefined;
  readonly message: string | undefined;
  readonly tags: readonly string[];
  readonly attempt: number;
  readonly nextAttemptAt: number | undefined;
  readonly deadline: number | undefined;
  readonly parent: string | undefined;
  readonly parentStep: number | undefined;
  readonly rerunOf: string | undefined;
  readonly queueDepth: number;
  readonly progress: Progress | undefined;
  readonly steps: readonly Step[] | undefined;
  /** Members that were left out because they are large. */
  readonly omitted: readonly string[];
}

export interface Progress {
  readonly percent: number | undefined;
  readonly processedItems: number | undefined;
  readonly totalItems: number | undefined;
  readonly ratePerSecond: number | undefined;
  readonly remainingMs: number | undefined;
  readonly message: string | undefined;
}

export interface Step {
  readonly index: number;
  readonly op: string;
  readonly name: string | undefined;
  readonly id: string | undefined;
  /** One of the statuses, or `SKIPPED`, or `WAITING` for a step that has not started. */
  readonly status: string;
  readonly output: Value | undefined;
  readonly error: string | undefined;
  readonly message: string | undefined;
  readonly started: number | undefined;
  readonly ended: number | undefined;
  readonly head: string | undefined;
  readonly venue: string | undefined;
  readonly asOf: number | undefined;
  readonly isReused: boolean;
}

const numberOf = (value: Value | undefined): number | undefined =>
  typeof value === "bigint" || typeof value === "number" ? Number(value) : undefined;

export function jobOf(value: Value): Job {
  const map: ValueMap = asMap(value) ?? new Map();
  const text = (name: string): string | undefined => asText(map.get(name));
  return {
    id: text("id") ?? "",
    status: parseStatus(text("status")) ?? "PENDING",
    op: text("op") ?? "",
    operation: text("operation") ?? "",
    caller: text("caller") ?? "",
    venue: text("venue"),
    created: numberOf(map.get("created")) ?? 0,
    updated: numberOf(map.get("updated")) ?? 0,
    head: text("head") ?? "",
    input: map.get("input"),
    output: map.get("output"),
    execution: map.get("execution"),
    error: text("error"),
    errorCode: text("errorCode"),
    message: text("message"),
    tags: (asList(map.get("tags")) ?? []).map(asText).filter((tag) => tag !== undefined),
    attempt: numberOf(map.get("attempt")) ?? 1,
    nextAttemptAt: numberOf(map.get("nextAttemptAt")),
    deadline: numberOf(map.get("deadline")),
    parent: text("parent"),
    parentStep: numberOf(map.get("parentStep")),
    rerunOf: text("rerunOf") ?? asText(asMap(map.get("rerunOf"))?.get("job")),
    queueDepth: numberOf(map.get("queueDepth")) ?? 0,
    progress: map.has("progress") ? progressOf(map.get("progress")!) : undefined,
    steps: asList(map.get("steps"))?.map(stepOf),
    omitted: omittedOf(map),
  };
}

/** The names of the members that a venue left out of a job or an entry of a history. */
export const omittedOf = (map: ValueMap | undefined): readonly string[] =>
  (asList(map?.get("omittedMembers")) ?? []).map(asText).filter((name) => name !== undefined);

export function progressOf(value: Value): Progress {
  const map = asMap(value);
  return {
    percent: numberOf(map?.get("percent")),
    processedItems: numberOf(map?.get("processedItems")),
    totalItems: numberOf(map?.get("totalItems")),
    ratePerSecond: numberOf(map?.get("ratePerSecond")),
    remainingMs: numberOf(map?.get("remainingMs")),
    message: asText(map?.get("message")),
  };
}

function stepOf(value: Value, at: number): Step {
  const map = asMap(value);
  const text = (name: string): string | undefined => asText(map?.get(name));
  return {
    index: numberOf(map?.get("index")) ?? at,
    op: text("op") ?? "",
    name: text("name"),
    id: text("id"),
    status: text("status") ?? "WAITING",
    output: map?.get("output"),
    error: text("error"),
    message: text("message"),
    started: numberOf(map?.get("started")),
    ended: numberOf(map?.get("ended")),
    head: text("head"),
    venue: text("venue"),
    asOf: numberOf(map?.get("asOf")),
    isReused: map?.has("reused") ?? false,
  };
}

const at = (id: string): string => `/api/v1/jobs/${encodeURIComponent(id)}`;

/** Whether large members are included, or left out and named. */
export type Values = "full" | "brief";

export async function readJob(id: string, signal?: AbortSignal): Promise<Job> {
  return jobOf(await readJson(`${at(id)}?values=brief`, { signal }));
}

/** A member of a job, of any size. */
export async function readMember(id: string, name: string, signal?: AbortSignal): Promise<Value> {
  return asMap(await readJson(at(id), { signal }))?.get(name) ?? null;
}

/** A page of records as received: verification needs the text itself, with full values. */
export async function readHistoryBytes(
  id: string,
  from: number,
  limit: number,
  values: Values,
  signal?: AbortSignal,
): Promise<ArrayBuffer> {
  const brief = values === "brief" ? "&values=brief" : "";
  const response = await send(`${at(id)}/history?from=${from}&limit=${limit}${brief}`, { signal });
  return response.arrayBuffer();
}

export type Control = "pause" | "resume" | "cancel" | "delete";

export async function control(id: string, action: Control): Promise<void> {
  await send(`${at(id)}/${action}`, { method: "PUT" });
}

/** Runs a job again, from a step if one is given. Returns the new job's ID. */
export async function rerun(id: string, from?: number): Promise<string> {
  const body = from === undefined ? "{}" : `{"from":${from}}`;
  const headers = { "idempotency-key": newKey() };
  return jobOf(await readJson(`${at(id)}/rerun`, { method: "POST", body, headers })).id;
}

/** Sends a message. `body` is JSON text. The key makes a repetition safe. */
export async function sendMessage(id: string, body: string, key: string): Promise<Value> {
  const headers = { "idempotency-key": key };
  return readJson(at(id), { method: "POST", body, headers });
}

/** Invokes an operation. `input` is JSON text. */
export async function invoke(
  operation: string,
  input: string,
  key: string,
  options: { wait?: number; tags?: readonly string[] } = {},
): Promise<Job> {
  const wait = options.wait === undefined ? "" : `,"wait":${options.wait}`;
  const tags = options.tags?.length ? `,"tags":${JSON.stringify(options.tags)}` : "";
  const body = `{"operation":${JSON.stringify(operation)},"input":${input}${wait}${tags}}`;
  const request: RequestOptions = { method: "POST", body, headers: { "idempotency-key": key } };
  return jobOf(await readJson("/api/v1/invoke", request));
}

/** Runs an operation and returns its output. */
export async function run(operation: string, input: string, signal?: AbortSignal): Promise<Value> {
  const body = `{"operation":${JSON.stringify(operation)},"input":${input}}`;
  return readJson("/api/v1/run", { method: "POST", body, signal });
}

/** The actions that the status of a job allows. */
export function allowed(status: Status): Readonly<Record<Control | "message" | "rerun", boolean>> {
  const hasEnded = isTerminal(status);
  return {
    pause: !hasEnded && status !== "PAUSED",
    resume: status === "PAUSED",
    cancel: !hasEnded,
    delete: hasEnded,
    rerun: hasEnded,
    message: !hasEnded,
  };
}
