// The library against a real venue: the binary that `CATENA_BIN` names.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import test from "node:test";
import type { TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Client, Failure, JobFailed, Key, Retry, s, Worker } from "../src/index.js";
import type { Job, WorkerOptions } from "../src/index.js";

const binary = process.env["CATENA_BIN"];
const skip = binary ? false : "CATENA_BIN is not set: no tests against a real venue";
const START_MS = 60_000;
const timeoutMs = 60_000;

/** A venue process on a free port, which can be killed and started again on the same data and port. */
class Venue {
  private listen = "127.0.0.1:0";
  private process: ChildProcess | undefined;

  constructor(readonly folder: string) {}

  get url(): string {
    return `http://${this.listen}`;
  }

  async start(): Promise<void> {
    const environment = Object.entries(process.env).filter(([name]) => !name.startsWith("CATENA_"));
    const data = join(this.folder, "data");
    this.process = spawn(binary!, ["serve", "--listen", this.listen, "--data", data, "--log-format", "json", "--executors", "0"], {
      cwd: this.folder,
      env: Object.fromEntries(environment),
      stdio: ["ignore", "ignore", "pipe"],
    });
    const watchdog = setTimeout(() => this.process?.kill("SIGKILL"), START_MS);
    const lines: string[] = [];
    const log = createInterface({ input: this.process.stderr! });
    try {
      for await (const line of log) {
        lines.push(line);
        if (!line.includes('"the venue is ready"')) continue;
        this.listen = (JSON.parse(line) as { fields: { address: string } }).fields.address;
        this.process.stderr?.resume();
        return;
      }
    } finally {
      clearTimeout(watchdog);
    }
    throw new Error(`the venue did not start:\n${lines.join("\n")}`);
  }

  async kill(): Promise<void> {
    if (!this.process || this.process.exitCode !== null || this.process.signalCode !== null) return;
    const exit = once(this.process, "exit");
    this.process.kill("SIGKILL");
    await exit;
  }
}

interface Fixture {
  readonly venue: Venue;
  readonly client: Client;
  readonly worker: Worker;
  start(): Promise<void>;
}

async function setUp(t: TestContext, options: WorkerOptions = {}): Promise<Fixture> {
  const folder = mkdtempSync(join(tmpdir(), "catena-sdk-"));
  const venue = new Venue(folder);
  await venue.start();
  const worker = new Worker({ url: venue.url, claimWaitMs: 500, warn: () => undefined, ...options });
  let serving: Promise<void> | undefined;
  t.after(async () => {
    worker.stop();
    try {
      await serving;
    } finally {
      await venue.kill();
      rmSync(folder, { recursive: true, force: true });
    }
  });
  const start = async (): Promise<void> => {
    await new Promise<void>((resolve, reject) => {
      serving = worker.serve(resolve);
      serving.catch(reject);
    });
  };
  return { venue, client: new Client({ url: venue.url }), worker, start };
}

/** Follows a job until it is as wanted. */
async function follow(client: Client, id: string, isWanted: (job: Job) => boolean): Promise<Job> {
  for await (const event of client.events(id, { signal: AbortSignal.timeout(timeoutMs) })) {
    if (event.kind === "job-update" && isWanted(event.job)) return event.job;
  }
  throw new Error(`job ${id} ended without becoming what was wanted`);
}

const isStarted = ({ status }: Job): boolean => status === "STARTED";

test("functions run as jobs and their chains verify", { skip }, async (t) => {
  const { client, worker, start } = await setUp(t);
  const input = s.object({ a: s.integer(), b: s.optional(s.integer()) });
  const retry = { attempts: 3, backoffMs: 1 };
  worker.operation({ name: "add", input, output: s.integer(), retry }, ({ a, b = 1 }, ctx) => {
    if (ctx.attempt === 1) throw new Retry("once more", { afterMs: 0 });
    return ctx.step("sum", () => a + b, { input: { a, b } });
  });
  await start();
  const { id } = await client.invoke("o/add", { a: 2 });
  const job = await client.wait(id, { timeoutMs });
  assert.deepEqual([job.status, job.output], ["COMPLETE", 3], JSON.stringify(job));
  const report = await client.verify(id);
  assert.deepEqual([report.status, report.subjobsVerified, report.subjobsUnavailable], ["COMPLETE", 1, 0]);
  const rejected = await client.wait((await client.invoke("o/add", { a: "two" })).id, { timeoutMs });
  assert.equal(rejected.status, "REJECTED");
});

