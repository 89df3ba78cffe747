// Executions of code: the cell, its output, its files, and where it ran.

import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { launch, open } from "./browser";
import type { Watched } from "./browser";
import { withExecution } from "./made_up";
import { Proxy } from "./proxy";
import { Venue } from "./venue";

let venue: Venue;
let proxy: Proxy;
let browser: Browser;
let watched: Watched;
let page: Page;
let job: string;

beforeAll(async () => {
  venue = await Venue.start();
  proxy = await Proxy.start(venue.url);
  browser = await launch();
  const made = await withExecution(venue);
  job = made.id;
  proxy.answer = made.answer;
});
afterAll(async () => {
  await browser.close();
  await proxy.stop();
  await venue.stop();
});
beforeEach(async () => {
  watched = await open(browser, proxy.url);
  page = watched.page;
});
afterEach(async () => {
  expect(await page.evaluate(() => "pwned" in window)).toBe(false);
  expect(watched.faults).toEqual([]);
  await watched.close();
});

describe("an execution", () => {
  it("shows the code with the line of the error, the output, the files and the log", async () => {
    await page.goto(`/ui/jobs/${job}`);
    await page.getByRole("link", { name: "Execution", exact: true }).click();
    await page.getByText("verified here: 3 records").waitFor();
    const code = page.getByRole("region", { name: "Code" });
    await code.locator("li.fault", { hasText: "print(1 / value)" }).waitFor();
    const error = page.getByRole("region", { name: "Error of the execution" });
    await error.getByRole("link", { name: "line 4" }).click();
    expect(page.url()).toContain("#line-4");
    const stdout = page.getByRole("region", { name: "stdout" });
    await stdout.getByText("<script>window.pwned=1</script>").waitFor();
    await stdout.getByText(/Cut off at the limit/).waitFor();
    await page.getByRole("region", { name: "stderr" }).getByText("Nothing was written.").waitFor();
    const artifacts = page.getByRole("region", { name: "Artifacts" });
    const image = artifacts.getByRole("img", { name: "Preview of plot.svg" });
    await image.waitFor();
    expect(await image.getAttribute("src")).toMatch(/^blob:/);
    await artifacts.getByText("U+202E").waitFor();
    const where = page.getByRole("region", { name: "Where it ran" });
    await where.getByText("py-bare@0123456789ab").waitFor();
    await where.getByRole("row", { name: /Memory 12 MiB 512 MiB/ }).waitFor();
    await page.getByRole("link", { name: "Log line 1" }).click();
    await page.locator("#log-1.linked").waitFor();
    await page.getByText("3 more were dropped.").waitFor();
  });

  it("is started in the playground", async () => {
    await page.goto("/ui/executions");
    await page.getByLabel("Python").fill("print(1)");
    await page.keyboard.press("Control+Enter");
    const ran = page.getByRole("region", { name: "The execution" });
    await ran.getByRole("region", { name: "stdout" }).waitFor();
    await ran.getByRole("link", { name: /^Job/ }).click();
    await page.waitForURL(/\/execution$/);
  });

  it("says why it waits, and which executors ran others", async () => {
    const answer = proxy.answer;
    const hint = "No executor with the environment py-bare@1 is connected.";
    proxy.answer = (url) => {
      const isJob = url.pathname === `/api/v1/jobs/${job}` || url.pathname === "/api/v1/invoke";
      if (url.pathname === `/contract/v1/jobs/${job}`) return JSON.stringify({ status: "QUEUED", hint });
      if (url.pathname === "/contract/v1/jobs/0x01") return answer?.(new URL(`/contract/v1/jobs/${job}`, url));
      if (url.pathname === "/api/v1/jobs" && url.searchParams.get("op") === "exec:python") {
        const listed = { id: "0x01", status: "FAILED", op: "exec:python", created: 1, updated: 2 };
        return JSON.stringify({ items: [listed], total: 1, offset: 0, limit: 20 });
      }
      const made = answer?.(url);
      if (!isJob || typeof made !== "string") return made;
      return JSON.stringify({ ...(JSON.parse(made) as object), status: "PENDING", error: undefined });
    };
    await page.goto("/ui/executions");
    await page.getByRole("heading", { name: "executor-1" }).waitFor();
    await page.locator(".fact", { hasText: "Isolation" }).getByText("T2").waitFor();
    await page.locator(".fact", { hasText: "Environments" }).getByText("py-bare@0123456789ab").waitFor();
    await page.getByRole("button", { name: "Run" }).click();
    await page.getByRole("region", { name: "Why it waits" }).getByText(hint).waitFor();
    proxy.answer = answer;
  });

  it("has no section at a venue without executions", async () => {
    const answer = proxy.answer;
    proxy.answer = undefined;
    const { paths } = (await venue.call("GET", "/openapi.json")) as { paths: object };
    await page.goto("/ui/settings");
    await page.getByText("Anonymous access").waitFor();
    await page.getByRole("link", { name: "Workspace" }).waitFor();
    const isThere = (await page.getByRole("link", { name: "Executions" }).count()) === 1;
    expect(isThere).toBe("/contract/v1/jobs/{job_id}" in paths);
    proxy.answer = answer;
  });
});
