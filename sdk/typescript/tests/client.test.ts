// The client against a fake venue: requests, errors and event streams.

import assert from "node:assert/strict";
import test from "node:test";
import type { TestContext } from "node:test";
import { Client, JobFailed, resultOf, Unreachable, VenueError } from "../src/index.js";
import { Parser } from "../src/sse.js";
import { Broken, FakeVenue } from "./fake_venue.js";

async function setUp(t: TestContext): Promise<{ venue: FakeVenue; client: Client }> {
  const venue = await FakeVenue.start();
  t.after(() => venue.stop());
  return { venue, client: new Client({ url: venue.url + "/", token: "t" }) };
}

test("an operation is invoked and its output returned", async (t) => {
  const { venue, client } = await setUp(t);
  venue.instant.set("test:echo", (input) => input);
  assert.deepEqual(await client.run("test:echo", { a: 1 }), { a: 1 });
  const job = await client.invoke("test:echo", [1], { idempotencyKey: "k" });
  assert.deepEqual([job.status, job.output], ["COMPLETE", [1]]);
  const { headers } = venue.requests.at(-1)!;
  assert.deepEqual([headers.authorization, headers["idempotency-key"]], ["Bearer t", "k"]);
});

test("a failed job rejects with what the venue says", async (t) => {
  const { venue, client } = await setUp(t);
  const { id } = await client.invoke("o/work");
  Object.assign(venue.jobs[0]!, { status: "FAILED", error: "no paper" });
  const job = await client.wait(id);
  assert.throws(() => resultOf(job), (error) => error instanceof JobFailed && /is FAILED: no paper/.test(error.message));
});

test("refusals and lost connections are typed errors", async (t) => {
  const { venue, client } = await setUp(t);
  await assert.rejects(
    client.job("0x" + "f".repeat(32)),
    (error) => error instanceof VenueError && error.status === 404 && error.code === "job_not_found",
  );
  venue.failures.set("/api/v1/invoke", [new Broken()]);
  await assert.rejects(client.invoke("o/work"), Unreachable);
});

test("a wait ends after its time and the job continues", async (t) => {
  const { venue, client } = await setUp(t);
  const { id } = await client.invoke("o/work");
  await assert.rejects(client.wait(id, { timeoutMs: 20.5 }), { name: "TimeoutError" });
  assert.equal(venue.jobs[0]?.status, "PENDING");
});

test("a signal ends a wait", async (t) => {
  const { client } = await setUp(t);
  const { id } = await client.invoke("o/work");
  const reason = new Error("enough");
  const controller = new AbortController();
  const waiting = client.wait(id, { signal: controller.signal });
  controller.abort(reason);
  await assert.rejects(waiting, reason);
});

test("parts of an event stream become frames", () => {
  const parser = new Parser();
  const text = "retry: 250\r\n: comment\nevent: job-update\nid: 3\ndata: {\ndata: }\n\nevent: empty\n\ndata:x\n\n";
  const frames = [...text].flatMap((character) => parser.push(character));
  assert.deepEqual(frames, [
    { event: "job-update", data: "{\n}", id: "3" },
    { event: "message", data: "x", id: undefined },
  ]);
  assert.equal(parser.retryMs, 250);
});
