// Long chains: verified as pages arrive, in bounded memory.

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it } from "vitest";
import { valueId } from "@verify/encode";
import { readBytes, readText } from "@verify/json";
import { readHistory, Verifier } from "@verify/verify";

const RECORDS = 20_000;
const PAGE = 1000;
/** The verifier keeps the ID of each record, to find duplicates and forks, and nothing else of it. */
const BYTES_PER_RECORD_MAX = 250;

/** The bytes that are in use, after everything else was freed. */
function heapUsed(): number {
  setFlagsFromString("--expose-gc");
  (runInNewContext("gc") as () => void)();
  return process.memoryUsage().heapUsed;
}

it(`verifies ${RECORDS} records page by page`, { timeout: 60_000 }, () => {
  const verifier = new Verifier();
  let prev = "null";
  let made = 0;
  const next = (): string => {
    const at = made++;
    const note = `"note":{"kind":"attempt","attempt":${at + 2},"reason":"the request timed out"}`;
    const more =
      at === 0
        ? '"id":"0x00000000000000000000000000000001","venue":"did:key:v","op":"o","caller":"c","input":{},"created":1'
        : at === 1
          ? '"deadline":9'
          : note;
    const status = at === 0 ? "PENDING" : "STARTED";
    const record = `{"status":"${status}","prev":${prev},"updated":${at + 1},${more}}`;
    const id = valueId(readText(record));
    prev = `"${id}"`;
    return `{"id":"${id}","record":${record}}`;
  };
  let before = 0;
  for (let page = 0; page < RECORDS / PAGE; page++) {
    if (page === 1) before = heapUsed();
    const records = Array.from({ length: PAGE }, next).join(",");
    const bytes = new TextEncoder().encode(`{"records":[${records}],"total":${RECORDS}}`);
    for (const entry of readHistory(readBytes(bytes)).records) verifier.push(entry);
  }
  expect((heapUsed() - before) / (RECORDS - PAGE)).toBeLessThan(BYTES_PER_RECORD_MAX);
  expect(verifier.finish({}).count).toBe(RECORDS);
});
