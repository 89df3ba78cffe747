// Handlers in the in-process helper: steps, calls, questions, crashes and failures.

import assert from "node:assert/strict";
import test from "node:test";
import { CallFailed, define, Failure, Retry, s } from "../src/index.js";
import { Harness } from "../src/testing.js";

const order = define(
  { name: "order", input: s.object({ item: s.string() }), output: s.string() },
  async ({ item }, ctx) => {
    const receipt = await ctx.step("charge", async () => ({ number: 7 }));
    const label = await ctx.call<string>("label", "o/label", { item });
    if (!(await ctx.ask("approve", `send ${item}?`, s.boolean()))) return "kept";
    ctx.progress(1, 2);
    await ctx.step("send", () => `${label}/${receipt.number}`);
    ctx.log("sent\ntoday");
    return `${label}/${receipt.number}`;
  },
);
const calls = { "o/label": ({ item }: { item: string }) => `label for ${item}` };

for (const slowCalls of [false, true]) {
  test(`a handler runs to its end and everything is recorded, calls are ${slowCalls ? "slow" : "fast"}`, async () => {
    const result = await new Harness(order, { calls, answers: [true], slowCalls }).run({ item: "book" });
    assert.deepEqual([result.status, result.output], ["COMPLETE", "label for book/7"]);
    assert.deepEqual(result.steps, ["charge", "send"]);
    assert.deepEqual([...result.calls], [["label", { operation: "o/label", input: { item: "book" } }]]);
    assert.deepEqual(result.questions, ["send book?"]);
    assert.deepEqual(result.progress, [{ processedItems: 1, totalItems: 2 }]);
    assert.deepEqual(result.log, ["sent", "today"]);
    assert.equal(result.runs, slowCalls ? 3 : 2);
  });
}

test("a crash at any step changes nothing", async () => {
  const result = await new Harness(order, { calls, answers: [true] }).checkReplay({ item: "book" });
  assert.deepEqual([...result.recorded.keys()], ["charge", "approve?", "approve", "send"]);
});

test("a step lost by a crash runs again and a recorded one does not", async () => {
  const harness = new Harness(order, { calls, answers: [true] });
  const lost = await harness.run({ item: "book" }, { key: "charge", when: "before" });
  assert.deepEqual([lost.steps, lost.attempts], [["charge", "charge", "send"], 2]);
  const kept = await harness.run({ item: "book" }, { key: "charge" });
  assert.deepEqual([kept.steps, kept.output], [["charge", "send"], lost.output]);
});

test("checkReplay finds a handler that depends on chance", async () => {
  let count = 0;
  const operation = define({ name: "chance" }, async (_, ctx) => {
    await ctx.step("first", () => null);
    return count++;
  });
  await assert.rejects(new Harness(operation).checkReplay(), /changes the result/);
});

test("an answer that does not fit is asked for again", async () => {
  const result = await new Harness(order, { calls, answers: ["perhaps", false] }).run({ item: "book" });
  assert.equal(result.output, "kept");
  assert.match(result.questions[1] ?? "", /the last answer was not valid/);
});

const twoQuestions = define({ name: "questions" }, async (_, ctx) => {
  const first = await ctx.ask("first", "1?");
  await ctx.step("between", () => null);
  return [first, await ctx.ask("second", "2?")];
});

test("equal answers to two questions are two answers", async () => {
  const result = await new Harness(twoQuestions, { answers: ["yes", "yes"] }).run();
  assert.deepEqual([result.output, result.questions], [["yes", "yes"], ["1?", "2?"]]);
});

test("a stale answer does not answer a later question", async () => {
  // After the crash the job still carries the first answer.
  const result = await new Harness(twoQuestions, { answers: ["a", "b"] }).run(null, { key: "between" });
  assert.deepEqual(result.output, ["a", "b"]);
});

test("without an answer the job waits", async () => {
  assert.equal((await new Harness(twoQuestions).run()).status, "INPUT_REQUIRED");
});

test("a failed call rejects in the handler", async () => {
  const operation = define({ name: "pay" }, async (_, ctx) => {
    try {
      return await ctx.call("pay", "o/pay", 1);
    } catch (error) {
      assert.ok(error instanceof CallFailed);
      return `${error.key} ${error.status}: ${error.reason}`;
    }
  });
  const pay = (): never => {
    throw new Error("no money");
  };
  assert.equal((await new Harness(operation, { calls: { "o/pay": pay } }).run()).output, "pay FAILED: no money");
});

test("a handler that catches everything still gives its job back", async () => {
  const operation = define({ name: "greedy" }, async (_, ctx) => {
    try {
      return await ctx.call("a", "o/a", 1);
    } catch {
      return "caught";
    }
  });
  const result = await new Harness(operation, { calls: { "o/a": (n: number) => n }, slowCalls: true }).run();
  assert.deepEqual([result.output, result.runs], [1, 2]);
});

for (const slowCalls of [false, true]) {
  test(`several calls run at once, calls are ${slowCalls ? "slow" : "fast"}`, async () => {
    const operation = define({ name: "sum" }, async (_, ctx) => {
      const outputs = await ctx.calls({ a: ["o/square", 2], b: ["o/square", 3] });
      return (outputs.a as number) + (outputs.b as number);
    });
    const result = await new Harness(operation, { calls: { "o/square": (n: number) => n * n }, slowCalls }).run();
    assert.deepEqual([result.output, result.runs], [13, slowCalls ? 2 : 1]);
  });
}

test("a call next to a running step does not repeat the step", async () => {
  const operation = define({ name: "both" }, async (_, ctx) => {
    const slow = async (): Promise<string> => {
      for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
      return "done";
    };
    return Promise.all([ctx.call("a", "o/a", 1), ctx.step("slow", slow)]);
  });
  const result = await new Harness(operation, { calls: { "o/a": (n: number) => n }, slowCalls: true }).run();
  assert.deepEqual([result.output, result.steps], [[1, "done"], ["slow"]]);
});

test("a key used twice fails", async () => {
  const operation = define({ name: "twice" }, async (_, ctx) => {
    for (const n of [1, 2]) await ctx.step("same", () => n);
  });
  assert.match((await new Harness(operation).run()).error ?? "", /"same" is used twice/);
});

test("a handler says whether another attempt may help", async () => {
  const operation = define(
    { name: "fail", input: s.object({ kind: s.string() }), retry: { attempts: 3 } },
    ({ kind }, ctx) => {
      if (kind === "final") throw new Failure("wrong card", { code: "card" });
      if (ctx.attempt < 3) throw new Retry("busy", { afterMs: 500 });
      return ctx.attempt;
    },
  );
  const { status, error, code, attempts } = await new Harness(operation).run({ kind: "final" });
  assert.deepEqual([status, error, code, attempts], ["FAILED", "wrong card", "card", 1]);
  assert.equal((await new Harness(operation).run({ kind: "busy" })).output, 3);
  assert.equal((await new Harness(operation, { attempts: 2 }).run({ kind: "busy" })).status, "FAILED");
});

test("input and output of the wrong type fail for good", async () => {
  const operation = define({ name: "typed", input: s.object({ n: s.integer() }), output: s.string() }, (() => 1) as never);
  const harness = new Harness(operation, { attempts: 5 });
  assert.equal((await harness.run({ n: "1" })).code, "invalid_input");
  const result = await harness.run({ n: 1 });
  assert.deepEqual([result.code, result.attempts], ["invalid_output", 1]);
});
