// A worker against a fake venue over HTTP: claims, results, beats, signals, draining and repetition.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import test from "node:test";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { Failure, Retry, s, Stopped, VenueError, Worker } from "../src/index.js";
import type { WorkerOptions } from "../src/index.js";
import { Broken, FakeVenue, Refused } from "./fake_venue.js";
import type { Json } from "./fake_venue.js";

interface Fixture {
  readonly venue: FakeVenue;
  readonly worker: Worker;
  /** Runs the worker until the test ends. */
  start(): Promise<void>;
}

async function setUp(t: TestContext, options: WorkerOptions = {}): Promise<Fixture> {
  const venue = await FakeVenue.start();
  const worker = new Worker({ url: venue.url, claimWaitMs: 200, warn: () => undefined, ...options });
  let serving: Promise<void> | undefined;
  t.after(async () => {
    worker.stop();
    await serving;
    await venue.stop();
  });
  const start = async (): Promise<void> => {
    await new Promise<void>((resolve, reject) => {
      serving = worker.serve(resolve);
      serving.catch(reject);
    });
  };
  return { venue, worker, start };
}

interface Latch {
  readonly promise: Promise<void>;
  readonly open: () => void;
}

function latch(): Latch {
  let open!: () => void;
  const promise = new Promise<void>((resolve) => (open = resolve));
  return { promise, open };
}

test("registered functions run as jobs", async (t) => {
  const { venue, worker, start } = await setUp(t, { token: "secret", parallel: 2 });
  const input = s.object({ a: s.integer(), b: s.optional(s.integer()) });
  worker.operation({ name: "add", queue: "sums", input, output: s.integer() }, ({ a, b = 1 }) => a + b);
  worker.operation({ name: "shout", input: s.string() }, (text) => text.toUpperCase());
  await start();
  assert.equal((await venue.ended(venue.invoke("o/add", { a: 2 }))).output, 3);
  assert.equal((await venue.ended(venue.invoke("o/shout", "hi"))).output, "HI");
  assert.equal(venue.operations.get("add").operation.queue, "sums");
  assert.ok(venue.requests.every(({ headers }) => headers.authorization === "Bearer secret"));
});

test("an old version and an asset ID find their handler", async (t) => {
  const { venue, worker, start } = await setUp(t);
  const first = worker.operation({ name: "first", queue: "q" }, () => "first");
  worker.operation({ name: "second", queue: "q" }, () => "second");
  await start();
  for (const [op, operation, output] of [
    ["o/first@2", "cd".repeat(32), "first"],
    ["did:key:zabc/o/second", "", "second"],
    ["ab".repeat(32), "ab".repeat(32), "second"], // the fake registers everything under this ID, `second` last
    [first.assetId, first.assetId, "first"],
  ] as const) {
    const job = venue.invoke(op);
    job.queue = "q";
    job.operation = operation;
    venue.changed();
    assert.equal((await venue.ended(job)).output, output);
  }
  const unknown = venue.invoke("o/third");
  unknown.queue = "q";
  venue.changed();
  assert.equal((await venue.ended(unknown)).code, "no_handler");
});

test("jobs run in parallel up to the given number", async (t) => {
  const { venue, worker, start } = await setUp(t, { parallel: 3 });
  const three = latch();
  let running = 0;
  let most = 0;
  worker.operation({ name: "wait" }, async () => {
    most = Math.max(most, ++running);
    if (running === 3) three.open();
    await three.promise;
    running--;
  });
  await start();
  const jobs = Array.from({ length: 9 }, () => venue.invoke("o/wait"));
  for (const job of jobs) await venue.ended(job);
  assert.equal(most, 3);
});

test("results travel with the next claim", async (t) => {
  const { venue, worker, start } = await setUp(t, { parallel: 1 });
  worker.operation({ name: "echo" }, (input) => input);
  await start();
  const jobs = [1, 2, 3, 4, 5].map((n) => venue.invoke("o/echo", n));
  for (const job of jobs) assert.equal((await venue.ended(job)).output, job.input);
  assert.equal(venue.sent("/claim").flatMap(({ done = [] }) => done).length, 5);
  assert.deepEqual(venue.sent("/end"), []);
});

