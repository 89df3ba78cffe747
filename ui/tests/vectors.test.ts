// The encoder and the tokenizer against the vectors of the reference implementation.

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { encode, valueId } from "@verify/encode";
import { readText } from "@verify/json";
import { hex, sha3 } from "@verify/sha3";
import type { Value } from "@verify/value";

interface Vector {
  name: string;
  category: string;
  json?: string;
  gen?: string;
  n?: number;
  encoding_hex?: string;
  value_id: string;
}

const file = new URL("../../crates/value/vectors/cad003.json", import.meta.url);
const vectors = JSON.parse(readFileSync(file, "utf8")) as {
  vectors: Vector[];
  json_syntax: { json: string }[];
};

/** Vectors that a strict reader may refuse, because the reference accepts them with a loss. */
const isLossy = ({ category, name }: Vector): boolean =>
  ["string_quirk", "json_quirk"].includes(category) || /^double_-?1e400$/.test(name);

const range = (n: number): number[] => Array.from({ length: n }, (_, i) => i);
const wrap = (n: number, inner: (value: Value) => Value): Value =>
  range(n).reduce<Value>((value) => inner(value), null);

const GENERATORS: Record<string, (n: number) => Value> = {
  vector_of_ints: (n) => range(n).map(BigInt),
  vector_of_nil: (n) => range(n).map(() => null),
  vector_of_strings: (n) => range(n).map((i) => `item-${i}`),
  map_str_int: (n) => new Map(range(n).map((i) => [`k${i}`, BigInt(i)])),
  map_str_int_rev: (n) => new Map(range(n).reverse().map((i) => [`k${i}`, BigInt(i)])),
  map_str_str: (n) => new Map(range(n).map((i) => [`key-${i}`, `value-${i}`])),
  string_a: (n) => "a".repeat(n),
  string_abc: (n) => range(n).map((i) => String.fromCharCode(97 + (i % 26))).join(""),
  string_euro: (n) => "\u20ac".repeat(n),
  nested_vec: (n) => wrap(n, (value) => [value]),
  nested_map: (n) => wrap(n, (value) => new Map([["child", value]])),
};

describe("the canonical encoding", () => {
  it("equals the reference on every JSON vector", () => {
    let checked = 0;
    for (const vector of vectors.vectors) {
      if (vector.json === undefined) continue;
      let value: Value;
      try {
        value = readText(vector.json, 6000);
      } catch (error) {
        expect(isLossy(vector), `${vector.name}: ${error}`).toBe(true);
        continue;
      }
      if (isLossy(vector) && valueId(value) !== "0x" + vector.value_id) continue;
      expect(valueId(value), vector.name).toBe("0x" + vector.value_id);
      if (vector.encoding_hex) expect(hex(encode(value)), vector.name).toBe(vector.encoding_hex);
      checked++;
    }
    expect(checked).toBeGreaterThan(320);
  });

  it("equals the reference on every generated vector of a JSON shape", () => {
    let checked = 0;
    for (const vector of vectors.vectors) {
      const make = GENERATORS[vector.gen ?? ""];
      if (!make) continue;
      expect(valueId(make(vector.n ?? 0)), vector.name).toBe("0x" + vector.value_id);
      checked++;
    }
    expect(checked).toBeGreaterThan(120);
  });
});

describe("the tokenizer", () => {
  it("refuses what is not JSON", () => {
    expect(vectors.json_syntax).toHaveLength(30);
    for (const { json } of vectors.json_syntax) {
      expect(() => readText(json), JSON.stringify(json)).toThrow();
    }
  });

  it("distinguishes integers from doubles and keeps big integers", () => {
    expect(readText("[1,1.0,12345678901234567890,-0,1e2]")).toEqual([
      1n,
      1,
      12345678901234567890n,
      0n,
      100,
    ]);
  });

  it("lets the last of equal members win, also if one is escaped", () => {
    expect(readText('{"a":1,"\\u0061":2}')).toEqual(new Map([["a", 2n]]));
  });

  it.each([
    ['{\n  "a": 1,\n}', "expected a member name at line 3 column 1"],
    ["[1, 2", "unexpected end of document at line 1 column 6"],
    ["[01]", "number with a leading zero at line 1 column 2"],
    ['{"a":1e400}', "number too large for a double at line 1 column 6"],
    ['"\\ud800x"', "lone surrogate in a string at line 1 column 2"],
    ['"\\udc00"', "lone surrogate in a string at line 1 column 2"],
    ['"a\\q"', "invalid escape sequence at line 1 column 3"],
    ['"a\tb"', "unescaped control character in a string at line 1 column 3"],
    ["1 2", "unexpected text after the document at line 1 column 3"],
    ["\ufeff1", "unexpected byte-order mark at line 1 column 1"],
    ["nul", "unexpected end of document at line 1 column 4"],
    ["-x", "expected a digit at line 1 column 2"],
    ["9".repeat(9865), "integer of more than 4096 bytes at line 1 column 1"],
  ])("says what is wrong and where, case %#", (text, message) => {
    expect(() => readText(text)).toThrow(message);
  });

  it("bounds the nesting", () => {
    const nested = (depth: number): string => "[".repeat(depth) + "]".repeat(depth);
    expect(() => readText(nested(144))).not.toThrow();
    expect(() => readText(nested(145))).toThrow("more than 144 nested");
  });
});

describe("SHA3-256", () => {
  it.each([
    ["", "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a"],
    ["abc", "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532"],
    ["a".repeat(200), undefined],
  ])("hashes case %#", async (text, expected) => {
    const { createHash } = await import("node:crypto");
    const bytes = new TextEncoder().encode(text);
    const other = createHash("sha3-256").update(bytes).digest("hex");
    expect(hex(sha3(bytes))).toBe(expected ?? other);
    expect(hex(sha3(bytes))).toBe(other);
  });
});
