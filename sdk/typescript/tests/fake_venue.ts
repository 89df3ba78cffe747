// A venue in memory that speaks `/worker/v1` and the part of the grid API that the tests use, over real HTTP on a free port.

import { EventEmitter, once } from "node:events";
import { createServer } from "node:http";
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** Longest output of a step that is sent along with a claim. */
const STEP_CHARS_MAX = 1_000;

const ENDED = ["COMPLETE", "FAILED", "CANCELLED", "REJECTED", "TIMEOUT"];

// The protocol is JSON; the tests say what they expect of it.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Json = any;

export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly retry = "never",
  ) {
    super(code);
  }
}

/** Closes the connection without an answer. */
export class Broken extends Error {}

export class FakeJob {
  operation = "";
  status = "PENDING";
  fence = 0;
  attempt = 1;
  holder: string | undefined;
  readonly steps = new Map<string, unknown>();
  readonly calls = new Map<string, FakeJob>();
  awaiting: string[] = [];
  message: unknown;
  output: unknown;
  error: string | undefined;
  code: string | undefined;
  readonly asked: Json[] = [];
  readonly ends: Json[] = [];
  lastEnd = "";
  readonly progress: Json[] = [];
  readonly log: string[] = [];
  signal: string | undefined;

  constructor(
    readonly id: string,
    readonly op: string,
    public queue: string,
    readonly input: unknown,
    readonly attemptsMax: number,
  ) {}

  json(): Json {
    const { id, op, status, input, output, error } = this;
    return { id, op, status, input, output, ...(error === undefined ? {} : { error }) };
  }
}

export class FakeVenue {
  readonly jobs: FakeJob[] = [];
  readonly operations = new Map<string, Json>();
  readonly requests: { method: string; path: string; headers: IncomingMessage["headers"]; body: Json }[] = [];
  readonly instant = new Map<string, (input: Json) => unknown>();
  /** What the next requests of an action get instead of an answer. */
  readonly failures = new Map<string, Error[]>();
  /** Whether a beat with reports is slower than the requests that follow it. */
  delaysReports = false;
  /** Ends whose answers are lost after they were carried out. */
  lostAnswers = 0;
  private readonly events = new EventEmitter().setMaxListeners(0);
  private readonly server: Server = createServer((request, response) => void this.handle(request, response));

  static async start(): Promise<FakeVenue> {
    const venue = new FakeVenue();
    venue.server.listen(0, "127.0.0.1");
    await once(venue.server, "listening");
    return venue;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.server.close();
    this.server.closeAllConnections();
    await once(this.server, "close");
  }

  // What a test does.