test("steps are recorded and not repeated after a lost lease", async (t) => {
  const { venue, worker, start } = await setUp(t, { parallel: 2 });
  const recorded = latch();
  let charged = 0;
  worker.operation({ name: "order" }, async (_, ctx) => {
    const receipt = await ctx.step("charge", () => ++charged, { input: { amount: 5 } });
    if (ctx.attempt === 1) {
      recorded.open();
      await new Promise((_, reject) => ctx.signal.addEventListener("abort", () => reject(ctx.signal.reason)));
    }
    return [receipt, ctx.attempt];
  });
  await start();
  const job = venue.invoke("o/order");
  await recorded.promise;
  venue.loseLease(job);
  assert.deepEqual((await venue.ended(job)).output, [1, 2]);
  assert.equal(charged, 1);
  assert.deepEqual(venue.sent("/step")[0].input, { amount: 5 });
});

test("an output too large to be sent along is fetched", async (t) => {
  const { venue, worker, start } = await setUp(t, { parallel: 1 });
  let made = 0;
  worker.operation({ name: "work" }, async (_, ctx) => {
    const text = await ctx.step("large", () => {
      made++;
      return "x".repeat(5_000);
    });
    if (ctx.attempt === 1) throw new Retry("once more");
    return text.length;
  });
  await start();
  assert.deepEqual([(await venue.ended(venue.invoke("o/work", null, 2))).output, made], [5_000, 1]);
});

test("a run that lost its job is stopped by the refused step", async (t) => {
  const { venue, worker, start } = await setUp(t, { parallel: 2 });
  const lost = latch();
  const errors: unknown[] = [];
  worker.operation({ name: "work" }, async (_, ctx) => {
    if (ctx.attempt > 1) return "second";
    lost.open();
    await ctx.step("late", () => 1).catch((error: unknown) => errors.push(error));
    return "first";
  });
  venue.failures.set("step", Array.from({ length: 3 }, () => new Refused(503, "unavailable", "later")));
  await start();
  const job = venue.invoke("o/work");
  await lost.promise;
  venue.loseLease(job);
  assert.equal((await venue.ended(job)).output, "second");
  assert.ok(errors[0] instanceof Stopped);
});

test("a worker with one slot can call its own queue", async (t) => {
  const { venue, worker, start } = await setUp(t, { parallel: 1 });
  worker.operation({ name: "outer", queue: "one" }, async (_, ctx) => {
    await ctx.step("before", () => null);
    return (await ctx.call<number>("inner", "o/inner", 20)) + 2;
  });
  worker.operation({ name: "inner", queue: "one", input: s.integer() }, (n) => 2 * n);
  await start();
  const job = await venue.ended(venue.invoke("o/outer"));
  assert.equal(job.output, 42);
  assert.deepEqual(job.ends.find((end) => "awaiting" in end).awaiting, ["inner"]);
  assert.equal(venue.sent("/step").length, 1);
});

test("a call that ends in time is returned without giving the job back", async (t) => {
  const { venue, worker, start } = await setUp(t);
  venue.instant.set("test:echo", (input) => input);
  worker.operation({ name: "outer" }, (_, ctx) => ctx.call("echo", "test:echo", { a: 1 }));
  await start();
  const job = await venue.ended(venue.invoke("o/outer"));
  assert.deepEqual([job.output, job.ends.length], [{ a: 1 }, 1]);
});

test("a question is asked and its answer recorded", async (t) => {
  const { venue, worker, start } = await setUp(t);
  worker.operation({ name: "approve" }, async (_, ctx) =>
    (await ctx.ask("ok", "Really?", s.boolean())) ? "yes" : "no",
  );
  await start();
  const job = venue.invoke("o/approve");
  await venue.ended(job, "INPUT_REQUIRED");
  assert.deepEqual(job.asked, [{ message: "Really?", schema: { type: "boolean" } }]);
  venue.answer(job, true);
  assert.equal((await venue.ended(job)).output, "yes");
  assert.equal(job.steps.get("ok"), true);
});

test("progress and log arrive before the end", async (t) => {
  const { venue, worker, start } = await setUp(t);
  worker.operation({ name: "work" }, (_, ctx) => {
    ctx.progress(3, 4, { bytesProcessed: 10 });
    ctx.log("three of four");
  });
  await start();
  const job = await venue.ended(venue.invoke("o/work"));
  assert.deepEqual(job.progress, [{ processedItems: 3, totalItems: 4, outputStats: { bytesProcessed: 10 } }]);
  assert.deepEqual(job.log, ["three of four"]);
});

