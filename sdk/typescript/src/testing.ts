// Runs a handler without a venue: `Harness` records what it does, answers its calls and questions, and makes it crash.
//
//   const harness = new Harness(checkout, { calls: { "o/pay": () => ({ receipt: 7 }) }, answers: ["yes"] });
//   const result = await harness.run({ order: 1 });
//   await harness.checkReplay({ order: 1 }); // the same result whichever step a crash follows

import { isDeepStrictEqual } from "node:util";
import { CatenaError } from "./errors.js";
import { execute } from "./execute.js";
import { REPLAYS_MAX } from "./limits.js";
import type { Operation } from "./operation.js";
import { ASKED, plain, Run } from "./run.js";
import type { CallResult, Claim, Link, Progress } from "./run.js";

/** Where the worker dies: `before` the output of a step is recorded, or right `after`. */
export interface CrashPoint {
  readonly key: string;
  readonly when?: "before" | "after";
}

export interface HarnessOptions {
  /** What called operations return, by reference. A function that throws makes the call fail. */
  readonly calls?: Readonly<Record<string, (input: never) => unknown>>;
  /** Given to questions in order. */
  readonly answers?: readonly unknown[];
  /** Whether every call is given back once before it has ended. */
  readonly slowCalls?: boolean;
  /** Attempts that the retry policy allows; those of the definition unless it is given. No time passes between them. */
  readonly attempts?: number;
}

/** What became of a job, and everything that its handler did. */
export interface Result {
  /** `COMPLETE`, `FAILED`, or `INPUT_REQUIRED` if the harness has no further answer. */
  status: string;
  output?: unknown;
  error?: string | undefined;
  code?: string | undefined;
  attempts: number;
  /** How often the handler was started. */
  runs: number;
  /** Keys of the steps in the order in which their work was done; a step lost by a crash occurs again. */
  steps: string[];
  /** The outputs of the recorded steps and answers. */
  recorded: Map<string, unknown>;
  /** The calls by key. */
  calls: Map<string, { readonly operation: string; readonly input: unknown }>;
  questions: string[];
  progress: Progress[];
  log: string[];
}

/** Runs a handler as a worker would, in memory. */
export class Harness {
  constructor(
    readonly operation: Operation,
    readonly options: HarnessOptions = {},
  ) {}

  /** Runs a job to its end. With `crash`, the worker dies once at that point and another one claims the job. */
  run(input: unknown = null, crash?: CrashPoint): Promise<Result> {
    return new TestJob(this, plain(input), crash).run();
  }

  /**
   * Crashes the worker before and after each step in turn. Rejects if a crash changes how the job ends. A handler fails this check if
   * what it does depends on anything but its input and the outputs of its steps, such as the time or a random number.
   */
  async checkReplay(input: unknown = null): Promise<Result> {
    const expected = await this.run(input);
    const count = (list: readonly string[], key: string): number => list.filter((step) => step === key).length;
    for (const key of [...expected.recorded.keys()]) {
      for (const when of ["before", "after"] as const) {
        const found = await this.run(input, { key, when });
        const end = ({ status, output, error }: Result): unknown => [status, output, error];
        const place = `a crash ${when} step "${key}" is recorded`;
        if (!isDeepStrictEqual(end(found), end(expected))) {
          const [was, is] = [end(expected), end(found)].map((value) => JSON.stringify(value));
          throw new CatenaError(`${place} changes the result from ${was} to ${is}`);
        }
        const repeated = new Set(found.steps.filter((step) => count(found.steps, step) > count(expected.steps, step)));
        if (when === "before") repeated.delete(key);
        if (repeated.size > 0) throw new CatenaError(`after ${place}, ${[...repeated].join(", ")} ran again`);
      }
    }
    return expected;
  }
}

/** A run that keeps every report, where a worker sends the last one. */
class RecordingRun extends Run {
  constructor(
    claim: Claim,
    link: Link,
    private readonly all: Progress[],
  ) {
    super(claim, link);
  }

  override report(progress: Progress): void {
    this.all.push(progress);
  }
}

