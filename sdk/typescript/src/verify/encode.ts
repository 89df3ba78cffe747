// The canonical encoding (CAD003) of JSON-shaped values, and their IDs.
//
// A cell is written directly into the buffer of its parent. Once it is complete, its length decides:
// a short encoding stays; a longer one is hashed, removed again and replaced by a reference.

import { CHUNK_BYTES, EMBEDDED_BYTES_MAX, FAN_OUT, HASH_LEAF_MAX, KEY_HASHES_MAX } from "./limits.js";
import { hex, sha3 } from "./sha3.js";
import type { Value, ValueMap } from "./value.js";

const NIL = 0x00;
const INTEGER = 0x10;
const BIG_INTEGER = 0x19;
const DOUBLE = 0x1d;
const REFERENCE = 0x20;
const STRING = 0x30;
const BLOB = 0x31;
const VECTOR = 0x80;
const MAP = 0x82;
const FALSE = 0xb0;
const TRUE = 0xb1;

const utf8 = new TextEncoder();

/** The canonical encoding of the root cell. Larger children appear in it as references. */
export function encode(value: Value): Uint8Array {
  const writer = new Writer();
  writer.value(value);
  return writer.written();
}

/** The Value ID: `0x` and 64 lower-case hex digits. */
export function valueId(value: Value): string {
  return "0x" + hex(hashOf(value));
}

/** The SHA3-256 hash of the encoding of a value. */
function hashOf(value: Value): Uint8Array {
  const writer = new Writer();
  writer.value(value);
  return writer.hash();
}

/** Whether two values have the same ID. */
export function isSame(a: Value | undefined, b: Value | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return valueId(a) === valueId(b);
}

interface Entry {
  readonly hash: Uint8Array;
  readonly key: string;
  readonly value: Value;
}

class Writer {
  private bytes = new Uint8Array(512);
  private length = 0;

  written(): Uint8Array {
    return this.bytes.slice(0, this.length);
  }

  hash(): Uint8Array {
    return sha3(this.bytes, 0, this.length);
  }

  value(value: Value): void {
    switch (typeof value) {
      case "boolean":
        return this.byte(value ? TRUE : FALSE);
      case "bigint":
        return this.integer(value);
      case "number":
        return this.double(value);
      case "string":
        return this.text(STRING, utf8.encode(value));
    }
    if (value === null) return this.byte(NIL);
    if (value instanceof Map) return this.map(sortedEntries(value));
    const items = value as readonly Value[];
    this.vector(items, 0, items.length);
  }

  /** Writes a child: its encoding if that is short, else a reference to it. */
  private slot(write: () => void): void {
    const start = this.length;
    write();
    if (this.length - start <= EMBEDDED_BYTES_MAX) return;
    const id = sha3(this.bytes, start, this.length);
    this.length = start;
    this.byte(REFERENCE);
    this.raw(id);
  }

  private integer(value: bigint): void {
    const bytes = twosComplement(value);
    if (bytes.length <= 8) {
      this.byte(INTEGER + bytes.length);
    } else {
      this.byte(BIG_INTEGER);
      this.count(bytes.length);
    }
    this.raw(bytes);
  }

  private double(value: number): void {
    const bits = new DataView(new ArrayBuffer(8));
    bits.setFloat64(0, value);
    this.byte(DOUBLE);
    this.raw(new Uint8Array(bits.buffer));
  }

  private text(tag: number, data: Uint8Array): void {
    this.byte(tag);
    this.count(data.length);
    if (data.length <= CHUNK_BYTES) return this.raw(data);
    const size = childSize(CHUNK_BYTES, data.length);
    for (let at = 0; at < data.length; at += size) {
      const chunk = data.subarray(at, Math.min(at + size, data.length));
      this.slot(() => this.text(BLOB, chunk));
    }
  }

  /** Writes the vector of `items[from..to]`. */
  private vector(items: readonly Value[], from: number, to: number): void {
    const count = to - from;
    this.byte(VECTOR);
    this.count(count);
    if (count <= FAN_OUT) return this.elements(items, from, to);
    const tail = count % FAN_OUT;
    if (tail > 0) {
      // The last elements come first, then everything before them as one vector.
      this.elements(items, to - tail, to);
      return this.slot(() => this.vector(items, from, to - tail));
    }
    const size = childSize(FAN_OUT, count);
    for (let at = from; at < to; at += size) {
      this.slot(() => this.vector(items, at, Math.min(at + size, to)));
    }
  }

