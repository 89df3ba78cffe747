// Rules that the sources keep, so that content can never become more than text.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("../src/", import.meta.url));
const sources = readdirSync(root, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))
  .map((entry) => join(entry.parentPath, entry.name))
  .map((path) => [path.slice(root.length), readFileSync(path, "utf8")] as const);

it("make no markup or script from text", () => {
  const forbidden = /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc/i;
  expect(sources.length).toBeGreaterThan(50);
  expect(sources.filter(([, text]) => forbidden.test(text)).map(([name]) => name)).toEqual([]);
});

it("keep nothing but the theme in local storage, and the token in one file", () => {
  const using = (word: string): string[] =>
    sources.filter(([, text]) => text.includes(word)).map(([name]) => name);
  expect(using("localStorage")).toEqual(["lib/theme.ts"]);
  expect(using("sessionStorage")).toEqual(["api/session.ts"]);
  expect(using("authorization\", `Bearer")).toEqual(["api/client.ts"]);
});

it("begin with what the file is for", () => {
  const silent = sources.filter(([, text]) => !text.startsWith("// "));
  expect(silent.map(([name]) => name)).toEqual([]);
});
