// Signatures of ends (`crates/job/src/signature.rs`): a worker with a key signs the Value ID of
// `{job, fence, output}` or `{job, fence, error}`. The key is that of the did:key in the record's `by`.

import { isSignedBy } from "./ed25519.js";
import { valueId } from "./encode.js";
import type { StateRecord } from "./record.js";
import { asI64, asMap } from "./value.js";
import type { Value } from "./value.js";

const BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
/** The prefix of an Ed25519 key in a did:key (multicodec). */
const ED25519 = 0xed01n;
const DID_KEY = "did:key:z";
/** Longest text of a key; one of 34 bytes has 48 digits at most. */
const BASE58_DIGITS_MAX = 64;

/** How a job ended, as its worker signs it. */
export type SignedResult = { readonly output: Value } | { readonly error: string };

/** What a worker signs: the 32 bytes of a Value ID. */
export function endId(job: string, fence: bigint, result: SignedResult): Uint8Array {
  const members = Object.entries(result) as [string, Value][];
  return bytesOf(valueId(new Map<string, Value>([["job", job], ["fence", fence], ...members])).slice(2));
}

/** The Ed25519 key in a did:key. Undefined if it is another DID. */
export function publicKeyOf(did: string): Uint8Array | undefined {
  if (!did.startsWith(DID_KEY) || did.length > DID_KEY.length + BASE58_DIGITS_MAX) return undefined;
  let number = 0n;
  for (const digit of did.slice(DID_KEY.length)) {
    const value = BASE58.indexOf(digit);
    if (value < 0) return undefined;
    number = number * 58n + BigInt(value);
  }
  if (number >> 256n !== ED25519) return undefined;
  const key = bytesOf((number & ((1n << 256n) - 1n)).toString(16).padStart(64, "0"));
  return didKey(key) === did ? key : undefined;
}

/** The did:key of a public key. */
export function didKey(key: Uint8Array): string {
  let number = ED25519;
  for (const byte of key) number = (number << 8n) | BigInt(byte);
  let digits = "";
  for (; number > 0n; number /= 58n) digits = BASE58[Number(number % 58n)]! + digits;
  return DID_KEY + digits;
}

/** Whether the holder of the key in a did:key signed the end of a job. */
export function isEndSignedBy(did: string, signature: string, job: string, fence: bigint, result: SignedResult): boolean {
  const key = publicKeyOf(did);
  const value = fromBase64url(signature);
  return key !== undefined && value !== undefined && isSignedBy(key, endId(job, fence, result), value);
}

/**
 * Checks a signature next to a record: true if whoever ended the job signed this end, undefined if it is a signature of another
 * kind, and otherwise the reason why it is not valid.
 */
export function checkSignature(job: string, record: StateRecord, signature: Value): true | undefined | string {
  const members = asMap(signature);
  const fence = asI64(members?.get("fence"));
  const value = members?.get("value");
  if (fence === undefined || fence < 0n || value === undefined) return undefined;
  const result = resultOf(record);
  if (result === undefined) return undefined;
  const named = record.fields.get("by");
  const by = typeof named === "string" ? named : "";
  if (typeof value === "string" && isEndSignedBy(by, value, job, fence, result)) return true;
  return `the signature of the end is not that of ${by || "nobody, whom the record names"}`;
}

function resultOf({ status, fields }: StateRecord): SignedResult | undefined {
  if (status === "COMPLETE") return { output: fields.get("output") ?? null };
  if (status !== "FAILED") return undefined;
  const error = fields.get("error");
  return { error: typeof error === "string" ? error : "" };
}

function bytesOf(digits: string): Uint8Array {
  return Uint8Array.from({ length: digits.length / 2 }, (_, at) => parseInt(digits.slice(2 * at, 2 * at + 2), 16));
}

/** Decodes base64 in the URL-safe alphabet, without padding. Undefined if the text is something else. */
function fromBase64url(text: string): Uint8Array | undefined {
  if (!/^[\w-]*$/.test(text) || text.length % 4 === 1) return undefined;
  const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(plain, (letter) => letter.charCodeAt(0));
}
