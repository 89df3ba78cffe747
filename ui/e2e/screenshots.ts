// Writes a picture of every page, light and dark, wide and narrow, into `docs/console/`. With
// `CATENA_PAGES=jobs,home` only those pages, and with `CATENA_SHOTS=FOLDER` complete pages into that folder.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { it } from "vitest";
import { connect, open } from "./browser";
import { startWithExecutor } from "./executor";
import { allSites } from "./pages";

const folder = process.env["CATENA_SHOTS"] ?? fileURLToPath(new URL("../../docs/console/", import.meta.url));
const fullPage = process.env["CATENA_SHOTS"] !== undefined;
const wanted = process.env["CATENA_PAGES"]?.split(",");
const SIZES = { wide: { width: 1280, height: 800 }, narrow: { width: 360, height: 720 } } as const;

it("writes a picture of every page", { timeout: 300_000 }, async () => {
  mkdirSync(folder, { recursive: true });
  const venue = await startWithExecutor("--name", "example");
  const browser = await connect();
  try {
    const sites = await allSites(venue);
    for (const { url, pages } of sites) {
      const { page, close } = await open(browser, url);
      for (const { name, path, ready } of pages.filter(({ name }) => wanted?.includes(name) ?? true)) {
        for (const [size, viewport] of Object.entries(SIZES)) {
          await page.setViewportSize(viewport);
          // Loaded for each width, so that nothing is scrolled or unfolded from before.
          await page.goto("about:blank");
          await page.goto(path);
          await page.getByText(ready).first().waitFor();
          await page.waitForFunction(() => document.querySelector("main .spinner") === null);
          // The badge of a job says what it found, not that it is at work.
          await page.waitForFunction(() => !/not yet verified|verifying/.test(document.querySelector("main")?.textContent ?? ""));
          await page.waitForFunction(() => [...document.images].every(({ complete }) => complete));
          for (const colorScheme of ["light", "dark"] as const) {
            await page.emulateMedia({ colorScheme });
            await page.screenshot({ path: join(folder, `${name}-${colorScheme}-${size}.png`), fullPage });
          }
        }
      }
      await close();
    }
    for (const { stop } of sites) await stop();
  } finally {
    await browser.close();
    await venue.stop();
  }
});
