// Verification of Ed25519 signatures (RFC 8032), as strict as that of a venue: weak keys and malleable
// signatures are refused. It runs wherever JavaScript does; browsers offer signatures only
// asynchronously, and not all of them offer these.

import { sha512 } from "./sha512.js";

const P = 2n ** 255n - 19n;
const ORDER = 2n ** 252n + 27742317777372353535851937790883648493n;
const D = mod(-121665n * power(121666n, P - 2n));
const ROOT_OF_MINUS_ONE = power(2n, (P - 1n) / 4n);

/** Extended coordinates: x = X/Z, y = Y/Z and x*y = T/Z. */
type Point = readonly [x: bigint, y: bigint, z: bigint, t: bigint];

const IDENTITY: Point = [0n, 1n, 1n, 0n];
const BASE = basePoint();

/** Whether the signature over a message was made with this key. */
export function isSignedBy(key: Uint8Array, message: Uint8Array, signature: Uint8Array): boolean {
  if (key.length !== 32 || signature.length !== 64) return false;
  const start = signature.subarray(0, 32);
  const point = decompress(key);
  const commitment = decompress(start);
  const response = littleEndian(signature.subarray(32));
  if (!point || !commitment || response >= ORDER || isWeak(point) || isWeak(commitment)) return false;
  const hashed = new Uint8Array(64 + message.length);
  hashed.set(start);
  hashed.set(key, 32);
  hashed.set(message, 64);
  const challenge = littleEndian(sha512(hashed)) % ORDER;
  return isEqual(multiply(response, BASE), add(commitment, multiply(challenge, point)));
}

function mod(number: bigint): bigint {
  const rest = number % P;
  return rest < 0n ? rest + P : rest;
}

function power(base: bigint, exponent: bigint): bigint {
  let result = 1n;
  let factor = mod(base);
  for (let left = exponent; left > 0n; left >>= 1n) {
    if (left & 1n) result = mod(result * factor);
    factor = mod(factor * factor);
  }
  return result;
}

function littleEndian(bytes: Uint8Array): bigint {
  let number = 0n;
  for (let at = bytes.length; at > 0; at--) number = (number << 8n) | BigInt(bytes[at - 1]!);
  return number;
}

function add(p: Point, q: Point): Point {
  const a = mod((p[1] - p[0]) * (q[1] - q[0]));
  const b = mod((p[1] + p[0]) * (q[1] + q[0]));
  const c = mod(2n * p[3] * q[3] * D);
  const d = mod(2n * p[2] * q[2]);
  const [e, f, g, h] = [b - a, d - c, d + c, b + a];
  return [mod(e * f), mod(g * h), mod(f * g), mod(e * h)];
}

function multiply(scalar: bigint, point: Point): Point {
  let result = IDENTITY;
  let doubled = point;
  for (let left = scalar; left > 0n; left >>= 1n) {
    if (left & 1n) result = add(result, doubled);
    doubled = add(doubled, doubled);
  }
  return result;
}

function isEqual(p: Point, q: Point): boolean {
  return mod(p[0] * q[2] - q[0] * p[2]) === 0n && mod(p[1] * q[2] - q[1] * p[2]) === 0n;
}

/** Whether the point is one of the eight of small order. */
function isWeak(point: Point): boolean {
  return isEqual(multiply(8n, point), IDENTITY);
}

/** The point of 32 bytes. Undefined if they are not the encoding of one. */
function decompress(bytes: Uint8Array): Point | undefined {
  const encoded = littleEndian(bytes);
  const sign = encoded >> 255n;
  const y = encoded & ((1n << 255n) - 1n);
  if (y >= P) return undefined;
  const square = mod((y * y - 1n) * power(D * y * y + 1n, P - 2n));
  let x = power(square, (P + 3n) / 8n);
  if (mod(x * x - square) !== 0n) x = mod(x * ROOT_OF_MINUS_ONE);
  if (mod(x * x - square) !== 0n || (x === 0n && sign === 1n)) return undefined;
  if ((x & 1n) !== sign) x = P - x;
  return [x, y, 1n, mod(x * y)];
}

function basePoint(): Point {
  const y = mod(4n * power(5n, P - 2n));
  const bytes = Uint8Array.from({ length: 32 }, (_, at) => Number((y >> BigInt(8 * at)) & 255n));
  const point = decompress(bytes);
  if (!point) throw new Error("the base point is on the curve");
  return point;
}
