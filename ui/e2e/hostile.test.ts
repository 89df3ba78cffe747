// Everything from callers is text: hostile strings in every field that a caller controls.

import type { Response } from "playwright-core";
import { describe, expect, it } from "vitest";
import { expectBelow, longestTask } from "./figures";
import { attack, fixture } from "./fixture";
import type { Fixture } from "./fixture";
import { ADDRESS_TEXTS, HOSTILE } from "./hostile";

let { venue, page, browser } = {} as Fixture;
fixture((given) => ({ venue, page, browser } = given));

/** Opens pages one after the other. The document is loaded once for a test: it is the same for every path. */
async function visit(...paths: string[]): Promise<void> {
  if (page.url() === "about:blank") await page.goto(paths[0]!);
  await attack(page, paths);
}

/** An object with hostile names and values. */
const everything = Object.fromEntries([
  ...HOSTILE.map((text, index) => [`value ${index}`, text]),
  ...HOSTILE.map((text) => [text.slice(0, 200), 1]),
]) as object;

describe("hostile strings", () => {
  it("are 40, each of which is in an address", () => {
    expect(HOSTILE).toHaveLength(40);
    const isUsed = (text: string): boolean => ADDRESS_TEXTS.some((address) => address.includes(text.slice(0, 500)));
    expect(HOSTILE.filter((text) => !isUsed(text))).toEqual([]);
  });

  it("stay text in input, output, tags, errors and messages of jobs", async () => {
    const tags = HOSTILE.map((text) => text.slice(0, 60)).filter((tag) => !tag.includes("\0"));
    const echoes = await Promise.all(
      [0, 1, 2, 3].map((part) =>
        venue.invoke("test:echo", everything, { tags: tags.slice(part * 10, part * 10 + 10) }),
      ),
    );
    const error = await venue.invoke("test:error", { message: HOSTILE.join("\n") });
    const chat = await venue.invoke("test:chat", everything);
    const cancelled = await venue.invoke("test:never", everything);
    const reason = HOSTILE.map((text) => text.slice(0, 90)).join("\n");
    await venue.call("PUT", `/api/v1/jobs/${cancelled}/cancel`, { reason });
    for (const text of HOSTILE) {
      await venue.call("POST", `/api/v1/jobs/${chat}`, { content: text, messageId: text.slice(0, 99) });
    }
    for (const id of [...echoes, error, chat, cancelled]) {
      await visit(...["", "/messages", "/chain", "/chain#record-3"].map((tab) => `/ui/jobs/${id}${tab}`));
    }
    await visit("/ui/jobs", "/");
  });

  it("stay text in the names of operations, steps and schedules", async () => {
    for (const text of HOSTILE) {
      const steps = HOSTILE.slice(0, 12).map((name) => ({
        op: "test:echo",
        name: name.slice(0, 100),
        input: { x: ["const", name] },
      }));
      const operation = await venue.register({
        name: text,
        description: text,
        operation: {
          adapter: "orchestrator",
          input: {
            type: "object",
            properties: {
              [text.slice(0, 80)]: { type: "string", title: text, description: text, default: text },
              choice: { enum: HOSTILE, description: text },
              when: { type: "string", format: text.slice(0, 80), examples: [text] },
            },
          },
          steps,
          result: ["const", 1],
        },
      });
      if (HOSTILE.indexOf(text) % 8 !== 0) continue;
      const id = await venue.invoke(operation, {}, { wait: true });
      const ofJob = `/ui/jobs/${id}/steps`;
      await visit(`/ui/operations/${operation}`, `/ui/assets/${operation}`, ofJob, `${ofJob}#step-3`);
    }
    await venue.run("scheduler:schedule", { operation: "test:echo", input: everything, after: 3_600_000 });
    await visit("/ui/operations", "/ui/assets", "/ui/schedules");
    for (const text of HOSTILE.filter((_, at) => at % 8 === 0)) {
      const content = { contentType: text.slice(0, 100), fileName: text.slice(0, 100) };
      await visit(`/ui/assets/${await venue.register({ name: text, content, keywords: HOSTILE, about: everything })}`);
    }
  });

  it("stay text in messages, configurations, questions and answers of agents", async () => {
    const run = (operation: string, input: object): Promise<unknown> =>
      venue.run(operation, { agentId: "hostile", ...input });
    const short = HOSTILE.map((text) => text.slice(0, 200));
    const caps = short.map((text) => ({ with: text, can: text }));
    await run("agent:create", { config: { operation: "test:tally", note: everything }, caps, state: everything });
    await run("agent:chat", { message: everything });
    await run("agent:message", { message: short.join("\n") });
    await run("agent:ask", { question: everything });
    await run("agent:ask", { question: short.join("\n"), options: short });
    const { requestId } = (await run("agent:ask", { question: { text: short.join(" ") } })) as { requestId: string };
    await venue.call("POST", `/api/v1/requests/${requestId}`, { answer: short.join(" ") });
    const config = { operation: "llm:agent", llmOperation: "test:toolllm", systemPrompt: short.join("\n") };
    await run("agent:create", { agentId: "talks", config });
    const { sessionId } = (await run("agent:chat", { agentId: "talks", message: short.join("\n") })) as {
      sessionId: string;
    };
    await visit("/ui/agents", "/ui/agents/hostile");
    await page.getByText(`May use ${short[0]}`).first().waitFor();
    for (const title of short) {
      await run("agent:rename-session", { agentId: "talks", sessionId, title });
      if (short.indexOf(title) % 8 !== 0) continue;
      await visit("/ui/agents", "/ui/agents/talks");
      await page.getByLabel("Session").selectOption(sessionId);
      await page.getByRole("log").getByText("window.pwned=1").first().waitFor();
    }
    await visit("/ui/requests");
    await page.getByRole("checkbox", { name: /answered or closed/ }).check();
    await page.locator(`[data-request="${requestId}"]`).getByText("Answered:").waitFor();
    expect(await page.getByRole("group", { name: "Answers" }).getByRole("button").count()).toBe(short.length);
  });

  it("stay text in what workers report and jobs ask", async () => {
    const short = HOSTILE.map((text) => text.slice(0, 200));
    const operation = await venue.register({
      name: "Worker",
      operation: { adapter: "worker", queue: "hostile", input: {} },
    });
    const jobs = await Promise.all([1, 2].map(() => venue.invoke(operation, everything)));
    const worker = "hostile";
    const claim = { worker, queues: ["hostile"], max: 2, waitMs: 1000 };
    const claimed = ((await venue.call("POST", "/worker/v1/claim", claim)) as {
      jobs: { id: string; fence: number }[];
    }).jobs;
    const progress = { processedItems: 1, totalItems: 20, message: short.slice(0, 4).join(" ") };
    const beat = { worker, waitMs: 0, jobs: claimed.map((job) => ({ ...job, progress, log: short.join("\n") })) };
    await visit(`/ui/jobs/${jobs[0]}`);
    const shown = page.getByRole("region", { name: "Progress" }).getByText("window.pwned=1");
    // Beats are repeated, as by any worker: a venue does not announce each report.
    await expect
      .poll(async () => {
        await venue.call("POST", "/worker/v1/beat", beat);
        return shown.count();
      }, { interval: 500 })
      .toBeGreaterThan(0);
    const ends = [{ error: short.join("\n"), code: "hostile", retry: "never" }, { output: everything }];
    for (const [at, { id, fence }] of claimed.entries()) {
      await venue.call("POST", `/worker/v1/jobs/${id}/end`, { fence, ...ends[at] });
    }
    const asked = await venue.invoke("jobs:ask", {
      question: short.join("\n"),
      schema: { type: "object", title: short[0], properties: { [short[1]!]: { enum: short, description: short[2] } } },
    });
    for (const id of [...jobs, asked]) {
      await visit(...["", "/messages", "/chain#record-2"].map((tab) => `/ui/jobs/${id}${tab}`));
    }
    await visit("/ui/requests", "/ui/jobs");
  });

  it("stay text in addresses", async () => {
    const [first, ...others] = ADDRESS_TEXTS.map(encodeURIComponent);
    const job = await venue.invoke("test:echo", 1, { wait: true });
    const kinds: ((text: string) => string)[] = [
      (text) => `/ui/jobs/${text}`,
      (text) => `/ui/operations/${text}`,
      (text) => `/ui/agents/${text}`,
      (text) => `/ui/nothing/${text}#${text}`,
      (text) => `/ui/jobs?tag=${text}&text=${text}`,
      (text) => `/ui/jobs/${job}/chain#${text}`,
    ];
    for (const path of kinds) {
      await page.goto("about:blank");
      await visit(path(first!));
    }
    await visit(...kinds.flatMap((path) => others.map(path)));
  });

  it("cannot hide: characters without a shape are shown by their code point", async () => {
    const id = await venue.invoke("test:echo", { name: "a\u202eb\u200bc" });
    await page.goto(`/ui/jobs/${id}`);
    await page.getByText("U+202E").first().waitFor();
    await page.getByText("U+200B").first().waitFor();
  });

  it("link only to http and https, with the target shown", async () => {
    const id = await venue.invoke("test:echo", {
      good: "https://example.org/a",
      bad: "javascript:window.pwned=1",
    });
    await page.goto(`/ui/jobs/${id}`);
    const link = page.getByRole("link", { name: "https://example.org/a" }).first();
    await link.waitFor();
    expect(await link.getAttribute("rel")).toContain("noopener");
    expect(await page.locator('a[href^="javascript:"]').count()).toBe(0);
  });
});

