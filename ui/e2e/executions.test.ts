// Executions of code by a real executor: the cell, its output, its files, and where it ran.

import type { Locator } from "playwright-core";
import { describe, expect, it } from "vitest";
import { intervalsOf } from "./browser";
import { startWithExecutor } from "./executor";
import { fixture } from "./fixture";
import type { Fixture } from "./fixture";
import { HOSTILE } from "./hostile";
import { EXECUTORS, withExecutors } from "./made_up";

let { venue, proxy, page } = {} as Fixture;
fixture((given) => ({ venue, proxy, page } = given), { start: startWithExecutor, isProxied: true });

const PLOT = `import sys
print("the sum is", sum(range(10)))
print("<script>window.pwned=1</script>")
print("careful", file=sys.stderr)
with open("<b onclick=1>plot.svg", "w") as file:
    file.write('<svg xmlns="http://www.w3.org/2000/svg" width="80" height="40" onload="window.pwned=1">')
    file.write('<script>window.pwned=1</script><rect width="80" height="40" fill="teal"/></svg>')

def main():
    return {"big": 123456789012345678901234567890}
`;

const FAILS = `open("\\u202enotes.txt", "w").write("not an artifact")
values = [1, 2, 0]
for value in values:
    print(1 / value, "x" * 600)
`;

/** Writes code into the playground and runs it. Returns what the page shows of it. */
async function run(code: string): Promise<Locator> {
  await page.getByLabel("Python").fill(code);
  await page.keyboard.press("Control+Enter");
  return page.getByRole("region", { name: "The execution" });
}

