// A worker: claims jobs from queues, runs their handlers, and reports how they end.
//
// The claim loop takes as many jobs as there are free slots and hands in results with the same request. The beat loop renews the
// lease for all running jobs at once, sends their progress, and receives pause and stop. A venue that cannot be reached disturbs
// nothing: requests are repeated until it answers.

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { CatenaError, Fenced, VenueError } from "./errors.js";
import { execute } from "./execute.js";
import { keyInEnvironment } from "./key.js";
import type { Key } from "./key.js";
import {
  BEAT_INTERVAL_MIN_MS,
  BEAT_WAIT_MS,
  CALL_WAIT_BUSY_MS,
  CALL_WAIT_MS,
  CLAIM_JOBS_MAX,
  CLAIM_QUEUES_MAX,
  CLAIM_WAIT_MS,
  DONE_BATCH_MAX,
  DONE_CHARS_MAX,
  GRACE_MS,
  IDLE_BEAT_MS,
  PARALLEL_DEFAULT,
  STOP_GRACE_MS,
} from "./limits.js";
import { define } from "./operation.js";
import type { Definition, Handler, Operation } from "./operation.js";
import { failed, Run } from "./run.js";
import type { Claim, End, Link } from "./run.js";
import { backoff, isTransient, Venue } from "./venue.js";
import type { Access } from "./venue.js";

/** A worker with a key signs how its jobs end. If it has a token as well, the token's subject must be the DID of the key. */
export interface WorkerOptions extends Access {
  /** Identifies this process. The lease belongs to it, so two processes must never share one. */
  readonly name?: string;
  /** Jobs at once. */
  readonly parallel?: number;
  /** How long running jobs may take to end once the worker was asked to stop. */
  readonly graceMs?: number;
  /** False if the operations are not registered at the start, which a worker token may not do. */
  readonly register?: boolean;
  /** Where warnings go; `console.warn` unless it is given. */
  readonly warn?: (text: string) => void;
  /** How long a claim waits for jobs. */
  readonly claimWaitMs?: number;
  /** Time between the beats of a worker without jobs. */
  readonly idleBeatMs?: number;
}

/** Runs functions as jobs of a venue. */
export class Worker {
  readonly name: string;
  readonly parallel: number;
  /** Signs how jobs end. */
  readonly key: Key | undefined;
  readonly operations = new Map<string, Operation>();
  private readonly byAsset = new Map<string, Operation>();
  private readonly warn: (text: string) => void;
  private session: Session | undefined;
  private stopsEarly = false;

  constructor(private readonly options: WorkerOptions = {}) {
    this.name = options.name ?? `${hostname()}-${process.pid}-${randomBytes(4).toString("hex")}`;
    this.parallel = options.parallel ?? PARALLEL_DEFAULT;
    if (!Number.isInteger(this.parallel) || this.parallel < 1) throw new RangeError("`parallel` must be at least 1");
    this.key = options.key ?? keyInEnvironment();
    this.warn = options.warn ?? ((text) => console.warn(`catena-worker: ${text}`));
  }

  /** Makes a function the handler of `o/<name>`. */
  operation<I = unknown, O = unknown>(definition: Definition<I, O>, handler: Handler<I, O>): Operation {
    const operation = define(definition, handler);
    this.add(operation);
    return operation;
  }

  /** Adds an operation made by `define`. */
  add(operation: Operation): void {
    if (this.operations.has(operation.name)) throw new Error(`there already is an operation "${operation.name}"`);
    this.operations.set(operation.name, operation);
    this.byAsset.set(operation.assetId, operation);
  }

  get queues(): string[] {
    return [...new Set([...this.operations.values()].map(({ queue }) => queue))].sort();
  }

  /** The operation of a claimed job: by the ID of its definition, then by name, then the only one there is. */
  operationFor(claim: Claim): Operation | undefined {
    const [only] = this.operations.values();
    return (
      this.byAsset.get((claim.operation ?? "").replace(/^0x/, "")) ??
      this.operations.get(nameIn(claim.op ?? "")) ??
      (this.operations.size === 1 ? only : undefined)
    );
  }

