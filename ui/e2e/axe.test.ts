// Accessibility of every page, in both themes, wide and narrow.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launch, open } from "./browser";
import { allSites } from "./pages";
import type { PageEntry, Site } from "./pages";
import { Venue } from "./venue";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let venue: Venue;
let browser: Browser;
let sites: Site[];

beforeAll(async () => {
  venue = await Venue.start();
  browser = await launch();
  sites = await allSites(venue);
});
afterAll(async () => {
  await browser.close();
  for (const { stop } of sites) await stop();
  await venue.stop();
});

interface AxeResult {
  violations: { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }[];
}

/** What is wrong with a page, in words. */
async function problemsOf(page: Page, { name, path, ready }: PageEntry): Promise<string[]> {
  const found: string[] = [];
  await page.goto(path);
  await page.getByText(ready).first().waitFor();
  await page.evaluate(axe);
  const result = await page.evaluate(async () => {
    const { axe } = window as unknown as { axe: { run: (options: object) => Promise<unknown> } };
    return axe.run({ resultTypes: ["violations"] });
  });
  for (const { id, impact, nodes } of (result as AxeResult).violations) {
    if (impact !== "serious" && impact !== "critical") continue;
    found.push(`${name}: ${id}: ${nodes[0]?.html.slice(0, 160)} ${nodes[0]?.failureSummary}`);
  }
  const overflow = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
  if (overflow > 0) found.push(`${name}: ${overflow} px wider than the window`);
  return found;
}

describe.each(["light", "dark"] as const)("in the %s theme", (colorScheme) => {
  it.each([360, 1280])("at %d px, axe finds nothing serious on any page", async (width) => {
    const found: string[] = [];
    for (const { url, pages } of sites) {
      // The checker is injected past the page's policy, which would refuse it.
      const options = { colorScheme, viewport: { width, height: 800 }, bypassCSP: true };
      const { page, close } = await open(browser, url, options);
      for (const entry of pages) found.push(...(await problemsOf(page, entry)));
      await close();
    }
    expect(found).toEqual([]);
  });
});
