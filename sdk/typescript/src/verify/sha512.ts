// SHA-512 (FIPS 180-4), for the few short texts that signatures hash. The constants are computed from
// their definition: the fractional parts of roots of the first primes.

const MASK = (1n << 64n) - 1n;
const ROUNDS = 80;
const BLOCK_BYTES = 128;
const LENGTH_BYTES = 16;

const PRIMES = primes(ROUNDS);
const ROUND_CONSTANTS = PRIMES.map((prime) => fraction(prime, 3n));
const START = PRIMES.slice(0, 8).map((prime) => fraction(prime, 2n));

function primes(count: number): bigint[] {
  const found: bigint[] = [];
  for (let n = 2n; found.length < count; n++) if (found.every((prime) => n % prime !== 0n)) found.push(n);
  return found;
}

/** The first 64 bits after the point of a root of a number. */
function fraction(number: bigint, degree: bigint): bigint {
  const scaled = number << (64n * degree);
  let low = 0n;
  let high = 1n << 80n;
  while (high - low > 1n) {
    const middle = (low + high) / 2n;
    if (middle ** degree <= scaled) low = middle;
    else high = middle;
  }
  return low & MASK;
}

function rotate(word: bigint, bits: bigint): bigint {
  return ((word >> bits) | (word << (64n - bits))) & MASK;
}

/** The SHA-512 hash of bytes: 64 bytes. */
export function sha512(message: Uint8Array): Uint8Array {
  const blocks = Math.ceil((message.length + 1 + LENGTH_BYTES) / BLOCK_BYTES);
  const padded = new Uint8Array(blocks * BLOCK_BYTES);
  padded.set(message);
  padded[message.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, BigInt(message.length) * 8n);
  let state = START;
  for (let at = 0; at < padded.length; at += BLOCK_BYTES) state = compress(state, view, at);
  const hash = new DataView(new ArrayBuffer(64));
  state.forEach((word, at) => hash.setBigUint64(8 * at, word));
  return new Uint8Array(hash.buffer);
}

function compress(state: readonly bigint[], block: DataView, start: number): bigint[] {
  const words: bigint[] = [];
  for (let at = 0; at < ROUNDS; at++) {
    if (at < 16) words.push(block.getBigUint64(start + 8 * at));
    else {
      const early = words[at - 15]!;
      const late = words[at - 2]!;
      const s0 = rotate(early, 1n) ^ rotate(early, 8n) ^ (early >> 7n);
      const s1 = rotate(late, 19n) ^ rotate(late, 61n) ^ (late >> 6n);
      words.push((words[at - 16]! + s0 + words[at - 7]! + s1) & MASK);
    }
  }
  let [a, b, c, d, e, f, g, h] = state as [bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint];
  for (let at = 0; at < ROUNDS; at++) {
    const s1 = rotate(e, 14n) ^ rotate(e, 18n) ^ rotate(e, 41n);
    const choice = (e & f) ^ (~e & MASK & g);
    const first = h + s1 + choice + ROUND_CONSTANTS[at]! + words[at]!;
    const s0 = rotate(a, 28n) ^ rotate(a, 34n) ^ rotate(a, 39n);
    const majority = (a & b) ^ (a & c) ^ (b & c);
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) & MASK, c, b, a, (first + s0 + majority) & MASK];
  }
  return [a, b, c, d, e, f, g, h].map((word, at) => (word + state[at]!) & MASK);
}
