// One run of a claimed job: memoised steps, calls, questions, pause and stop.
//
// A handler is run from the top each time its job is claimed. Whatever it did through its run the time before is returned from
// memory instead of being done again, so a handler that does everything with effects in steps and calls continues where it stopped.
//
// `Run` knows no transport: it talks to a `Link`, which is the venue in a worker and a fake in the test helper.

import { CallFailed, Failure, Fenced, Retry, Stopped } from "./errors.js";
import { ERROR_CHARS_MAX, LOG_LINE_CHARS_MAX, LOG_LINES_MAX } from "./limits.js";
import type { JsonSchema, Schema } from "./schema.js";

/** The statuses of a job that has ended. */
export const ENDED: readonly string[] = ["COMPLETE", "FAILED", "CANCELLED", "REJECTED", "TIMEOUT"];

/** Suffix of the step by which a run records that it is going to ask. */
export const ASKED = "?";

/** A job as the venue offers it. */
export interface Claim {
  readonly id: string;
  readonly fence: number;
  readonly attempt: number;
  /** Asset ID of the definition. */
  readonly operation: string;
  /** The reference by which the operation was invoked. */
  readonly op: string;
  readonly input: unknown;
  /** The steps that earlier runs recorded. */
  readonly steps: readonly {
    readonly key: string;
    readonly output?: unknown;
    /** Whether the output was too large to be sent along. */
    readonly omitted?: boolean;
  }[];
  /** The answer of a person to the last question. */
  readonly message?: unknown;
  /** Unix time in ms at which the job times out. */
  readonly deadline: number | null;
  readonly idempotencyKey: string;
  /** Secrets of the caller that the operation declares, by name. */
  readonly secrets?: { readonly [name: string]: string };
}

/** How a run ends, as it is sent to the venue. */
export type End =
  | { readonly output: unknown; readonly signature?: string }
  | { readonly error: string; readonly code?: string; readonly retry: "never" | "may" | number; readonly signature?: string }
  | { readonly ask: { readonly message: string; readonly schema?: JsonSchema } }
  | { readonly awaiting: readonly string[] };

/** Thrown to end the handler without ending the job. If the handler catches it, the job ends in this way nevertheless. */
export class Unwind extends Error {
  constructor(readonly end: End) {
    super("the handler continues when the job is offered again; let this error pass");
  }
}

export interface CallResult {
  readonly job: string;
  readonly status: string;
  readonly output?: unknown;
  readonly error?: string;
}

/** What a run needs from its venue. Every method may reject with `Fenced`. */
export interface Link {
  /** Records the output of a step. Resolves to what is recorded: the first output under a key counts. */
  recordStep(claim: Claim, key: string, input: unknown, output: unknown, signal: AbortSignal): Promise<unknown>;
  call(
    claim: Claim,
    key: string,
    operation: string,
    input: unknown,
    waitMs: number,
    signal: AbortSignal,
  ): Promise<CallResult>;
  /** How long a call may wait for its result. */
  callWaitMs(): number;
}

export interface Progress {
  readonly processedItems?: number;
  readonly totalItems?: number;
  readonly outputStats?: Readonly<Record<string, unknown>>;
}

/** What the next beat has to send. */
export interface Reports {
  readonly progress?: Progress;
  readonly log?: string;
}

export class Run {
  /** How the handler was unwound. */
  unwound: Unwind | undefined;
  /** Whether the job is given back to the queue. */
  isHandedBack = false;
  private readonly stopper = new AbortController();
  private readonly memo: Map<string, unknown>;
  private readonly used = new Set<string>();
  private message: unknown;
  private stepsRunning = 0;
  private waiting: (() => void)[] = [];
  private paused = false;
  private progress: Progress | undefined;
  private log: string[] = [];
  private logDropped = 0;
  /** Whether the venue has not answered yet to a beat with reports of this job. */
  private hasReportsOnWay = false;

  constructor(
    readonly claim: Claim,
    private readonly link: Link,
  ) {
    this.memo = new Map(claim.steps.filter((step) => "output" in step).map(({ key, output }) => [key, output]));
    this.message = claim.message ?? undefined;
  }

