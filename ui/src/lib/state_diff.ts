// What one state changed of another, member by member.

import { isSame } from "@verify/encode";
import { asMap } from "@verify/value";
import type { Value } from "@verify/value";

export interface StateChange {
  /** Names of members, with dots. Empty if the whole state was replaced. */
  readonly path: string;
  /** Undefined if it was added. */
  readonly before: Value | undefined;
  /** Undefined if it was removed. */
  readonly after: Value | undefined;
}

/** Changes that are listed. */
const CHANGES_MAX = 100;
/** Levels of objects that are looked into. */
const DEPTH_MAX = 4;

export function stateChanges(before: Value, after: Value): StateChange[] {
  const found: StateChange[] = [];
  const visit = (old: Value | undefined, next: Value | undefined, path: string, depth: number): void => {
    if (found.length >= CHANGES_MAX) return;
    if (old !== undefined && next !== undefined && isSame(old, next)) return;
    const [oldMap, nextMap] = [asMap(old), asMap(next)];
    if (!oldMap || !nextMap || depth === DEPTH_MAX) {
      found.push({ path, before: old, after: next });
      return;
    }
    for (const name of new Set([...oldMap.keys(), ...nextMap.keys()])) {
      visit(oldMap.get(name), nextMap.get(name), path === "" ? name : `${path}.${name}`, depth + 1);
    }
  };
  visit(before, after, "", 0);
  return found;
}
