// The verifier of the console against `catena verify`: same verdict, same record, same words.

import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { Fault } from "@verify/fault";
import { JsonError } from "@verify/json";
import { verify } from "@verify/verify";
import { generate, Random } from "./histories";
import { TAMPERS } from "./tamper";

const HISTORIES = 2000;
/** How many of them one process verifies. */
const AT_ONCE = 500;
/** Another value compares other histories. */
const SEED = Number(process.env["CATENA_SEED"] ?? 0);

/** What must have been found wrong with sub-jobs, triggers and notes; numbers and IDs are `N`. */
const REASONS = [
  "`note.call` must be a whole number, N or more",
  "`note.call` must be the number of a call",
  "`note.interruptions` must be a whole number, N or more",
  "`note.kind` must be one of step, call, attempt, message, held, recovered",
  "`note.started.detached` must be true or false",
  "`note.started.key` is missing",
  "`note.started.op` is missing",
  "`parent` must be an object with the index of a `step`",
  "`parent` must name call N of job N",
  "`parent` must name step N of job N",
  "`parent` must name step N of the earlier run",
  "`reusedOutputs` must have one output for each entry of `reused`",
  "`reusedOutputs` needs `reused`",
  "`tier` must be a string",
  "`trigger` must be an object with a `messageId` or the `control` record",
  "an entry of `reused` must have `step`, `job` and `record`",
  "call N ends a second time",
  "call N ends without having started",
  "call N has the key of an earlier call",
  "call N is not the next call",
  "call N starts although the job's outcome is already held",
  "step N is in `reused` twice",
  "step N starts although its output was reused",
  "the job is COMPLETE, but call N has not ended",
  "the job is COMPLETE, but step N ended as FAILED",
  "the parent job committed to N as the first record",
  "the parent job committed to N as the last record",
  "the rerun committed to N as the last record",
  "the rerun reused another output than this",
  "the rerun reused its output, but it is CANCELLED",
];

/** The binary to compare with: `CATENA_BIN`, or what a build left in `target`. */
const binary = [process.env["CATENA_BIN"], "../target/release/catena", "../target/debug/catena"].find(
  (path) => path !== undefined && existsSync(path),
);

interface Verdict {
  readonly code: string;
  readonly record?: number | undefined;
  readonly subjob?: string | undefined;
  readonly detail: string;
}

function ofConsole(text: string): Verdict {
  try {
    const report = verify(new TextEncoder().encode(text));
    const { status, records, head, subjobsVerified, subjobsUnavailable } = report;
    const detail = [status, records, head, subjobsVerified, subjobsUnavailable].join(" ");
    return { code: "valid", detail };
  } catch (error) {
    if (error instanceof JsonError) return { code: "invalid_json", detail: error.message };
    if (!(error instanceof Fault)) throw error;
    return { code: error.code, record: error.record, subjob: error.subjob, detail: error.reason };
  }
}

/** The verdicts of `catena verify`, one for each file. */
function ofCatena(files: readonly string[]): Promise<Verdict[]> {
  return new Promise((resolve, reject) => {
    const options = { maxBuffer: 64 * 1024 * 1024 };
    execFile(binary!, ["verify", "--json", ...files], options, (error, stdout, stderr) => {
      const lines = stdout.split("\n").filter((line) => line !== "");
      if (lines.length !== files.length) return reject(error ?? new Error(stderr || stdout));
      resolve(lines.map((line) => verdict(JSON.parse(line) as Record<string, unknown>)));
    });
  });
}

function verdict(found: Record<string, unknown>): Verdict {
  if (found["valid"] === true) {
    const { status, records, head, subjobsVerified, subjobsUnavailable } = found;
    const detail = [status, records, head, subjobsVerified, subjobsUnavailable].join(" ");
    return { code: "valid", detail };
  }
  return {
    code: String(found["code"]),
    record: found["record"] as number | undefined,
    subjob: found["subjob"] as string | undefined,
    detail: String(found["error"]),
  };
}

describe.skipIf(binary === undefined)("the console and `catena verify`", () => {
  const folder = mkdtempSync(join(tmpdir(), "catena-agree-"));
  afterAll(() => rmSync(folder, { recursive: true }));

  it(`agree on ${HISTORIES} histories, valid and tampered`, { timeout: 300_000 }, async () => {
    const names = Object.keys(TAMPERS);
    const codes = new Map<string, number>();
    const reasons = new Set<string>();
    const generated = Array.from({ length: HISTORIES }, (_, seed) => {
      const random = new Random(SEED + seed);
      const chain = generate(random);
      // A third of the histories is left as it was generated.
      const name = seed % 3 === 0 ? "none" : names[Math.floor((seed * 2) / 3) % names.length]!;
      const text = TAMPERS[name]!(chain, random);
      const file = join(folder, `${seed}.json`);
      writeFileSync(file, text);
      return { seed, name, file, ours: ofConsole(text) };
    });
    const compare = ({ seed, name, ours }: (typeof generated)[number], theirs: Verdict): void => {
      const label = `seed ${seed}, ${name}: ${JSON.stringify(ours)} and ${JSON.stringify(theirs)}`;
      expect({ ...ours, detail: "" }, label).toEqual({ ...theirs, detail: "" });
      expect(theirs.detail, label).toContain(ours.detail);
      codes.set(ours.code, (codes.get(ours.code) ?? 0) + 1);
      reasons.add(ours.detail.replace(/0x[0-9a-f]+|\b\d+\b/g, "N"));
    };
    for (let from = 0; from < HISTORIES; from += AT_ONCE) {
      const batch = generated.slice(from, from + AT_ONCE);
      const theirs = await ofCatena(batch.map(({ file }) => file));
      batch.forEach((one, i) => compare(one, theirs[i]!));
    }
    // Every kind of fault that a single history can have must have occurred.
    if (SEED !== 0) return;
    expect(REASONS.filter((reason) => !reasons.has(reason))).toEqual([]);
    expect([...codes.keys()].sort()).toEqual(
      expect.arrayContaining([
        "bad_annotation",
        "bad_start",
        "binding",
        "broken_link",
        "commitment",
        "duplicate_record",
        "finality",
        "fork",
        "hash_mismatch",
        "illegal_transition",
        "incomplete",
        "invalid_json",
        "malformed_history",
        "malformed_record",
        "time_reversed",
        "valid",
      ]),
    );
    expect(codes.get("valid")).toBeGreaterThan(200);
  });
});
