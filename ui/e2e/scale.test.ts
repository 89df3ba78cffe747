// Long lists, long chains and fast changes.

import type { Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import { expectBelow, heapOf, isExact, longestTask, slowestKey } from "./figures";
import { fixture } from "./fixture";
import type { Fixture } from "./fixture";
import { LongChain } from "./long_chain";

/** Jobs that really exist. */
const JOBS = isExact ? 50_000 : 1000;
/** Jobs of which the list in `./test` consists; what does not exist is made up by a proxy. */
const LISTED = 50_000;
const RECORDS = isExact ? 100_000 : 10_000;
const AT_ONCE = 50;
/** The page keeps no records, and the verifier only what it compares later ones with: their IDs. */
const PAGE_MB_MAX = 16;
const BYTES_PER_RECORD_MAX = 200;
const VERIFIER_MB_MAX = 16;

let { venue, proxy, page, browser } = {} as Fixture;
fixture((given) => ({ venue, proxy, page, browser } = given), {
  isProxied: true,
  prepare: async (venue) => {
    let left = JOBS;
    const work = async (): Promise<void> => {
      while (left-- > 0) await venue.invoke("test:echo", { n: left });
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
  },
});

/** The list of jobs, as if there were 50,000. */
function madeUp(url: URL): string | undefined {
  if (url.pathname !== "/api/v1/jobs" || url.searchParams.has("status")) return undefined;
  const offset = Number(url.searchParams.get("offset") ?? 0);
  const limit = Number(url.searchParams.get("limit") ?? 100);
  const items = Array.from({ length: Math.min(limit, LISTED - offset) }, (_, at) => {
    const n = LISTED - offset - at;
    const id = `0x${n.toString(16).padStart(32, "0")}`;
    const created = 1_769_850_000_000 + n * 100;
    const status = n % 97 === 0 ? "FAILED" : "COMPLETE";
    return { id, status, op: "test:echo", created, updated: created + (n % 1000) };
  });
  return JSON.stringify({ items, total: LISTED });
}

/** Scrolls a list from its beginning to its end, a step for each frame. */
async function scrollThrough(page: Page, label: string, steps: number): Promise<void> {
  const list = page.getByRole("group", { name: label });
  await list.evaluate(async (element, steps) => {
    for (let step = 0; step <= steps; step++) {
      element.scrollTop = ((element.scrollHeight - element.clientHeight) * step) / steps;
      await new Promise((resolve) => requestAnimationFrame(resolve));
    }
  }, steps);
}

describe(`a list of ${LISTED} jobs`, () => {
  it("scrolls with few rows in the document and short frames", async () => {
    if (!isExact) proxy.answer = madeUp;
    await page.goto("/ui/jobs");
    await page.getByText(`${LISTED.toLocaleString("en")} jobs`, { exact: true }).waitFor();
    await page.locator(`[data-row="0"]`).waitFor();
    const longest = await longestTask(browser, page, async () => {
      for (const steps of [10, 40, isExact ? 160 : 60]) {
        await scrollThrough(page, "Jobs", steps);
        expect(await page.locator(".job-item").count()).toBeLessThan(200);
      }
      await page.locator(`[data-row="${LISTED - 1}"]`).waitFor();
    });
    expectBelow("longest task while scrolling", longest, 50, 3);
    expect(await page.locator(".job-item").count()).toBeLessThan(200);
  });

  it("keeps its position while jobs are added, and says how many", async () => {
    await page.goto("/ui/jobs");
    const list = page.getByRole("group", { name: "Jobs" });
    await list.evaluate((element) => {
      element.scrollTop = 44 * 500;
    });
    const row = page.locator('[data-row="505"]');
    await row.waitFor();
    const id = await row.getAttribute("data-job");
    await row.focus();
    await venue.invoke("test:echo", "new");
    await venue.invoke("test:echo", "new");
    await page.getByRole("button", { name: "Show 2 new jobs" }).waitFor();
    expect(await row.getAttribute("data-job")).toBe(id);
    expect(await page.evaluate(() => document.activeElement?.getAttribute("data-job"))).toBe(id);
  });
});

describe("200 changes a second", () => {
  it("keep the latency of input below 100 ms", async () => {
    await page.goto("/ui/jobs");
    await page.locator("[data-row='0']").waitFor();
    let isRunning = true;
    let changes = 0;
    const started = Date.now();
    const load = (async (): Promise<void> => {
      while (isRunning) {
        await Promise.all(Array.from({ length: 20 }, (_, n) => venue.invoke("test:echo", n)));
        changes += 20;
        const early = started + changes * 5 - Date.now();
        if (early > 0) await new Promise((resolve) => setTimeout(resolve, early));
      }
    })();
    await page.getByLabel("Operation", { exact: true }).focus();
    const slowest = await slowestKey(page, "test:echo test:echo test:echo");
    isRunning = false;
    await load;
    const rate = (changes * 1000) / (Date.now() - started);
    console.log(`changes a second: ${rate.toFixed(0)}`);
    if (isExact) expect(rate).toBeGreaterThan(190);
    expectBelow("slowest key", slowest, 100, 10);
  });
});

describe(`a chain of ${RECORDS} records`, () => {
  it("is verified as its pages arrive, while the page stays responsive", { timeout: 240_000 }, async () => {
    const real = await venue.invoke("test:never", {});
    const chain = new LongChain(real, await venue.call("GET", `/api/v1/jobs/${real}`), RECORDS);
    proxy.answer = (url) => chain.answer(url);
    await page.goto(`/ui/jobs/${real}/chain`);
    await page.getByText(/not yet verified \(1,000 of/).waitFor();
    const before = await heapOf(page);
    expect(before.workers).toBeGreaterThan(0);
    const longest = await longestTask(browser, page, async () => {
      await page.getByRole("button", { name: "Verify here" }).click();
      await page.getByText(/verifying: [\d,]+ of/).waitFor();
      await page
        .getByText(`verified here: ${RECORDS.toLocaleString("en")} records`)
        .waitFor({ timeout: 200_000 });
    });
    const after = await heapOf(page);
    const [ofPage, ofWorker] = [after.page - before.page, after.workers - before.workers].map((bytes) => bytes / 1e6);
    console.log(`more memory after ${RECORDS} records: ${ofPage!.toFixed(1)} MB of the page, ${ofWorker!.toFixed(1)} MB of the verifier`);
    expect(ofPage).toBeLessThan(PAGE_MB_MAX);
    expect(ofWorker).toBeLessThan((RECORDS * BYTES_PER_RECORD_MAX) / 1e6 + VERIFIER_MB_MAX);
    await scrollThrough(page, "Records", 20);
    await page.locator(`[data-record="${RECORDS - 1}"]`).waitFor();
    expect(await page.locator(".record-item").count()).toBeLessThan(200);
    expectBelow("longest task of the page while verifying", longest, 50, 3);
  });
});
