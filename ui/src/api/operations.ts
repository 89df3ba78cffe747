// Operations, assets and schedules.

import { asList, asMap, asText } from "@verify/value";
import type { Value } from "@verify/value";
import { jsonText } from "../lib/json_text";
import { newKey, readJson, send } from "./client";
import { run } from "./jobs";

export interface Operation {
  readonly name: string;
  readonly asset: string;
  readonly adapter: string;
  readonly description: string | undefined;
  readonly isReadOnly: boolean;
  readonly input: Value | undefined;
  readonly output: Value | undefined;
}

function operationOf(value: Value): Operation {
  const map = asMap(value);
  return {
    name: asText(map?.get("name")) ?? "",
    asset: asText(map?.get("asset")) ?? "",
    adapter: asText(map?.get("adapter")) ?? "",
    description: asText(map?.get("description")),
    isReadOnly: map?.get("readOnly") === true,
    input: map?.get("input"),
    output: map?.get("output"),
  };
}

export async function listOperations(signal?: AbortSignal): Promise<Operation[]> {
  const value = await readJson("/api/v1/operations", { signal });
  return (asList(value) ?? []).map(operationOf);
}

const encodePath = (path: string): string => path.split("/").map(encodeURIComponent).join("/");

export async function readOperation(name: string, signal?: AbortSignal): Promise<Operation> {
  return operationOf(await readJson(`/api/v1/operations/${encodePath(name)}`, { signal }));
}

/** The metadata of an asset. */
export async function readAsset(id: string, signal?: AbortSignal): Promise<Value> {
  return readJson(`/api/v1/assets/${encodePath(id)}`, { signal });
}

export interface AssetPage {
  readonly items: readonly AssetEntry[];
  readonly total: number;
}

export interface AssetEntry {
  readonly id: string;
  readonly name: string | undefined;
  readonly type: string | undefined;
}

export async function listAssets(
  scope: "own" | "all",
  offset: number,
  limit: number,
  signal?: AbortSignal,
): Promise<AssetPage> {
  const path = `/api/v1/assets?scope=${scope}&offset=${offset}&limit=${limit}`;
  const page = asMap(await readJson(path, { signal }));
  const items = (asList(page?.get("items")) ?? []).map((item): AssetEntry => {
    if (typeof item === "string") return { id: item, name: undefined, type: undefined };
    const map = asMap(item);
    return {
      id: asText(map?.get("id")) ?? asText(map?.get("hash")) ?? "",
      name: asText(map?.get("name")),
      type: asText(map?.get("type")),
    };
  });
  return { items, total: Number(page?.get("total") ?? items.length) };
}

/** Registers an asset. `metadata` is JSON text. Returns its ID. */
export async function registerAsset(metadata: string): Promise<string> {
  const headers = { "idempotency-key": newKey() };
  const id = await readJson("/api/v1/assets", { method: "POST", body: metadata, headers });
  return asText(id) ?? "";
}

/** The content of an asset. */
export async function readContent(id: string, signal?: AbortSignal): Promise<Blob> {
  const response = await send(`/api/v1/assets/${encodeURIComponent(id)}/content`, { signal });
  return response.blob();
}

/** The beginning of the tag by which jobs name the schedule that started them; its handle follows. */
export const SCHEDULE_TAG = "schedule:";

export interface Schedule {
  readonly handle: string;
  readonly operation: string;
  readonly time: number | undefined;
  readonly cron: string | undefined;
  readonly input: Value | undefined;
  /** The latest job that it started. */
  readonly lastJob: string | undefined;
  readonly lastTime: number | undefined;
  /** Everything else that the venue says about it. */
  readonly all: Value;
}

export async function listSchedules(signal?: AbortSignal): Promise<Schedule[]> {
  const map = asMap(await run("scheduler:list", "{}", signal));
  const events = asList(map?.get("events")) ?? asList(map?.get("schedules")) ?? [];
  return events.map((value) => {
    const event = asMap(value);
    const time = event?.get("time");
    const lastTime = event?.get("lastTime");
    return {
      handle: asText(event?.get("handle")) ?? "",
      operation: asText(event?.get("operation")) ?? "",
      time: typeof time === "bigint" ? Number(time) : undefined,
      cron: asText(event?.get("cron")),
      input: event?.get("input"),
      lastJob: asText(event?.get("lastJob")),
      lastTime: typeof lastTime === "bigint" ? Number(lastTime) : undefined,
      all: value,
    };
  });
}

export async function controlSchedule(action: "cancel" | "trigger", handle: string): Promise<Value> {
  return run(`scheduler:${action}`, jsonText(new Map([["handle", handle]])));
}
