// What most files of tests need: one venue and one browser for the file, and a fresh page for each
// test, on which nothing may have gone wrong.

import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "vitest";
import { launch, open } from "./browser";
import type { Watched } from "./browser";
import { Venue } from "./venue";

export interface Fixture {
  readonly venue: Venue;
  readonly page: Page;
}

/** Calls `use` before each test. `check` runs after it, while the page is still there. */
export function fixture(
  use: (fixture: Fixture) => void,
  check?: (page: Page) => Promise<void>,
): void {
  let venue: Venue;
  let browser: Awaited<ReturnType<typeof launch>>;
  let watched: Watched;
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
    use({ venue, page: watched.page });
  });
  afterEach(async () => {
    await check?.(watched.page);
    expect(watched.faults).toEqual([]);
    await watched.close();
  });
}
