// A small typed client of the grid API: invoke operations, wait for jobs, follow and control them, verify their histories.

import { setTimeout as sleep } from "node:timers/promises";
import { JobFailed, VenueError, VerificationFailed } from "./errors.js";
import { FOLLOW_RETRY_MS, HISTORY_PAGE, WAIT_S_MAX } from "./limits.js";
import { ENDED } from "./run.js";
import { Parser } from "./sse.js";
import { Http, isTransient } from "./venue.js";
import type { Access } from "./venue.js";
import type { Job as Chain } from "./verify/chain.js";
import { Fault } from "./verify/fault.js";
import { JsonError, readBytes } from "./verify/json.js";
import { SUBJOB_DEPTH_MAX } from "./verify/limits.js";
import { Counts, incomplete, readHistory, subjobsOf, Verifier } from "./verify/verify.js";
import type { Report } from "./verify/verify.js";

/** A job as a venue shows it. */
export interface Job<O = unknown> {
  readonly id: string;
  /** One of the ten grid statuses. */
  readonly status: string;
  readonly op?: string;
  readonly input?: unknown;
  readonly output?: O;
  readonly error?: string;
  /** ID of the last record. */
  readonly head?: string;
  readonly [member: string]: unknown;
}

/** A change of a job. */
export type Event =
  /** The job as of a record, and the record's index in the chain. */
  | { readonly kind: "job-update"; readonly index: number | undefined; readonly job: Job }
  | { readonly kind: "progress"; readonly progress: Readonly<Record<string, unknown>> };

export interface InvokeOptions {
  /** The same key, operation and input create one job, however often they are sent. */
  readonly idempotencyKey?: string;
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

export interface WaitOptions {
  /** After this time the wait rejects with a `TimeoutError`; the job continues. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** Whether a job has ended, in whichever status. */
export function isEnded(job: Job): boolean {
  return ENDED.includes(job.status);
}

/** The output of a job. Throws `JobFailed` if it is not COMPLETE. */
export function resultOf<O>(job: Job<O>): O {
  if (job.status !== "COMPLETE") throw new JobFailed(job.id, job.status, job.error);
  return job.output as O;
}

/** The grid API of a venue. */
export class Client {
  private readonly http: Http;

  constructor(access: Access = {}) {
    this.http = new Http(access);
  }

  /** Creates a job. It may already have ended when this resolves. */
  invoke<O = unknown>(operation: string, input: unknown = null, options: InvokeOptions = {}): Promise<Job<O>> {
    const { idempotencyKey, timeoutMs, signal } = options;
    const body = { operation, input, ...(timeoutMs === undefined ? {} : { timeoutMs }) };
    const headers: Record<string, string> = idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey };
    return this.http.json("POST", "/api/v1/invoke", body, { headers, signal });
  }

  /** Creates a job, waits for its end and resolves to its output. Rejects with `JobFailed` if it has none. */
  async run<O = unknown>(operation: string, input: unknown = null, options: WaitOptions = {}): Promise<O> {
    const { signal } = options;
    const { id } = await this.invoke(operation, input, signal ? { signal } : {});
    return resultOf(await this.wait<O>(id, options));
  }

  job<O = unknown>(id: string): Promise<Job<O>> {
    return this.http.json("GET", path(id));
  }

  /** Waits until a job has ended, in whichever status. */
  async wait<O = unknown>(id: string, { timeoutMs, signal }: WaitOptions = {}): Promise<Job<O>> {
    const end = timeoutMs === undefined ? Infinity : performance.now() + timeoutMs;
    const headers: Record<string, string> = {};
    for (;;) {
      const leftMs = end - performance.now();
      const waitMs = Math.ceil(Math.max(0, Math.min(WAIT_S_MAX * 1000, leftMs)));
      headers["prefer"] = `wait=${Math.floor(waitMs / 1000)}`;
      const response = await this.http.fetch("GET", path(id), undefined, { headers, waitMs, signal });
      if (response.status === 304) await response.arrayBuffer();
      else {
        const job = (await this.http.guard(signal, () => response.json())) as Job<O>;
        if (isEnded(job)) return job;
        const tag = response.headers.get("etag");
        if (tag !== null) headers["if-none-match"] = tag;
      }
      if (leftMs <= 0) throw new DOMException(`job ${id} has not ended after ${timeoutMs} ms`, "TimeoutError");
      // The venue counts in whole seconds.
      if (waitMs < 1000) await sleep(Math.min(50, waitMs), undefined, signal ? { signal } : {});
    }
  }

