// Orchestrations: registering them, and watching their graph.

import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { launch, open } from "./browser";
import type { Watched } from "./browser";
import { Venue } from "./venue";

let venue: Venue;
let browser: Browser;
let watched: Watched;
let page: Page;

beforeAll(async () => {
  venue = await Venue.start();
  browser = await launch();
});
afterAll(async () => {
  await browser.close();
  await venue.stop();
});
beforeEach(async () => {
  watched = await open(browser, venue.url);
  page = watched.page;
});
afterEach(async () => {
  expect(watched.faults).toEqual([]);
  await watched.close();
});

describe("an orchestration", () => {
  it("is registered after every problem was shown at its line", async () => {
    await page.goto("/ui/register");
    const editor = page.getByLabel("Definition (JSON)");
    const source = await editor.inputValue();
    await editor.fill(source.replace("[0], [1]", "[7], [1]"));
    await page.getByRole("button", { name: "Register" }).click();
    await page.getByRole("heading", { name: "1 problem" }).waitFor();
    await page.getByText("Line 13", { exact: true }).waitFor();
    await editor.fill(source);
    await page.getByRole("button", { name: "Register" }).click();
    await page.getByRole("heading", { name: "Fan out and join" }).waitFor();
    await page.getByLabel(/^n /).fill("5");
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.locator('.page-head [data-status="COMPLETE"]').waitFor();
  });

  it("shows its graph finish, step by step", async () => {
    const delay = (input: object): object => ({ op: "test:delay", input });
    const operation = (await venue.call("POST", "/api/v1/assets", {
      name: "Slow chain",
      operation: {
        adapter: "orchestrator",
        steps: [
          delay({ delay: ["const", 600] }),
          delay({ delay: ["const", 900] }),
          delay({ delay: ["const", 600], input: [0] }),
        ],
        result: [2],
      },
    })) as string;
    const id = await venue.invoke(operation, {});
    await page.goto(`/ui/jobs/${id}/steps`);
    const step = (index: number, status: string): Promise<void> =>
      page.locator(`[data-step="${index}"][data-status="${status}"]`).waitFor();
    await step(0, "STARTED");
    await step(0, "COMPLETE");
    await step(2, "COMPLETE");
    await page.locator('.page-head [data-status="COMPLETE"]').waitFor();
    expect(await page.locator(".step.critical").count()).toBe(2);
    await page.locator('[data-step="2"]').click();
    await page.getByRole("dialog", { name: "Step 2" }).waitFor();
    expect(page.url()).toContain("#step-2");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "List" }).click();
    await page.getByText("critical path").first().waitFor();
  });

  it("with 200 steps is drawn within a second", async () => {
    const steps = Array.from({ length: 200 }, (_, index) => ({
      op: "test:echo",
      name: `step ${index}`,
      input:
        index < 10
          ? { n: ["const", index] }
          : { n: [index - 10, "n"], m: [index - 7, "n"] },
    }));
    const operation = (await venue.call("POST", "/api/v1/assets", {
      name: "Wide",
      operation: { adapter: "orchestrator", steps, result: ["const", 1] },
    })) as string;
    const id = await venue.invoke(operation, {}, { wait: true });
    await page.goto(`/ui/jobs/${id}`);
    await page.getByText("Steps (200)").waitFor();
    const took = await page.evaluate(async () => {
      const link = [...document.querySelectorAll<HTMLElement>(".tabs a")].find((a) =>
        a.textContent?.startsWith("Steps"),
      );
      const started = performance.now();
      link?.click();
      while (document.querySelectorAll("[data-step]").length < 200) {
        await new Promise((resolve) => requestAnimationFrame(resolve));
      }
      await new Promise((resolve) => requestAnimationFrame(resolve));
      return performance.now() - started;
    });
    expect(took).toBeLessThan(1000);
  });
});
