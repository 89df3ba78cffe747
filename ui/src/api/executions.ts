// Executions: code that executors run in a sandbox, with what it wrote, used and left behind.

import { asList, asMap, asText } from "@verify/value";
import type { Value, ValueMap } from "@verify/value";
import { readJson, send } from "./client";
import { listJobs, readMember } from "./jobs";
import type { Job, ListedJob } from "./jobs";

/** Operations whose jobs are executions. */
export const EXECUTION_OPS = ["exec:python", "contract:object_execute"] as const;

export const isExecution = (op: string): boolean => /(^|\/)(exec|contract)[:/]/.test(op);

export interface Artifact {
  readonly id: string;
  readonly name: string;
  readonly type: string;
  readonly bytes: number;
  readonly digest: string;
}

export interface LogEntry {
  readonly level: string;
  readonly message: string;
  readonly at: string;
}

export interface ExecutionError {
  readonly category: string;
  readonly code: string;
  readonly message: string;
  readonly block: string | undefined;
  readonly line: number | undefined;
  readonly column: number | undefined;
  readonly traceback: string | undefined;
}

export interface Output {
  readonly text: string;
  readonly isTruncated: boolean;
}

/** One thing that is limited, in the words of people. */
export interface Usage {
  readonly title: string;
  readonly used: number | undefined;
  readonly limit: number | undefined;
  readonly unit: string;
}

export interface Execution {
  readonly status: string;
  readonly executor: string | undefined;
  readonly tier: string | undefined;
  readonly environment: string | undefined;
  readonly network: string | undefined;
  /** What to do about code that waits for an environment. */
  readonly hint: string | undefined;
  readonly attempt: number;
  readonly durationMs: number | undefined;
  readonly key: string | undefined;
  readonly stdout: Output | undefined;
  readonly stderr: Output | undefined;
  readonly result: Value | undefined;
  readonly error: ExecutionError | undefined;
  readonly artifacts: readonly Artifact[];
  readonly logs: readonly LogEntry[];
  readonly logsDropped: number;
  readonly usage: readonly Usage[];
  /** Everything that the venue says about it. */
  readonly all: Value;
}

const at = (id: string): string => `/contract/v1/jobs/${encodeURIComponent(id)}`;

export async function readExecution(job: Job, signal?: AbortSignal): Promise<Execution> {
  const said = job.omitted.includes("execution") ? await readMember(job.id, "execution", signal) : job.execution;
  return executionOf(await readJson(at(job.id), { signal }), said ?? null);
}

const numberOf = (value: Value | undefined): number | undefined =>
  typeof value === "bigint" || typeof value === "number" ? Number(value) : undefined;

/**
 * Reads a result envelope. That of an operation which runs code alone has no outputs: they are in what its executor
 * said, also if the code failed.
 */
export function executionOf(envelope: Value, said: Value): Execution {
  const map: ValueMap = asMap(envelope) ?? new Map();
  const stated = asMap(map.get("outputs"));
  const outputs = stated && stated.size > 0 ? stated : asMap(asMap(said)?.get("outputs"));
  const text = (name: string): string | undefined => asText(map.get(name));
  return {
    status: text("status") ?? "",
    executor: text("executor"),
    tier: text("tier"),
    environment: asText(asMap(map.get("environment"))?.get("env_version")),
    network: asText(asMap(map.get("environment"))?.get("network_access")),
    hint: text("hint"),
    attempt: numberOf(map.get("attempt")) ?? 1,
    durationMs: numberOf(map.get("duration_ms")),
    key: text("execution_key"),
    stdout: outputOf(outputs, "stdout"),
    stderr: outputOf(outputs, "stderr"),
    result: outputs?.get("result_json") ?? outputs?.get("result"),
    error: errorOf(map.get("error")),
    artifacts: (asList(map.get("artifacts")) ?? []).map(artifactOf),
    logs: (asList(map.get("logs")) ?? []).map(logOf),
    logsDropped: numberOf(map.get("logs_dropped")) ?? 0,
    usage: usageOf(map),
    all: envelope,
  };
}

