// What files of tests need: one venue for the file, if asked for a proxy in front of it, and a fresh page
// for each test, on which nothing may have gone wrong.

import type { Browser, BrowserContext, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "vitest";
import { connect, newContext, open, openIn } from "./browser";
import type { Watched } from "./browser";
import { Proxy } from "./proxy";
import { Venue } from "./venue";

export interface Fixture {
  readonly venue: Venue;
  /** Passes everything on unless a test says otherwise. Each test begins without answers and tampering. */
  readonly proxy: Proxy;
  readonly page: Page;
  readonly browser: Browser;
}

export interface Options {
  readonly start?: () => Promise<Venue>;
  /** Prepares the venue, once for the file. */
  readonly prepare?: (venue: Venue) => Promise<void>;
  /** Whether the page talks to the proxy instead of the venue. */
  readonly isProxied?: boolean;
}

/** Calls `use` before each test. */
export function fixture(use: (fixture: Fixture) => void, options: Options = {}): void {
  const { start = Venue.start, prepare, isProxied = false } = options;
  let venue: Venue;
  let proxy: Proxy;
  let browser: Browser;
  let context: BrowserContext;
  let origin: string;
  let watched: Watched;
  beforeAll(async () => {
    venue = await start();
    proxy = await Proxy.start(venue.url);
    origin = isProxied ? proxy.url : venue.url;
    browser = await connect();
    // The files of the console are loaded and compiled once.
    context = await newContext(browser, origin);
    await prepare?.(venue);
  });
  afterAll(async () => {
    await browser.close();
    await proxy.stop();
    await venue.stop();
  });
  beforeEach(async () => {
    proxy.reset();
    watched = await openIn(context, origin);
    use({ venue, proxy, page: watched.page, browser });
  });
  afterEach(() => closeClean(watched));
}

/** Closes a page after a look at what must not have happened on it. */
export async function closeClean({ page, faults, close }: Watched): Promise<void> {
  const isHacked = await page.evaluate(() => "pwned" in window);
  await close();
  expect(isHacked, "a script of the content was executed").toBe(false);
  expect(faults).toEqual([]);
}

/**
 * Opens paths one after the other without loading the document again, each until its page is complete, and unfolds
 * and hovers what is on it. Expects that no script of the content is executed and that every page has a heading,
 * which is `heading` if that is given. The page itself does all of this: hundreds of paths are opened.
 */
export async function attack(page: Page, paths: readonly string[], heading?: string): Promise<void> {
  const attacked = await page.evaluate(async ({ paths, heading }) => {
    const isComplete = (): boolean => {
      const shown = document.querySelector("main h1")?.textContent?.trim();
      const isExpected = heading === undefined ? shown !== undefined : shown === heading;
      return isExpected && document.querySelector("main .spinner") === null;
    };
    for (const path of paths) {
      history.pushState(null, "", path);
      dispatchEvent(new PopStateEvent("popstate"));
      // What a page loads is requested after it was drawn for the first time.
      for (let drawn = 0; drawn < 2; drawn = isComplete() ? drawn + 1 : 0) {
        await new Promise((resolve) => requestAnimationFrame(resolve));
      }
      for (const details of document.querySelectorAll("details")) details.open = true;
      for (const element of document.querySelectorAll("main *")) {
        element.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
      }
      if ("pwned" in window) return path;
    }
    return undefined;
  }, { paths, heading });
  expect(attacked, "a script of the content was executed").toBe(undefined);
}

/** A venue, a browser, and pages that a test opens itself. */
export interface Bench {
  readonly browser: Browser;
  /** Starts a venue that ends with the test. */
  readonly start: (...flags: string[]) => Promise<Venue>;
  /** Opens a page that is checked and closed with the test. */
  readonly open: (origin: string, options?: BrowserContextOptions) => Promise<Page>;
}

/** For tests that need a venue of their own. Calls `use` before each test. */
export function bench(use: (bench: Bench) => void): void {
  let browser: Browser;
  let venues: Venue[] = [];
  let pages: Watched[] = [];
  beforeAll(async () => {
    browser = await connect();
  });
  afterAll(() => browser.close());
  beforeEach(() => {
    venues = [];
    pages = [];
    use({
      browser,
      start: async (...flags) => {
        const venue = await Venue.start(...flags);
        venues.push(venue);
        return venue;
      },
      open: async (origin, options) => {
        const watched = await open(browser, origin, options);
        pages.push(watched);
        return watched.page;
      },
    });
  });
  afterEach(async () => {
    try {
      for (const watched of pages) await closeClean(watched);
    } finally {
      for (const venue of venues) await venue.stop();
    }
  });
}
