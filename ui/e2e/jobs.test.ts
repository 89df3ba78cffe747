// Running, watching and controlling jobs.

import type { Page, Request } from "playwright-core";
import { describe, expect, it } from "vitest";
import { fixture } from "./fixture";
import type { Venue } from "./venue";

let venue: Venue;
let page: Page;

fixture((next) => {
  ({ venue, page } = next);
});

const status = (word: string): string => `.page-head [data-status="${word}"]`;

describe("the console", () => {
  it("runs a first job and shows its proof", async () => {
    await page.goto("/");
    await page.getByText("The venue accepts work.").waitFor();
    await page.getByRole("button", { name: "Run it" }).click();
    await page.getByText("verified here: 3 records").waitFor();
  });

  it("shows a job finish without loading the page again", async () => {
    await page.goto("/ui/operations/v/test/ops/delay");
    await page.getByLabel("delay").fill("4000");
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.waitForURL(/\/ui\/jobs\/0x/);
    await page.evaluate(() => Object.assign(window, { isSame: true }));
    await page.locator(status("STARTED")).waitFor();
    await page.locator(status("COMPLETE")).waitFor();
    await page.getByText("verified here: 3 records").waitFor();
    expect(await page.evaluate(() => "isSame" in window)).toBe(true);
  });

  it("pauses, resumes and cancels a job", async () => {
    const id = await venue.invoke("test:progress", { totalItems: 100_000, itemMs: 20 });
    await page.goto(`/ui/jobs/${id}`);
    await page.getByRole("progressbar").waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    await page.locator(status("PAUSED")).waitFor();
    expect(await venue.status(id)).toBe("PAUSED");
    await page.getByRole("button", { name: "Resume" }).click();
    await page.locator(status("STARTED")).waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Cancel the job" }).click();
    await page.locator(status("CANCELLED")).waitFor();
    expect(await venue.status(id)).toBe("CANCELLED");
    await page.getByText(/verified here: \d+ records/).waitFor();
  });

  it("answers an interactive job", async () => {
    const id = await venue.invoke("test:chat", {});
    await page.goto(`/ui/jobs/${id}`);
    await page.locator(status("INPUT_REQUIRED")).waitFor();
    await page.getByRole("link", { name: "Answer" }).click();
    await page.getByLabel("Message", { exact: true }).fill("hello");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByText("The message was accepted").waitFor();
    await page.getByLabel("Message", { exact: true }).fill("done");
    await page.getByRole("button", { name: "Send" }).click();
    await page.locator(status("COMPLETE")).waitFor();
  });

  it("shows a rejected job with the reason, and runs a failed one again", async () => {
    const rejected = await venue.invoke("test:delay", {});
    await page.goto(`/ui/jobs/${rejected}`);
    await page.locator(status("REJECTED")).waitFor();
    await page.getByText('"delay" is a required property').waitFor();
    const failed = await venue.invoke("test:error", { message: "on purpose" });
    await page.goto(`/ui/jobs/${failed}`);
    await page.getByText("on purpose").first().waitFor();
    await page.getByRole("button", { name: "Run again" }).click();
    await page.waitForURL((url) => !url.pathname.includes(failed));
    await page.locator(status("FAILED")).waitFor();
    await page.getByText("Run again from").waitFor();
  });

  it("deletes a job after a confirmation", async () => {
    const id = await venue.invoke("test:echo", 1);
    await page.goto(`/ui/jobs/${id}`);
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("button", { name: "Delete the job" }).click();
    await page.waitForURL(/\/ui\/jobs$/);
    await expect(venue.status(id)).rejects.toThrow("410");
  });

  it("keeps integers of any size as they are in the record", async () => {
    const body = '{"operation":"test:echo","input":{"n":123456789012345678901234567890,"x":1.0}}';
    const job = (await venue.call("POST", "/api/v1/invoke", body)) as { id: string };
    await page.goto(`/ui/jobs/${job.id}`);
    await page.getByText("123456789012345678901234567890").first().waitFor();
    await page.getByText("1.0", { exact: true }).first().waitFor();
  });
});