function outputOf(outputs: ValueMap | undefined, name: string): Output | undefined {
  const text = asText(outputs?.get(name));
  return text === undefined
    ? undefined
    : { text, isTruncated: outputs?.get(`${name}_truncated`) === true };
}

function errorOf(value: Value | undefined): ExecutionError | undefined {
  const map = asMap(value);
  if (!map) return undefined;
  const details = asMap(map.get("details"));
  return {
    category: asText(map.get("category")) ?? "",
    code: asText(map.get("code")) ?? "",
    message: asText(map.get("message")) ?? "",
    block: asText(details?.get("block")),
    line: numberOf(details?.get("line")),
    column: numberOf(details?.get("column")),
    traceback: asText(details?.get("traceback")),
  };
}

function artifactOf(value: Value): Artifact {
  const map = asMap(value);
  const id = asText(map?.get("artifact_id")) ?? "";
  return {
    id,
    name: asText(asMap(map?.get("metadata"))?.get("name")) ?? id,
    type: asText(map?.get("content_type")) ?? "",
    bytes: numberOf(map?.get("size_bytes")) ?? 0,
    digest: asText(map?.get("digest")) ?? "",
  };
}

function logOf(value: Value): LogEntry {
  const map = asMap(value);
  return {
    level: asText(map?.get("level")) ?? "",
    message: asText(map?.get("message")) ?? "",
    at: asText(map?.get("timestamp")) ?? "",
  };
}

function usageOf(map: ValueMap): Usage[] {
  const limits = asMap(map.get("limits"));
  const used = asMap(map.get("resource_usage"));
  const row = (title: string, unit: string, limit: string, used: number | undefined): Usage => ({
    title,
    unit,
    used,
    limit: numberOf(limits?.get(limit)),
  });
  const rows = [
    row("Wall time", "ms", "timeout_ms", numberOf(map.get("duration_ms"))),
    row("Processor time", "ms", "cpu_ms", numberOf(used?.get("cpu_ms"))),
    row("Memory", "MiB", "memory_mb", numberOf(used?.get("memory_mb_peak"))),
    row("Artifacts", "", "max_artifacts", asList(map.get("artifacts"))?.length),
  ];
  return rows.filter(({ limit }) => limit !== undefined);
}

/** A cell: one module, or the code blocks of a document. */
export interface Block {
  readonly id: string | undefined;
  readonly source: string;
}

/** The code of an execution, from the input of its job. */
export function cellOf(input: Value | undefined): Block[] {
  const map = asMap(input);
  const code = asText(map?.get("code"));
  if (code !== undefined) return [{ id: undefined, source: code }];
  const content = asMap(asMap(asMap(map?.get("inputs"))?.get("object"))?.get("content"));
  const source = asText(content?.get("value"));
  if (source !== undefined) return [{ id: undefined, source }];
  const blocks = asList(asMap(content?.get("value"))?.get("blocks")) ?? [];
  return blocks.flatMap((value, index) => {
    const block = asMap(value);
    if (asText(block?.get("type")) !== "code") return [];
    const found = ["source", "text", "code", "value"].map((name) => asText(block?.get(name)));
    const id = asText(block?.get("id")) ?? String(index);
    return [{ id, source: found.find((text) => text !== undefined) ?? "" }];
  });
}

/** The content of an artifact, through a URL that the venue signs. */
export async function readArtifact(job: string, artifact: string, signal?: AbortSignal): Promise<Blob> {
  const signed = asMap(await readJson(`${at(job)}/artifacts/${encodeURIComponent(artifact)}`, { signal }));
  // The venue states its public address; the page may talk to its own origin only.
  const url = new URL(asText(signed?.get("url")) ?? "", globalThis.location.origin);
  const response = await send(url.pathname + url.search, { signal });
  return response.blob();
}

/** The latest executions, newest first. */
export async function listExecutions(limit: number, signal?: AbortSignal): Promise<ListedJob[]> {
  const pages = await Promise.all(
    EXECUTION_OPS.map((op) => listJobs({ op }, 0, limit, "newest", signal)),
  );
  const all = pages.flatMap(({ items }) => items);
  return all.sort((a, b) => b.created - a.created).slice(0, limit);
}
