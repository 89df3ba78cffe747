// Everything from callers is text: hostile strings in every field that a caller controls.

import type { Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import { fixture } from "./fixture";
import { HOSTILE } from "./hostile";
import type { Venue } from "./venue";

let venue: Venue;
let page: Page;

fixture(
  (next) => {
    ({ venue, page } = next);
  },
  async (page) => {
    expect(await page.evaluate(() => "pwned" in window)).toBe(false);
  },
);

/** Opens a page and unfolds and hovers what is on it. */
async function visit(path: string): Promise<void> {
  await page.goto(path);
  await page.locator("main h1").waitFor();
  await page.waitForFunction(() => document.querySelector("main .spinner") === null);
  await page.evaluate(() => {
    for (const details of document.querySelectorAll("details")) details.open = true;
    for (const element of document.querySelectorAll("main *")) {
      element.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
    }
  });
}

/** An object with hostile names and values. */
const everything = Object.fromEntries([
  ...HOSTILE.map((text, index) => [`value ${index}`, text]),
  ...HOSTILE.map((text) => [text.slice(0, 200), 1]),
]) as object;

describe("hostile strings", () => {
  it("are 40", () => expect(HOSTILE).toHaveLength(40));

  it("stay text in input, output, tags, errors and messages of jobs", async () => {
    const tags = HOSTILE.map((text) => text.slice(0, 60)).filter((tag) => !tag.includes("\0"));
    const echo = await venue.invoke("test:echo", everything, { tags: tags.slice(0, 10) });
    const error = await venue.invoke("test:error", { message: HOSTILE.join("\n") });
    const chat = await venue.invoke("test:chat", everything);
    for (const text of HOSTILE) {
      await venue.call("POST", `/api/v1/jobs/${chat}`, { content: text, messageId: text.slice(0, 99) });
    }
    for (const id of [echo, error, chat]) {
      for (const tab of ["", "/messages", "/chain", "/chain#record-3"]) {
        await visit(`/ui/jobs/${id}${tab}`);
      }
    }
    await visit("/ui/jobs");
    await visit("/");
    for (const text of HOSTILE.slice(0, 8)) await visit(`/ui/jobs?tag=${encodeURIComponent(text)}`);
  });

  it("stay text in the names of operations, steps and schedules", async () => {
    for (const text of HOSTILE) {
      const steps = HOSTILE.slice(0, 12).map((name) => ({
        op: "test:echo",
        name: name.slice(0, 100),
        input: { x: ["const", name] },
      }));
      const operation = (await venue.call("POST", "/api/v1/assets", {
        name: text,
        description: text,
        operation: {
          adapter: "orchestrator",
          input: {
            type: "object",
            properties: { [text.slice(0, 80)]: { type: "string", title: text, description: text } },
          },
          steps,
          result: ["const", 1],
        },
      })) as string;
      if (HOSTILE.indexOf(text) % 8 !== 0) continue;
      const id = await venue.invoke(operation, {}, { wait: true });
      await visit(`/ui/operations/${operation}`);
      await visit(`/ui/assets/${operation}`);
      await visit(`/ui/jobs/${id}/steps`);
      await visit(`/ui/jobs/${id}/steps#step-3`);
    }
    await venue.call("POST", "/api/v1/run", {
      operation: "scheduler:schedule",
      input: { operation: "test:echo", input: everything, after: 3_600_000 },
    });
    for (const path of ["/ui/operations", "/ui/assets", "/ui/schedules"]) await visit(path);
  });

  it("stay text in messages, configurations, questions and answers of agents", async () => {
    const run = (operation: string, input: object): Promise<unknown> =>
      venue.call("POST", "/api/v1/run", { operation, input: { agentId: "hostile", ...input } });
    const short = HOSTILE.map((text) => text.slice(0, 200));
    await run("agent:create", { config: { operation: "test:tally", note: everything } });
    await run("agent:chat", { message: everything });
    await run("agent:message", { message: short.join("\n") });
    await run("agent:ask", { question: everything });
    await run("agent:ask", { question: short.join("\n"), options: short });
    const { requestId } = (await run("agent:ask", { question: { text: short.join(" ") } })) as { requestId: string };
    await venue.call("POST", `/api/v1/requests/${requestId}`, { answer: short.join(" ") });
    await visit("/ui/agents");
    await visit("/ui/agents/hostile");
    await visit("/ui/requests");
    await page.getByRole("checkbox", { name: /answered or closed/ }).check();
    await page.locator(`[data-request="${requestId}"]`).getByText("Answered:").waitFor();
    expect(await page.getByRole("group", { name: "Answers" }).getByRole("button").count()).toBe(short.length);
  });

  it("stay text in addresses", async () => {
    for (const text of HOSTILE.slice(0, 12)) {
      await visit(`/ui/jobs/${encodeURIComponent(text)}`);
      await visit(`/ui/operations/${encodeURIComponent(text)}`);
      await visit(`/ui/nothing#${encodeURIComponent(text)}`);
    }
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
  it("of 9 MB and of 10,000 members do not freeze the page", async () => {
    const long = await venue.invoke("test:echo", { text: "x".repeat(9_000_000) });
    const wide = await venue.invoke(
      "test:echo",
      Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`member ${i}`, i])),
    );
    await page.goto(`/ui/jobs/${long}`);
    await page.getByRole("button", { name: "Show it" }).first().click();
    await page.getByText(/characters left/).first().waitFor();
    await page.goto(`/ui/jobs/${wide}`);
    await page.getByText("{ 10000 members }").first().waitFor();
    await page.getByRole("button", { name: "{ 10000 members }" }).first().click();
    await page.getByText(/Show more \(9,900 left\)/).waitFor();
    expect(await page.locator(".json-line").count()).toBeLessThan(1000);
    await page.getByText("verified here: 3 records").waitFor();
  });
});