test("a worker with a key identifies itself and signs how jobs end", { skip }, async (t) => {
  const key = Key.generate();
  const { venue, worker, start } = await setUp(t, { key });
  worker.operation({ name: "divide", input: s.object({ a: s.integer(), b: s.integer() }) }, ({ a, b }) => {
    if (b === 0) throw new Failure("division by zero");
    return { quotient: a / b, text: "é", list: [a, b, null, true, undefined] };
  });
  await start();
  const client = new Client({ url: venue.url, key });
  for (const [input, ended] of [[{ a: 1, b: 2 }, "COMPLETE"], [{ a: 1, b: 0 }, "FAILED"]] as const) {
    const { id } = await client.invoke("o/divide", input);
    const job = await client.wait(id, { timeoutMs });
    assert.deepEqual([job.status, job["caller"]], [ended, key.did], JSON.stringify(job));
    const { signaturesVerified, signaturesUnchecked } = await client.verify(id);
    assert.deepEqual([signaturesVerified, signaturesUnchecked], [1, 0]);
    const file = join(venue.folder, "history.json");
    writeFileSync(file, await client.historyPage(id));
    const verified = JSON.parse(execFileSync(binary!, ["verify", "--json", file], { encoding: "utf8" }));
    assert.equal(verified.signaturesVerified, 1);
  }
});

test("registering again keeps the asset and its locally computed ID", { skip }, async (t) => {
  const { client, worker, start } = await setUp(t);
  const operation = worker.operation({ name: "work", input: s.integer() }, (n) => n);
  const first = await worker.register();
  assert.deepEqual(first, { work: operation.assetId });
  assert.deepEqual(await worker.register(), first);
  await start();
  assert.equal(await client.run(operation.assetId, 4, { timeoutMs }), 4);
});

test("a handler gets declared secrets and its job does not show them", { skip }, async (t) => {
  const { venue, client, worker, start } = await setUp(t);
  worker.operation({ name: "use", secrets: ["API_KEY"] }, (_, ctx) => `used ${ctx.secrets["API_KEY"]}`);
  const stored = await fetch(`${venue.url}/api/v1/secrets/API_KEY`, {
    method: "PUT",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ value: "pl4nted" }),
  });
  assert.equal(stored.status, 200);
  await start();
  const { id } = await client.invoke("o/use");
  assert.equal((await client.wait(id, { timeoutMs })).output, "used [redacted]");
});

test("a worker with one slot calls its own queue", { skip }, async (t) => {
  const { client, worker, start } = await setUp(t, { parallel: 1 });
  worker.operation({ name: "outer", queue: "one" }, async (_, ctx) => {
    const outputs = await ctx.calls({ a: ["o/inner", 1], b: ["o/inner", 2] });
    return (outputs.a as number) + (outputs.b as number);
  });
  worker.operation({ name: "inner", queue: "one", input: s.integer() }, (n, ctx) => ctx.call("echo", "test:echo", 2 * n));
  await start();
  const { id } = await client.invoke("o/outer");
  assert.equal((await client.wait(id, { timeoutMs })).output, 6);
  assert.equal((await client.verify(id)).subjobsVerified, 4);
});

test("a person answers and the handler continues", { skip }, async (t) => {
  const { client, worker, start } = await setUp(t);
  worker.operation({ name: "approve" }, async (_, ctx) => [
    await ctx.ask("first", "Really?", s.boolean()),
    await ctx.ask("second", "How many?", s.integer()),
  ]);
  await start();
  const { id } = await client.invoke("o/approve");
  for (const [answer, question] of [
    [true, "Really?"],
    [7, "How many?"],
  ] as const) {
    await follow(client, id, (job) => job.status === "INPUT_REQUIRED" && job["message"] === question);
    await client.send(id, answer);
  }
  assert.deepEqual((await client.wait(id, { timeoutMs })).output, [true, 7]);
  await client.verify(id);
});

