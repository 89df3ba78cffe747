// The page's side of the worker.

import type { FaultInfo, FinishResult, PageResult, Request, Response } from "./messages";
import type { Expected } from "@verify/verify";
import workerUrl from "./worker?worker&url";

/** The history is invalid. */
export class Mismatch extends Error {
  constructor(readonly fault: FaultInfo) {
    super(fault.reason);
  }
}

/** The part of Trusted Types that is used; not every browser has it. */
interface PolicyFactory {
  createPolicy(
    name: string,
    rules: { createScriptURL: (url: string) => string },
  ): { createScriptURL(url: string): unknown };
}

/** The policy of the page allows scripts from one place only: the worker's own file. */
function trustedWorkerUrl(): string {
  const factory = (globalThis as { trustedTypes?: PolicyFactory }).trustedTypes;
  if (!factory) return workerUrl;
  const policy = factory.createPolicy("catena-worker", {
    createScriptURL: (url) => {
      if (url !== workerUrl) throw new TypeError("not the worker of the console");
      return url;
    },
  });
  return policy.createScriptURL(workerUrl) as string;
}

/** The policy can be created only once. */
let trustedUrl: string | undefined;
let worker: Worker | undefined;
let lastNumber = 0;
const waiting = new Map<number, (response: Response) => void>();

function start(): Worker {
  trustedUrl ??= trustedWorkerUrl();
  const started = new Worker(trustedUrl, { type: "module" });
  let hasAnswered = false;
  started.onmessage = (event: MessageEvent<{ number: number; response: Response }>) => {
    hasAnswered = true;
    const { number, response } = event.data;
    waiting.get(number)?.(response);
    waiting.delete(number);
  };
  started.onerror = () => {
    // Its file could not be loaded, perhaps because the venue was stopped: the next request tries again.
    // A worker that has answered holds records already verified, and is kept.
    if (!hasAnswered && worker === started) worker = undefined;
    for (const resolve of waiting.values()) {
      resolve({ type: "error", message: "the verifier could not be started" });
    }
    waiting.clear();
  };
  return started;
}

function ask(request: Request, transfer: Transferable[] = []): Promise<Response> {
  worker ??= start();
  const number = ++lastNumber;
  const { promise, resolve } = deferred<Response>();
  waiting.set(number, resolve);
  worker.postMessage({ number, request }, transfer);
  return promise.then((response) => {
    if (response.type === "fault") throw new Mismatch(response.fault);
    if (response.type === "error") throw new Error(response.message);
    return response;
  });
}

function deferred<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve!: (value: T) => void;
  const promise = new Promise<T>((done) => (resolve = done));
  return { promise, resolve };
}

let lastSession = 0;

/** The verification of one chain, which can be continued when records are appended. */
export class VerifySession {
  readonly number = ++lastSession;

  async page(bytes: ArrayBuffer): Promise<PageResult> {
    const request: Request = { type: "page", session: this.number, bytes };
    const response = await ask(request, [bytes]);
    if (response.type !== "page") throw new Error("unexpected answer of the verifier");
    return response.result;
  }

  async finish(expected: Expected): Promise<FinishResult> {
    const response = await ask({ type: "finish", session: this.number, expected });
    if (response.type !== "finish") throw new Error("unexpected answer of the verifier");
    return response.result;
  }

  /** Checks that this sub-job is the one that its parent committed to. */
  async checkAgainst(parent: VerifySession): Promise<void> {
    await ask({ type: "child", parent: parent.number, session: this.number });
  }

  close(): void {
    void ask({ type: "close", session: this.number }).catch(() => undefined);
  }
}