  // Signals.

  get signal(): AbortSignal {
    return this.stopper.signal;
  }

  get isStopped(): boolean {
    return this.signal.aborted;
  }

  get isPaused(): boolean {
    return this.paused;
  }

  pause(): void {
    this.paused = true;
  }

  resume(): void {
    this.paused = false;
    this.notify();
  }

  /** The job no longer belongs to this run: its signal is aborted and its outcome is dropped. */
  stop(): void {
    if (this.isStopped) return;
    this.stopper.abort(new Stopped());
    this.notify();
  }

  /** Aborts the signal and gives the job back to the queue. */
  handBack(): void {
    if (this.isStopped) return;
    this.isHandedBack = true;
    this.stop();
  }

  private notify(): void {
    const { waiting } = this;
    this.waiting = [];
    for (const resolve of waiting) resolve();
  }

  /** Waits while the condition is true. Rejects if the job is stopped meanwhile. */
  private async waitWhile(condition: () => boolean): Promise<void> {
    while (!this.isStopped && condition()) await new Promise<void>((resolve) => this.waiting.push(resolve));
    this.signal.throwIfAborted();
  }

  private async ready(): Promise<void> {
    if (this.unwound) throw this.unwound;
    await this.waitWhile(() => this.paused);
    if (this.unwound) throw this.unwound;
  }

  private unwind(end: End): Unwind {
    this.unwound ??= new Unwind(end);
    return this.unwound;
  }

  /** Sends a request. Ends at once if the job is stopped meanwhile. */
  private async send<T>(request: Promise<T>): Promise<T> {
    try {
      const result = await request;
      this.signal.throwIfAborted();
      return result;
    } catch (error) {
      if (error instanceof Fenced) this.stop();
      this.signal.throwIfAborted();
      throw error;
    }
  }

  // Steps.

  private claimKey(key: string): void {
    if (typeof key !== "string" || key === "") throw new TypeError("a key must be a text that is not empty");
    if (this.used.has(key)) {
      throw new Error(`the key "${key}" is used twice in one run: every step, call and question needs its own`);
    }
    this.used.add(key);
  }

  /** Whether the step was recorded before. Its output is in memory then. */
  private async isRecorded(key: string): Promise<boolean> {
    this.claimKey(key);
    await this.ready();
    const isOmitted = this.claim.steps.some((step) => step.key === key && step.omitted === true);
    if (isOmitted && !this.memo.has(key)) {
      // The venue returns what it recorded and ignores what is sent.
      this.memo.set(key, await this.send(this.link.recordStep(this.claim, key, undefined, null, this.signal)));
    }
    return this.memo.has(key);
  }

  async step<T>(key: string, work: () => T | Promise<T>, input: unknown): Promise<T> {
    if (await this.isRecorded(key)) return this.memo.get(key) as T;
    this.stepsRunning++;
    try {
      return (await this.record(key, input, await work())) as T;
    } finally {
      this.stepsRunning--;
      this.notify();
    }
  }

  /** Records the output of a step and returns it as later runs will get it. */
  private async record(key: string, input: unknown, output: unknown): Promise<unknown> {
    this.signal.throwIfAborted();
    const value = plain(output);
    const sent = input === undefined ? undefined : plain(input);
    const recorded = await this.send(this.link.recordStep(this.claim, key, sent, value, this.signal));
    this.memo.set(key, recorded);
    return recorded;
  }

  // Calls.

  /** Calls operations and returns their results. Gives the job back if one has not ended after the wait. */
  async calls(
    requests: readonly { readonly key: string; readonly operation: string; readonly input: unknown }[],
    waitMs: number | undefined,
  ): Promise<CallResult[]> {
    for (const { key } of requests) this.claimKey(key);
    await this.ready();
    const wait = waitMs ?? this.link.callWaitMs();
    const sent = requests.map(({ key, operation, input }) =>
      this.link.call(this.claim, key, operation, plain(input), wait, this.signal),
    );
    const results = await this.send(Promise.all(sent));
    const waiting = requests.filter((_, at) => !ENDED.includes(results[at]?.status ?? ""));
    if (waiting.length === 0) return results;
    // Steps that run at the same time would be repeated if the job were given back before they are recorded.
    await this.waitWhile(() => this.stepsRunning > 0);
    throw this.unwind({ awaiting: waiting.map(({ key }) => key) });
  }

