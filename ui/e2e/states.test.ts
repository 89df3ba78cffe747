// What pages show while they load, when there is nothing, when a request fails, and while the venue stops.

import type { Route } from "playwright-core";
import { beforeEach, describe, expect, it } from "vitest";
import { tryNow } from "./browser";
import { fixture } from "./fixture";
import type { Fixture } from "./fixture";

let { venue, page } = {} as Fixture;
fixture((given) => ({ venue, page } = given));

/** Every page that loads something, and what it says if there is nothing. Some always have something. */
const PAGES: readonly (readonly [path: string, empty: string | undefined])[] = [
  ["/", "No job is running."],
  ["/ui/jobs", "There are no jobs yet."],
  ["/ui/jobs?op=test:none", "No job matches."],
  ["/ui/jobs/0x00000000000000000000000000000001", "Not found"],
  ["/ui/operations", undefined],
  ["/ui/operations/test:none", "Not found"],
  ["/ui/assets", undefined],
  ["/ui/assets/0000", "Not found"],
  ["/ui/schedules", "Nothing is scheduled."],
  ["/ui/agents", "There are no agents."],
  ["/ui/agents/nobody", "Not found"],
  ["/ui/requests", "Nothing waits for an answer."],
  ["/ui/executions", "No code has run yet."],
  ["/ui/settings", undefined],
  ["/ui/workspace", undefined],
  ["/ui/workspace?path=w", "There is nothing here yet."],
  ["/ui/workspace?path=w/nothing", "There is nothing at this path."],
];

/** Requests for what a page shows. What the venue offers and whether it is ready stays as it is. */
const isData = (url: URL): boolean =>
  /^\/(api|contract)\/v1\//.test(url.pathname) && url.pathname !== "/api/v1/status";

const refuse =
  (status: number, json: object) =>
  (route: Route): Promise<void> =>
    // A request may have ended because the page was left.
    route.fulfill({ status, json }).catch(() => undefined);

/** Opens a page without loading the document again, and from a page that shows nothing of it. */
const visit = (path: string): Promise<void> =>
  page.evaluate(async (path) => {
    const open = (path: string): void => {
      history.pushState(null, "", path);
      dispatchEvent(new PopStateEvent("popstate"));
    };
    open("/ui/nothing");
    while (!document.querySelector("main")?.textContent?.includes("The console has no such page.")) {
      await new Promise((resolve) => requestAnimationFrame(resolve));
    }
    open(path);
  }, path);

beforeEach(async () => {
  await page.goto("/ui/nothing");
  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Executions" }).waitFor();
});

describe("every page", () => {
  it("says that there is nothing, and what to do then", async () => {
    for (const [path, empty] of PAGES) {
      await visit(path);
      if (empty !== undefined) await page.locator("main").getByText(empty).first().waitFor();
      expect(await page.locator("main h1").count(), path).toBe(1);
    }
  });

  it("says that it loads, and then shows what arrived", async () => {
    for (const [path, empty] of PAGES) {
      let answer = (): void => undefined;
      const isAsked = new Promise<void>((resolve) => (answer = resolve));
      await page.route(isData, async (route) => {
        await isAsked;
        await route.continue().catch(() => undefined);
      });
      await visit(path);
      await page.locator("main [role=status]", { hasText: "Loading" }).first().waitFor();
      answer();
      if (empty !== undefined) await page.locator("main").getByText(empty).first().waitFor();
      await page.waitForFunction(() => document.querySelector("main .spinner") === null);
      await page.unroute(isData);
    }
  });

  it("says why a request failed, and tries again on request", async () => {
    const error = { error: "the index is damaged", code: "internal", hint: "Restore a backup." };
    for (const [path, empty] of PAGES) {
      await page.route(isData, refuse(500, error));
      await visit(path);
      const problem = page.locator("main [role=alert]", { hasText: "the index is damaged" }).first();
      await problem.getByRole("button", { name: "Try again" }).waitFor();
      await page.waitForFunction(() => document.querySelector("main .spinner") === null);
      await page.unroute(isData);
      // Without waiting for the buttons: some pages try again by themselves.
      await page.evaluate(() => {
        for (const button of document.querySelectorAll("button")) {
          if (button.textContent?.trim() === "Try again") button.click();
        }
      });
      await problem.waitFor({ state: "detached" });
      if (empty !== undefined) await page.locator("main").getByText(empty).first().waitFor();
    }
  });

  it("says that the venue is stopping, and loads again when it is back", async () => {
    const stopping = refuse(503, { error: "the venue is stopping", code: "stopping" });
    const isVenue = (url: URL): boolean => isData(url) || url.pathname === "/readyz";
    const banner = page.locator(".banner", { hasText: "The venue is stopping" });
    for (const [path] of PAGES) {
      await page.route(isVenue, stopping);
      await visit(path);
      await banner.waitFor();
      await page.waitForFunction(() => document.querySelector("main .spinner") === null);
      expect(await page.locator("main h1").count(), path).toBe(1);
    }
    await page.getByRole("button", { name: "Try now" }).waitFor();
    await page.unroute(isVenue);
    await tryNow(page);
    await page.getByText(/Connected again after/).waitFor();
    await banner.waitFor({ state: "detached" });
    await venue.invoke("test:echo", 1);
  });
});

describe("every part of a job's page", () => {
  it("says why its records could not be read, and tries again on request and when the venue is back", async () => {
    const id = await venue.invoke("test:chat", {});
    await venue.call("POST", `/api/v1/jobs/${id}`, { content: "hello" });
    const isHistory = (url: URL): boolean => url.pathname.endsWith("/history");
    const problem = page.locator("main [role=alert]", { hasText: "the index is damaged" });
    const parts = [
      ["", page.locator(".legend")],
      ["/messages", page.getByText("hello", { exact: true })],
      ["/chain", page.locator('[data-record="0"]')],
      ["/calls", page.getByText("This job has invoked no other operations.")],
    ] as const;
    for (const [part, shown] of parts) {
      await page.route(isHistory, refuse(500, { error: "the index is damaged", code: "internal" }));
      await visit(`/ui/jobs/${id}${part}`);
      await problem.getByRole("button", { name: "Try again" }).waitFor();
      await page.waitForFunction(() => document.querySelector("main .spinner") === null);
      await page.unroute(isHistory);
      await problem.getByRole("button", { name: "Try again" }).click();
      await shown.first().waitFor();
      expect(await problem.count(), part).toBe(0);
    }
    for (const [part, shown] of parts) {
      await page.route(isHistory, (route) => route.abort().catch(() => undefined));
      await visit(`/ui/jobs/${id}${part}`);
      await page.locator(".banner", { hasText: "The venue cannot be reached" }).waitFor();
      await page.unroute(isHistory);
      await shown.first().waitFor();
    }
  });
});
