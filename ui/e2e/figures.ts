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

/**
 * Traces the page while `act` runs. Returns the longest task of its main thread in ms of processor time:
 * what the page itself needs for a frame, however busy the machine is.
 */
export async function longestTask(browser: Browser, page: Page, act: () => Promise<void>): Promise<number> {
  const categories = ["disabled-by-default-devtools.timeline"];
  await browser.startTracing(page, { categories });
  await act();
  const trace = JSON.parse((await browser.stopTracing()).toString()) as { traceEvents: TraceEvent[] };
  const threads = new Set(
    trace.traceEvents
      .filter(({ name, args }) => name === "thread_name" && args?.name === "CrRendererMain")
      .map(({ pid, tid }) => `${pid} ${tid}`),
  );
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
