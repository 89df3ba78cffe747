// Reads JSON text into a value, by the same rules as the venue (`crates/value/src/json/read.rs`).
//
// `JSON.parse` cannot be used for verification: it reads `1.0` as `1`, rounds big integers, and
// accepts lone surrogates.

import { ANSWER_DEPTH_MAX, INTEGER_BYTES_MAX, INTEGER_DIGITS_MAX } from "./limits.js";
import type { Value } from "./value.js";

/** The text is not a supported JSON document. */
export class JsonError extends Error {
  constructor(
    readonly fault: string,
    /** From one. */
    readonly line: number,
    /** In bytes, from one. */
    readonly column: number,
  ) {
    super(`${fault} at line ${line} column ${column}`);
  }
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;

/** Reads one document from UTF-8 bytes. */
export function readBytes(bytes: Uint8Array, depthMax = ANSWER_DEPTH_MAX): Value {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new JsonError("invalid UTF-8", 1, 1);
  }
  return readText(text, depthMax);
}

/** Reads one document. */
export function readText(text: string, depthMax = ANSWER_DEPTH_MAX): Value {
  return new Reader(text, depthMax).document();
}

class Reader {
  private at = 0;
  private depth = 0;

  constructor(
    private readonly text: string,
    private readonly depthMax: number,
  ) {}

  document(): Value {
    if (this.text.charCodeAt(0) === 0xfeff) throw this.fault("unexpected byte-order mark");
    this.skipSpace();
    const value = this.value();
    this.skipSpace();
    if (this.at < this.text.length) throw this.fault("unexpected text after the document");
    return value;
  }

  private fault(what: string): JsonError {
    const before = this.text.slice(0, this.at);
    const start = before.lastIndexOf("\n") + 1;
    let line = 1;
    for (let i = before.indexOf("\n"); i >= 0; i = before.indexOf("\n", i + 1)) line++;
    const column = new TextEncoder().encode(before.slice(start)).length + 1;
    return new JsonError(what, line, column);
  }

  private expected(what: string): JsonError {
    const ended = this.at >= this.text.length;
    return this.fault(ended ? "unexpected end of document" : `expected ${what}`);
  }

  private peek(): number {
    // NaN at the end of the text, which equals nothing.
    return this.text.charCodeAt(this.at);
  }

  private skipSpace(): void {
    for (;;) {
      const c = this.peek();
      if (c !== 0x20 && c !== 0x0a && c !== 0x0d && c !== 0x09) return;
      this.at++;
    }
  }

  private value(): Value {
    const c = this.peek();
    switch (c) {
      case QUOTE:
        return this.string();
      case 0x7b:
        return this.nested(() => this.object());
      case 0x5b:
        return this.nested(() => this.array());
      case 0x74:
        return this.word("true", true);
      case 0x66:
        return this.word("false", false);
      case 0x6e:
        return this.word("null", null);
      default:
        if (c === 0x2d || isDigit(c)) return this.number();
        throw this.expected("a value");
    }
  }

  private word(word: string, value: Value): Value {
    for (const letter of word) {
      if (this.text[this.at] !== letter) throw this.expected("a value");
      this.at++;
    }
    return value;
  }

  private nested(inner: () => Value): Value {
    if (this.depth === this.depthMax) {
      throw this.fault(`more than ${this.depthMax} nested arrays and objects`);
    }
    this.depth++;
    this.at++;
    const value = inner();
    this.depth--;
    return value;
  }

  private array(): Value {
    const items: Value[] = [];
    this.skipSpace();
    if (this.peek() === 0x5d) {
      this.at++;
      return items;
    }
    for (;;) {
      this.skipSpace();
      items.push(this.value());
      if (this.separator(0x5d, "`,` or `]`")) return items;
    }
  }

  private object(): Value {
    const members = new Map<string, Value>();
    this.skipSpace();
    if (this.peek() === 0x7d) {
      this.at++;
      return members;
    }
    for (;;) {
      this.skipSpace();
      if (this.peek() !== QUOTE) throw this.expected("a member name");
      const key = this.string();
      this.skipSpace();
      if (this.peek() !== COLON) throw this.expected("`:`");
      this.at++;
      this.skipSpace();
      members.set(key, this.value());
      if (this.separator(0x7d, "`,` or `}`")) return members;
    }
  }

