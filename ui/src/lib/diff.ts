// What a record changes, compared with the record before it.

import { isSame } from "@verify/encode";
import type { Value, ValueMap } from "@verify/value";

export interface FieldChange {
  readonly name: string;
  readonly kind: "added" | "changed" | "same";
  readonly before: Value | undefined;
  readonly after: Value;
}

/** Fields that come first in every record, in this order. */
const ORDER = ["status", "note", "updated", "by", "message", "trigger", "error", "output"];

/**
 * The fields of a record, compared with the previous one. A record carries only what changed, so a
 * field that it does not have is unchanged and not listed. `prev` is shown as a link instead.
 */
export function changes(before: ValueMap | undefined, after: ValueMap): FieldChange[] {
  const rank = (name: string): number => {
    const at = ORDER.indexOf(name);
    return at < 0 ? ORDER.length : at;
  };
  const names = [...after.keys()].filter((name) => name !== "prev");
  names.sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  return names.map((name) => {
    const value = after.get(name) as Value;
    // Each note says something of its own; it does not replace the one before it.
    const old = name === "note" ? undefined : before?.get(name);
    const kind = old === undefined ? "added" : isSame(old, value) ? "same" : "changed";
    return { name, kind, before: old, after: value };
  });
}
