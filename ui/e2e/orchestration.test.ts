// Orchestrations: registering them, and watching their graph.

import { describe, expect, it } from "vitest";
import { open } from "./browser";
import { fixture } from "./fixture";
import type { Fixture } from "./fixture";
import { expectBelow } from "./figures";
import { Venue } from "./venue";

let { venue, page, browser } = {} as Fixture;
fixture((given) => ({ venue, page, browser } = given));

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
    const operation = await venue.register({
      name: "Slow chain",
      operation: {
        adapter: "orchestrator",
        steps: [
          { op: "test:chat", name: "asks", input: {} },
          delay({ delay: ["const", 10] }),
          delay({ delay: ["const", 300], input: [0] }),
        ],
        result: [2],
      },
    });
    const id = await venue.invoke(operation, {});
    await page.goto(`/ui/jobs/${id}/steps`);
    const step = (index: number, status: string): Promise<void> =>
      page.locator(`[data-step="${index}"][data-status="${status}"]`).waitFor();
    await step(0, "INPUT_REQUIRED");
    await step(1, "COMPLETE");
    const { steps } = (await venue.call("GET", `/api/v1/jobs/${id}`)) as { steps: { id: string }[] };
    await venue.call("POST", `/api/v1/jobs/${steps[0]!.id}`, { content: "done" });
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

  it("is run again from a step", async () => {
    const echo = (n: number): object => ({ op: "test:echo", input: { n: ["const", n] } });
    const operation = await venue.register({
      name: "Three echoes",
      operation: { adapter: "orchestrator", steps: [1, 2, 3].map(echo), result: [2] },
    });
    const id = await venue.invoke(operation, {}, { wait: true });
    await page.goto(`/ui/jobs/${id}/steps#step-2`);
    const drawer = page.getByRole("dialog", { name: "Step 2" });
    await drawer.getByRole("button", { name: "Run again from this step" }).click();
    await page.waitForURL((url) => !url.pathname.includes(id));
    await page.locator('.page-head [data-status="COMPLETE"]').waitFor();
    await page.getByRole("link", { name: "Steps (3)" }).click();
    await page.locator('[data-step="0"]').click();
    await page.getByRole("dialog", { name: "Step 0" }).getByText("reused").waitFor();
  });

  it("shows where its steps on other venues run, and when they were last seen", async () => {
    const other = await Venue.start();
    const here = await Venue.start("--allow-venue", other.url);
    try {
      const operation = await here.register({
        name: "On another venue",
        operation: {
          adapter: "orchestrator",
          steps: [{ op: "test:never", venue: other.url, input: {} }, { op: "test:echo", input: {} }],
          result: [1],
        },
      });
      const id = await here.invoke(operation, {});
      const { page, close } = await open(browser, here.url);
      await page.goto(`/ui/jobs/${id}/steps`);
      const step = page.locator('[data-step="0"][data-status="STARTED"]');
      await step.getByText(/^on 127\.0\..*, as of \d\d:\d\d$/).waitFor();
      await step.click();
      await page.getByRole("dialog", { name: "Step 0" }).getByText(/as of/).waitFor();
      await close();
    } finally {
      await here.stop();
      await other.stop();
    }
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
    const operation = await venue.register({
      name: "Wide",
      operation: { adapter: "orchestrator", steps, result: ["const", 1] },
    });
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
    expectBelow("drawing a graph of 200 steps", took, 1000, 5);
  });
});
