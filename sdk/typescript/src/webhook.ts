// Jobs that a venue sends to a URL: checks who sent a request before anything in it is believed.

import { CatenaError } from "./errors.js";
import { WEBHOOK_AGE_S, WEBHOOK_SIGNATURES_MAX } from "./limits.js";
import type { Claim } from "./run.js";
import { isSignedBy } from "./verify/ed25519.js";
import { publicKeyOf } from "./verify/signature.js";

/** The request was not sent by this venue, or not just now. Answer with 401 and do nothing. */
export class NotAuthentic extends CatenaError {}

/** A job that a venue has sent. Answer with its output, or with 202 and end it later with `token`. */
export interface PushedJob extends Claim {
  /** DID of the venue. */
  readonly venue: string;
  /** Bearer token for `end`, `beat`, `step` and `call` of this job. */
  readonly token: string;
}

/** Headers as `fetch` or `node:http` have them. */
type HeaderSource = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

export interface ReceiveOptions {
  /** Largest age of the request in seconds. */
  readonly maxAgeS?: number;
  /** Unix time in seconds; that of this host unless it is given. */
  readonly now?: number;
}

/**
 * Checks a request and returns its job. Throws `NotAuthentic`.
 *
 * `venue` is the did:key of the venue, which the receiver must know: a document that names its own sender proves nothing. `body` is
 * the request's body as it was received. A repetition has the same `Idempotency-Key`; to recognise it is up to the receiver.
 */
export function receive(venue: string, headers: HeaderSource, body: Uint8Array | string, options?: ReceiveOptions): PushedJob {
  checkWebhook(venue, headers, body, options);
  let document: Partial<PushedJob> | null;
  try {
    document = JSON.parse(typeof body === "string" ? body : new TextDecoder().decode(body)) as Partial<PushedJob> | null;
  } catch {
    document = null;
  }
  const { id, fence, token } = document ?? {};
  if (typeof id !== "string" || typeof fence !== "number" || typeof token !== "string") {
    throw new NotAuthentic("the body is not a job: it needs `id`, `fence` and `token`");
  }
  return { ...(document as PushedJob), steps: document?.steps ?? [], venue };
}

/** Checks that a venue has signed a request, as Standard Webhooks describe (`v1a`). Throws `NotAuthentic`. */
export function checkWebhook(
  venue: string,
  headers: HeaderSource,
  body: Uint8Array | string,
  { maxAgeS = WEBHOOK_AGE_S, now = Date.now() / 1000 }: ReceiveOptions = {},
): void {
  const key = publicKeyOf(venue);
  if (!key) throw new RangeError(`"${venue}" is not a did:key with an Ed25519 key`);
  const id = header(headers, "webhook-id");
  const timestamp = header(headers, "webhook-timestamp");
  const signatures = header(headers, "webhook-signature").split(" ").slice(0, WEBHOOK_SIGNATURES_MAX);
  if (!/^\d{1,12}$/.test(timestamp)) throw new NotAuthentic("the header webhook-timestamp is not a time in seconds");
  if (Math.abs(now - Number(timestamp)) > maxAgeS) {
    throw new NotAuthentic(`the request was not signed within the last ${maxAgeS} seconds`);
  }
  const signed = Buffer.concat([Buffer.from(`${id}.${timestamp}.`), Buffer.from(body as Uint8Array)]);
  const isValid = signatures.some(
    (text) => text.startsWith("v1a,") && isSignedBy(key, signed, Buffer.from(text.slice("v1a,".length), "base64")),
  );
  if (!isValid) throw new NotAuthentic(`the request is not signed by ${venue}`);
}

function header(headers: HeaderSource, name: string): string {
  const entries = headers instanceof Headers ? headers.entries() : Object.entries(headers);
  for (const [own, value] of entries) {
    if (own.toLowerCase() === name && typeof value === "string" && value !== "") return value;
  }
  throw new NotAuthentic(`the header ${name} is missing`);
}
