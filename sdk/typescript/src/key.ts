// Keys: the identity of a worker or caller, tokens that it issues for itself, and what a worker signs.

import { createPrivateKey, createPublicKey, randomBytes, sign } from "node:crypto";
import type { KeyObject } from "node:crypto";
import { readFileSync } from "node:fs";
import { Unreachable } from "./errors.js";
import { REQUEST_TIMEOUT_MS, TOKEN_REFRESH_MS, TOKEN_S } from "./limits.js";
import { readText } from "./verify/json.js";
import { didKey, endId } from "./verify/signature.js";

const KEY_BYTES = 32;
/** What precedes the 32 bytes of an Ed25519 key in PKCS #8. */
const PKCS8 = Buffer.from("302e020100300506032b657004220420", "hex");
const HEX = /^(?:0x)?([0-9a-fA-F]{64})$/;

/** An Ed25519 key pair. Its DID is the identity of whoever holds it. */
export class Key {
  readonly did: string;
  readonly publicKey: Uint8Array;
  readonly #secret: KeyObject;

  constructor(seed: Uint8Array) {
    if (seed.length !== KEY_BYTES) throw new RangeError(`a key has ${KEY_BYTES} bytes, not ${seed.length}`);
    this.#secret = createPrivateKey({ key: Buffer.concat([PKCS8, seed]), format: "der", type: "pkcs8" });
    const spki = createPublicKey(this.#secret).export({ format: "der", type: "spki" });
    this.publicKey = new Uint8Array(spki.subarray(-KEY_BYTES));
    this.did = didKey(this.publicKey);
  }

  /** A new key. */
  static generate(): Key {
    return new Key(randomBytes(KEY_BYTES));
  }

  /** The key in a file of 32 bytes or 64 hex digits, as `catena --key FILE` reads it. */
  static fromFile(file: string): Key {
    const data = readFileSync(file);
    const digits = HEX.exec(data.toString("latin1").trim())?.[1];
    if (digits !== undefined) return new Key(Buffer.from(digits, "hex"));
    if (data.length !== KEY_BYTES) {
      throw new RangeError(`${file} is not a key: expected ${KEY_BYTES} bytes or ${2 * KEY_BYTES} hex digits`);
    }
    return new Key(data);
  }

  /** The Ed25519 signature over a message. */
  sign(message: Uint8Array): Uint8Array {
    return new Uint8Array(sign(null, message, this.#secret));
  }

  /** The signature of the end of a job. */
  signEnd(job: string, fence: number, result: { readonly output: unknown } | { readonly error: string }): string {
    // What counts is the value that the venue reads from the JSON.
    const value = "output" in result ? { output: readText(JSON.stringify(result.output)) } : result;
    return Buffer.from(this.sign(endId(job, BigInt(fence), value))).toString("base64url");
  }

  /** A token for the venue with this DID, at this URL without a path. It is valid for a few minutes. */
  token(audience: string, origin: string): string {
    const now = Math.floor(Date.now() / 1000);
    const header = { alg: "EdDSA", typ: "JWT", kid: this.did.slice("did:key:".length) };
    const claims = { iss: this.did, sub: this.did, iat: now, exp: now + TOKEN_S, aud: audience, origin };
    const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");
    const signed = `${part(header)}.${part(claims)}`;
    return `${signed}.${Buffer.from(this.sign(Buffer.from(signed))).toString("base64url")}`;
  }
}

/** The key in the file that `CATENA_KEY` names. */
export function keyInEnvironment(): Key | undefined {
  const file = process.env["CATENA_KEY"];
  return file ? Key.fromFile(file) : undefined;
}

/** Issues tokens for one venue with a key. */
export class TokenIssuer {
  private audience: string | undefined;
  private current = "";
  private refreshAt = -Infinity;

  constructor(
    private readonly key: Key,
    private readonly url: string,
  ) {}

  async token(): Promise<string> {
    this.audience ??= await this.venueDid();
    if (performance.now() >= this.refreshAt) {
      this.current = this.key.token(this.audience, new URL(this.url).origin);
      this.refreshAt = performance.now() + TOKEN_REFRESH_MS;
    }
    return this.current;
  }

  private async venueDid(): Promise<string> {
    const document = new URL("/.well-known/did.json", this.url);
    const response = await fetch(document, { redirect: "manual", signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS) });
    const { id } = response.ok ? ((await response.json()) as { id?: unknown }) : {};
    if (typeof id !== "string") throw new Unreachable(`${document} does not name the DID of a venue`);
    return id;
  }
}
