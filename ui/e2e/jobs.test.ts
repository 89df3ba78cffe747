// Running, watching and controlling jobs.

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
    await page.getByLabel("delay").fill("1500");
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
    await expect(venue.status(id)).rejects.toThrow("404");
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
    await page.getByRole("button", { name: "Remove" }).click();
    await page.getByRole("button", { name: "Remove it" }).click();
    await page.getByText("Nothing is scheduled.").waitFor();
  });
});
