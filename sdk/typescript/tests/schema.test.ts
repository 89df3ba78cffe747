// Schemas: the JSON Schema, the check, and the type.

import assert from "node:assert/strict";
import test from "node:test";
import { define, s } from "../src/index.js";
import type { Infer } from "../src/index.js";

const size = s.object({ width: s.integer({ minimum: 1 }), height: s.optional(s.integer()) });

test("a definition has this JSON Schema", () => {
  assert.deepEqual(size.json, {
    type: "object",
    properties: { width: { type: "integer", minimum: 1 }, height: { type: "integer" } },
    required: ["width"],
    additionalProperties: false,
  });
  assert.deepEqual(s.array(s.string()).json, { type: "array", items: { type: "string" } });
  assert.deepEqual(s.record(s.number()).json, { type: "object", additionalProperties: { type: "number" } });
  assert.deepEqual(s.union(s.null(), s.boolean()).json, { anyOf: [{ type: "null" }, { type: "boolean" }] });
  assert.deepEqual(s.literal("a", 1).json, { enum: ["a", 1] });
  assert.deepEqual(s.secret(s.string({ description: "key" })).json, {
    type: "string",
    description: "key",
    writeOnly: true,
  });
});

test("the type of the values follows from the schema", () => {
  const value: Infer<typeof size> = { width: 1 };
  // @ts-expect-error A required member is missing.
  const wrong: Infer<typeof size> = { height: 1 };
  const choice: Infer<ReturnType<typeof s.literal<["a", 1]>>> = "a";
  assert.equal(size.check(value), undefined);
  assert.equal(size.check(wrong), "width must be present");
  assert.equal(s.literal("a", 1).check(choice), undefined);
});

test("a mismatch names the place", () => {
  const list = s.object({ sizes: s.array(size) });
  assert.equal(list.check({ sizes: [{ width: 1 }, { width: "2" }] }), 'sizes[1].width must be of type integer, not "2"');
  assert.equal(list.check({ sizes: [{ width: 1, depth: 2 }] }), "sizes[0].depth must be left out, because nothing has this name");
  assert.equal(list.check(null), "the value must be an object, not null");
  assert.equal(s.record(s.integer()).check({ a: 1.5 }), "a must be of type integer, not 1.5");
  assert.equal(s.union(s.null(), s.string()).check(1), "the value must be of one of the listed types, not 1");
});

test("an operation's metadata contains what was defined", () => {
  const operation = define(
    { name: "resize", queue: "images", description: "Makes it smaller.", input: size, output: s.string(), retry: { attempts: 3 } },
    ({ width }) => String(width),
  );
  assert.deepEqual(operation.metadata, {
    name: "resize",
    description: "Makes it smaller.",
    operation: {
      adapter: "worker",
      queue: "images",
      input: size.json,
      output: { type: "string" },
      retry: { attempts: 3 },
    },
  });
  assert.match(operation.assetId, /^[0-9a-f]{64}$/);
});