test("a job does not end while its reports are on their way", async (t) => {
  const { venue, worker, start } = await setUp(t);
  venue.delaysReports = true;
  const hasLog = (): boolean => venue.sent("/beat").some(({ jobs }) => jobs.some((job: Json) => "log" in job));
  worker.operation({ name: "work" }, async (_, ctx) => {
    ctx.progress(1);
    ctx.log("one");
    assert.ok(await venue.waitFor(hasLog));
  });
  await start();
  const job = await venue.ended(venue.invoke("o/work"));
  assert.deepEqual(job.progress, [{ processedItems: 1 }]);
  assert.deepEqual(job.log, ["one"]);
});

test("an idle worker says that it runs nothing", async (t) => {
  const { venue, worker, start } = await setUp(t, { idleBeatMs: 20 });
  worker.operation({ name: "work" }, () => 1);
  await start();
  assert.ok(await venue.waitFor(() => venue.sent("/beat").length > 1));
  assert.ok(venue.sent("/beat").every(({ jobs }) => jobs.length === 0));
});

test("stop aborts the signal of the handler and its outcome is dropped", async (t) => {
  const { venue, worker, start } = await setUp(t);
  const started = latch();
  const stopped = latch();
  worker.operation({ name: "work" }, async (_, ctx) => {
    started.open();
    await new Promise<void>((resolve) => ctx.signal.addEventListener("abort", () => resolve()));
    assert.ok(ctx.signal.reason instanceof Stopped);
    await assert.rejects(ctx.step("more", () => 1), Stopped);
    stopped.open();
    return "ignored";
  });
  await start();
  const job = venue.invoke("o/work");
  await started.promise;
  venue.signal(job, "stop");
  await stopped.promise;
  assert.deepEqual(job.ends, []);
});

test("a paused job takes no step until it is resumed", async (t) => {
  const { venue, worker, start } = await setUp(t);
  const started = latch();
  const paused = latch();
  worker.operation({ name: "work" }, async (_, ctx) => {
    started.open();
    while (!ctx.isPaused) await new Promise((resolve) => setTimeout(resolve, 5));
    paused.open();
    return ctx.step("after", () => ctx.isPaused);
  });
  await start();
  const job = venue.invoke("o/work");
  await started.promise;
  venue.signal(job, "pause");
  await paused.promise;
  const beats = venue.sent("/beat").length;
  await venue.waitFor(() => venue.sent("/beat").length > beats + 1);
  assert.equal(job.steps.size, 0);
  venue.signal(job, "go");
  assert.equal((await venue.ended(job)).output, false);
});

test("failures carry what the handler said", async (t) => {
  const { venue, worker, start } = await setUp(t);
  worker.operation({ name: "fail", input: s.string() }, (how, ctx) => {
    if (how === "final") throw new Failure("no such card", { code: "card" });
    if (how === "later" && ctx.attempt === 1) throw new Retry("busy", { afterMs: 1500, code: "busy" });
    if (how === "bug" && ctx.attempt === 1) throw new TypeError("not a function");
    return ctx.attempt;
  });
  await start();
  const final = await venue.ended(venue.invoke("o/fail", "final", 3));
  assert.deepEqual(final.ends, [{ fence: 1, error: "no such card", code: "card", retry: "never" }]);
  const later = await venue.ended(venue.invoke("o/fail", "later", 3));
  assert.deepEqual(later.ends[0], { fence: 1, error: "busy", code: "busy", retry: 1500 });
  const bug = await venue.ended(venue.invoke("o/fail", "bug", 3));
  assert.deepEqual(bug.ends[0], { fence: 1, error: "TypeError: not a function", retry: "may" });
  assert.deepEqual([later.output, bug.output], [2, 2]);
});

test("a venue that cannot be reached disturbs nothing", async (t) => {
  const { venue, worker, start } = await setUp(t, { parallel: 2 });
  worker.operation({ name: "work" }, (_, ctx) => ctx.step("one", () => 1));
  for (const action of ["claim", "step", "end", "beat"]) {
    venue.failures.set(action, [new Broken(), new Refused(503, "stopping", "later")]);
  }
  await start();
  const jobs = Array.from({ length: 4 }, () => venue.invoke("o/work"));
  for (const job of jobs) {
    assert.equal((await venue.ended(job)).output, 1);
    assert.equal(job.ends.length, 1);
  }
});