  /** Registers the operations and resolves to their asset IDs by name. It needs the owner's credentials. */
  async register(): Promise<Record<string, string>> {
    const venue = new Venue(this.options, this.name, this.warn);
    const ids: Record<string, string> = {};
    for (const operation of this.operations.values()) {
      const { id } = await venue.repeat(() => venue.register(operation.name, operation.metadata));
      const asset = id.replace(/^0x/, "");
      ids[operation.name] = asset;
      this.byAsset.set(asset, operation);
    }
    return ids;
  }

  /** Runs until SIGTERM or SIGINT, then drains: running jobs may end, and nothing new is claimed. */
  async run(): Promise<void> {
    const stop = (): void => this.stop();
    process.on("SIGTERM", stop);
    process.on("SIGINT", stop);
    try {
      await this.serve();
    } finally {
      process.off("SIGTERM", stop);
      process.off("SIGINT", stop);
    }
  }

  /** Runs until `stop` is called. `started` is called before the first claim. */
  async serve(started?: () => void): Promise<void> {
    if (this.operations.size === 0) throw new CatenaError("the worker has no operations");
    if (this.queues.length > CLAIM_QUEUES_MAX) {
      const reason = `a worker claims from at most ${CLAIM_QUEUES_MAX} queues, not ${this.queues.length}`;
      throw new CatenaError(`${reason}: give several operations the same \`queue\``);
    }
    try {
      if (this.options.register ?? true) await this.register();
      const venue = new Venue(this.options, this.name, this.warn);
      const session = new Session(this, venue, this.options, this.warn);
      this.session = session;
      if (this.stopsEarly) session.drain();
      started?.();
      await session.run();
    } finally {
      this.session = undefined;
      this.stopsEarly = false;
    }
  }

  /** Starts to drain. Called a second time, it gives running jobs back without waiting for them. */
  stop(): void {
    if (this.session) this.session.drain();
    else this.stopsEarly = true;
  }
}

/** The name in a reference such as `o/resize`, `o/resize@3` or `did:key:…/o/resize`. */
function nameIn(op: string): string {
  return op.slice(op.lastIndexOf("o/") + (op.includes("o/") ? 2 : 1)).split("@")[0] ?? "";
}

interface Finished {
  readonly claim: Claim;
  readonly end: End;
}

/** One period of service, from the first claim to the last result. */
class Session {
  private readonly runs = new Map<string, Run>();
  private readonly tasks = new Set<Promise<void>>();
  private done: Finished[] = [];
  private wake: (() => void) | undefined;
  private isDraining = false;
  private isClaiming = false;
  private isClosed = false;
  private readonly closing = new AbortController();
  private readonly abandon = new AbortController();
  private readonly link: Link;
  private wakeBeats: (() => void) | undefined;

  constructor(
    private readonly worker: Worker,
    private readonly venue: Venue,
    private readonly options: WorkerOptions,
    private readonly warn: (text: string) => void,
  ) {
    this.link = {
      recordStep: (...step) => venue.recordStep(...step),
      call: (...call) => venue.call(...call),
      callWaitMs: () => (this.runs.size >= worker.parallel ? CALL_WAIT_BUSY_MS : CALL_WAIT_MS),
    };
  }

  // Life cycle.

  /** Claims nothing more. A second request gives running jobs back without waiting for them. */
  drain(): void {
    if (this.isDraining) this.abandon.abort();
    this.isDraining = true;
    this.wake?.();
  }

  async run(): Promise<void> {
    const beats = this.beatLoop();
    try {
      await this.claimLoop();
    } finally {
      this.isDraining = true;
      await this.finishRunning();
      this.isClosed = true;
      this.closing.abort();
      this.wakeBeats?.();
      await beats;
    }
  }