describe("large values", () => {
  it("of 10 MB and of 10,000 members are loaded on request and do not freeze the page", async () => {
    const long = await venue.invoke("test:echo", "x".repeat(9_999_900));
    const wide = await venue.invoke(
      "test:echo",
      Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`member ${i}`, i])),
    );
    let received = 0;
    const count = (response: Response): void => {
      void response.body().then((body) => (received += body.length), () => undefined);
    };
    page.on("response", count);
    const longest = await longestTask(browser, page, async () => {
      await page.goto(`/ui/jobs/${long}`);
      await page.locator('.page-head [data-status="COMPLETE"]').waitFor();
      await page.locator(".legend, .timeline, .card p").first().waitFor();
      expect(received).toBeLessThan(1_000_000);
      page.off("response", count);
      await page.getByText("This value is larger than 64 kB and was not loaded.").first().waitFor();
      await page.getByRole("button", { name: "Load it" }).first().click();
      await page.getByText(/characters left/).first().waitFor();
      await page.getByText("not yet verified").first().waitFor();
      await page.getByRole("button", { name: "Verify here" }).click();
      await page.getByText("verified here: 3 records").waitFor();
    });
    expectBelow("longest task with a text of 10 MB", longest, 500, 4);
    await page.goto(`/ui/jobs/${long}/chain#record-0`);
    await page.getByRole("button", { name: "Load the complete record" }).click();
    await page.getByText("The record as JSON").click();
    await page.getByRole("button", { name: "Show it" }).waitFor();
    await page.goto(`/ui/jobs/${wide}`);
    await page.getByRole("button", { name: "Load it" }).first().click();
    await page.getByText("{ 10000 members }").first().waitFor();
    await page.getByRole("button", { name: "{ 10000 members }" }).first().click();
    await page.getByText(/Show more \(9,900 left\)/).waitFor();
    expect(await page.locator(".json-line").count()).toBeLessThan(1000);
    await page.getByRole("button", { name: "Verify here" }).click();
    await page.getByText("verified here: 3 records").waitFor();
  });
});
