// Requests to a venue: errors as exceptions, repetition where it is safe.

import { setTimeout as sleep } from "node:timers/promises";
import { CatenaError, Fenced, Unreachable, VenueError } from "./errors.js";
import type { ErrorBody } from "./errors.js";
import { keyInEnvironment, TokenIssuer } from "./key.js";
import type { Key } from "./key.js";
import { BACKOFF_MAX_MS, BACKOFF_MIN_MS, REQUEST_TIMEOUT_MS } from "./limits.js";
import type { CallResult, Claim, End, Link, Reports } from "./run.js";

const DEFAULT_URL = "http://127.0.0.1:8787";

/** Where a venue is, and who asks. */
export interface Access {
  /** `CATENA_VENUE`, or the default address on this host, unless it is given. */
  readonly url?: string | undefined;
  /** `CATENA_TOKEN` unless it is given; without either, access is anonymous. */
  readonly token?: string | undefined;
  /** Without a token, this key identifies the caller; the one in the file that `CATENA_KEY` names unless it is given. */
  readonly key?: Key | undefined;
}

/** The wait before a repetition in ms: doubling, bounded, and different for each worker. */
export function backoff(attempt: number): number {
  const longest = Math.min(BACKOFF_MAX_MS, BACKOFF_MIN_MS * 2 ** Math.min(attempt, 10));
  return longest * (0.5 + Math.random() / 2);
}

/** Whether the same request may succeed later. */
export function isTransient(error: unknown): error is CatenaError {
  return error instanceof Unreachable || (error instanceof VenueError && error.isTransient);
}

export interface RequestOptions {
  readonly headers?: Readonly<Record<string, string>>;
  /** How long the venue is asked to wait. */
  readonly waitMs?: number;
  readonly signal?: AbortSignal | undefined;
  /** Whether the response is a stream, which may take any time. */
  readonly isStream?: boolean;
}

/** HTTP with the venue's address and credentials. */
export class Http {
  readonly url: string;
  private readonly headers: Readonly<Record<string, string>>;
  private readonly issuer: TokenIssuer | undefined;

  constructor({ url, token, key = keyInEnvironment() }: Access) {
    this.url = (url ?? process.env["CATENA_VENUE"] ?? DEFAULT_URL).replace(/\/+$/, "");
    const bearer = token ?? process.env["CATENA_TOKEN"];
    this.headers = bearer ? { authorization: `Bearer ${bearer}` } : {};
    this.issuer = key && !bearer ? new TokenIssuer(key, this.url) : undefined;
  }

  /** Sends one request. Rejects with `VenueError`, `Unreachable` or the reason of the signal. */
  async fetch(method: string, path: string, body?: unknown, options: RequestOptions = {}): Promise<Response> {
    const signals: AbortSignal[] = options.signal ? [options.signal] : [];
    if (!options.isStream) signals.push(AbortSignal.timeout(Math.ceil(REQUEST_TIMEOUT_MS + (options.waitMs ?? 0))));
    const headers = { ...this.headers, ...options.headers };
    const init: RequestInit = { method, headers, redirect: "manual", signal: AbortSignal.any(signals) };
    if (body !== undefined) {
      init.body = JSON.stringify(body);
      init.headers = { ...headers, "content-type": "application/json" };
    }
    return this.guard(options.signal, async () => {
      const token = await this.issuer?.token();
      if (token !== undefined) init.headers = { ...init.headers, authorization: `Bearer ${token}` };
      const response = await fetch(this.url + path, init);
      if (response.status >= 400) throw await errorOf(response);
      return response;
    });
  }

  /** Sends one request and reads its JSON object. */
  async json<T = Record<string, unknown>>(
    method: string,
    path: string,
    body?: unknown,
    options: RequestOptions = {},
  ): Promise<T> {
    const response = await this.fetch(method, path, body, options);
    const answer: unknown = await this.guard(options.signal, () => response.json());
    if (typeof answer !== "object" || answer === null) {
      throw new Unreachable(`${path} at ${this.url} answered with something other than a JSON object`);
    }
    return answer as T;
  }

