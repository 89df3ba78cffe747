// Keys: signatures against published vectors, identities, signed ends and the check of pushed jobs.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";
import { Key, NotAuthentic, receive, s, Worker } from "../src/index.js";
import { isSignedBy } from "../src/verify/ed25519.js";
import { sha512 } from "../src/verify/sha512.js";
import { isEndSignedBy, publicKeyOf } from "../src/verify/signature.js";
import { FakeVenue } from "./fake_venue.js";

// RFC 8032, section 7.1: secret key, public key, message, signature.
const VECTORS = [
  [
    "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
    "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    "",
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
  ],
  [
    "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
    "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
    "72",
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
  ],
  [
    "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
    "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
    "af82",
    "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
  ],
] as const;
const ORDER = 2n ** 252n + 27742317777372353535851937790883648493n;
const bytes = (digits: string): Uint8Array => new Uint8Array(Buffer.from(digits, "hex"));
const seed = (byte: number): Uint8Array => new Uint8Array(32).fill(byte);

test("hashes are those of the platform", () => {
  for (const length of [0, 1, 111, 112, 127, 128, 300]) {
    const message = new Uint8Array(length).map((_, at) => at);
    assert.deepEqual(Buffer.from(sha512(message)), createHash("sha512").update(message).digest());
  }
});

test("signatures are those of the published vectors", () => {
  for (const [secret, open, message, signature] of VECTORS) {
    const key = new Key(bytes(secret));
    assert.deepEqual(key.publicKey, bytes(open));
    assert.deepEqual(key.sign(bytes(message)), bytes(signature));
    assert.ok(isSignedBy(bytes(open), bytes(message), bytes(signature)));
    assert.ok(!isSignedBy(bytes(open), bytes(message + "00"), bytes(signature)));
    assert.ok(!isSignedBy(new Key(seed(2)).publicKey, bytes(message), bytes(signature)));
    for (const at of [0, 31, 32, 63]) {
      const changed = bytes(signature);
      changed[at]! ^= 1;
      assert.ok(!isSignedBy(bytes(open), bytes(message), changed), String(at));
    }
  }
});

test("weak keys and malleable signatures are refused", () => {
  const [, open, message, signature] = VECTORS[1];
  const response = BigInt("0x" + Buffer.from(bytes(signature).slice(32).reverse()).toString("hex")) + ORDER;
  const more = bytes(response.toString(16).padStart(64, "0")).reverse();
  assert.ok(!isSignedBy(bytes(open), bytes(message), bytes(signature.slice(0, 64) + Buffer.from(more).toString("hex"))));
  const one = Uint8Array.from({ length: 64 }, (_, at) => (at === 0 ? 1 : 0));
  assert.ok(!isSignedBy(one.slice(0, 32), bytes(message), one), "the identity signs everything");
  assert.ok(!isSignedBy(seed(255), bytes(message), bytes(signature)));
  assert.ok(!isSignedBy(bytes(open), bytes(message), new Uint8Array()));
});

test("a DID has the key, and nothing else is one", () => {
  const key = new Key(seed(1));
  assert.equal(key.did, "did:key:z6Mkon3Necd6NkkyfoGoHxid2znGc59LU3K7mubaRcFbLfLX");
  assert.deepEqual(publicKeyOf(key.did), key.publicKey);
  for (const other of ["", "did:web:x.example", "did:key:z", key.did + "1", key.did.slice(0, -1)]) {
    assert.equal(publicKeyOf(other), undefined, other);
  }
  const folder = mkdtempSync(join(tmpdir(), "catena-key-"));
  try {
    const file = join(folder, "key");
    for (const data of [seed(1), "01".repeat(32) + "\n"]) {
      writeFileSync(file, data);
      assert.equal(Key.fromFile(file).did, key.did);
    }
    writeFileSync(file, "short");
    assert.throws(() => Key.fromFile(file), /is not a key/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("a worker with a key signs outputs and errors", async () => {
  const key = new Key(seed(1));
  const venue = await FakeVenue.start();
  try {
    const worker = new Worker({ url: venue.url, token: "t", key, warn: () => undefined });
    worker.operation({ name: "half", input: s.object({ number: s.integer() }) }, ({ number }) => {
      if (number === 0) throw new Error("nothing to halve");
      return { half: number / 2, nothing: undefined };
    });
    const serving = worker.serve();
    await venue.waitFor(() => venue.operations.has("half"));
    const jobs = [venue.invoke("o/half", { number: 3 }), venue.invoke("o/half", { number: 0 })];
    for (const job of jobs) await venue.ended(job);
    worker.stop();
    await serving;
    assert.deepEqual(jobs.map(({ status }) => status), ["COMPLETE", "FAILED"]);
    const [done, failed] = jobs;
    const [{ output, signature, fence }] = done!.ends;
    assert.deepEqual(output, { half: 1.5 });
    assert.ok(isEndSignedBy(key.did, signature, done!.id, BigInt(fence), { output: new Map([["half", 1.5]]) }));
    assert.ok(!isEndSignedBy(key.did, signature, done!.id, BigInt(fence) + 1n, { output: new Map([["half", 1.5]]) }));
    const [end] = failed!.ends;
    assert.ok(isEndSignedBy(key.did, end.signature, failed!.id, BigInt(end.fence), { error: end.error }));
  } finally {
    await venue.stop();
  }
});

test("a pushed job is received only from its venue", () => {
  const key = new Key(seed(1));
  const pushed = (body: string): Record<string, string> => {
    const signature = Buffer.from(key.sign(Buffer.from(`0x1-1.1000.${body}`))).toString("base64");
    return { "Webhook-Id": "0x1-1", "Webhook-Timestamp": "1000", "Webhook-Signature": `v1,c2hhcmVk v1a,${signature}` };
  };
  const body = JSON.stringify({ id: "0x1", fence: 2, attempt: 1, op: "o/mail", input: { to: "ann" }, token: "t" });
  const headers = pushed(body);
  const job = receive(key.did, headers, body, { now: 1200 });
  assert.deepEqual([job.id, job.fence, job.input, job.token], ["0x1", 2, { to: "ann" }, "t"]);
  assert.equal(receive(key.did, new Headers(headers), Buffer.from(body), { now: 1200 }).id, "0x1");
  const refused: [string, Record<string, string>, string, number][] = [
    [new Key(seed(2)).did, headers, body, 1200],
    [key.did, headers, body + " ", 1200],
    [key.did, headers, body, 1301],
    [key.did, headers, body, 699],
    [key.did, { ...headers, "Webhook-Timestamp": "1001" }, body, 1200],
    [key.did, { ...headers, "Webhook-Timestamp": "soon" }, body, 1200],
    [key.did, { ...headers, "Webhook-Id": "0x1-2" }, body, 1200],
    [key.did, { ...headers, "Webhook-Signature": "v1a,%%%" }, body, 1200],
    [key.did, {}, body, 1200],
    [key.did, pushed("[]"), "[]", 1200],
    [key.did, pushed("null"), "null", 1200],
  ];
  for (const [venue, sent, text, now] of refused) {
    assert.throws(() => receive(venue, sent, text, { now }), NotAuthentic);
  }
  assert.throws(() => receive("did:web:x.example", headers, body), RangeError);
});
