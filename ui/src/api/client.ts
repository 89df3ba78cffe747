// Requests to the venue that serves this page.

import { readText } from "@verify/json";
import { asMap, asText } from "@verify/value";
import type { Value } from "@verify/value";
import { reportFailure } from "./connection";
import { mayRequestSignIn, token } from "./session";

/** An answer that is not a success, in the words of the venue. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string | undefined,
    /** The complete answer, for members such as `problems`. */
    readonly body: Value | undefined,
  ) {
    super(message);
  }
}

/** The venue could not be reached. */
export class OfflineError extends Error {
  constructor() {
    super("The venue cannot be reached.");
  }
}

export interface RequestOptions {
  readonly method?: string;
  /** JSON text. */
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
  /** Whether a missing token opens the sign-in dialog. Defaults to true. */
  readonly mayAsk?: boolean;
}

/** Sends a request. After a 401, asks for a token and sends it again. */
export async function send(path: string, options: RequestOptions = {}): Promise<Response> {
  for (;;) {
    const used = token.get();
    const response = await attempt(path, options, used);
    if (response.ok || response.status === 304) return response;
    const error = await errorOf(response);
    if (error.code === "stopping") reportFailure(true);
    if (response.status !== 401 || options.mayAsk === false) throw error;
    // Another request may have been given a new token meanwhile.
    if (token.get() !== used && token.get() !== undefined) continue;
    const reason = used === undefined ? "This venue requires a token." : error.message;
    if (!(await mayRequestSignIn(reason))) throw error;
  }
}

async function attempt(
  path: string,
  options: RequestOptions,
  used: string | undefined,
): Promise<Response> {
  const headers = new Headers(options.headers);
  if (options.body !== undefined) headers.set("content-type", "application/json");
  if (used !== undefined) headers.set("authorization", `Bearer ${used}`);
  const init: RequestInit = {
    method: options.method ?? "GET",
    headers,
    cache: "no-store",
    credentials: "omit",
    referrerPolicy: "no-referrer",
  };
  if (options.body !== undefined) init.body = options.body;
  if (options.signal) init.signal = options.signal;
  try {
    return await fetch(path, init);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    reportFailure(false);
    throw new OfflineError();
  }
}

async function errorOf(response: Response): Promise<ApiError> {
  let body: Value | undefined;
  try {
    body = readText(await response.text());
  } catch {
    body = undefined;
  }
  const answer = asMap(body);
  // The contract API has the same members in an object.
  const inner = asMap(answer?.get("error"));
  const map = inner ?? answer;
  const code = asText(map?.get("code")) ?? "";
  const message =
    asText(inner?.get("message")) ?? asText(map?.get("error")) ?? `The venue answered ${response.status}.`;
  return new ApiError(response.status, code, message, asText(map?.get("hint")), body);
}

/** The JSON of an answer, with exact numbers. */
export async function readJson(path: string, options?: RequestOptions): Promise<Value> {
  const response = await send(path, options);
  return readText(await bodyText(response));
}

/** The text of an answer. A connection that breaks while it is read counts as offline. */
async function bodyText(response: Response): Promise<string> {
  try {
    return await response.text();
  } catch {
    reportFailure(false);
    throw new OfflineError();
  }
}

/** Whether a failure is the cancellation of a request that is no longer needed. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** What went wrong, for people. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** A key that makes the repetition of a creating request safe. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