  private elements(items: readonly Value[], from: number, to: number): void {
    for (let at = from; at < to; at++) this.slot(() => this.value(items[at]!));
  }

  /** Writes the map of entries that are sorted by hash. */
  private map(entries: readonly Entry[]): void {
    this.byte(MAP);
    this.count(entries.length);
    if (entries.length <= HASH_LEAF_MAX) {
      for (const entry of entries) {
        this.slot(() => this.value(entry.key));
        this.slot(() => this.value(entry.value));
      }
      return;
    }
    const shift = commonNibbles(entries[0]!.hash, entries[entries.length - 1]!.hash);
    const groups: Entry[][] = [];
    let mask = 0;
    let digit = -1;
    for (const entry of entries) {
      const found = nibble(entry.hash, shift);
      if (found !== digit) {
        digit = found;
        mask |= 1 << digit;
        groups.push([]);
      }
      groups[groups.length - 1]!.push(entry);
    }
    this.byte(shift);
    this.byte(mask >> 8);
    this.byte(mask & 0xff);
    for (const group of groups) this.slot(() => this.map(group));
  }

  /** Appends a count: base 128, most significant group first, in the shortest form. */
  private count(count: number): void {
    let scale = 1;
    while (count / scale >= 128) scale *= 128;
    for (; scale > 1; scale /= 128) this.byte((Math.floor(count / scale) % 128) | 0x80);
    this.byte(count % 128);
  }

  private byte(byte: number): void {
    if (this.length === this.bytes.length) this.grow(1);
    this.bytes[this.length++] = byte;
  }

  private raw(bytes: Uint8Array): void {
    if (this.length + bytes.length > this.bytes.length) this.grow(bytes.length);
    this.bytes.set(bytes, this.length);
    this.length += bytes.length;
  }

  private grow(more: number): void {
    const larger = new Uint8Array(Math.max(2 * this.bytes.length, this.length + more));
    larger.set(this.bytes.subarray(0, this.length));
    this.bytes = larger;
  }
}

/** The size of the children of a tree: the smallest power that needs at most 16 of them. */
function childSize(leaf: number, count: number): number {
  let size = leaf;
  while (size * FAN_OUT < count) size *= FAN_OUT;
  return size;
}

/** The shortest two's-complement bytes, big-endian. Zero has none. */
function twosComplement(value: bigint): Uint8Array {
  if (value === 0n) return new Uint8Array(0);
  const magnitude = value < 0n ? -value - 1n : value;
  const bits = magnitude === 0n ? 0 : magnitude.toString(2).length;
  const length = Math.floor(bits / 8) + 1;
  const digits = BigInt.asUintN(8 * length, value)
    .toString(16)
    .padStart(2 * length, "0");
  return Uint8Array.from({ length }, (_, i) => parseInt(digits.slice(2 * i, 2 * i + 2), 16));
}

const keyHashes = new Map<string, Uint8Array>();

function keyHash(key: string): Uint8Array {
  const known = keyHashes.get(key);
  if (known) return known;
  const hash = hashOf(key);
  if (key.length <= 32 && keyHashes.size < KEY_HASHES_MAX) keyHashes.set(key, hash);
  return hash;
}

function sortedEntries(map: ValueMap): Entry[] {
  const entries: Entry[] = [];
  for (const [key, value] of map) entries.push({ hash: keyHash(key), key, value });
  return entries.sort((a, b) => compare(a.hash, b.hash));
}

/** Orders names as a map does: by the hash of their encoding. */
export function compareKeys(a: string, b: string): number {
  return compare(keyHash(a), keyHash(b));
}

function compare(a: Uint8Array, b: Uint8Array): number {
  for (let i = 0; i < a.length; i++) {
    if (a[i] !== b[i]) return a[i]! - b[i]!;
  }
  return 0;
}

function nibble(hash: Uint8Array, at: number): number {
  const byte = hash[at >> 1]!;
  return at % 2 === 0 ? byte >> 4 : byte & 0x0f;
}

function commonNibbles(a: Uint8Array, b: Uint8Array): number {
  let at = 0;
  while (at < 64 && nibble(a, at) === nibble(b, at)) at++;
  return at;
}
