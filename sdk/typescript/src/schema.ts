// Schemas: one definition is the JSON Schema that the venue checks, the check that this process makes, and the TypeScript type.

/** A JSON Schema. */
export type JsonSchema = { readonly [member: string]: unknown };

export interface Schema<T> {
  readonly json: JsonSchema;
  /** What is wrong with a value, naming the place. Undefined if nothing is. */
  check(value: unknown, path?: string): string | undefined;
  /** Whether a member with this schema may be absent. */
  readonly isOptional?: boolean;
  /** Exists for type inference only. */
  readonly type?: T;
}

/** The type of the values that a schema describes. */
export type Infer<S> = S extends Schema<infer T> ? T : never;

type Members = { readonly [name: string]: Schema<unknown> };
type OptionalNames<M extends Members> = {
  [K in keyof M]: M[K] extends { readonly isOptional: true } ? K : never;
}[keyof M];
type InferMembers<M extends Members> = {
  -readonly [K in Exclude<keyof M, OptionalNames<M>>]: Infer<M[K]>;
} & { -readonly [K in OptionalNames<M>]?: Infer<M[K]> };

type Extra = { readonly description?: string; readonly [member: string]: unknown };

function describe(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object") return "an object";
  return JSON.stringify(value) ?? typeof value;
}

function wrong(path: string, expected: string, value: unknown): string {
  return `${path || "the value"} must be ${expected}, not ${describe(value)}`;
}

function scalar<T>(type: string, fits: (value: unknown) => boolean, extra: Extra): Schema<T> {
  const check = (value: unknown, path = ""): string | undefined =>
    fits(value) ? undefined : wrong(path, `of type ${type}`, value);
  return { json: { type, ...extra }, check };
}

const inside = (path: string, name: string): string => (path ? `${path}.${name}` : name);

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Builders of schemas. Every builder takes further members of the JSON Schema, such as `description` or `minimum`. */
export const s = {
  any: (extra: Extra = {}): Schema<unknown> => ({ json: { ...extra }, check: () => undefined }),
  null: (extra: Extra = {}): Schema<null> => scalar("null", (value) => value === null, extra),
  boolean: (extra: Extra = {}): Schema<boolean> => scalar("boolean", (value) => typeof value === "boolean", extra),
  integer: (extra: Extra = {}): Schema<number> => scalar("integer", Number.isInteger, extra),
  number: (extra: Extra = {}): Schema<number> => scalar("number", (value) => typeof value === "number", extra),
  string: (extra: Extra = {}): Schema<string> => scalar("string", (value) => typeof value === "string", extra),

  /** One of these values. */
  literal<const V extends readonly (string | number | boolean | null)[]>(...values: V): Schema<V[number]> {
    const check = (value: unknown, path = ""): string | undefined =>
      values.includes(value as V[number]) ? undefined : wrong(path, "one of the listed values", value);
    return { json: { enum: values }, check };
  },

  array<T>(items: Schema<T>, extra: Extra = {}): Schema<T[]> {
    const check = (value: unknown, path = ""): string | undefined => {
      if (!Array.isArray(value)) return wrong(path, "an array", value);
      for (const [at, item] of value.entries()) {
        const fault = items.check(item, `${path}[${at}]`);
        if (fault !== undefined) return fault;
      }
      return undefined;
    };
    return { json: { type: "array", items: items.json, ...extra }, check };
  },

  /** An object with these members and no others. */
  object<const M extends Members>(members: M, extra: Extra = {}): Schema<InferMembers<M>> {
    const names = Object.keys(members);
    const required = names.filter((name) => !members[name]?.isOptional);
    const check = (value: unknown, path = ""): string | undefined => {
      if (!isObject(value)) return wrong(path, "an object", value);
      const unknown = Object.keys(value).find((name) => !Object.hasOwn(members, name));
      if (unknown !== undefined) return `${inside(path, unknown)} must be left out, because nothing has this name`;
      for (const name of names) {
        if (!Object.hasOwn(value, name)) {
          if (required.includes(name)) return `${inside(path, name)} must be present`;
          continue;
        }
        const fault = members[name]?.check(value[name], inside(path, name));
        if (fault !== undefined) return fault;
      }
      return undefined;
    };
    const properties = Object.fromEntries(names.map((name) => [name, members[name]?.json]));
    const json = { type: "object", properties, ...(required.length > 0 ? { required } : {}) };
    return { json: { ...json, additionalProperties: false, ...extra }, check };
  },

  /** An object with any names and members of one kind. */
  record<T>(members: Schema<T>, extra: Extra = {}): Schema<Record<string, T>> {
    const check = (value: unknown, path = ""): string | undefined => {
      if (!isObject(value)) return wrong(path, "an object", value);
      for (const [name, member] of Object.entries(value)) {
        const fault = members.check(member, inside(path, name));
        if (fault !== undefined) return fault;
      }
      return undefined;
    };
    return { json: { type: "object", additionalProperties: members.json, ...extra }, check };
  },

  union<const A extends readonly Schema<unknown>[]>(...options: A): Schema<Infer<A[number]>> {
    const check = (value: unknown, path = ""): string | undefined => {
      const faults = options.map((option) => option.check(value, path));
      return faults.includes(undefined) ? undefined : wrong(path, "of one of the listed types", value);
    };
    return { json: { anyOf: options.map((option) => option.json) }, check };
  },

  /** A member that may be absent. */
  optional<T>(schema: Schema<T>): Schema<T> & { readonly isOptional: true } {
    return { ...schema, isOptional: true };
  },

  /** A value that the venue seals: no record contains it. */
  secret<T>(schema: Schema<T>): Schema<T> {
    return { ...schema, json: { ...schema.json, writeOnly: true } };
  },

  /** Any JSON Schema. Only the venue checks it; the type is yours to state. */
  raw<T>(json: JsonSchema): Schema<T> {
    return { json, check: () => undefined };
  },
};