test("a lost answer to an end is not mistaken for a lost job", async (t) => {
  const warnings: string[] = [];
  const { venue, worker, start } = await setUp(t, { warn: (text) => warnings.push(text) });
  worker.operation({ name: "work" }, () => 1);
  venue.lostAnswers = 1;
  await start();
  const job = await venue.ended(venue.invoke("o/work"));
  await venue.waitFor(() => venue.requests.length > 0 && warnings.length > 0);
  assert.equal(job.ends.length, 1);
  assert.ok(warnings.every((text) => !text.includes("too late")));
});

test("a refused result fails the job", async (t) => {
  const { venue, worker, start } = await setUp(t);
  worker.operation({ name: "work" }, () => 1);
  venue.failures.set("end", [new Refused(413, "body_too_large")]);
  await start();
  // A claim is waiting, so the result is sent by a request of its own.
  await venue.waitFor(() => venue.sent("/claim").length > 0);
  const job = await venue.ended(venue.invoke("o/work"));
  assert.deepEqual([job.status, job.code], ["FAILED", "result_refused"]);
});

test("a refused claim ends the worker", async (t) => {
  const { venue, worker } = await setUp(t);
  worker.operation({ name: "work" }, () => 1);
  venue.failures.set("claim", [new Refused(404, "queue_not_found")]);
  await assert.rejects(worker.serve(), (error) => error instanceof VenueError && error.code === "queue_not_found");
});

test("too many queues are refused before anything is registered", async (t) => {
  const { venue, worker } = await setUp(t);
  for (let n = 0; n < 17; n++) worker.operation({ name: `work-${n}` }, () => n);
  await assert.rejects(worker.serve(), /at most 16 queues, not 17/);
  assert.equal(venue.operations.size, 0);
});

test("draining lets running jobs end and claims no more", async (t) => {
  const { venue, worker } = await setUp(t, { parallel: 1 });
  const started = latch();
  const proceed = latch();
  worker.operation({ name: "work" }, async () => {
    started.open();
    await proceed.promise;
    return "ended";
  });
  const first = venue.invoke("o/work");
  first.queue = "work";
  const serving = worker.serve();
  await started.promise;
  worker.stop();
  const second = venue.invoke("o/work");
  proceed.open();
  await serving;
  assert.deepEqual([first.output, second.status], ["ended", "PENDING"]);
});

test("after the grace period running jobs are given back", async (t) => {
  const { venue, worker } = await setUp(t, { parallel: 1, graceMs: 50 });
  const started = latch();
  worker.operation({ name: "work" }, async (_, ctx) => {
    started.open();
    await new Promise<void>((resolve) => ctx.signal.addEventListener("abort", () => resolve()));
  });
  const job = venue.invoke("o/work");
  job.queue = "work";
  const serving = worker.serve();
  await started.promise;
  worker.stop();
  await serving;
  assert.deepEqual([job.status, job.ends], ["PENDING", [{ fence: 1, awaiting: [] }]]);
});

const PROGRAM = `
import { once } from "node:events";
import { Worker } from ${JSON.stringify(fileURLToPath(new URL("../src/index.js", import.meta.url)))};
const worker = new Worker({ url: process.argv[1] });
worker.operation({ name: "work" }, async (_, ctx) => {
  await ctx.step("started", () => null);
  return ctx.step("wait", async () => String((await once(process.stdin, "data"))[0]).trim());
});
await worker.run();
process.stdin.unref();
`;

test("SIGTERM drains a worker process", async (t) => {
  const { venue } = await setUp(t);
  const child = spawn(process.execPath, ["--input-type=module", "-e", PROGRAM, venue.url], {
    stdio: ["pipe", "inherit", "inherit"],
  });
  t.after(() => child.kill("SIGKILL"));
  await venue.waitFor(() => venue.operations.has("work"));
  const job = venue.invoke("o/work");
  await venue.waitFor(() => job.steps.has("started"));
  child.kill("SIGTERM");
  child.stdin?.write("read\n");
  const exit = once(child, "exit", { signal: AbortSignal.timeout(60_000) });
  assert.equal((await venue.ended(job)).output, "read");
  assert.deepEqual(await exit, [0, null]);
});
