// Measuring in the browser. A bound holds on a quiet machine (`npm run figures`); a machine that is
// busy with other tests gets a margin, except for counts.

import type { Browser, Page } from "playwright-core";
import { expect } from "vitest";

/** `CATENA_E2E_EXACT=1`: no margins, and as many jobs as the bounds are stated for. */
export const isExact = process.env["CATENA_E2E_EXACT"] === "1";

/** Expects a time in ms to be below a bound, with a margin unless figures are exact. */
export function expectBelow(what: string, ms: number, bound: number, margin: number): void {
  console.log(`${what}: ${ms.toFixed(0)} ms`);
  expect(ms, what).toBeLessThan(isExact ? bound : margin * bound);
}

interface TraceEvent {
  readonly name: string;
  readonly ph: string;
  readonly pid: number;
  readonly tid: number;
  readonly dur?: number;
  readonly tdur?: number;
  readonly args?: { readonly name?: string };
}

/** A name by which the thread of a page is found in a trace: other files of tests have pages at the same time. */
let lastMark = 0;
const mark = async (page: Page, name: string): Promise<void> =>
  page.evaluate((name) => void performance.mark(name), name);

/** Only one trace can be recorded at a time in a browser, which serves two files of tests. */
async function startTracing(browser: Browser, page: Page, categories: string[]): Promise<void> {
  for (;;) {
    try {
      return await browser.startTracing(page, { categories });
    } catch (error) {
      if (!String(error).includes("already been started")) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

/**
 * Traces the page while `act` runs. Returns the longest task of its main thread in ms of processor time:
 * what the page itself needs for a frame, however busy the machine is.
 */
export async function longestTask(browser: Browser, page: Page, act: () => Promise<void>): Promise<number> {
  const name = `traced ${process.pid} ${++lastMark}`;
  await startTracing(browser, page, ["disabled-by-default-devtools.timeline", "blink.user_timing"]);
  // A page gets another process when it goes to another origin for the first time.
  await mark(page, name);
  await act();
  await mark(page, name);
  const trace = JSON.parse((await browser.stopTracing()).toString()) as { traceEvents: TraceEvent[] };
  const isMark = (event: TraceEvent): boolean => event.name === name;
  const threads = new Set(trace.traceEvents.filter(isMark).map(({ pid, tid }) => `${pid} ${tid}`));
  const tasks = trace.traceEvents.filter(
    ({ name, ph, pid, tid }) => name === "RunTask" && ph === "X" && threads.has(`${pid} ${tid}`),
  );
  expect(tasks.length).toBeGreaterThan(10);
  return tasks.reduce((most, { tdur, dur }) => Math.max(most, (tdur ?? dur ?? 0) / 1000), 0);
}

/** Types a text key by key. Returns the longest time from a key to the frame that shows it, in ms. */
export async function slowestKey(page: Page, text: string): Promise<number> {
  await page.evaluate(() => {
    const state = Object.assign(window, { slowestKey: 0 });
    addEventListener(
      "keydown",
      ({ timeStamp }) =>
        requestAnimationFrame(() => setTimeout(() => {
          state.slowestKey = Math.max(state.slowestKey, performance.now() - timeStamp);
        })),
      { capture: true },
    );
  });
  for (const letter of text) await page.keyboard.press(letter);
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 50))));
  return page.evaluate(() => (window as unknown as { slowestKey: number }).slowestKey);
}

/** The bytes of JavaScript values that a page holds, and those of its workers. */
export interface Heap {
  readonly page: number;
  readonly workers: number;
}

/** Reads how much memory a page and its workers use, after what is not used any more was freed. */
export async function heapOf(page: Page): Promise<Heap> {
  const session = await page.context().newCDPSession(page);
  const workers: string[] = [];
  session.on("Target.attachedToTarget", ({ sessionId, targetInfo }) => {
    if (targetInfo.type === "worker") workers.push(sessionId);
  });
  const answers = new Map<string, (usedSize: number) => void>();
  session.on("Target.receivedMessageFromTarget", ({ sessionId, message }) => {
    const { id, result } = JSON.parse(message) as { id?: number; result?: { usedSize?: number } };
    if (id === 2) answers.get(sessionId)?.(result?.usedSize ?? 0);
  });
  // Without `flatten`, messages of a worker come through the session of its page.
  await session.send("Target.setAutoAttach", { autoAttach: true, waitForDebuggerOnStart: false, flatten: false });
  const ask = (sessionId: string): Promise<number> =>
    new Promise((resolve, reject) => {
      answers.set(sessionId, resolve);
      for (const [id, method] of [[1, "HeapProfiler.collectGarbage"], [2, "Runtime.getHeapUsage"]]) {
        const message = JSON.stringify({ id, method });
        session.send("Target.sendMessageToTarget", { sessionId, message }).catch(reject);
      }
    });
  const used = await Promise.all(workers.map(ask));
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  await session.detach();
  return { page: usedSize, workers: used.reduce((sum, bytes) => sum + bytes, 0) };
}
