// Executors that are connected, the environments that code can run in, and code that is sent to them.

import { asList, asMap, asText } from "@verify/value";
import type { Value, ValueMap } from "@verify/value";
import { jsonText } from "../lib/json_text";
import { newKey, readJson } from "./client";

export interface Tier {
  readonly name: string;
  readonly isAvailable: boolean;
  readonly reason: string | undefined;
}

export interface Executor {
  readonly name: string;
  /** The strongest isolation that it has. Undefined if it can run nothing. */
  readonly tier: string | undefined;
  readonly tiers: readonly Tier[];
  readonly slots: number;
  /** Jobs that it runs: all of them for admins, one's own for others. */
  readonly running: number;
  /** Unix times in ms. */
  readonly announced: number | undefined;
  readonly heartbeat: number | undefined;
  readonly leaseUntil: number | undefined;
  readonly environments: readonly string[];
  /** Why it can run nothing. */
  readonly unavailable: string | undefined;
}

export interface Environment {
  readonly version: string;
  readonly profile: string;
  readonly jobTypes: readonly string[];
  readonly isDefault: boolean;
  /** Connected executors that have it. */
  readonly executors: number;
}

export interface Executors {
  readonly slots: number;
  readonly running: number;
  readonly executors: readonly Executor[];
  readonly environments: readonly Environment[];
}

export async function readExecutors(signal?: AbortSignal): Promise<Executors> {
  return executorsOf(await readJson("/contract/v1/executors", { signal }));
}

const text = (map: ValueMap | undefined, name: string): string | undefined => asText(map?.get(name));
const number = (map: ValueMap | undefined, name: string): number => Number(map?.get(name) ?? 0);
const texts = (map: ValueMap | undefined, name: string): string[] =>
  (asList(map?.get(name)) ?? []).map(asText).filter((item) => item !== undefined);

/** A time in RFC 3339 as Unix time in ms. */
export function timeOf(text: string | undefined): number | undefined {
  const time = Date.parse(text ?? "");
  return Number.isNaN(time) ? undefined : time;
}

export function executorsOf(value: Value): Executors {
  const map = asMap(value);
  return {
    slots: number(map, "slots"),
    running: number(map, "running"),
    executors: (asList(map?.get("executors")) ?? []).map(executorOf),
    environments: (asList(map?.get("environments")) ?? []).map(environmentOf),
  };
}

function executorOf(value: Value): Executor {
  const map = asMap(value);
  return {
    name: text(map, "executor") ?? "",
    tier: text(map, "tier"),
    tiers: (asList(map?.get("tiers")) ?? []).map(asMap).map((tier) => ({
      name: text(tier, "tier") ?? "",
      isAvailable: tier?.get("available") === true,
      reason: text(tier, "reason"),
    })),
    slots: number(map, "slots"),
    running: number(map, "running"),
    announced: timeOf(text(map, "announced_at")),
    heartbeat: timeOf(text(map, "heartbeat_at")),
    leaseUntil: timeOf(text(map, "lease_until")),
    environments: texts(map, "environments"),
    unavailable: text(map, "unavailable"),
  };
}

function environmentOf(value: Value): Environment {
  const map = asMap(value);
  return {
    version: text(map, "env_version") ?? "",
    profile: text(map, "profile") ?? "",
    jobTypes: texts(map, "job_types"),
    isDefault: map?.get("is_default") === true,
    executors: number(map, "executors"),
  };
}

/** Code that the playground sends. */
export interface Code {
  readonly source: string;
  /** Undefined for the default. */
  readonly environment: string | undefined;
  /** Whether the result of equal code may be returned instead of running it. */
  readonly mayReuse: boolean;
}

export interface Submitted {
  readonly job: string;
  /** Whether it is an earlier job with equal code, whose result is reused. */
  readonly isDeduplicated: boolean;
}

/** What code of the playground belongs to. Equal code is found within one revision. */
const PLAYGROUND = "00000000-0000-4000-8000-000000000000";

/** Files that become artifacts. Other executions have all files, but the contract API asks for a list. */
const FORMATS = ["svg", "png", "jpg", "jpeg", "gif", "webp", "json", "csv", "txt", "md", "html", "pdf", "parquet"];

/** The envelope of code that belongs to no document. `revision` is a UUID. */
export function envelopeOf({ source, environment }: Code, revision: string): Value {
  const runtime = new Map<string, Value>([
    ["language", "python"],
    ["network_access", "disabled"],
  ]);
  if (environment !== undefined) runtime.set("env_version", environment);
  const content = new Map<string, Value>([
    ["format", "python"],
    ["value", source],
  ]);
  return new Map<string, Value>([
    ["schema_version", "1.0"],
    ["job_type", "object_execute"],
    ["workspace_id", PLAYGROUND],
    ["project_id", PLAYGROUND],
    ["document_id", PLAYGROUND],
    ["document_revision_id", revision],
    ["target", new Map([["object_id", PLAYGROUND]])],
    ["output_spec", new Map([["formats", FORMATS]])],
    ["inputs", new Map([["object", new Map([["content", content]])]])],
    ["environment", runtime],
  ]);
}

export async function submitCode(code: Code): Promise<Submitted> {
  const revision = code.mayReuse ? PLAYGROUND : newUuid();
  const reply = asMap(
    await readJson("/contract/v1/jobs", {
      method: "POST",
      body: jsonText(envelopeOf(code, revision)),
      headers: { "idempotency-key": newKey() },
    }),
  );
  return {
    job: `0x${(text(reply, "job_id") ?? "").replaceAll("-", "")}`,
    isDeduplicated: reply?.get("deduplicated") === true,
  };
}

/** A random UUID. `crypto.randomUUID` is missing on pages that were loaded from another host by HTTP. */
function newUuid(): string {
  const digits = newKey();
  const version = `4${digits.slice(13, 16)}-8${digits.slice(17, 20)}`;
  return `${digits.slice(0, 8)}-${digits.slice(8, 12)}-${version}-${digits.slice(20)}`;
}
