// SHA3-256 (FIPS 202). Lanes are pairs of 32-bit halves, low half first, because 64-bit integers in
// JavaScript are allocated and an order of magnitude slower.

const RATE_BYTES = 136;
const ROUNDS = 24;

// Round constants, low and high halves alternating.
const ROUND_CONSTANTS = roundConstants();
// For each lane in the order in which rho and pi visit it: its rotation and its destination.
const ROTATIONS = [
  1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 2, 14, 27, 41, 56, 8, 25, 43, 62, 18, 39, 61, 20, 44,
];
const LANES = [
  10, 7, 11, 17, 18, 3, 5, 16, 8, 21, 24, 4, 15, 23, 19, 13, 12, 2, 20, 14, 22, 9, 6, 1,
];

/** Computes the round constants from the linear feedback shift register of the specification. */
function roundConstants(): Int32Array {
  const constants = new Int32Array(2 * ROUNDS);
  let register = 1;
  for (let round = 0; round < ROUNDS; round++) {
    for (let j = 0; j < 7; j++) {
      if (register & 1) {
        const bit = (1 << j) - 1;
        const half = bit < 32 ? 0 : 1;
        constants[2 * round + half] = constants[2 * round + half]! ^ (1 << (bit & 31));
      }
      register = register & 0x80 ? ((register << 1) ^ 0x171) & 0xff : register << 1;
    }
  }
  return constants;
}

const parity = new Int32Array(10);

function permute(state: Int32Array): void {
  const s = state;
  const c = parity;
  for (let round = 0; round < ROUNDS; round++) {
    for (let x = 0; x < 10; x++) {
      c[x] = s[x]! ^ s[x + 10]! ^ s[x + 20]! ^ s[x + 30]! ^ s[x + 40]!;
    }
    for (let x = 0; x < 10; x += 2) {
      const left = (x + 8) % 10;
      const right = (x + 2) % 10;
      const low = c[right]!;
      const high = c[right + 1]!;
      const dLow = c[left]! ^ ((low << 1) | (high >>> 31));
      const dHigh = c[left + 1]! ^ ((high << 1) | (low >>> 31));
      for (let y = 0; y < 50; y += 10) {
        s[x + y] = s[x + y]! ^ dLow;
        s[x + y + 1] = s[x + y + 1]! ^ dHigh;
      }
    }
    let low = s[2]!;
    let high = s[3]!;
    for (let t = 0; t < 24; t++) {
      const shift = ROTATIONS[t]!;
      const to = 2 * LANES[t]!;
      const n = shift & 31;
      // Rotations of 0 and 32 do not occur, so neither shift below is by 32.
      const a = shift < 32 ? low : high;
      const b = shift < 32 ? high : low;
      const rotatedLow = (a << n) | (b >>> (32 - n));
      const rotatedHigh = (b << n) | (a >>> (32 - n));
      low = s[to]!;
      high = s[to + 1]!;
      s[to] = rotatedLow;
      s[to + 1] = rotatedHigh;
    }
    for (let y = 0; y < 50; y += 10) {
      for (let x = 0; x < 10; x++) c[x] = s[y + x]!;
      for (let x = 0; x < 10; x++) {
        s[y + x] = c[x]! ^ (~c[(x + 2) % 10]! & c[(x + 4) % 10]!);
      }
    }
    s[0] = s[0]! ^ ROUND_CONSTANTS[2 * round]!;
    s[1] = s[1]! ^ ROUND_CONSTANTS[2 * round + 1]!;
  }
}

const state = new Int32Array(50);

/** XORs a byte into the state. */
function absorb(at: number, byte: number): void {
  const word = at >> 2;
  state[word] = state[word]! ^ (byte << ((at & 3) << 3));
}

/** The SHA3-256 hash of `bytes[from..to]`: 32 bytes. */
export function sha3(bytes: Uint8Array, from = 0, to = bytes.length): Uint8Array<ArrayBuffer> {
  state.fill(0);
  let at = from;
  while (to - at >= RATE_BYTES) {
    for (let word = 0; word < RATE_BYTES / 4; word++, at += 4) {
      state[word] =
        state[word]! ^
        (bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24));
    }
    permute(state);
  }
  const rest = to - at;
  for (let i = 0; i < rest; i++) absorb(i, bytes[at + i]!);
  absorb(rest, 0x06);
  absorb(RATE_BYTES - 1, 0x80);
  permute(state);
  const hash = new Uint8Array(32);
  for (let i = 0; i < 32; i++) hash[i] = state[i >> 2]! >>> ((i & 3) << 3);
  return hash;
}

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/** Lower-case hex digits. */
export function hex(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += HEX[byte];
  return text;
}
