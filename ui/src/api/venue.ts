// The venue itself: identity, health, figures, and which optional parts of the API it has.

import { Store } from "../lib/store";
import { asList, asMap, asText } from "@verify/value";
import type { Value } from "@verify/value";
import { readText } from "@verify/json";
import { readJson, send } from "./client";
import { run } from "./jobs";
import { listOperations } from "./operations";

export interface VenueStatus {
  readonly name: string;
  readonly did: string;
  readonly version: string;
  readonly apiLevel: string;
  readonly url: string;
  readonly isPublic: boolean;
  readonly operations: number;
  readonly assets: number;
}

export const venueStatus = new Store<VenueStatus | undefined>(undefined);

export async function readStatus(signal?: AbortSignal): Promise<VenueStatus> {
  const map = asMap(await readJson("/api/v1/status", { signal }));
  const stats = asMap(map?.get("stats"));
  const status: VenueStatus = {
    name: asText(map?.get("name")) ?? "",
    did: asText(map?.get("did")) ?? "",
    version: asText(map?.get("catena")) ?? "",
    apiLevel: asText(map?.get("version")) ?? "",
    url: asText(map?.get("url")) ?? "",
    isPublic: asMap(map?.get("access"))?.get("public") === true,
    operations: Number(stats?.get("ops") ?? 0),
    assets: Number(stats?.get("assets") ?? 0),
  };
  venueStatus.set(status);
  return status;
}

export interface Health {
  readonly isReady: boolean;
  readonly checks: readonly (readonly [name: string, state: string])[];
  readonly recovery: ReadonlyMap<string, Value>;
}

export async function readHealth(signal?: AbortSignal): Promise<Health> {
  const init: RequestInit = { cache: "no-store" };
  if (signal) init.signal = signal;
  // A venue that is not ready answers 503 with the same body, so this is not an error here.
  const response = await fetch("/readyz?verbose=true", init);
  const map = asMap(readText(await response.text()));
  const checks = [...(asMap(map?.get("checks")) ?? [])];
  return {
    isReady: response.ok,
    checks: checks.map(([name, state]) => [name, asText(state) ?? ""] as const),
    recovery: asMap(map?.get("recovery")) ?? new Map(),
  };
}

export interface Identity {
  readonly caller: string;
  readonly isAuthenticated: boolean;
}

export async function whoAmI(signal?: AbortSignal): Promise<Identity> {
  const map = asMap(await run("auth:whoami", "{}", signal));
  return {
    caller: asText(map?.get("caller")) ?? "",
    isAuthenticated: map?.get("authenticated") === true,
  };
}

/** What this venue offers beyond the basic API. The console hides what is missing. */
export interface Capabilities {
  /** `GET /api/v1/events`. */
  readonly hasEvents: boolean;
  /** `GET /api/v1/stats`. */
  readonly hasStats: boolean;
  /** The operation `jobs:control`. */
  readonly hasBulkControl: boolean;
  /** `GET /api/v1/values/…`. */
  readonly hasWorkspace: boolean;
  /** `GET /api/v1/secrets`. */
  readonly hasSecrets: boolean;
  /** `GET /contract/v1/jobs/{job_id}`. */
  readonly hasExecutions: boolean;
  /** `GET /contract/v1/executors`. */
  readonly hasExecutors: boolean;
  /** `GET /api/v1/agents`. */
  readonly hasAgents: boolean;
  /** `GET /api/v1/requests` and `POST /api/v1/requests/{id}`. */
  readonly hasRequests: boolean;
  /** Query parameters of the list of jobs. */
  readonly listParameters: ReadonlySet<string>;
}

const BASIC: Capabilities = {
  hasEvents: false,
  hasStats: false,
  hasBulkControl: false,
  hasWorkspace: false,
  hasSecrets: false,
  hasExecutions: false,
  hasExecutors: false,
  hasAgents: false,
  hasRequests: false,
  listParameters: new Set(["status", "op", "tag", "order", "owner"]),
};

export const capabilities = new Store<Capabilities>(BASIC);

export async function readCapabilities(): Promise<void> {
  const [document, operations] = await Promise.all([
    readJson("/openapi.json"),
    listOperations().catch(() => []),
  ]);
  const paths = asMap(asMap(document)?.get("paths"));
  const list = asMap(asMap(paths?.get("/api/v1/jobs"))?.get("get"));
  const parameters = (asList(list?.get("parameters")) ?? []).map((parameter) =>
    asText(asMap(parameter)?.get("name")),
  );
  capabilities.set({
    hasEvents: paths?.has("/api/v1/events") ?? false,
    hasStats: paths?.has("/api/v1/stats") ?? false,
    hasBulkControl: operations.some(({ adapter }) => adapter === "jobs:control"),
    hasWorkspace: paths?.has("/api/v1/values/list") ?? false,
    hasSecrets: paths?.has("/api/v1/secrets") ?? false,
    hasExecutions: paths?.has("/contract/v1/jobs/{job_id}") ?? false,
    hasExecutors: paths?.has("/contract/v1/executors") ?? false,
    hasAgents: paths?.has("/api/v1/agents") ?? false,
    hasRequests: ["/api/v1/requests", "/api/v1/requests/{id}"].every((path) => paths?.has(path)),
    listParameters: new Set(parameters.filter((name) => name !== undefined)),
  });
}

/** The samples of `/metrics` by name and labels. Empty if the caller may not read them. */
export async function readMetrics(signal?: AbortSignal): Promise<Map<string, number>> {
  const response = await send("/metrics", { signal, mayAsk: false });
  return parseMetrics(await response.text());
}

export function parseMetrics(text: string): Map<string, number> {
  const samples = new Map<string, number>();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const space = line.lastIndexOf(" ");
    const value = Number(line.slice(space + 1));
    if (space > 0 && Number.isFinite(value)) samples.set(line.slice(0, space), value);
  }
  return samples;
}

/** `GET /api/v1/stats`, as the venue gives it. */
export async function readStats(signal?: AbortSignal): Promise<Value> {
  return readJson("/api/v1/stats", { signal });
}