  // People.

  /** Asks a person. The first run ends with the question; the run that follows the answer records it. */
  async ask<T>(key: string, question: string, schema: Schema<T> | undefined): Promise<T> {
    if (await this.isRecorded(key)) return this.memo.get(key) as T;
    const ask = (message: string): Unwind =>
      this.unwind({ ask: { message, ...(schema === undefined ? {} : { schema: schema.json }) } });
    const asked = key + ASKED;
    if (this.memo.has(asked) && this.message !== undefined) {
      const answer = this.message;
      this.message = undefined;
      const fault = schema?.check(answer);
      if (fault !== undefined) throw ask(`${question} (the last answer was not valid: ${fault})`);
      return (await this.record(key, undefined, answer)) as T;
    }
    // An answer that a job carries may belong to an earlier question; this step tells them apart.
    if (!this.memo.has(asked)) await this.record(asked, undefined, question);
    await this.waitWhile(() => this.stepsRunning > 0);
    throw ask(question);
  }

  // Reports.

  report(progress: Progress): void {
    this.progress = progress;
  }

  writeLog(text: string): void {
    for (const line of text.split(/\r?\n/)) {
      if (this.log.length < LOG_LINES_MAX) this.log.push(line.slice(0, LOG_LINE_CHARS_MAX));
      else this.logDropped++;
    }
  }

  get hasReports(): boolean {
    return this.progress !== undefined || this.log.length > 0;
  }

  /** Returns what is to be sent. It is on its way until `confirmReports` or `restoreReports` is called. */
  takeReports(): Reports {
    const { progress, log } = this;
    this.hasReportsOnWay ||= this.hasReports;
    if (this.logDropped > 0) log.push(`(${this.logDropped} lines were dropped)`);
    this.progress = undefined;
    this.log = [];
    this.logDropped = 0;
    return { ...(progress === undefined ? {} : { progress }), ...(log.length === 0 ? {} : { log: log.join("\n") }) };
  }

  /** The venue has what was taken. */
  confirmReports(): void {
    this.hasReportsOnWay = false;
    this.notify();
  }

  /** Waits until the venue has what was taken, or it was taken back. */
  async reportsAnswered(): Promise<void> {
    while (this.hasReportsOnWay) await new Promise<void>((resolve) => this.waiting.push(resolve));
  }

  /** Takes back what could not be sent. */
  restoreReports({ progress, log }: Reports): void {
    this.hasReportsOnWay = false;
    this.progress ??= progress;
    const lines = [...(log === undefined ? [] : log.split("\n")), ...this.log];
    this.logDropped += Math.max(0, lines.length - LOG_LINES_MAX);
    this.log = lines.slice(0, LOG_LINES_MAX);
    this.notify();
  }
}

export function outputOf(key: string, result: CallResult): unknown {
  if (result.status === "COMPLETE") return result.output ?? null;
  throw new CallFailed(key, result.job, result.status, result.error);
}

/** The value as it is after a round trip through JSON, so that a first run and a repeated one see the same. */
export function plain(value: unknown): unknown {
  const text = JSON.stringify(value ?? null);
  if (text === undefined) throw new TypeError(`a ${typeof value} has no JSON form`);
  return JSON.parse(text);
}

/** How a job ends whose handler threw this. */
export function endOfError(error: unknown): End {
  const cut = (text: string): string => text.slice(0, ERROR_CHARS_MAX);
  if (error instanceof Failure) return failed(cut(error.message), error.code, "never");
  if (error instanceof Retry) return failed(cut(error.message), error.code, error.afterMs ?? "may");
  if (error instanceof Error) return failed(cut(`${error.name}: ${error.message}`), undefined, "may");
  return failed(cut(String(error)), undefined, "may");
}

export function failed(error: string, code: string | undefined, retry: "never" | "may" | number): End {
  return { error, ...(code === undefined ? {} : { code }), retry };
}
