// What a person has typed into a form so far, and the value that it stands for. Numbers are kept as
// the text that was typed, so that integers of any size stay exact.

import { readText } from "@verify/json";
import type { Value } from "@verify/value";
import { jsonText } from "./json_text";
import type { Field } from "./schema";

export type Draft =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "flag"; readonly value: boolean | undefined }
  | {
      readonly kind: "object";
      readonly members: Readonly<Record<string, Draft>>;
      /** Further members, as JSON text. */
      readonly others?: string;
    }
  | { readonly kind: "array"; readonly items: readonly Draft[] };

export const emptyText: Draft = { kind: "text", text: "" };

/** A draft with the defaults of the schema. */
export function emptyDraft(field: Field): Draft {
  const preset = field.default;
  switch (field.kind) {
    case "boolean":
      return { kind: "flag", value: typeof preset === "boolean" ? preset : undefined };
    case "object":
      return {
        kind: "object",
        members: Object.fromEntries(
          field.members.map(({ name, field }) => [name, emptyDraft(field)]),
        ),
      };
    case "array":
      return {
        kind: "array",
        items: Array.from({ length: field.minItems }, () => emptyDraft(field.items)),
      };
    case "choice": {
      const only = field.options.length === 1 ? 0 : -1;
      const found = preset === undefined ? only : field.options.findIndex((o) => o === preset);
      return { kind: "text", text: found < 0 ? "" : String(found) };
    }
    default:
      if (preset === undefined) return emptyText;
      if (typeof preset === "string" && field.kind !== "json") return { kind: "text", text: preset };
      return { kind: "text", text: jsonText(preset, 2) };
  }
}

/** The problems of a draft, by the path of the field: `address/street`, `items/0`. */
export type Problems = Map<string, string>;

/** The value of a draft, or undefined if nothing was entered. Adds what is wrong to `problems`. */
export function readDraft(
  field: Field,
  draft: Draft,
  isRequired: boolean,
  path: string,
  problems: Problems,
): Value | undefined {
  const missing = (): undefined => {
    if (isRequired) problems.set(path, "A value is required.");
    return undefined;
  };
  if (field.kind === "object") {
    const members = new Map<string, Value>();
    const drafts = draft.kind === "object" ? draft.members : {};
    const found: Problems = new Map();
    for (const { name, field: inner, isRequired: isInnerRequired } of field.members) {
      const below = path === "" ? name : `${path}/${name}`;
      const value = readDraft(inner, drafts[name] ?? emptyText, isInnerRequired, below, found);
      if (value !== undefined) members.set(name, value);
    }
    const others = draft.kind === "object" ? (draft.others ?? "") : "";
    if (others.trim() !== "") readOthers(others, path, members, found);
    // An optional object in which nothing was entered is left out, whatever its members require.
    if (!isRequired && !hasContent(draft)) return undefined;
    for (const [at, problem] of found) problems.set(at, problem);
    return members;
  }
  if (field.kind === "array") {
    const drafts = draft.kind === "array" ? draft.items : [];
    if (drafts.length === 0) return isRequired ? [] : undefined;
    const items = drafts.map((item, i) =>
      readDraft(field.items, item, true, path === "" ? String(i) : `${path}/${i}`, problems),
    );
    return items.map((item) => item ?? null);
  }
  if (field.kind === "boolean") {
    const value = draft.kind === "flag" ? draft.value : undefined;
    return value ?? (isRequired ? false : undefined);
  }
  const text = draft.kind === "text" ? draft.text : "";
  if (field.kind === "text") {
    // An empty text is a value only where it is required and the schema allows it.
    if (text === "") return isRequired && mayBeEmpty(field) ? "" : missing();
    checkText(field, text, path, problems);
    return text;
  }
  if (text.trim() === "") return missing();
  if (field.kind === "choice") return field.options[Number(text)];
  try {
    if (field.kind === "json") return readText(text);
    if (field.kind === "scalar") return isNumber(text) ? readText(text.trim()) : text;
    return readNumber(field, text.trim(), path, problems);
  } catch (error) {
    problems.set(path, `This is not JSON: ${error instanceof Error ? error.message : ""}.`);
    return undefined;
  }
}

/** Whether the schema allows an empty text. No format does. */
function mayBeEmpty({ minLength, format, pattern }: Field & { kind: "text" }): boolean {
  return !minLength && format === undefined && (pattern === undefined || matches(pattern, ""));
}

