// Accessibility of every page, in both themes, wide and narrow.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { connect, go, open } from "./browser";
import { allSites } from "./pages";
import type { PageEntry, Site } from "./pages";
import { startWithExecutor } from "./executor";
import type { Venue } from "./venue";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let venue: Venue;
let browser: Browser;
let sites: Site[];

beforeAll(async () => {
  venue = await startWithExecutor();
  browser = await connect();
  sites = await allSites(venue);
});
afterAll(async () => {
  await browser.close();
  for (const { stop } of sites) await stop();
  await venue.stop();
});

/** A rule that a page breaks, with the first element that does. */
interface Violation {
  readonly id: string;
  readonly impact: string;
  readonly html: string;
  readonly summary: string;
}

interface Axe {
  readonly run: (options: object) => Promise<{
    violations: { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }[];
  }>;
}

/** The style sheets, which the page would fetch again for each run, are needed only by rules that are off by default. */
const OPTIONS = { resultTypes: ["violations"], preload: { assets: ["media"] } };

/** Only colours depend on the theme, so the other rules are applied once for each width. */
const THEMES = [
  ["light", {}],
  ["dark", { runOnly: { type: "rule", values: ["color-contrast", "link-in-text-block"] } }],
] as const;
const WIDTHS = [1280, 360] as const;

/** What is wrong with a page as it is now, in words. */
async function problemsOf(page: Page, name: string, rules: object): Promise<string[]> {
  const { violations, bare, overflow } = await page.evaluate(async (options) => {
    const { axe } = window as unknown as { axe: Axe };
    const result = await axe.run(options);
    const root = document.documentElement;
    return {
      // A result also lists every rule that the page follows, which is much to send.
      violations: result.violations.map(({ id, impact, nodes }): Violation => {
        const { html = "", failureSummary = "" } = nodes[0] ?? {};
        return { id, impact, html: html.slice(0, 160), summary: failureSummary };
      }),
      bare: [...document.querySelectorAll("[data-status]")]
        .filter((element) => element.querySelector("svg.icon") === null || !element.textContent?.trim())
        .map((element) => element.outerHTML.slice(0, 160)),
      overflow: root.scrollWidth - root.clientWidth,
    };
  }, { ...OPTIONS, ...rules });
  const found = violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, html, summary }) => `${name}: ${id}: ${html} ${summary}`);
  if (bare.length > 0) found.push(`${name}: a state without an icon or a word: ${bare[0]}`);
  if (overflow > 0) found.push(`${name}: ${overflow} px wider than the window`);
  return found;
}

/** Checks a page in both themes and at both widths, as when a window is resized. */
async function check(page: Page, { name, path, ready }: PageEntry): Promise<string[]> {
  await go(page, path);
  await page.locator("main").getByText(ready).first().waitFor();
  const found: string[] = [];
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 800 });
    for (const [colorScheme, rules] of THEMES) {
      await page.emulateMedia({ colorScheme });
      found.push(...(await problemsOf(page, `${name}, ${colorScheme}, ${width} px`, rules)));
    }
  }
  return found;
}

it("axe finds nothing serious on any page, in both themes, at 360 and 1280 px", async () => {
  const found: string[] = [];
  let checked = 0;
  for (const { url, pages } of sites) {
    // The checker is injected past the page's policy, which would refuse it.
    const { page, close } = await open(browser, url, { bypassCSP: true });
    await page.goto("/ui/nothing");
    await page.evaluate(axe);
    for (const entry of pages) {
      found.push(...(await check(page, entry)));
      checked++;
    }
    await close();
  }
  expect(found).toEqual([]);
  expect(checked).toBeGreaterThan(20);
});
