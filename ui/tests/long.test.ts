// Long chains: verified as pages arrive, in bounded memory.

import { expect, it } from "vitest";
import { valueId } from "@verify/encode";
import { readBytes, readText } from "@verify/json";
import { readHistory, Verifier } from "@verify/verify";

const RECORDS = 20_000;
const PAGE = 1000;

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
  for (let page = 0; page < RECORDS / PAGE; page++) {
    const records = Array.from({ length: PAGE }, next).join(",");
    const bytes = new TextEncoder().encode(`{"records":[${records}],"total":${RECORDS}}`);
    for (const entry of readHistory(readBytes(bytes)).records) verifier.push(entry);
  }
  expect(verifier.finish({}).count).toBe(RECORDS);
});