describe("an execution", () => {
  it("is run in the playground and shows output, plot, result, and what it used", async () => {
    await page.goto("/ui/executions");
    const ran = await run(PLOT);
    const stdout = ran.getByRole("region", { name: "stdout" });
    await stdout.getByText("the sum is 45").waitFor();
    await stdout.getByText("<script>window.pwned=1</script>").waitFor();
    await ran.getByRole("region", { name: "stderr" }).getByText("careful").waitFor();
    await ran.getByText("123456789012345678901234567890").first().waitFor();
    const artifacts = ran.getByRole("region", { name: "Artifacts" });
    await artifacts.getByText("<b onclick=1>plot.svg").first().waitFor();
    const image = artifacts.getByRole("img", { name: /^Preview of/ });
    await image.waitFor();
    await page.waitForFunction(() => (document.querySelector("img.preview") as HTMLImageElement).naturalWidth === 80);
    expect(await image.getAttribute("src")).toMatch(/^blob:/);
    const where = ran.getByRole("region", { name: "Where it ran" });
    await where.getByText(/^py-bare@/).waitFor();
    await where.locator(".fact", { hasText: "Isolation" }).getByText(/^T[12]$/).waitFor();
    await where.locator(".fact", { hasText: "Executor" }).first().waitFor();
    await where.getByRole("row", { name: /^Wall time [\d,]+ ms [\d,]+ ms/ }).waitFor();
    await where.getByRole("row", { name: /^Processor time [\d,]+ ms [\d,]+ ms/ }).waitFor();
    await where.getByRole("row", { name: /^Memory [\d,]+ MiB [\d,]+ MiB/ }).waitFor();
    await where.getByRole("row", { name: /^Artifacts 1 \d+/ }).waitFor();
    await ran.getByRole("link", { name: /^Job/ }).click();
    await page.waitForURL(/\/execution$/);
    await page.getByText(/verified here: \d+ records/).waitFor();
  });

  it("that fails shows the error at its line, what was cut off, and the log", async () => {
    const input = { code: FAILS, limits: { max_output_kb: 1 } };
    const job = await venue.invoke("exec:python", input, { wait: true });
    await page.goto(`/ui/jobs/${job}`);
    await page.getByRole("link", { name: "Execution", exact: true }).click();
    await page.getByText(/verified here: \d+ records/).waitFor();
    const code = page.getByRole("region", { name: "Code" });
    const fault = code.locator("li.fault");
    await fault.getByText("print(1 / value").waitFor();
    const error = page.getByRole("region", { name: "Error of the execution" });
    await error.getByText("division by zero").first().waitFor();
    await error.getByRole("link", { name: "line 4" }).click();
    expect(page.url()).toContain("#line-4");
    const stdout = page.getByRole("region", { name: "stdout" });
    await stdout.getByText(/Cut off at the limit/).waitFor();
    await page.getByRole("region", { name: "stderr" }).waitFor();
    await page.getByRole("region", { name: "Log" }).getByText(/notes\.txt is no artifact/).waitFor();
    await page.getByRole("link", { name: "Log line 0" }).click();
    await page.locator("#log-0.linked").waitFor();
    await page.goto(`/ui/jobs/${job}/execution#log-0`);
    await page.reload();
    await page.locator("#log-0.linked").waitFor();
  });

  it("of equal code is not repeated if the reader says so, and names the job it is from", async () => {
    await page.goto("/ui/executions");
    const code = 'print("equal work")';
    const name = /^Job/;
    const first = await (await run(code)).getByRole("link", { name }).getAttribute("href");
    const reuse = page.getByRole("checkbox", { name: /equal code/ });
    await reuse.check();
    const ran = await run(code);
    const link = ran.getByRole("link", { name });
    await expect.poll(() => link.getAttribute("href")).not.toBe(first);
    const second = await link.getAttribute("href");
    await ran.getByRole("region", { name: "stdout" }).getByText("equal work").waitFor();
    expect(await ran.getByText("deduplicated from").count()).toBe(0);
    await run(code);
    await ran.getByText("deduplicated from").waitFor();
    expect(await link.getAttribute("href")).toBe(second);
  });

  it("of hostile code shows everything that it wrote as text", async () => {
    const code = `import sys
texts = ${JSON.stringify(HOSTILE)}
for text in texts:
    print(text)
    print(text, file=sys.stderr)
for text in texts[:30]:
    open(text.replace("/", "_")[:80] + ".html", "w").write(text)
raise ValueError("\\n".join(texts))
`;
    const job = await venue.invoke("exec:python", { code }, { wait: true });
    await page.goto(`/ui/jobs/${job}/execution`);
    for (const name of ["stdout", "stderr", "Code"]) {
      await page.getByRole("region", { name }).getByText("window.pwned=1").first().waitFor();
    }
    await page.getByRole("region", { name: "Error of the execution" }).getByText("window.pwned=1").first().waitFor();
    const artifacts = page.getByRole("region", { name: "Artifacts" });
    await artifacts.getByText(/window\.pwned=1.*\.html/).first().waitFor();
    expect(await page.locator("iframe, object, embed, main script").count()).toBe(0);
    for (const part of ["", "/chain", "/chain#record-2"]) {
      await page.goto(`/ui/jobs/${job}${part}`);
      await page.getByText(/verified here: \d+ records/).waitFor();
    }
    await page.goto("/ui/executions");
    await page.locator(`a[href$="${job}/execution"]`).waitFor();
  });

  it("is listed with the latest", async () => {
    const job = await venue.invoke("exec:python", { code: "print(1)" }, { wait: true });
    await page.goto("/ui/executions");
    const latest = page.getByRole("region", { name: "Latest executions" });
    await latest.locator(`a[href$="${job}/execution"]`).click();
    await page.getByRole("region", { name: "stdout" }).waitFor();
  });
});

/** What the venue itself says about its executors. */
const executorsOfVenue = async (): Promise<typeof EXECUTORS> =>
  (await venue.call("GET", "/contract/v1/executors")) as typeof EXECUTORS;

const names = (value: object | undefined): string[] => Object.keys(value ?? {}).sort();

