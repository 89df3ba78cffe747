// Value IDs against the published vectors, and verification of histories.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { Fault } from "../src/verify/fault.js";
import { encode, valueId } from "../src/verify/encode.js";
import { readText } from "../src/verify/json.js";
import { hex } from "../src/verify/sha3.js";
import { verify } from "../src/verify/verify.js";

interface Vector {
  readonly name: string;
  readonly category: string;
  readonly json?: string;
  readonly encoding_hex?: string;
  readonly value_id: string;
}

const repository = process.env["CATENA_REPOSITORY"];
const skip = repository ? false : "CATENA_REPOSITORY is not set: run test.sh";

/** Vectors that a strict reader may refuse, because the reference accepts them with a loss. */
const isLossy = ({ category, name }: Vector): boolean =>
  ["string_quirk", "json_quirk"].includes(category) || /^double_-?1e400$/.test(name);

test("every JSON vector has its published ID", { skip }, () => {
  const text = readFileSync(join(repository!, "crates/value/vectors/cad003.json"), "utf8");
  let checked = 0;
  for (const vector of (JSON.parse(text) as { vectors: Vector[] }).vectors) {
    if (vector.json === undefined || isLossy(vector)) continue;
    const value = readText(vector.json, 6000);
    assert.equal(valueId(value), "0x" + vector.value_id, vector.name);
    if (vector.encoding_hex !== undefined) assert.equal(hex(encode(value)), vector.encoding_hex, vector.name);
    checked++;
  }
  assert.ok(checked > 250, `${checked} vectors`);
});

type Fields = Record<string, unknown>;

/** A history of these records, linked and hashed. */
function chain(...records: Fields[]): { records: { id: string; record: Fields }[]; total: number; next?: number } {
  const entries: { id: string; record: Fields }[] = [];
  for (const [at, fields] of records.entries()) {
    const record = { prev: entries.at(-1)?.id ?? null, updated: 1000 + at, ...fields };
    entries.push({ id: valueId(readText(JSON.stringify(record))), record });
  }
  return { records: entries, total: entries.length };
}

const FIRST = {
  status: "PENDING",
  id: "0x" + "1".repeat(32),
  venue: "did:key:z6MkVenue",
  op: "o/work",
  input: { a: 1 },
  caller: "did:key:z6MkCaller",
  created: 900,
};
const STARTED_CALL = {
  kind: "call",
  started: [{ call: 0, key: "k", op: "worker:step", job: "0x" + "2".repeat(32), record: "0x" + "3".repeat(64) }],
};
const ENDED_CALL = { kind: "call", ended: [{ call: 0, status: "COMPLETE", record: "0x" + "4".repeat(64) }] };
const RUN: readonly Fields[] = [
  FIRST,
  { status: "STARTED", by: "did:key:z6MkWorker" },
  { status: "STARTED", note: STARTED_CALL },
  { status: "STARTED", note: ENDED_CALL },
  { status: "COMPLETE", output: "done" },
];

function verdict(history: unknown): unknown {
  try {
    return verify(new TextEncoder().encode(JSON.stringify(history))).status;
  } catch (error) {
    assert.ok(error instanceof Fault, String(error));
    return [error.code, error.record];
  }
}

const changed = (at: number, fields: Fields): unknown =>
  chain(...RUN.map((record, index) => (index === at ? { ...record, ...fields } : record)));

test("a history that follows the rules is valid", () => {
  assert.equal(verdict(chain(...RUN)), "COMPLETE");
});

test("a broken rule is found at its record", () => {
  assert.deepEqual(verdict(changed(1, { status: "COMPLETE", output: 1 })), ["illegal_transition", 1]);
  assert.deepEqual(verdict(changed(4, { input: { a: 2 } })), ["binding", 4]);
  assert.deepEqual(verdict(changed(3, { updated: 1 })), ["time_reversed", 3]);
  assert.deepEqual(verdict(changed(2, { output: 2 })), ["bad_annotation", 2]);
  assert.deepEqual(verdict(changed(3, { note: STARTED_CALL })), ["commitment", 3]);
  assert.deepEqual(verdict(chain(...RUN.slice(0, 3), RUN[4]!)), ["commitment", 3]);
  assert.deepEqual(verdict(chain(...RUN, { status: "FAILED", error: "late" })), ["finality", 5]);
  assert.deepEqual(verdict({ ...chain(...RUN), total: 6 }), ["incomplete", 5]);
  assert.deepEqual(verdict({ ...chain(...RUN), next: 5 }), ["incomplete", 5]);
});

test("a changed value or link is found", () => {
  const history = chain(...RUN);
  history.records[4]!.record["output"] = "other";
  assert.deepEqual(verdict(history), ["hash_mismatch", 4]);
  const { records } = chain(...RUN);
  assert.deepEqual(verdict({ records: records.filter((_, at) => at !== 2) }), ["broken_link", 2]);
});