  /** Turns what `fetch` throws into errors of this library. */
  async guard<T>(signal: AbortSignal | undefined, action: () => Promise<T>): Promise<T> {
    try {
      return await action();
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof CatenaError) throw error;
      const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
      const reason = cause instanceof Error ? cause.message || cause.name : String(cause);
      throw new Unreachable(`the venue at ${this.url} cannot be reached: ${reason}`, { cause: error });
    }
  }
}

async function errorOf(response: Response): Promise<VenueError> {
  let body: unknown;
  try {
    body = await response.json();
  } catch {
    body = undefined;
  }
  if (typeof body !== "object" || body === null) {
    body = { error: `HTTP status ${response.status} from ${new URL(response.url).pathname}` };
  }
  const kind = (body as ErrorBody).code === "fenced" ? Fenced : VenueError;
  return new kind(response.status, body as ErrorBody);
}

/** An end as it is sent: with the job, if it travels with a claim. */
export type Done = { readonly id: string; readonly fence: number } & End;

export interface ClaimAnswer {
  readonly jobs?: readonly Claim[];
  readonly done?: readonly { readonly id: string; readonly code?: string }[];
}

export interface BeatAnswer {
  readonly signals?: readonly { readonly id: string; readonly signal: string }[];
}

/** The worker API of a venue. */
export class Venue implements Omit<Link, "callWaitMs"> {
  private readonly http: Http;

  constructor(
    access: Access,
    private readonly worker: string,
    private readonly warn: (text: string) => void,
  ) {
    this.http = new Http(access);
  }

  /** Sends a request that is safe to repeat until the venue answers it. */
  async repeat<T>(send: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await send();
      } catch (error) {
        if (!isTransient(error)) throw error;
        this.warn(`${error.message}; repeating the request`);
      }
      await sleep(backoff(attempt), undefined, signal ? { signal } : {}).catch(() => signal?.throwIfAborted());
    }
  }

  register(name: string, metadata: unknown): Promise<{ id: string; version?: number }> {
    return this.http.json("PUT", `/api/v1/operations/${encodeURIComponent(name)}`, metadata);
  }

  claim(queues: readonly string[], max: number, waitMs: number, done: readonly Done[]): Promise<ClaimAnswer> {
    const body = { worker: this.worker, queues, max, waitMs, ...(done.length > 0 ? { done } : {}) };
    return this.http.json("POST", "/worker/v1/claim", body, { waitMs });
  }

  beat(
    jobs: readonly ({ readonly id: string; readonly fence: number } & Reports)[],
    waitMs: number,
    signal?: AbortSignal,
  ): Promise<BeatAnswer> {
    return this.http.json("POST", "/worker/v1/beat", { worker: this.worker, waitMs, jobs }, { waitMs, signal });
  }

  async end(claim: Claim, end: End): Promise<void> {
    const body = { fence: claim.fence, ...end };
    await this.repeat(() => this.http.json("POST", jobPath(claim, "end"), body));
  }

  async recordStep(claim: Claim, key: string, input: unknown, output: unknown, signal: AbortSignal): Promise<unknown> {
    const body = { fence: claim.fence, key, ...(input === undefined ? {} : { input }), output };
    const path = jobPath(claim, "step");
    const answer = await this.repeat(() => this.http.json("POST", path, body, { signal }), signal);
    return "output" in answer ? answer["output"] : output;
  }

  call(
    claim: Claim,
    key: string,
    operation: string,
    input: unknown,
    waitMs: number,
    signal: AbortSignal,
  ): Promise<CallResult> {
    const body = { fence: claim.fence, key, operation, input, waitMs };
    return this.repeat(() => this.http.json("POST", jobPath(claim, "call"), body, { waitMs, signal }), signal);
  }
}

function jobPath(claim: Claim, action: string): string {
  return `/worker/v1/jobs/${encodeURIComponent(claim.id)}/${action}`;
}
