// Values as JSON text that reads back to the same value: integers of any size keep their digits, and
// a double always has a fraction or an exponent.

import type { Value } from "@verify/value";

/** JSON text, indented if `indent` is positive. */
export function jsonText(value: Value, indent = 0): string {
  const parts: string[] = [];
  write(value, indent, 0, parts);
  return parts.join("");
}

export function numberText(value: bigint | number): string {
  const text = Object.is(value, -0) ? "-0.0" : String(value);
  return typeof value === "bigint" || /[.e]/.test(text) ? text : `${text}.0`;
}

function write(value: Value, indent: number, depth: number, parts: string[]): void {
  if (value === null || typeof value === "boolean") parts.push(String(value));
  else if (typeof value === "bigint" || typeof value === "number") parts.push(numberText(value));
  else if (typeof value === "string") parts.push(JSON.stringify(value));
  else if (value instanceof Map) {
    const items = [...value].map(
      ([key, item]) =>
        (below: string[]): void => {
          below.push(JSON.stringify(key), indent > 0 ? ": " : ":");
          write(item as Value, indent, depth + 1, below);
        },
    );
    writeItems("{", "}", items, indent, depth, parts);
  } else {
    const items = (value as readonly Value[]).map(
      (item) => (below: string[]) => write(item, indent, depth + 1, below),
    );
    writeItems("[", "]", items, indent, depth, parts);
  }
}

function writeItems(
  open: string,
  close: string,
  items: ((parts: string[]) => void)[],
  indent: number,
  depth: number,
  parts: string[],
): void {
  parts.push(open);
  items.forEach((item, at) => {
    if (at > 0) parts.push(",");
    if (indent > 0) parts.push("\n", " ".repeat(indent * (depth + 1)));
    item(parts);
  });
  if (indent > 0 && items.length > 0) parts.push("\n", " ".repeat(indent * depth));
  parts.push(close);
}

/** A rough size in characters, computed only up to `most`. */
export function sizeUpTo(value: Value, most: number): number {
  let size = 0;
  const visit = (value: Value): void => {
    if (size > most) return;
    if (typeof value === "string") size += value.length + 2;
    else if (value instanceof Map) {
      for (const [key, item] of value as ReadonlyMap<string, Value>) {
        size += key.length + 4;
        visit(item);
        if (size > most) return;
      }
    } else if (Array.isArray(value)) {
      for (const item of value as readonly Value[]) {
        size += 1;
        visit(item);
        if (size > most) return;
      }
    } else size += 5;
  };
  visit(value);
  return Math.min(size, most);
}
