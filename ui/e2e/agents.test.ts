// Agents: the list, the record of one, its timeline with what changed, and a chat.

import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { launch, open } from "./browser";
import type { Watched } from "./browser";
import { withAgent } from "./made_up";
import { Proxy } from "./proxy";
import { Venue } from "./venue";

let venue: Venue;
let proxy: Proxy;
let browser: Browser;
let watched: Watched;
let page: Page;

beforeAll(async () => {
  venue = await Venue.start();
  proxy = await Proxy.start(venue.url);
  browser = await launch();
  proxy.answer = await withAgent(venue);
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

describe("an agent", () => {
  it("is listed, and shows its timeline, what each turn changed, and its inbox", async () => {
    await page.goto("/");
    await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Agents" }).click();
    await page.getByRole("link", { name: /helper/ }).click();
    await page.locator('.page-head [data-status="SUSPENDED"]').waitFor();
    await page.getByRole("region", { name: "Error" }).getByText("the model did not answer").waitFor();
    const last = page.locator('[data-turn="1"]');
    await last.getByRole("row", { name: /mood "calm" → "cheerful"/ }).waitFor();
    await last.getByRole("row", { name: /seen 1 → 2/ }).waitFor();
    await page.locator('[data-turn="0"]').getByText("onerror=window.pwned=1").waitFor();
    await page.getByRole("region", { name: "Inbox" }).getByText("later").waitFor();
    await page.getByText("May crud/… with w/notes.").waitFor();
    await page.locator(".fact", { hasText: "Failures in a row" }).getByText("3").waitFor();
    await page.getByRole("button", { name: "Resume" }).waitFor();
    expect(await page.getByRole("button", { name: "Suspend" }).count()).toBe(0);
  });

  it("answers in a chat, which stays in its session", async () => {
    await page.goto("/ui/agents/helper");
    const chat = page.getByRole("region", { name: "Chat" });
    await chat.getByRole("option", { name: "First talk (1 turn)" }).waitFor({ state: "attached" });
    await chat.getByLabel("Message").fill("How are you?");
    await chat.getByRole("button", { name: "Send" }).click();
    await chat.getByText("I am <b>fine</b>").waitFor();
    expect(await chat.getByLabel("Session").inputValue()).toBe("s-2");
    expect(await chat.getByLabel("Message").inputValue()).toBe("");
  });
});