test("cancel reaches the handler within a second", { skip }, async (t) => {
  const { client, worker, start } = await setUp(t);
  let begun!: () => void;
  let stopped!: () => void;
  worker.operation({ name: "sleep" }, async (_, ctx) => {
    const stop = new Promise<void>((resolve) => ctx.signal.addEventListener("abort", () => resolve()));
    begun();
    await stop;
    stopped();
  });
  await start();
  // A busy machine may delay one of them, but not each.
  const times: number[] = [];
  for (let round = 0; round < 3; round += 1) {
    const begin = new Promise<void>((resolve) => (begun = resolve));
    const stop = new Promise<void>((resolve) => (stopped = resolve));
    const { id } = await client.invoke("o/sleep");
    await begin;
    const started = performance.now();
    await client.cancel(id);
    await stop;
    times.push(performance.now() - started);
  }
  assert.ok(Math.min(...times) < 1000, String(times));
});

test("pause holds the next step and resume continues", { skip }, async (t) => {
  const { client, worker, start } = await setUp(t);
  let seen!: () => void;
  const see = new Promise<void>((resolve) => (seen = resolve));
  worker.operation({ name: "work" }, async (_, ctx) => {
    while (!ctx.isPaused) await sleep(10);
    seen();
    return ctx.step("after", () => "resumed");
  });
  await start();
  const { id } = await client.invoke("o/work");
  await follow(client, id, isStarted);
  await client.pause(id);
  await follow(client, id, ({ status }) => status === "PAUSED");
  // A pause that is over before the worker has heard of it changes nothing.
  await see;
  await client.resume(id);
  assert.equal((await client.wait(id, { timeoutMs })).output, "resumed");
});

test("failures end the job as the handler said", { skip }, async (t) => {
  const { client, worker, start } = await setUp(t);
  worker.operation({ name: "fail", input: s.string(), retry: { attempts: 3, backoffMs: 1 } }, (how, ctx) => {
    if (how === "final") throw new Failure("no such card", { code: "card" });
    if (ctx.attempt < 3) throw new Error("flaky");
    return ctx.attempt;
  });
  await start();
  await assert.rejects(
    client.run("o/fail", "final", { timeoutMs }),
    (error) => error instanceof JobFailed && /no such card/.test(error.message),
  );
  assert.equal(await client.run("o/fail", "flaky", { timeoutMs }), 3);
});

test("progress is shown", { skip }, async (t) => {
  const { client, worker, start } = await setUp(t);
  let isSeen = false;
  worker.operation({ name: "work" }, async (_, ctx) => {
    ctx.log("starting");
    // Reports that were sent before the stream was opened are not repeated.
    for (let n = 1; !isSeen; n++) {
      ctx.progress(n, 10_000);
      await sleep(50, undefined, { signal: ctx.signal });
    }
  });
  await start();
  const { id } = await client.invoke("o/work");
  for await (const event of client.events(id, { progress: true, signal: AbortSignal.timeout(timeoutMs) })) {
    if (event.kind === "progress") break;
  }
  isSeen = true;
  assert.equal((await client.wait(id, { timeoutMs })).status, "COMPLETE");
});

test("a venue killed while jobs run loses none of them", { skip }, async (t) => {
  const { venue, client, worker, start } = await setUp(t, { parallel: 20 });
  let proceed!: () => void;
  const may = new Promise<void>((resolve) => (proceed = resolve));
  let ran = 0;
  let all!: () => void;
  const started = new Promise<void>((resolve) => (all = resolve));
  worker.operation({ name: "work", input: s.integer() }, async (n) => {
    if (++ran === 20) all();
    await may;
    return n;
  });
  await start();
  const jobs: Job[] = [];
  for (let n = 0; n < 20; n++) jobs.push(await client.invoke("o/work", n));
  await started;
  await venue.kill();
  proceed();
  await venue.start();
  for (const [n, { id }] of jobs.entries()) assert.equal((await client.wait(id, { timeoutMs })).output, n);
  assert.equal(ran, 20);
});