describe("the list of jobs", () => {
  it("updates by itself, and filters by status, operation and tag", async () => {
    await page.goto("/ui/jobs?op=test:random");
    await page.getByText("No job matches.").waitFor();
    const id = await venue.invoke("test:random", { length: 4 }, { tags: ["blue"] });
    await page.locator(`[data-job="${id}"]`).waitFor();
    await page.goto("/ui/jobs?tag=blue");
    await page.getByText("1 job", { exact: true }).waitFor();
    await page.goto("/ui/jobs?status=FAILED&tag=blue");
    await page.getByText("No job matches.").waitFor();
  });

  it("is used with the keyboard alone", async () => {
    await venue.invoke("test:echo", 1);
    await venue.invoke("test:echo", 2);
    await page.goto("/ui/jobs");
    await page.locator("[data-row='1']").waitFor();
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    await page.keyboard.press("k");
    await page.keyboard.press("j");
    await page.locator("[data-row='1']:focus").waitFor();
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/ui\/jobs\/0x/);
    await page.keyboard.press("g");
    await page.keyboard.press("o");
    await page.waitForURL(/\/ui\/operations$/);
    await page.keyboard.press("/");
    await page.keyboard.type("json:merge");
    await page.getByText("json:merge").first().waitFor();
    await page.keyboard.press("Control+k");
    await page.keyboard.type("schedules");
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/ui\/schedules$/);
    await page.getByRole("heading", { name: "Schedules" }).waitFor();
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
  });
});

describe("the live list", () => {
  it("follows every job over one stream, and updates a job in its place", async () => {
    const id = await venue.invoke("test:never", {});
    const streams: string[] = [];
    const reads: string[] = [];
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.pathname === "/api/v1/events") streams.push(url.search);
      const isPage = url.pathname === "/api/v1/jobs" && url.searchParams.get("limit") === "100";
      if (isPage) reads.push(url.search);
    });
    await page.goto("/ui/jobs?op=test:never");
    const row = page.locator(`[data-job="${id}"]`);
    await row.locator('[data-status="STARTED"]').waitFor();
    // Read when the page is opened, and when the stream is ready.
    await expect.poll(() => reads.length).toBe(2);
    const before = reads.length;
    await venue.call("PUT", `/api/v1/jobs/${id}/cancel`);
    await row.locator('[data-status="CANCELLED"]').waitFor();
    expect(reads.length).toBe(before);
    const other = await venue.invoke("test:never", {});
    await page.locator(`[data-job="${other}"]`).waitFor();
    await venue.call("PUT", `/api/v1/jobs/${other}/delete`);
    await page.locator(`[data-job="${other}"]`).waitFor({ state: "detached" });
    expect(streams).toEqual(["?op=test%3Anever"]);
  });

  it("pauses while the tab is hidden, and is read again when it is shown", async () => {
    const streams: Request[] = [];
    const ended: Request[] = [];
    const isStream = (request: Request): boolean => request.url().includes("/api/v1/events");
    page.on("request", (request) => isStream(request) && streams.push(request));
    page.on("requestfailed", (request) => isStream(request) && ended.push(request));
    const show = (state: "hidden" | "visible"): Promise<void> =>
      page.evaluate((state) => {
        Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
      }, state);
    await page.goto("/ui/jobs?tag=unseen");
    await expect.poll(() => streams.length).toBe(1);
    await show("hidden");
    await expect.poll(() => ended.length).toBe(1);
    const id = await venue.invoke("test:echo", 1, { tags: ["unseen"] });
    expect(await page.locator(`[data-job="${id}"]`).count()).toBe(0);
    await show("visible");
    await page.locator(`[data-job="${id}"]`).waitFor();
    expect(streams.length).toBe(2);
  });

  it("is searched by text", async () => {
    const id = await venue.invoke("test:error", { message: "the disk is full" });
    await venue.invoke("test:error", { message: "another reason" });
    await page.goto("/ui/jobs");
    await page.getByLabel("Search", { exact: true }).fill("DISK is");
    await page.getByRole("button", { name: "Filter" }).click();
    await page.getByText("1 job", { exact: true }).waitFor();
    await page.locator(`[data-job="${id}"]`).waitFor();
  });
});

