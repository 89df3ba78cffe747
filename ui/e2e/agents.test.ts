// Agents: the list, the record of one, its timeline with what changed and what it used, and a chat.

import { beforeEach, describe, expect, it } from "vitest";
import { fixture } from "./fixture";
import type { Fixture } from "./fixture";

let { venue, page } = {} as Fixture;
fixture((given) => ({ venue, page } = given));

const run = (operation: string, input: object): Promise<unknown> => venue.run(operation, input);

const MODEL = { operation: "llm:agent", llmOperation: "test:toolllm" };

describe("an agent that counts", () => {
  beforeEach(async () => {
    const caps = [
      { with: "w/notes", can: "crud/*" },
      { with: "", can: "invoke" },
    ];
    const config = { operation: "test:tally", maxFailures: 3 };
    await run("agent:create", { agentId: "helper", config, caps });
    for (const content of ["<img src=x onerror=window.pwned=1>", "How are you?"]) {
      await run("agent:chat", { agentId: "helper", message: content });
    }
    await run("agent:message", { agentId: "helper", message: { fail: true } });
    await venue.invoke("agent:trigger", { agentId: "helper" }, { wait: true });
  });

  it("is listed, and shows its timeline, why it failed, its inbox, and what it may do", async () => {
    await page.goto("/");
    await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Agents" }).click();
    await page.getByRole("link", { name: /helper/ }).click();
    await page.locator('.page-head [data-status="SUSPENDED"]').waitFor();
    const error = page.getByRole("region", { name: "Error" });
    await error.getByText("a message says that the turn fails").waitFor();
    await page.locator('[data-turn="1"]').getByRole("row", { name: /n 1 → 2/ }).waitFor();
    await page.locator('[data-turn="0"]').getByText("onerror=window.pwned=1").first().waitFor();
    await page.getByRole("region", { name: "Inbox" }).getByText("fail").waitFor();
    await page.getByText("May read and change w/notes and what is below it.").waitFor();
    await page.getByText("May run everything of its owner.").waitFor();
    const fact = (name: string) => page.locator(".fact", { hasText: name });
    await fact("Failures in a row").getByText("1 of 3; then it stays suspended").waitFor();
    await fact("When it runs").getByText("when somebody runs it").waitFor();
    expect(await page.getByRole("button", { name: "Suspend" }).count()).toBe(0);
    await error.getByRole("link", { name: "The job of the turn that failed" }).click();
    await page.locator('.page-head [data-status="FAILED"]').waitFor();
    await page.goBack();
    await page.getByRole("button", { name: "Resume" }).click();
    await page.locator('.page-head [data-status="SLEEPING"]').waitFor();
    await fact("Failures in a row").getByText("none; after 3").waitFor();
  });
});

describe("an agent that is controlled", () => {
  it("is run, suspended, resumed and terminated", async () => {
    await run("agent:create", { agentId: "worker", config: { operation: "test:tally" } });
    await run("agent:message", { agentId: "worker", message: "count this" });
    await page.goto("/ui/agents/worker");
    const status = (word: string): Promise<void> => page.locator(`.page-head [data-status="${word}"]`).waitFor();
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.locator('[data-turn="0"]').getByText("count this").first().waitFor();
    await page.getByRole("button", { name: "Suspend" }).click();
    await status("SUSPENDED");
    await page.getByRole("button", { name: "Resume" }).click();
    await status("SLEEPING");
    await page.getByRole("button", { name: "Terminate" }).click();
    await page.getByRole("dialog", { name: "Terminate this agent?" }).getByRole("button", { name: "Terminate it" }).click();
    await status("TERMINATED");
    expect(await page.getByRole("button", { name: /^(Run|Suspend|Resume|Terminate)$/ }).count()).toBe(0);
  });
});

describe("an agent with a model", () => {
  it("answers in a chat, which stays in its session and can be read again", async () => {
    const config = { ...MODEL, wake: { everyMs: 600_000 }, tools: ["test:echo"] };
    await run("agent:create", { agentId: "clerk", config });
    await page.goto("/ui/agents/clerk");
    const chat = page.getByRole("region", { name: "Chat" });
    const say = async (text: string): Promise<void> => {
      await chat.getByLabel("Message").fill(text);
      await chat.getByRole("button", { name: "Send" }).click();
    };
    // The model repeats what it hears.
    await say("I am <b>fine</b>");
    await chat.locator(".bubble:not(.received)", { hasText: "I am <b>fine</b>" }).waitFor();
    const session = await chat.getByLabel("Session").inputValue();
    expect(session).not.toBe("");
    expect(await chat.getByLabel("Message").inputValue()).toBe("");
    await say('tool test_echo {"sum": 3}');
    await chat.locator(".bubble:not(.received)", { hasText: '{"sum":3}' }).waitFor();
    expect(await chat.getByLabel("Session").inputValue()).toBe(session);
    const last = page.locator('[data-turn="1"]');
    await last.getByText(/^\d+ tokens \(\d+ in, 2 out\)$/).waitFor();
    await last.getByText("2 model calls").waitFor();
    await last.getByText("1 tool call", { exact: true }).waitFor();
    await page.locator(".fact", { hasText: "When it runs" }).getByText("every 10 min").waitFor();
    await page.getByText("The agent is not restricted").waitFor();
    // Somebody who comes later finds the session.
    await page.reload();
    await chat.locator(`option[value="${session}"]`).waitFor({ state: "attached" });
    expect(await chat.getByRole("option", { name: /\(2 turns\)/ }).count()).toBe(1);
    await chat.getByLabel("Session").selectOption(session);
    const log = chat.getByRole("log");
    await log.locator(".bubble.received", { hasText: "I am <b>fine</b>" }).waitFor();
    await log.getByText("calls test_echo").waitFor();
    await say("still here?");
    await log.locator(".bubble:not(.received)", { hasText: "still here?" }).waitFor();
    expect(await chat.getByLabel("Session").inputValue()).toBe(session);
  });

  it("asks on its own page, too", async () => {
    await run("agent:create", { agentId: "asker", config: { ...MODEL, wake: "message" } });
    await run("agent:ask", { agentId: "asker", question: "Shall I?", options: ["yes", "no"] });
    await page.goto("/ui/agents/asker");
    const card = page.getByRole("article", { name: "Shall I?" });
    await card.getByRole("button", { name: "yes" }).click();
    await card.getByText("You answered yes.").waitFor();
    // The answer wakes the agent.
    await page.locator('[data-turn="0"]').getByText("Shall I?").first().waitFor();
  });
});
