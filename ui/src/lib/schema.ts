// A JSON Schema as a description of form fields. What a form cannot express (alternatives, free-form
// objects, deep recursion) becomes a field for JSON text, so every input can be written.

import { asList, asMap, asText } from "@verify/value";
import type { Value, ValueMap } from "@verify/value";

interface Common {
  readonly title: string | undefined;
  readonly description: string | undefined;
  /** Whether the value is secret: a password field that is never stored. */
  readonly isSecret: boolean;
  readonly default: Value | undefined;
}

export type Field = Common &
  (
    | {
        readonly kind: "text";
        readonly format: string | undefined;
        readonly pattern: string | undefined;
        readonly minLength: number | undefined;
        readonly maxLength: number | undefined;
      }
    | {
        readonly kind: "number";
        readonly isInteger: boolean;
        readonly minimum: number | undefined;
        readonly maximum: number | undefined;
      }
    | { readonly kind: "boolean" }
    | { readonly kind: "choice"; readonly options: readonly Value[] }
    /** A string or a number: what looks like a number is one. */
    | { readonly kind: "scalar" }
    | {
        readonly kind: "object";
        readonly members: readonly Member[];
        /** Whether further members are to be expected. */
        readonly hasOthers: boolean;
      }
    | {
        readonly kind: "array";
        readonly items: Field;
        readonly minItems: number;
        readonly maxItems: number | undefined;
      }
    | { readonly kind: "json" }
  );

export interface Member {
  readonly name: string;
  readonly field: Field;
  readonly isRequired: boolean;
}

/** Deeper schemas are edited as JSON text; forms that nest further are no longer readable. */
const FIELD_DEPTH_MAX = 6;

/** The form of a schema. `undefined` or an empty schema gives one field for JSON text. */
export function fieldOf(schema: Value | undefined): Field {
  return new Reader(asMap(schema)).field(schema, 0);
}

class Reader {
  constructor(private readonly root: ValueMap | undefined) {}

  field(value: Value | undefined, depth: number): Field {
    const schema = this.resolve(asMap(value));
    const common: Common = {
      title: asText(schema?.get("title")),
      description: asText(schema?.get("description")),
      isSecret: schema?.get("writeOnly") === true,
      default: schema?.get("default"),
    };
    const json: Field = { ...common, kind: "json" };
    if (!schema || depth > FIELD_DEPTH_MAX) return json;
    const options = asList(schema.get("enum"));
    if (options) return { ...common, kind: "choice", options };
    if (schema.has("const")) return { ...common, kind: "choice", options: [schema.get("const")!] };
    const types = this.types(schema);
    if (types.length === 2 && types.includes("string") && types.some(isNumeric)) {
      return { ...common, kind: "scalar" };
    }
    if (types.length !== 1) return json;
    const number = (name: string): number | undefined => asNumber(schema.get(name));
    switch (types[0]) {
      case "string":
        return {
          ...common,
          kind: "text",
          format: asText(schema.get("format")),
          pattern: asText(schema.get("pattern")),
          minLength: number("minLength"),
          maxLength: number("maxLength"),
        };
      case "integer":
      case "number":
        return {
          ...common,
          kind: "number",
          isInteger: types[0] === "integer",
          minimum: number("minimum"),
          maximum: number("maximum"),
        };
      case "boolean":
        return { ...common, kind: "boolean" };
      case "array":
        return {
          ...common,
          kind: "array",
          items: this.field(schema.get("items"), depth + 1),
          minItems: number("minItems") ?? 0,
          maxItems: number("maxItems"),
        };
      case "object": {
        const members = this.members(schema, depth);
        const others = schema.get("additionalProperties");
        // The input itself rarely has further members; an object within it, such as headers, does.
        const isOpen = depth > 0 && others !== false;
        const hasOthers = isOpen || others === true || asMap(others) !== undefined;
        return members.length > 0 ? { ...common, kind: "object", members, hasOthers } : json;
      }
      default:
        return json;
    }
  }

  private members(schema: ValueMap, depth: number): Member[] {
    const required = (asList(schema.get("required")) ?? []).map(asText);
    const properties = [...(asMap(schema.get("properties")) ?? [])];
    const members = properties.map(([name, value]) => ({
      name,
      field: this.field(value, depth + 1),
      isRequired: required.includes(name),
    }));
    // Required members first; otherwise in the order of the schema.
    return members.sort((a, b) => Number(b.isRequired) - Number(a.isRequired));
  }

  /** The types that a value may have, without null: an absent value stands for it. */
  private types(schema: ValueMap): string[] {
    const type = schema.get("type");
    const listed = typeof type === "string" ? [type] : (asList(type) ?? []).map(asText);
    const types = listed.filter((type): type is string => type !== undefined && type !== "null");
    if (types.length === 0 && schema.has("properties")) return ["object"];
    return types;
  }

  /** Follows references within the document. */
  private resolve(schema: ValueMap | undefined): ValueMap | undefined {
    let found = schema;
    for (let i = 0; i < 16; i++) {
      const reference = asText(found?.get("$ref"));
      if (reference === undefined) return found;
      if (!reference.startsWith("#")) return undefined;
      let target: Value | undefined = this.root;
      for (const part of reference.slice(1).split("/").slice(1)) {
        const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
        target = asMap(target)?.get(name);
      }
      found = asMap(target);
    }
    return undefined;
  }
}

const isNumeric = (type: string): boolean => type === "integer" || type === "number";

function asNumber(value: Value | undefined): number | undefined {
  if (typeof value === "bigint") return Number(value);
  return typeof value === "number" ? value : undefined;
}