describe("an action on many jobs", () => {
  it("cancels all that match a filter after a confirmation with their number", async () => {
    const started = (n: number) => venue.invoke("test:never", { n }, { tags: ["bulk"] });
    const ids = await Promise.all([1, 2, 3].map(started));
    const other = await venue.invoke("test:never", {});
    await page.goto("/ui/jobs?status=STARTED&tag=bulk");
    await page.getByText("3 jobs", { exact: true }).waitFor();
    await page.getByLabel("Action on 3 jobs").selectOption("cancel");
    const dialog = page.getByRole("dialog", { name: "Cancel 3 jobs?" });
    await dialog.getByText("all 3 jobs that match the current filter").waitFor();
    await dialog.getByRole("button", { name: "Cancel 3 jobs" }).click();
    await page.waitForURL(/\/ui\/jobs\/0x/);
    await page.locator(status("COMPLETE")).waitFor();
    for (const id of ids) expect(await venue.status(id)).toBe("CANCELLED");
    expect(await venue.status(other)).toBe("STARTED");
  });

  it("applies to those that are selected", async () => {
    const started = (n: number) => venue.invoke("test:never", { n }, { tags: ["selected"] });
    const [first, second, third] = await Promise.all([1, 2, 3].map(started));
    await page.goto("/ui/jobs?tag=selected");
    for (const id of [first, third]) await page.getByLabel(`Select job ${id}`).check();
    await page.getByText("2 jobs selected").waitFor();
    await page.getByLabel("Action on 2 jobs").selectOption("pause");
    const dialog = page.getByRole("dialog", { name: "Pause 2 jobs?" });
    await dialog.getByText("the 2 jobs that you selected").waitFor();
    await dialog.getByRole("button", { name: "Pause 2 jobs" }).click();
    await page.waitForURL(/\/ui\/jobs\/0x/);
    await page.locator(status("COMPLETE")).waitFor();
    expect(await venue.status(first!)).toBe("PAUSED");
    expect(await venue.status(second!)).toBe("STARTED");
    expect(await venue.status(third!)).toBe("PAUSED");
  });

  it("changes nothing if the number has changed meanwhile", async () => {
    const id = await venue.invoke("test:never", {}, { tags: ["late"] });
    await page.goto("/ui/jobs?tag=late");
    await page.getByText("1 job", { exact: true }).waitFor();
    await page.getByLabel("Action on 1 job").selectOption("cancel");
    const dialog = page.getByRole("dialog", { name: "Cancel 1 job?" });
    // The list behind the dialog would follow; what counts is the number that was confirmed.
    await page.route("**/api/v1/invoke", async (route) => {
      await venue.invoke("test:never", {}, { tags: ["late"] });
      await route.continue();
    });
    await dialog.getByRole("button", { name: "Cancel 1 job" }).click();
    await page.waitForURL(/\/ui\/jobs\/0x/);
    await page.locator(status("FAILED")).waitFor();
    await page.getByText("2 jobs match, 1 were expected").first().waitFor();
    expect(await venue.status(id)).toBe("STARTED");
  });
});

describe("the home page", () => {
  it("shows what happened in the last hour", async () => {
    await venue.invoke("test:echo", 1);
    await page.goto("/");
    const hour = page.getByRole("region", { name: "The last hour" });
    await hour.getByRole("img", { name: "Jobs ended by minute" }).waitFor();
    await hour.getByText("Running time, p99").waitFor();
  });
});

describe("schedules", () => {
  it("are created, invoked now and removed", async () => {
    await page.goto("/ui/schedules");
    await page.getByText("Nothing is scheduled.").waitFor();
    await page.getByLabel("operation").fill("test:echo");
    await page.getByLabel("cron").fill("0 9 * * 1-5");
    await page.getByRole("button", { name: "Schedule", exact: true }).click();
    await page.getByText("0 9 * * 1-5").first().waitFor();
    await page.getByRole("button", { name: "Invoke now" }).click();
    await page.getByText("It was invoked now.").waitFor();
    await page.goto("/ui/jobs?tag=scheduled");
    await page.locator('[data-row="0"]').click();
    await page.locator(".fact", { hasText: "Started by" }).getByRole("link").click();
    await page.waitForURL(/\/ui\/schedules#schedule-/);
    await page.getByRole("button", { name: "Remove" }).click();
    await page.getByRole("button", { name: "Remove it" }).click();
    await page.getByText("Nothing is scheduled.").waitFor();
  });
});
