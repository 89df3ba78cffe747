// Event streams read with `fetch`, which can carry a token. A stream that breaks is opened again
// after the last event that was received, so nothing is missed and nothing is shown twice.

import { EventParser } from "../lib/sse";
import type { ServerEvent } from "../lib/sse";
import { ApiError, isAbort, send } from "./client";
import { connection } from "./connection";

const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 10_000;

export interface StreamOptions {
  readonly onEvent: (event: ServerEvent) => void;
  /** The stream ended for good: the venue has nothing more to send, or does not offer it. */
  readonly onEnd?: (error?: ApiError) => void;
  /** The index after which the stream starts. */
  readonly after?: string;
  /** Whether the end of the stream means that there is nothing more to follow. */
  readonly isDone: () => boolean;
}

/** Follows a stream until the returned function is called. */
export function follow(path: string, options: StreamOptions): () => void {
  const abort = new AbortController();
  void run(path, options, abort.signal);
  return () => abort.abort();
}

async function run(path: string, options: StreamOptions, signal: AbortSignal): Promise<void> {
  let last = options.after;
  let pause = RETRY_MS_MIN;
  while (!signal.aborted) {
    try {
      const headers: Record<string, string> = { accept: "text/event-stream" };
      if (last !== undefined) headers["last-event-id"] = last;
      const response = await send(path, { headers, signal });
      if (response.status === 204) return options.onEnd?.();
      for await (const event of events(response, signal)) {
        if (event.id !== undefined) last = event.id;
        pause = RETRY_MS_MIN;
        options.onEvent(event);
      }
      if (options.isDone()) return options.onEnd?.();
    } catch (error) {
      if (isAbort(error) || signal.aborted) return;
      if (error instanceof ApiError && error.status < 500) return options.onEnd?.(error);
    }
    await waitUntilOnline(pause, signal);
    pause = Math.min(2 * pause, RETRY_MS_MAX);
  }
}

async function* events(response: Response, signal: AbortSignal): AsyncGenerator<ServerEvent> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  const parser = new EventParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done || signal.aborted) return;
      yield* parser.push(value);
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

/** Waits for a while, or until the venue is back. */
function waitUntilOnline(pause: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const finish = (): void => {
      clearTimeout(timer);
      unsubscribe();
      signal.removeEventListener("abort", finish);
      resolve();
    };
    const timer = setTimeout(finish, pause);
    const unsubscribe = connection.subscribe((next) => {
      if (next.state !== "offline") finish();
    });
    signal.addEventListener("abort", finish);
  });
}
