// What a handler can do for its job.

import { outputOf } from "./run.js";
import type { Progress, Run } from "./run.js";
import type { Schema } from "./schema.js";

/** An operation to call, and its input. */
export type Call = readonly [operation: string, input?: unknown];

export class Context {
  constructor(private readonly run: Run) {}

  /** The job's ID. */
  get job(): string {
    return this.run.claim.id;
  }

  /** The number of this attempt, from 1. */
  get attempt(): number {
    return this.run.claim.attempt;
  }

  /** Asset ID of the definition that is run. */
  get operation(): string {
    return this.run.claim.operation;
  }

  /** The reference by which the operation was invoked. */
  get op(): string {
    return this.run.claim.op;
  }

  /** Send this to services that recognise repeated requests. */
  get idempotencyKey(): string {
    return this.run.claim.idempotencyKey;
  }

  /** The secrets of the caller that the operation declares, by name. The venue removes their values from what the job reports. */
  get secrets(): { readonly [name: string]: string } {
    return this.run.claim.secrets ?? {};
  }

  /** When the job times out. Undefined if it has no time limit. */
  get deadline(): Date | undefined {
    const { deadline } = this.run.claim;
    return deadline === null || deadline === undefined ? undefined : new Date(deadline);
  }

  /** Aborted when the job is cancelled, times out, or belongs to another worker. Pass it to everything that takes a signal. */
  get signal(): AbortSignal {
    return this.run.signal;
  }

  /** Whether the job is paused. Steps, calls and questions wait until it is resumed; a long computation can look here. */
  get isPaused(): boolean {
    return this.run.isPaused;
  }

  /**
   * Runs `work` once per job and resolves to its output; later runs get the recorded one. The output is returned as JSON has it,
   * also the first time: a `Date` becomes a string, `undefined` becomes null. `input` is recorded with the step.
   */
  step<T>(key: string, work: () => T | Promise<T>, options: { input?: unknown } = {}): Promise<T> {
    return this.run.step(key, work, options.input);
  }

  /**
   * Invokes an operation as a sub-job and resolves to its output. Rejects with `CallFailed` if it ends in another way. If it has not
   * ended after `waitMs`, the job is given back and the handler starts again when it has.
   */
  async call<T = unknown>(
    key: string,
    operation: string,
    input: unknown = null,
    options: { waitMs?: number } = {},
  ): Promise<T> {
    const [result] = await this.run.calls([{ key, operation, input }], options.waitMs);
    return outputOf(key, result!) as T;
  }

  /** Invokes several operations at once: `{key: [operation, input]}` gives `{key: output}`. */
  async calls<K extends string>(
    calls: Readonly<Record<K, Call>>,
    options: { waitMs?: number } = {},
  ): Promise<Record<K, unknown>> {
    const keys = Object.keys(calls) as K[];
    const requests = keys.map((key) => ({ key, operation: calls[key][0], input: calls[key][1] ?? null }));
    const results = await this.run.calls(requests, options.waitMs);
    return Object.fromEntries(keys.map((key, at) => [key, outputOf(key, results[at]!)])) as Record<K, unknown>;
  }

  /**
   * Asks a person and resolves to the answer. Until it arrives, the job waits without occupying this worker. The person is asked
   * again if the answer does not fit the schema.
   */
  ask<T = unknown>(key: string, message: string, schema?: Schema<T>): Promise<T> {
    return this.run.ask(key, message, schema);
  }

  /** Reports progress: items done and in total, and figures of your own (`bytesProcessed`, `bytesTotal`). */
  progress(done: number, total?: number, stats?: Progress["outputStats"]): void {
    this.run.report({
      processedItems: done,
      ...(total === undefined ? {} : { totalItems: total }),
      ...(stats === undefined ? {} : { outputStats: stats }),
    });
  }

  /** Writes lines to the job's log. */
  log(text: string): void {
    this.run.writeLog(text);
  }
}
