// Running, watching and controlling jobs.

import type { Request } from "playwright-core";
import { describe, expect, it } from "vitest";
import { fixture } from "./fixture";
import type { Fixture } from "./fixture";

let { venue, page } = {} as Fixture;
fixture((given) => ({ venue, page } = given));

/** A read of what the list of jobs shows. */
const isListPage = ({ pathname, searchParams }: URL): boolean =>
  pathname === "/api/v1/jobs" && searchParams.get("limit") === "100";

const status = (word: string): string => `.page-head [data-status="${word}"]`;

describe("the console", () => {
  it("runs a first job and shows its proof", async () => {
    await page.goto("/");
    await page.getByText("The venue accepts work.").waitFor();
    await page.getByRole("button", { name: "Run it" }).click();
    await page.getByText("verified here: 3 records").waitFor();
  });

  it("shows a job finish without loading the page again", async () => {
    // The test is the worker, so that the job does not end before the page has shown that it waits.
    const input = { type: "object", properties: { text: { type: "string" } } };
    const operation = { adapter: "worker", queue: "watched", input };
    const asset = await venue.register({ name: "Watched", operation });
    await page.goto(`/ui/operations/${asset}`);
    await page.getByLabel("text").fill("finish this");
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.waitForURL(/\/ui\/jobs\/0x/);
    await page.evaluate(() => Object.assign(window, { isSame: true }));
    await page.locator(status("PENDING")).waitFor();
    const claim = { worker: "test", queues: ["watched"], max: 1, waitMs: 1000 };
    const { jobs } = (await venue.call("POST", "/worker/v1/claim", claim)) as {
      jobs: { id: string; fence: number }[];
    };
    const { id, fence } = jobs[0]!;
    await venue.call("POST", `/worker/v1/jobs/${id}/end`, { fence, output: "finished" });
    await page.locator(status("COMPLETE")).waitFor();
    await page.getByText("finished", { exact: true }).first().waitFor();
    await page.getByText(/verified here: \d+ records/).waitFor();
    expect(await page.evaluate(() => "isSame" in window)).toBe(true);
  });

  it("pauses, resumes and cancels a job", async () => {
    const id = await venue.invoke("test:progress", { totalItems: 100_000, itemMs: 20 });
    await page.goto(`/ui/jobs/${id}`);
    await page.getByRole("progressbar").waitFor();
    const progress = page.getByRole("region", { name: "Progress" });
    await progress.getByText(/^[\d.]+ per second$/).waitFor();
    await progress.getByText(/^about .* left$/).waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    await page.locator(status("PAUSED")).waitFor();
    expect(await venue.status(id)).toBe("PAUSED");
    await page.locator(".legend").getByText("paused").waitFor();
    await page.getByRole("button", { name: "Resume" }).click();
    await page.locator(status("STARTED")).waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Cancel the job" }).click();
    await page.locator(status("CANCELLED")).waitFor();
    expect(await venue.status(id)).toBe("CANCELLED");
    await page.getByText(/verified here: \d+ records/).waitFor();
    // The timeline keeps apart what the job waited, worked and was paused.
    for (const activity of ["waiting to run", "working", "paused"]) {
      await page.locator(".legend li", { hasText: activity }).waitFor();
    }
  });

  it("answers an interactive job", async () => {
    const id = await venue.invoke("test:chat", {});
    await page.goto(`/ui/jobs/${id}`);
    await page.locator(status("INPUT_REQUIRED")).waitFor();
    await page.getByRole("link", { name: "Answer" }).click();
    await page.getByLabel("Message", { exact: true }).fill("hello");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByText("The message was accepted").waitFor();
    await page.getByRole("button", { name: "Approve" }).click();
    await page.getByText(/"approved"|approved/).first().waitFor();
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

  it("shows input and output as JSON that is folded, searched and copied, and copies commands", async () => {
    const input = { list: [1, 2, { deep: "needle" }], name: "it's" };
    const id = await venue.invoke("test:echo", input, { wait: true });
    await page.goto(`/ui/jobs/${id}`);
    const card = page.locator(".card", { has: page.getByRole("heading", { name: "Input" }) });
    await card.getByRole("searchbox").fill("NEEDLE");
    await card.getByText("1 match").waitFor();
    await card.getByText("needle").waitFor();
    await card.getByRole("searchbox").fill("");
    await card.getByRole("button", { name: /3 items/ }).click();
    await card.getByText("needle").waitFor({ state: "detached" });
    const copied = async (name: string): Promise<string> => {
      await page.getByRole("button", { name }).first().click();
      await page.getByRole("button", { name: "Copied" }).or(page.getByTitle("Copied")).first().waitFor();
      return page.evaluate(() => navigator.clipboard.readText());
    };
    expect(JSON.parse(await copied("Copy the input as JSON"))).toEqual(input);
    const curl = await copied("curl: Copy as a curl command");
    expect(curl).toMatch(/^curl .*\/api\/v1\/invoke/s);
    expect(curl).toContain("needle");
    expect(await copied("CLI: Copy as a catena command")).toMatch(/^catena .*test:echo/s);
    const time = page.locator(".fact", { hasText: "Created" }).locator("time");
    expect(await time.getAttribute("title")).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC.*\(\d{13}\)$/);
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

describe("the list of jobs as a whole", () => {
  it("is filtered by time and parent, counts each status, and is drawn as a plot", async () => {
    const step = { op: "test:echo", input: { n: ["const", 1] } };
    const steps = [step, step, step];
    const operation = await venue.register({
      name: "Parent",
      operation: { adapter: "orchestrator", steps, result: [2] },
    });
    const parent = await venue.invoke(operation, {}, { wait: true, tags: ["plotted"] });
    for (let n = 0; n < 2; n++) await venue.invoke("test:echo", n, { tags: ["plotted"] });
    // Longer than the others, so that its dot is apart from theirs even if it is created in the same millisecond.
    const late = [
      { op: "test:delay", input: { delay: ["const", 200], input: ["const", "x"] } },
      { op: "test:error", input: { message: [0] } },
    ];
    const failing = await venue.register({
      name: "Fails late",
      operation: { adapter: "orchestrator", steps: late, result: [1] },
    });
    const failed = await venue.invoke(failing, {}, { wait: true, tags: ["plotted"] });
    await page.goto("/ui/jobs?tag=plotted");
    await page.getByText("4 jobs", { exact: true }).waitFor();
    const plot = page.getByRole("img", { name: /^4 ended jobs by time and duration/ });
    await plot.waitFor();
    const drawn = async (tone: string): Promise<number> => {
      const counts = plot.locator(`[data-tone="${tone}"]`);
      return counts.evaluateAll((all) => all.reduce((sum, path) => sum + Number(path.getAttribute("data-dots")), 0));
    };
    expect([await drawn("good"), await drawn("bad")]).toEqual([3, 1]);
    // The only failed job is named where it is pointed at, and opened from there.
    const dot = plot.locator('[data-tone="bad"]');
    // A marked dot is drawn over it, so the pointer does not reach the element itself.
    await dot.hover({ force: true });
    await plot.locator(`[data-job="${failed}"] title`, { hasText: "Failed" }).waitFor({ state: "attached" });
    await plot.locator(`[data-job="${failed}"]`).click();
    await page.waitForURL(`**/ui/jobs/${failed}`);
    await page.goBack();
    const presets = page.getByRole("navigation", { name: "Jobs by status" });
    await presets.getByRole("link", { name: /Complete\s*3/ }).waitFor();
    await presets.getByRole("link", { name: /Failed\s*1/ }).click();
    await page.getByText("1 job", { exact: true }).waitFor();
    await page.goto("/ui/jobs?tag=plotted");
    await page.getByText("More filters").click();
    await page.getByLabel("Since").fill("2100-01-01T00:00Z");
    await page.getByRole("button", { name: "Filter" }).click();
    await page.getByText("No job matches.").waitFor();
    await page.getByLabel("Since").fill("2020-01-01T00:00Z");
    await page.getByLabel("Until").fill("2100-01-01T00:00Z");
    await page.getByRole("button", { name: "Filter" }).click();
    await page.getByText("4 jobs", { exact: true }).waitFor();
    await page.goto(`/ui/jobs?parent=${parent}`);
    await page.getByText("3 jobs", { exact: true }).waitFor();
    await plot.waitFor({ state: "detached" });
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
    });
    page.on("requestfinished", (request) => {
      if (isListPage(new URL(request.url()))) reads.push(request.url());
    });
    await page.goto("/ui/jobs?op=test:never");
    const row = page.locator(`[data-job="${id}"]`);
    await row.locator('[data-status="STARTED"]').waitFor();
    // Read when the page is opened, and when the stream is ready.
    await expect.poll(() => reads.length).toBe(2);
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(resolve)));
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

  it("is not undone by an answer that is older than an event", async () => {
    const id = await venue.invoke("test:never", {}, { tags: ["overtaken"] });
    let reads = 0;
    let release = (): void => undefined;
    const isReleased = new Promise<void>((resolve) => (release = resolve));
    // The second read, when the stream is ready, is answered after an event that happens meanwhile.
    await page.route(isListPage, async (route) => {
      const response = await route.fetch();
      if (++reads === 2) await isReleased;
      await route.fulfill({ response });
    });
    await page.goto("/ui/jobs?tag=overtaken");
    const row = page.locator(`[data-job="${id}"]`);
    await row.locator('[data-status="STARTED"]').waitFor();
    await expect.poll(() => reads).toBe(2);
    await venue.call("PUT", `/api/v1/jobs/${id}/cancel`);
    await row.locator('[data-status="CANCELLED"]').waitFor();
    release();
    await expect.poll(() => reads).toBe(3);
    await row.locator('[data-status="CANCELLED"]').waitFor();
    await page.unrouteAll({ behavior: "wait" });
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
    await expect.poll(() => streams.length).toBe(2);
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

  it("shows health, what runs, what failed, storage, and what a restart recovered", async () => {
    const running = await venue.invoke("test:never", {});
    const failed = await venue.invoke("test:error", { message: "x" });
    await venue.kill();
    await venue.restart();
    await page.goto("/");
    await page.getByText("The venue accepts work.").waitFor();
    await page.getByText(/^[1-9]\d* found, \d+ continued, 0 failed/).waitFor();
    const card = (name: string) => page.locator(".card", { has: page.getByRole("heading", { name, exact: true }) });
    await card("Running now").locator(`a[href$="${running}"]`).waitFor();
    await card("Needs attention").locator(`a[href$="${failed}"]`).waitFor();
    await card("Storage").getByText(/^[\d,]+ bytes without large files$/).waitFor();
    await card("Storage").getByText(/bytes written since the start/).waitFor();
    await venue.call("PUT", `/api/v1/jobs/${running}/cancel`);
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
    await page.locator(".fact", { hasText: "Started by" }).getByRole("link", { name: "0 9 * * 1-5" }).click();
    await page.waitForURL(/\/ui\/schedules#schedule-/);
    await page.getByRole("link", { name: "Jobs that it started" }).click();
    await page.getByText("1 job", { exact: true }).waitFor();
    await page.goBack();
    await page.getByRole("button", { name: "Remove" }).click();
    await page.getByRole("button", { name: "Remove it" }).click();
    await page.getByText("Nothing is scheduled.").waitFor();
  });
});
