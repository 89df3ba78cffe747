// Access to the fields of a record, with errors that name the field.

import { CHUNK_BYTES } from "./limits.js";
import type { Value, ValueMap } from "./value.js";

/** A field that is missing or has a wrong value. */
export class BadField extends Error {}

export function missing(name: string): BadField {
  return new BadField(`\`${name}\` is missing`);
}

export function wrong(name: string, expected: string): BadField {
  return new BadField(`\`${name}\` must be ${expected}`);
}

/** The text of a string field. Undefined if the field is absent; throws if it is not a string. */
export function fieldText(map: ValueMap, name: string): string | undefined {
  const value = map.get(name);
  if (value === undefined || typeof value === "string") return value;
  throw wrong(name, "a string");
}

/** The text of a string that is a single cell. Identifiers are never longer. */
export function shortText(value: Value | undefined): string | undefined {
  if (typeof value !== "string") return undefined;
  if (value.length * 3 <= CHUNK_BYTES) return value;
  return new TextEncoder().encode(value).length <= CHUNK_BYTES ? value : undefined;
}