/** One job in the harness, with what a venue would store. Also the link of its runs. */
class TestJob implements Link {
  private readonly result: Result = {
    status: "STARTED",
    attempts: 1,
    runs: 0,
    steps: [],
    recorded: new Map(),
    calls: new Map(),
    questions: [],
    progress: [],
    log: [],
  };
  private readonly answers: unknown[];
  private message: unknown;
  private readonly ended = new Map<string, CallResult>();
  private current: Run | undefined;

  constructor(
    private readonly harness: Harness,
    private readonly input: unknown,
    private crash: CrashPoint | undefined,
  ) {
    this.answers = [...(harness.options.answers ?? [])];
  }

  async run(): Promise<Result> {
    while (this.result.runs < REPLAYS_MAX) {
      this.result.runs++;
      if (await this.attempt()) return this.result;
    }
    throw new CatenaError(`the job has not ended after ${REPLAYS_MAX} runs`);
  }

  /** Runs the handler once. Resolves to true if the job has ended or waits for an answer that nobody gives. */
  private async attempt(): Promise<boolean> {
    const { result, harness } = this;
    const { operation } = harness;
    const id = "0x" + "1".padStart(32, "0");
    const claim: Claim = {
      id,
      fence: result.runs,
      attempt: result.attempts,
      operation: operation.assetId,
      op: `o/${operation.name}`,
      input: this.input,
      steps: [...result.recorded].map(([key, output]) => ({ key, output })),
      ...(this.message === undefined ? {} : { message: this.message }),
      deadline: null,
      idempotencyKey: id,
    };
    const run = new RecordingRun(claim, this, result.progress);
    this.current = run;
    const end = await execute(run, operation);
    const { log } = run.takeReports();
    if (log !== undefined) result.log.push(...log.split("\n"));
    if (end === undefined) {
      result.attempts++; // The crash.
      return false;
    }
    if ("output" in end) {
      result.status = "COMPLETE";
      result.output = end.output;
      return true;
    }
    if ("ask" in end) return this.answer(end.ask.message);
    if ("awaiting" in end) {
      for (const key of end.awaiting) this.finishCall(key);
      return false;
    }
    result.error = end.error;
    result.code = end.code;
    if (end.retry === "never" || result.attempts >= (harness.options.attempts ?? operation.attempts)) {
      result.status = "FAILED";
      return true;
    }
    result.attempts++;
    return false;
  }

  private answer(question: string): boolean {
    this.result.questions.push(question);
    if (this.answers.length === 0) {
      this.result.status = "INPUT_REQUIRED";
      return true;
    }
    this.message = plain(this.answers.shift());
    return false;
  }

  // The link.

  async recordStep(_: Claim, key: string, __: unknown, output: unknown): Promise<unknown> {
    const { recorded, steps } = this.result;
    if (!key.endsWith(ASKED) && !recorded.has(key + ASKED)) steps.push(key);
    this.crashIf("before", key);
    if (!this.current?.isStopped) {
      recorded.set(key, output);
      this.crashIf("after", key);
    }
    return output;
  }

  private crashIf(when: "before" | "after", key: string): void {
    if (this.crash?.key !== key || (this.crash.when ?? "after") !== when) return;
    this.crash = undefined;
    this.current?.stop();
  }

  async call(_: Claim, key: string, operation: string, input: unknown): Promise<CallResult> {
    const known = this.result.calls.get(key) ?? { operation, input };
    this.result.calls.set(key, known);
    if (known.operation !== operation || !isDeepStrictEqual(known.input, input)) {
      throw new CatenaError(`the call "${key}" was made before, with another operation or input`);
    }
    if (!this.ended.has(key) && !this.harness.options.slowCalls) this.finishCall(key);
    return this.ended.get(key) ?? { job: `call-${key}`, status: "STARTED" };
  }

  private finishCall(key: string): void {
    const { operation, input } = this.result.calls.get(key)!;
    const stub = this.harness.options.calls?.[operation];
    if (!stub) {
      throw new CatenaError(`the handler calls "${operation}", which the harness does not have: give it in \`calls\``);
    }
    const job = `call-${key}`;
    try {
      this.ended.set(key, { job, status: "COMPLETE", output: plain(stub(input as never)) });
    } catch (error) {
      this.ended.set(key, { job, status: "FAILED", error: error instanceof Error ? error.message : String(error) });
    }
  }

  callWaitMs(): number {
    return 0;
  }
}