const PROGRAM = `
import { appendFileSync, existsSync, writeFileSync } from "node:fs";
import { Worker } from ${JSON.stringify(fileURLToPath(new URL("../src/index.js", import.meta.url)))};
const [url, folder] = process.argv.slice(1);
const worker = new Worker({ url, claimWaitMs: 500 });
worker.operation({ name: "work" }, async (_, ctx) => {
  const first = await ctx.step("once", () => {
    appendFileSync(folder + "/ran", "x");
    return ctx.attempt;
  });
  if (!existsSync(folder + "/proceed")) {
    writeFileSync(folder + "/waiting", "");
    await new Promise((resolve) => ctx.signal.addEventListener("abort", resolve));
  }
  return first;
});
await worker.run();
`;

test("a killed worker is replaced and its steps are not repeated", { skip }, async (t) => {
  const { venue, client } = await setUp(t);
  const run = (): ChildProcess => {
    const child = spawn(process.execPath, ["--input-type=module", "-e", PROGRAM, venue.url, venue.folder], {
      stdio: ["ignore", "inherit", "ignore"],
    });
    t.after(() => child.kill("SIGKILL"));
    return child;
  };
  const first = run();
  const { id } = await invokeWhenRegistered(client, "o/work", null);
  const end = performance.now() + timeoutMs;
  while (!existsSync(join(venue.folder, "waiting"))) {
    assert.ok(performance.now() < end);
    await sleep(20);
  }
  const killed = once(first, "exit");
  first.kill("SIGKILL");
  await killed;
  writeFileSync(join(venue.folder, "proceed"), "");
  const second = run();
  assert.equal((await client.wait(id, { timeoutMs })).output, 1);
  assert.equal(readFileSync(join(venue.folder, "ran"), "utf8"), "x");
  assert.equal((await client.verify(id)).subjobsVerified, 1);
  const exit = once(second, "exit");
  second.kill("SIGTERM");
  assert.deepEqual(await exit, [0, null]);
});

async function invokeWhenRegistered(client: Client, operation: string, input: unknown): Promise<Job> {
  const end = performance.now() + timeoutMs;
  for (;;) {
    try {
      return await client.invoke(operation, input);
    } catch (error) {
      if (performance.now() > end) throw error;
      await sleep(20);
    }
  }
}

test("the example runs as the README says", { skip }, async (t) => {
  const { venue, client } = await setUp(t);
  const child = spawn(process.execPath, [fileURLToPath(new URL("../examples/greet.js", import.meta.url))], {
    env: { ...process.env, CATENA_VENUE: venue.url },
    stdio: "inherit",
  });
  t.after(() => child.kill("SIGKILL"));
  const { id } = await invokeWhenRegistered(client, "o/greet", { name: "Ada" });
  assert.equal((await client.wait(id, { timeoutMs })).output, "Hello, Ada!");
  const exit = once(child, "exit");
  child.kill("SIGTERM");
  assert.deepEqual(await exit, [0, null]);
});

test("the client follows and verifies jobs of the venue", { skip }, async (t) => {
  const { client } = await setUp(t);
  assert.deepEqual(await client.run("test:echo", { a: [1, 1.5, "é"] }), { a: [1, 1.5, "é"] });
  const { id } = await client.invoke("test:delay", { delay: 200, input: 5 });
  const statuses: string[] = [];
  for await (const event of client.events(id)) if (event.kind === "job-update") statuses.push(event.job.status);
  assert.equal(statuses.at(-1), "COMPLETE");
  const { head } = await client.job(id);
  const report = await client.verify(id, { head: head! });
  assert.deepEqual([report.status, report.job], ["COMPLETE", id]);
  const never = await client.invoke("test:never");
  await assert.rejects(client.wait(never.id, { timeoutMs: 100 }), { name: "TimeoutError" });
  assert.equal((await client.pause(never.id)).status, "PAUSED");
  assert.equal((await client.resume(never.id)).status, "STARTED");
  assert.equal((await client.cancel(never.id, "enough")).status, "CANCELLED");
  const outer = await client.invoke("test:delay", { delay: 1, operation: "test:echo", input: { n: 1 } });
  assert.deepEqual((await client.wait(outer.id)).output, { n: 1 });
  assert.equal((await client.verify(outer.id)).subjobsVerified, 1);
});