  /** Lets running jobs end within the grace period, then gives the others back. */
  private async finishRunning(): Promise<void> {
    for (const { claim, end } of this.done) this.start(this.end(claim, end));
    this.done = [];
    // A timer that is not needed any more must not keep the process running.
    const ended = new AbortController();
    const everything = this.allTasks().finally(() => ended.abort());
    const graceMs = this.options.graceMs ?? GRACE_MS;
    await Promise.race([everything, delay(graceMs, AbortSignal.any([ended.signal, this.abandon.signal]))]);
    for (const run of this.runs.values()) run.handBack();
    await Promise.race([everything, delay(Math.min(graceMs, STOP_GRACE_MS) + 1000, ended.signal)]);
    ended.abort();
  }

  private async allTasks(): Promise<void> {
    while (this.tasks.size > 0) await Promise.all(this.tasks);
  }

  private start(work: Promise<void>): void {
    const task = work
      .catch((error: unknown) => this.warn(`unexpected error: ${String(error)}`))
      .finally(() => this.tasks.delete(task));
    this.tasks.add(task);
  }

  // Claims.

  private async claimLoop(): Promise<void> {
    for (let attempt = 0; !this.isDraining; ) {
      const free = this.worker.parallel - this.runs.size;
      if (free <= 0) {
        await new Promise<void>((resolve) => (this.wake = resolve));
        continue;
      }
      const done = this.done.splice(0, DONE_BATCH_MAX);
      this.isClaiming = true;
      try {
        const answer = await this.claim(free, done);
        attempt = 0;
        this.isClaiming = false;
        this.settle(done, answer.done ?? []);
        for (const job of answer.jobs ?? []) this.accept(job);
      } catch (error) {
        this.done.unshift(...done);
        if (!isTransient(error)) throw error;
        this.warn(`${error.message}; claiming again`);
        await this.pauseClaims(backoff(attempt++));
      } finally {
        this.isClaiming = false;
      }
    }
  }

  /** Waits before the next claim. A request to drain ends the wait. */
  private async pauseClaims(ms: number): Promise<void> {
    const woken = new AbortController();
    this.wake = () => {
      if (this.isDraining) woken.abort();
    };
    await delay(ms, woken.signal);
  }

  private claim(free: number, done: readonly Finished[]): ReturnType<Venue["claim"]> {
    const ends = done.map(({ claim, end }) => ({ id: claim.id, fence: claim.fence, ...end }));
    // More results are waiting than one request takes: they must not wait for new jobs.
    const waitMs = this.done.length > 0 ? 0 : (this.options.claimWaitMs ?? CLAIM_WAIT_MS);
    return this.venue.claim(this.worker.queues, Math.min(free, CLAIM_JOBS_MAX), waitMs, ends);
  }

  /** Handles the answers to results that were sent with a claim. */
  private settle(done: readonly Finished[], answers: readonly { readonly code?: string }[]): void {
    done.forEach(({ claim, end }, at) => {
      const code = answers[at]?.code;
      if (code === "fenced") this.warn(`job ${claim.id}: the result came too late`);
      // The request of its own says why, and ends the job if its result is at fault.
      else if (code !== undefined) this.start(this.end(claim, end));
    });
  }

  private accept(claim: Claim): void {
    if (this.isDraining) {
      this.start(this.end(claim, { awaiting: [] }));
      return;
    }
    const run = new Run({ ...claim, steps: claim.steps ?? [] }, this.link);
    this.runs.set(claim.id, run);
    this.wakeBeats?.();
    this.start(this.work(run));
  }

  // Jobs.

