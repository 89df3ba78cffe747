// The operations that a job invoked while it ran, read from its records.

import { BadField } from "@verify/fields";
import { parseNote } from "@verify/note";
import type { CallStart, Note } from "@verify/note";
import type { Status } from "@verify/status";
import type { Value, ValueMap } from "@verify/value";

export interface Call extends CallStart {
  /** Final status of the called job. Undefined if the chain does not say that it has ended. */
  readonly status: Status | undefined;
  /** Unix time in ms. */
  readonly started: number;
  readonly ended: number | undefined;
}

/** The calls of a chain, in their order. What is malformed is left to verification. */
export function callsOf(records: readonly ValueMap[]): Call[] {
  const calls = new Map<number, Call>();
  for (const record of records) {
    const note = noteOf(record.get("note"));
    if (note?.kind !== "call") continue;
    const at = Number(record.get("updated") ?? 0);
    for (const start of note.started) {
      calls.set(start.call, { ...start, status: undefined, started: at, ended: undefined });
    }
    for (const { call, status } of note.ended) {
      const known = calls.get(call);
      if (known) calls.set(call, { ...known, status, ended: at });
    }
  }
  return [...calls.values()];
}

function noteOf(value: Value | undefined): Note | undefined {
  if (value === undefined) return undefined;
  try {
    return parseNote(value);
  } catch (error) {
    if (error instanceof BadField) return undefined;
    throw error;
  }
}