/** Whether anything was entered. */
function hasContent(draft: Draft): boolean {
  switch (draft.kind) {
    case "text":
      return draft.text !== "";
    case "flag":
      return draft.value !== undefined;
    case "array":
      return draft.items.length > 0;
    case "object":
      return (draft.others ?? "") !== "" || Object.values(draft.members).some(hasContent);
  }
}

/** The path of the field for further members. No member has this name. */
export const othersPath = (path: string): string => `${path}//others`;

function readOthers(
  text: string,
  path: string,
  members: Map<string, Value>,
  problems: Problems,
): void {
  try {
    const value = readText(text);
    if (!(value instanceof Map)) throw new Error("expected an object");
    for (const [name, member] of value as ReadonlyMap<string, Value>) members.set(name, member);
  } catch (error) {
    const why = error instanceof Error ? error.message : "";
    problems.set(othersPath(path), `This is not a JSON object: ${why}.`);
  }
}

const isNumber = (text: string): boolean => /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(text.trim());

function readNumber(
  field: Field & { kind: "number" },
  text: string,
  path: string,
  problems: Problems,
): Value | undefined {
  if (!isNumber(text) || (field.isInteger && !/^-?\d+$/.test(text))) {
    problems.set(path, field.isInteger ? "Enter a whole number." : "Enter a number.");
    return undefined;
  }
  const value = readText(text);
  const number = Number(text);
  if (field.minimum !== undefined && number < field.minimum) {
    problems.set(path, `The number must be at least ${field.minimum}.`);
  } else if (field.maximum !== undefined && number > field.maximum) {
    problems.set(path, `The number must be at most ${field.maximum}.`);
  }
  return value;
}

function checkText(
  field: Field & { kind: "text" },
  text: string,
  path: string,
  problems: Problems,
): void {
  const length = [...text].length;
  if (field.minLength !== undefined && length < field.minLength) {
    problems.set(path, `Enter at least ${field.minLength} characters.`);
  } else if (field.maxLength !== undefined && length > field.maxLength) {
    problems.set(path, `Enter at most ${field.maxLength} characters.`);
  } else if (field.format === "uri" && !URL.canParse(text)) {
    problems.set(path, "Enter a complete URL, such as https://example.org/.");
  } else if (field.format === "date-time" && Number.isNaN(Date.parse(text))) {
    problems.set(path, "Enter a time, such as 2026-01-31T09:00:00Z.");
  } else if (field.pattern !== undefined && !matches(field.pattern, text)) {
    problems.set(path, `The text must match ${field.pattern}`);
  }
}

/** Whether a text matches. A pattern that JavaScript cannot compile is left to the venue. */
function matches(pattern: string, text: string): boolean {
  try {
    // Long texts are left to the venue too: a pattern could take exponential time.
    return text.length > 1000 || new RegExp(pattern, "u").test(text);
  } catch {
    return true;
  }
}

/** The draft that stands for a value: to edit the input of an earlier job. */
export function draftOf(field: Field, value: Value | undefined): Draft {
  if (value === undefined) return emptyDraft(field);
  switch (field.kind) {
    case "object": {
      const map = value instanceof Map ? (value as ReadonlyMap<string, Value>) : undefined;
      const named = new Set(field.members.map(({ name }) => name));
      const others = [...(map ?? [])].filter(([name]) => !named.has(name));
      return {
        kind: "object",
        members: Object.fromEntries(
          field.members.map(({ name, field }) => [name, draftOf(field, map?.get(name))]),
        ),
        others: others.length > 0 ? jsonText(new Map(others), 2) : "",
      };
    }
    case "array": {
      const items = Array.isArray(value) ? (value as readonly Value[]) : [];
      return { kind: "array", items: items.map((item) => draftOf(field.items, item)) };
    }
    case "boolean":
      return { kind: "flag", value: typeof value === "boolean" ? value : undefined };
    case "choice": {
      const text = jsonText(value);
      const found = field.options.findIndex((option) => jsonText(option) === text);
      return { kind: "text", text: found < 0 ? "" : String(found) };
    }
    case "text":
    case "scalar":
      if (typeof value === "string") return { kind: "text", text: value };
  }
  return { kind: "text", text: jsonText(value, 2) };
}