  /** Runs one job and hands in its result. */
  private async work(run: Run): Promise<void> {
    const { claim } = run;
    const operation = this.worker.operationFor(claim);
    const end =
      operation === undefined
        ? failed(`this worker has no handler for ${claim.op || claim.operation}`, "no_handler", "may")
        : this.signed(claim, await execute(run, operation));
    if (this.isClosed) return;
    if (end) await this.sendReports(run);
    if (this.runs.get(claim.id) === run) this.runs.delete(claim.id);
    if (end && (this.isClaiming || this.isDraining || JSON.stringify(end).length > DONE_CHARS_MAX)) {
      this.wake?.();
      await this.end(claim, end);
      return;
    }
    if (end) this.done.push({ claim, end });
    this.wake?.();
  }

  /** The end with the signature of the worker, if it has a key. Questions and jobs that are given back are not signed. */
  private signed(claim: Claim, end: End | undefined): End | undefined {
    const { key } = this.worker;
    if (key === undefined || end === undefined || !("output" in end || "error" in end)) return end;
    const result = "output" in end ? { output: end.output ?? null } : { error: end.error };
    return { ...end, ...result, signature: key.signEnd(claim.id, claim.fence, result) };
  }

  /** Sends the last progress and log of a job before its end: a venue drops what arrives after it. They are not worth repeating the request for. */
  private async sendReports(run: Run): Promise<void> {
    await run.reportsAnswered();
    if (!run.hasReports) return;
    const { id, fence } = run.claim;
    try {
      await this.venue.beat([{ id, fence, ...run.takeReports() }], 0);
    } catch (error) {
      if (!(error instanceof CatenaError)) throw error;
    }
  }

  /** Ends a job. A result that the venue refuses becomes a failure, so that the job does not wait for its lease. */
  private async end(claim: Claim, end: End): Promise<void> {
    try {
      await this.venue.end(claim, end);
    } catch (error) {
      if (!(error instanceof VenueError)) throw error;
      if (error instanceof Fenced) {
        this.warn(`job ${claim.id}: the result came too late`);
        return;
      }
      this.warn(`job ${claim.id}: the result was refused: ${error.message}`);
      const refused = failed(`the venue refused the result: ${error.message}`, "result_refused", "never");
      await this.venue.end(claim, refused).catch(() => undefined);
    }
  }

  // Beats.

  private async beatLoop(): Promise<void> {
    for (let attempt = 0; !this.isClosed; ) {
      if (this.runs.size === 0) {
        const woken = new AbortController();
        this.wakeBeats = () => woken.abort();
        await delay(this.options.idleBeatMs ?? IDLE_BEAT_MS, woken.signal);
        if (this.isClosed) return;
      }
      const started = performance.now();
      const sent = [...this.runs.values()].map((run) => ({ run, reports: run.takeReports() }));
      const beats = sent.map(({ run: { claim }, reports }) => ({ id: claim.id, fence: claim.fence, ...reports }));
      try {
        // A job does not end while its reports are on their way, so a beat that has some must be answered at once.
        const hasReports = sent.some(({ reports }) => Object.keys(reports).length > 0);
        const waitMs = beats.length > 0 && !hasReports ? BEAT_WAIT_MS : 0;
        const { signals = [] } = await this.venue.beat(beats, waitMs, this.closing.signal);
        attempt = 0;
        for (const { run } of sent) run.confirmReports();
        // A signal concerns the run that sent the beat, not a later one of the same job.
        const byId = new Map(sent.map(({ run }) => [run.claim.id, run]));
        for (const { id, signal } of signals) deliver(byId.get(id), signal);
      } catch (error) {
        for (const { run, reports } of sent) run.restoreReports(reports);
        if (this.isClosed) return;
        this.warn(`${error instanceof Error ? error.message : String(error)}; reporting again`);
        await delay(backoff(attempt++), this.closing.signal);
      }
      await delay(Math.max(0, started + BEAT_INTERVAL_MIN_MS - performance.now()), this.closing.signal);
    }
  }
}

function deliver(run: Run | undefined, signal: string): void {
  if (signal === "stop") run?.stop();
  else if (signal === "pause") run?.pause();
  else if (signal === "go") run?.resume();
}

/** Resolves after some time, or as soon as the signal is aborted. */
async function delay(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => undefined);
}