  /** Reads a comma or the end of the container. Returns true at the end. */
  private separator(close: number, what: string): boolean {
    this.skipSpace();
    const c = this.peek();
    if (c !== COMMA && c !== close) throw this.expected(what);
    this.at++;
    return c === close;
  }

  private string(): string {
    this.at++;
    let text = "";
    for (;;) {
      const start = this.at;
      const stop = this.plainRun();
      text += this.text.slice(start, this.at);
      if (stop === QUOTE) {
        this.at++;
        return text;
      }
      text += this.escape();
    }
  }

  /** Advances to the next quote or backslash and returns it. */
  private plainRun(): number {
    for (;;) {
      const c = this.peek();
      if (c === QUOTE || c === BACKSLASH) return c;
      if (c < 0x20) throw this.fault("unescaped control character in a string");
      if (Number.isNaN(c)) throw this.fault("unexpected end of document");
      this.at++;
    }
  }

  private escape(): string {
    const letter = this.text[this.at + 1];
    if (letter === undefined) throw this.fault("unexpected end of document");
    if (letter === "u") return this.unicodeEscape();
    const plain = ESCAPES[letter];
    if (plain === undefined) throw this.fault("invalid escape sequence");
    this.at += 2;
    return plain;
  }

  /** Reads a `\u` escape, or two of them that form a surrogate pair. */
  private unicodeEscape(): string {
    const unit = this.hexUnit(this.at);
    if (unit < 0xd800 || unit > 0xdfff) {
      this.at += 6;
      return String.fromCharCode(unit);
    }
    const isHigh = unit < 0xdc00;
    if (!isHigh || this.text.slice(this.at + 6, this.at + 8) !== "\\u") {
      throw this.fault("lone surrogate in a string");
    }
    const low = this.hexUnit(this.at + 6);
    if (low < 0xdc00 || low > 0xdfff) throw this.fault("lone surrogate in a string");
    this.at += 12;
    return String.fromCharCode(unit, low);
  }

  private hexUnit(at: number): number {
    const digits = this.text.slice(at + 2, at + 6);
    if (!/^[0-9a-fA-F]{4}$/.test(digits)) throw this.fault("invalid escape sequence");
    return parseInt(digits, 16);
  }

  private number(): Value {
    const start = this.at;
    if (this.peek() === 0x2d) this.at++;
    const digitsStart = this.at;
    this.digits();
    const digits = this.at - digitsStart;
    if (digits > 1 && this.text[digitsStart] === "0") {
      this.at = digitsStart;
      throw this.fault("number with a leading zero");
    }
    const c = this.text[this.at];
    if (c === "." || c === "e" || c === "E") return this.double(start);
    const literal = this.text.slice(start, this.at);
    if (digits <= 15) return BigInt(Number(literal));
    const integer = digits <= INTEGER_DIGITS_MAX ? BigInt(literal) : undefined;
    if (integer === undefined || !fitsInteger(integer)) {
      this.at = start;
      throw this.fault(`integer of more than ${INTEGER_BYTES_MAX} bytes`);
    }
    return integer;
  }

  /** Reads the rest of a number that has a fraction or an exponent. */
  private double(start: number): number {
    if (this.text[this.at] === ".") {
      this.at++;
      this.digits();
    }
    const e = this.text[this.at];
    if (e === "e" || e === "E") {
      this.at++;
      const sign = this.text[this.at];
      if (sign === "+" || sign === "-") this.at++;
      this.digits();
    }
    const number = Number(this.text.slice(start, this.at));
    if (!Number.isFinite(number)) {
      this.at = start;
      throw this.fault("number too large for a double");
    }
    return number;
  }

  private digits(): void {
    const start = this.at;
    while (isDigit(this.peek())) this.at++;
    if (this.at === start) throw this.expected("a digit");
  }
}

const ESCAPES: Readonly<Record<string, string>> = {
  __proto__: null as never,
  '"': '"',
  "\\": "\\",
  "/": "/",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
};

function isDigit(c: number): boolean {
  return c >= 0x30 && c <= 0x39;
}

const INTEGER_LIMIT = 2n ** BigInt(8 * INTEGER_BYTES_MAX - 1);

function fitsInteger(integer: bigint): boolean {
  return integer < INTEGER_LIMIT && integer >= -INTEGER_LIMIT;
}