  /**
   * Follows a job: its current record first, or every record after `after`, then each further one until it has ended. A stream that
   * breaks is continued where it stopped.
   */
  async *events(
    id: string,
    options: { after?: number; progress?: boolean; signal?: AbortSignal } = {},
  ): AsyncGenerator<Event, void, void> {
    const { signal } = options;
    let { after } = options;
    for (;;) {
      const parser = new Parser();
      const headers: Record<string, string> = { accept: "text/event-stream" };
      if (after !== undefined) headers["last-event-id"] = String(after);
      const query = options.progress ? "?progress=1" : "";
      const abort = new AbortController();
      try {
        const joined = signal ? AbortSignal.any([signal, abort.signal]) : abort.signal;
        const stream = { headers, signal: joined, isStream: true };
        const response = await this.http.fetch("GET", path(id, "sse") + query, undefined, stream);
        if (response.status === 204) return;
        const decoder = new TextDecoder();
        const reader = response.body?.getReader();
        for (;;) {
          const part = await this.http.guard(signal, async () => reader?.read());
          if (!part || part.done) break;
          for (const frame of parser.push(decoder.decode(part.value as Uint8Array, { stream: true }))) {
            const event = eventOf(frame.event, frame.id, frame.data);
            if (event.kind === "job-update" && event.index !== undefined) after = event.index;
            yield event;
            if (event.kind === "job-update" && isEnded(event.job)) return;
          }
        }
      } catch (error) {
        if (!isTransient(error)) throw error;
      } finally {
        abort.abort();
      }
      await sleep(parser.retryMs ?? FOLLOW_RETRY_MS, undefined, signal ? { signal } : {});
    }
  }

  cancel(id: string, reason?: string): Promise<Job> {
    return this.http.json("PUT", path(id, "cancel"), reason === undefined ? undefined : { reason });
  }

  pause(id: string): Promise<Job> {
    return this.http.json("PUT", path(id, "pause"));
  }

  resume(id: string): Promise<Job> {
    return this.http.json("PUT", path(id, "resume"));
  }

  /** Sends a message to a job, such as the answer to a question. */
  async send(id: string, content: unknown, options: { messageId?: string } = {}): Promise<void> {
    const { messageId } = options;
    await this.http.json("POST", path(id), { content, ...(messageId === undefined ? {} : { messageId }) });
  }

  /** One page of a history, exactly as the venue sent it. */
  async historyPage(id: string, from = 0, limit = HISTORY_PAGE): Promise<Uint8Array> {
    const response = await this.http.fetch("GET", `${path(id, "history")}?from=${from}&limit=${limit}`);
    return new Uint8Array(await this.http.guard(undefined, () => response.arrayBuffer()));
  }

  /**
   * Fetches the history of a job and of its sub-jobs and verifies them in this process, with the signatures of their ends.
   * Rejects with `VerificationFailed`.
   */
  async verify(id: string, expected: { head?: string } = {}): Promise<Report> {
    try {
      return (await this.verifyTree(id, undefined, expected.head, SUBJOB_DEPTH_MAX)).report;
    } catch (error) {
      if (error instanceof Fault) throw new VerificationFailed(error.code, error.reason, error.record, error.subjob);
      if (error instanceof JsonError) throw new VerificationFailed("invalid_json", error.message);
      throw error;
    }
  }

  private async verifyTree(
    id: string,
    venue: string | undefined,
    head: string | undefined,
    depth: number,
  ): Promise<{ chain: Chain; report: Report }> {
    const verifier = new Verifier();
    for (let from: number | undefined = 0; from !== undefined; ) {
      const history = readHistory(readBytes(await this.historyPage(id, from)));
      for (const entry of history.records) verifier.push(entry);
      const isStuck = history.hasMore && history.records.length === 0;
      if (isStuck || (!history.hasMore && history.total !== undefined && history.total !== verifier.count)) {
        throw incomplete(verifier.count, history.total ?? verifier.count + 1);
      }
      from = history.hasMore ? (history.next ?? verifier.count) : undefined;
    }
    const chain = verifier.finish({ venue, head });
    if (!isSameJob(chain.id, id)) throw new Fault("unexpected", `expected job ${id}, found ${chain.id}`);
    const counts = new Counts(verifier);
    for (const subjob of subjobsOf(chain, verifier.claims)) {
      if (subjob.isRemote || depth === 0) {
        counts.subjobsUnavailable++;
        continue;
      }
      try {
        const child = await this.verifyTree(subjob.job, chain.venue, undefined, depth - 1);
        subjob.check(child.chain, child.report);
        counts.add(child.report);
      } catch (error) {
        if (error instanceof Fault) throw error.inSubjob(subjob.job);
        if (!(error instanceof VenueError && [404, 410].includes(error.status))) throw error;
        counts.subjobsUnavailable++;
      }
    }
    return { chain, report: { ...verifier.report(chain), ...counts } };
  }
}

function path(id: string, action = ""): string {
  return `/api/v1/jobs/${encodeURIComponent(id)}` + (action ? `/${action}` : "");
}

function isSameJob(found: string, wanted: string): boolean {
  return found === "0x" + wanted.toLowerCase().replace(/^0x/, "").replaceAll("-", "");
}

function eventOf(kind: string, id: string | undefined, data: string): Event {
  if (kind === "progress") return { kind, progress: JSON.parse(data) as Record<string, unknown> };
  const index = id !== undefined && /^\d+$/.test(id) ? Number(id) : undefined;
  return { kind: "job-update", index, job: JSON.parse(data) as Job };
}