describe("executors", () => {
  it("of the venue are listed as it describes them, and are busy while code runs", async () => {
    const listed = await executorsOfVenue();
    const [executor] = listed.executors;
    const environment = listed.environments.find(({ is_default }) => is_default);
    // Answers that are made up for other tests have this form.
    expect(names(listed)).toEqual(names(EXECUTORS));
    expect(names(executor)).toEqual(names(EXECUTORS.executors[0]));
    expect(names(environment)).toEqual(names(EXECUTORS.environments[0]));
    expect(listed.executors.length).toBe(1);
    const { slots } = listed;
    expect([executor?.slots, environment?.executors]).toEqual([slots, 1]);
    expect(executor?.environments).toContain(environment?.env_version);
    const elapse = await intervalsOf(page);
    await page.goto("/ui/executions");
    const executors = page.getByRole("region", { name: "Executors" });
    const shown = executors.locator(`[data-executor="${executor?.executor}"]`);
    const fact = (name: string) => shown.locator(".fact", { hasText: name });
    await fact("Isolation").getByText(executor?.tier ?? "none", { exact: true }).waitFor();
    await fact("Environments").getByText(executor?.environments.join(", ") ?? "none").waitFor();
    const heartbeat = (await fact("Last heartbeat").locator("time").getAttribute("datetime")) ?? "";
    expect(Date.parse(heartbeat)).toBeGreaterThanOrEqual(Date.parse(executor?.heartbeat_at ?? ""));
    const offered = page.getByLabel("Environment").getByRole("option", { name: "(default)" });
    expect(await offered.textContent()).toBe(`${environment?.env_version} (default)`);
    const sleeps = await venue.invoke("exec:python", { code: "import time\ntime.sleep(60)" });
    const units = slots === 1 ? "slot" : "slots";
    const running = async (): Promise<number> => (await executorsOfVenue()).running;
    await expect.poll(running).toBe(1);
    await elapse();
    await executors.getByText(`1 of ${slots} ${units} in use`).waitFor();
    await fact("Slots").getByText(`1 of ${slots} in use`).waitFor();
    await venue.call("PUT", `/api/v1/jobs/${sleeps}/cancel`);
    await expect.poll(running).toBe(0);
    await elapse();
    await executors.getByText(`0 of ${slots} ${units} in use`).waitFor();
    await fact("Slots").getByText(`0 of ${slots} in use`).waitFor();
  });

  it("are listed with isolation, slots, heartbeat and environments", async () => {
    proxy.answer = await withExecutors(venue);
    await page.goto("/ui/executions");
    const executors = page.getByRole("region", { name: "Executors" });
    await executors.getByText("1 of 3 slots in use").waitFor();
    const fact = (executor: string, name: string) =>
      executors.locator(`[data-executor^="${executor}"] .fact`, { hasText: name });
    await fact("host-4711", "Isolation").getByText("T2").waitFor();
    await fact("host-4711", "Slots").getByText("1 of 2 in use").waitFor();
    await fact("host-4711", "Environments").getByText("py-bare@0123456789ab, py-sci@ba9876543210").waitFor();
    const heartbeat = fact("host-4711", "Last heartbeat").locator("time");
    expect(await heartbeat.getAttribute("datetime")).toBe("2026-11-17T10:00:07.000Z");
    await fact("host-4712", "Isolation").getByText("none").waitFor();
    await executors.getByText("no Python interpreter <b>was found</b>").waitFor();
    await executors.getByText("U+202E").waitFor();
    await executors.getByText("Known, but not connected: py-old@000000000000").waitFor();
    const environment = page.getByLabel("Environment");
    await environment.getByRole("option", { name: "py-bare@0123456789ab (default)" }).waitFor({ state: "attached" });
    await environment.selectOption("py-old@000000000000");
    await (await run("print(1)")).or(page.getByRole("alert")).waitFor();
    await page.getByRole("alert").getByText(/py-old@000000000000/).waitFor();
  });

  it("that are not connected are said to be, and code says why it waits", async () => {
    await venue.restartWith("--executors", "0");
    proxy.answer = await withExecutors(venue, { slots: 0, running: 0, executors: [], environments: [] });
    await page.goto("/ui/executions");
    await page.getByText("No executor is connected: code waits until one is.").waitFor();
    const ran = await run("print(1)");
    await ran.getByRole("region", { name: "Why it waits" }).getByText(/No executor with the environment/).waitFor();
  });
});