  invoke(op: string, input: unknown = null, attempts = 1): FakeJob {
    const metadata = this.operations.get(op.replace(/^o\//, ""));
    const id = "0x" + (this.jobs.length + 1).toString(16).padStart(32, "0");
    const job = new FakeJob(id, op, metadata?.operation.queue ?? op, input, attempts);
    this.jobs.push(job);
    const instant = this.instant.get(op);
    if (instant) {
      job.output = instant(input);
      job.status = "COMPLETE";
    }
    this.changed();
    return job;
  }

  changed(): void {
    this.events.emit("changed");
  }

  /** Waits until something is true of the venue's state. Resolves to whether it is. */
  async waitFor(condition: () => boolean, ms = 60_000): Promise<boolean> {
    const end = AbortSignal.timeout(ms);
    while (!condition()) {
      if (end.aborted) return false;
      await once(this.events, "changed", { signal: end }).catch(() => undefined);
    }
    return true;
  }

  async ended(job: FakeJob, ...statuses: string[]): Promise<FakeJob> {
    const wanted = statuses.length > 0 ? statuses : ENDED;
    if (!(await this.waitFor(() => wanted.includes(job.status)))) {
      throw new Error(`job ${job.op} is ${job.status}, not ${wanted.join(" or ")}`);
    }
    return job;
  }

  signal(job: FakeJob, signal: "go" | "pause" | "stop"): void {
    job.signal = signal;
    if (signal === "stop") {
      job.fence++;
      job.holder = undefined;
      job.status = "CANCELLED";
    }
    this.changed();
  }

  /** Offers the job again, as after the end of a lease. */
  loseLease(job: FakeJob): void {
    job.fence++;
    job.attempt++;
    job.holder = undefined;
    job.status = "PENDING";
    this.changed();
  }

  answer(job: FakeJob, content: unknown): void {
    job.message = content;
    job.status = "PENDING";
    this.changed();
  }

  sent(end: string): Json[] {
    return this.requests.filter(({ path }) => path.endsWith(end)).map(({ body }) => body);
  }

  // The protocol.

  private offered(queues: string[]): FakeJob[] {
    const isReady = (job: FakeJob): boolean =>
      job.status === "PENDING" &&
      queues.includes(job.queue) &&
      job.awaiting.every((key) => ENDED.includes(job.calls.get(key)!.status));
    return this.jobs.filter(isReady);
  }

  private async claim(body: Json, response: ServerResponse): Promise<Json> {
    const done = (body.done ?? []).map((end: Json) => {
      try {
        this.end(end.id, end);
        return { id: end.id, ok: true };
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        return { id: end.id, code: error.code };
      }
    });
    await this.waitFor(() => response.destroyed || this.offered(body.queues).length > 0, body.waitMs);
    if (response.destroyed) throw new Broken();
    const jobs = this.offered(body.queues).slice(0, body.max);
    for (const job of jobs) {
      job.status = "STARTED";
      job.holder = body.worker;
      job.fence++;
      job.awaiting = [];
    }
    this.changed();
    return { jobs: jobs.map((job) => this.offer(job)), leaseUntil: Date.now() + 10_000, done };
  }

  private offer(job: FakeJob): Json {
    const { id, fence, attempt, operation, op, input, message } = job;
    const steps = [...job.steps].map(([key, output]) =>
      JSON.stringify(output).length > STEP_CHARS_MAX ? { key, omitted: true } : { key, output },
    );
    const offer = { id, fence, attempt, operation, op, input, steps, deadline: null, idempotencyKey: id };
    return message === undefined ? offer : { ...offer, message };
  }

  private async beat(body: Json): Promise<Json> {
    for (const entry of body.jobs) {
      const job = this.find(entry.id);
      const hasEnded = (): boolean => ENDED.includes(job.status);
      // Long enough for an end that does not wait for this beat to arrive before it.
      if (this.delaysReports && ("progress" in entry || "log" in entry)) await this.waitFor(hasEnded, 300);
      if (hasEnded()) continue;
      if ("progress" in entry) job.progress.push(entry.progress);
      if ("log" in entry) job.log.push(...entry.log.split("\n"));
    }
    this.changed();
    let signals: Json[] = [];
    const collect = (): boolean => {
      signals = body.jobs.flatMap(({ id, fence }: Json) => {
        const job = this.find(id);
        if (job.fence !== fence || ENDED.includes(job.status)) return [{ id, signal: "stop" }];
        const { signal } = job;
        job.signal = undefined;
        return signal === undefined ? [] : [{ id, signal }];
      });
      return signals.length > 0;
    };
    await this.waitFor(collect, body.waitMs ?? 0);
    return { leaseUntil: Date.now() + 10_000, signals };
  }

  private find(id: string): FakeJob {
    const job = this.jobs.find((job) => job.id === id);
    if (!job) throw new Refused(404, "job_not_found");
    return job;
  }

  private held(id: string, fence: number): FakeJob {
    const job = this.find(id);
    if (job.fence !== fence || job.holder === undefined) throw new Refused(409, "fenced");
    return job;
  }

  private end(id: string, { id: _, ...body }: Json): Json {
    const known = this.find(id);
    if (known.lastEnd === JSON.stringify(body)) return { id, repeated: true };
    const job = this.held(id, body.fence);
    job.lastEnd = JSON.stringify(body);
    job.ends.push(body);
    job.holder = undefined;
    if ("output" in body) {
      job.output = body.output;
      job.status = "COMPLETE";
    } else if ("ask" in body) {
      job.asked.push(body.ask);
      job.status = "INPUT_REQUIRED";
    } else if ("awaiting" in body) {
      job.awaiting = body.awaiting;
      job.status = "PENDING";
    } else if (body.retry !== "never" && job.attempt < job.attemptsMax) {
      job.attempt++;
      job.status = "PENDING";
    } else {
      job.error = body.error;
      job.code = body.code;
      job.status = "FAILED";
    }
    this.changed();
    if (this.lostAnswers > 0) {
      this.lostAnswers--;
      throw new Broken();
    }
    return { id, ok: true };
  }

  private step(id: string, body: Json): Json {
    const { steps } = this.held(id, body.fence);
    if (!steps.has(body.key)) steps.set(body.key, body.output);
    this.changed();
    return { job: `${id}-step`, status: "COMPLETE", output: steps.get(body.key) };
  }

  private async call(id: string, body: Json): Promise<Json> {
    const job = this.held(id, body.fence);
    const called = job.calls.get(body.key) ?? this.invoke(body.operation, body.input);
    job.calls.set(body.key, called);
    await this.waitFor(() => ENDED.includes(called.status), body.waitMs ?? 0);
    const answer = { job: called.id, status: called.status };
    return called.status === "COMPLETE" ? { ...answer, output: called.output } : answer;
  }

  private async respond(method: string, path: string, body: Json, response: ServerResponse): Promise<[number, Json]> {
    const parts = path.split("?")[0]!.split("/").slice(1);
    const action = parts[0] === "worker" ? parts.at(-1)! : path;
    const failure = this.failures.get(action)?.shift();
    if (failure) throw failure;
    if (path === "/worker/v1/claim") return [200, await this.claim(body, response)];
    if (path === "/worker/v1/beat") return [200, await this.beat(body)];
    if (path.startsWith("/worker/v1/jobs/")) {
      if (parts[4] === "end") return [200, this.end(parts[3]!, body)];
      if (parts[4] === "step") return [200, this.step(parts[3]!, body)];
      if (parts[4] === "call") return [200, await this.call(parts[3]!, body)];
    }
    if (method === "PUT" && path.startsWith("/api/v1/operations/")) {
      this.operations.set(parts[3]!, body);
      return [200, { name: parts[3], version: 1, id: "ab".repeat(32) }];
    }
    if (path === "/api/v1/invoke") return [201, this.invoke(body.operation, body.input).json()];
    if (path.startsWith("/api/v1/jobs/") && parts.length === 4) {
      const job = this.find(parts[3]!);
      if (method === "POST") {
        this.answer(job, body.content);
        return [202, { id: job.id, queued: true }];
      }
      const wait = /wait=(\d+)/.exec(this.requests.at(-1)?.headers["prefer"]?.toString() ?? "");
      await this.waitFor(() => ENDED.includes(job.status), 1000 * Number(wait?.[1] ?? 0));
      return [200, job.json()];
    }
    throw new Refused(404, "endpoint_not_found");
  }

  private async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = "";
    for await (const part of request) text += String(part);
    const body: Json = text ? JSON.parse(text) : undefined;
    const { method = "", url: path = "" } = request;
    this.requests.push({ method, path, headers: request.headers, body });
    this.changed();
    let answer: [number, Json];
    try {
      answer = await this.respond(method, path, body, response);
    } catch (error) {
      if (!(error instanceof Refused)) {
        request.socket.destroy();
        return;
      }
      const { status, code, retry } = error;
      answer = [status, { error: `refused: ${code}`, code, retry, hint: "Read the test." }];
    }
    response.writeHead(answer[0], { "content-type": "application/json" }).end(JSON.stringify(answer[1]));
  }
}
