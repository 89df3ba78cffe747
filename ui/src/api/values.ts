// The caller's workspace: values at paths, read in pages and changed by operations. Secrets are known
// by their names only.

import { asList, asMap, asText } from "@verify/value";
import type { Value } from "@verify/value";
import { newKey, readJson, send } from "./client";
import { invoke } from "./jobs";

/** What is at a path, without its entries. */
export interface Described {
  readonly exists: boolean;
  /** `Map`, `Vector`, `String`, …; `Nil` if there is nothing. */
  readonly type: string;
  /** Number of entries. Undefined if the value is no container. */
  readonly count: number | undefined;
  readonly id: string | undefined;
}

export interface ReadValue extends Described {
  /** Undefined if the value is too large to be read in one piece. */
  readonly value: Value | undefined;
  readonly valueBytes: number | undefined;
}

/** An entry of a container. */
export interface Entry {
  /** The name of the member, or the position in the array. */
  readonly key: string;
  /** Undefined if the page of entries became too large before this one. */
  readonly value: Value | undefined;
}

export interface EntryPage {
  readonly items: readonly Entry[];
  readonly total: number;
}

/** Most bytes of the values of one page of entries. */
const PAGE_BYTES = 256 * 1024;
/** Most bytes of a value that is read in one piece. */
export const VALUE_BYTES = 1_000_000;

const query = (name: string, path: string, more: Readonly<Record<string, number>>): string => {
  const numbers = Object.entries(more).map(([name, number]) => [name, String(number)]);
  const parameters = new URLSearchParams([["path", path], ...numbers] as [string, string][]);
  return `/api/v1/values/${name}?${parameters}`;
};

function describedOf(value: Value): Described {
  const map = asMap(value);
  const count = map?.get("count");
  return {
    exists: map?.get("exists") === true,
    type: asText(map?.get("type")) ?? "Nil",
    count: count === undefined ? undefined : Number(count),
    id: asText(map?.get("id")),
  };
}

export async function describeValue(path: string, signal?: AbortSignal): Promise<Described> {
  return describedOf(await readJson(query("list", path, { limit: 0 }), { signal }));
}

export async function readValue(path: string, signal?: AbortSignal): Promise<ReadValue> {
  const answer = await readJson(query("read", path, { maxSize: VALUE_BYTES }), { signal });
  const map = asMap(answer);
  const bytes = map?.get("valueBytes");
  return {
    ...describedOf(answer),
    value: map?.get("truncated") === true ? undefined : map?.get("value"),
    valueBytes: bytes === undefined ? undefined : Number(bytes),
  };
}

/** A page of the entries of a container. */
export async function readEntries(
  path: string,
  offset: number,
  limit: number,
  signal?: AbortSignal,
): Promise<EntryPage> {
  const paging = { offset, limit };
  const page = asMap(await readJson(query("slice", path, { ...paging, maxSize: PAGE_BYTES }), { signal }));
  const total = Number(page?.get("count") ?? 0);
  const values = asList(page?.get("values")) ?? [];
  const isKeyed = KEYED.includes(asText(page?.get("type")) ?? "");
  const items = values.map((entry, at): Entry => {
    if (!isKeyed) return { key: String(offset + at), value: entry };
    return { key: asText(asMap(entry)?.get("key")) ?? "", value: asMap(entry)?.get("value") };
  });
  if (page?.get("truncated") !== true) return { items, total };
  const expected = Math.min(limit, total - offset);
  const keys = isKeyed ? await readKeys(path, offset, limit, signal) : [];
  for (let at = items.length; at < expected; at++) {
    items.push({ key: isKeyed ? (keys[at] ?? "") : String(offset + at), value: undefined });
  }
  return { items, total };
}

/** Types whose entries have names. */
const KEYED: readonly string[] = ["Map", "Index"];

export const isKeyed = (type: string): boolean => KEYED.includes(type);

async function readKeys(
  path: string,
  offset: number,
  limit: number,
  signal?: AbortSignal,
): Promise<string[]> {
  const page = asMap(await readJson(query("list", path, { offset, limit }), { signal }));
  return (asList(page?.get("keys")) ?? []).map((key) => asText(key) ?? "");
}

/** The segments of a path. An entry whose name is empty or has a slash cannot be named by a path. */
export const segmentsOf = (path: string): string[] => path.split("/").filter((name) => name !== "");

export const canBeNamed = (key: string): boolean => key !== "" && !key.includes("/");

/** Whether callers may change what is at the path: something below `w` or `o`. */
export const isWritable = (path: string): boolean => /^[wo]\/./.test(path);

/** Whether entries can be added to the container at the path. */
export const canGrow = (path: string): boolean => /^[wo](\/|$)/.test(path);

type Change = "write" | "append" | "delete" | "copy";

/** Changes the workspace. `members` is JSON text of the operation's input, without its braces. */
async function change(name: Change, members: string): Promise<void> {
  const job = await invoke(`covia:${name}`, `{${members}}`, newKey(), { wait: 10_000 });
  if (job.error !== undefined) throw new Error(job.error);
}

/** Stores a value, given as JSON text. */
export const writeValue = (path: string, value: string): Promise<void> =>
  change("write", `"path":${JSON.stringify(path)},"value":${value}`);

export const appendValue = (path: string, value: string): Promise<void> =>
  change("append", `"path":${JSON.stringify(path)},"value":${value}`);

export const deleteValue = (path: string): Promise<void> =>
  change("delete", `"path":${JSON.stringify(path)}`);

export const copyValue = (from: string, to: string): Promise<void> =>
  change("copy", `"from":${JSON.stringify(from)},"to":${JSON.stringify(to)}`);

// Secrets.

export async function listSecrets(signal?: AbortSignal): Promise<string[]> {
  const answer = await readJson("/api/v1/secrets", { signal });
  const items = asList(answer) ?? asList(asMap(answer)?.get("items")) ?? asList(asMap(answer)?.get("names"));
  return (items ?? [])
    .map((item) => asText(item) ?? asText(asMap(item)?.get("name")))
    .filter((name) => name !== undefined)
    .sort();
}

const secretAt = (name: string): string => `/api/v1/secrets/${encodeURIComponent(name)}`;

export async function setSecret(name: string, value: string): Promise<void> {
  await send(secretAt(name), { method: "PUT", body: JSON.stringify({ value }) });
}

export async function deleteSecret(name: string): Promise<void> {
  await send(secretAt(name), { method: "DELETE" });
}
