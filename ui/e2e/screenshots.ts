// Writes a picture of every page, light and dark, wide and narrow, into `docs/console/`.

import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { it } from "vitest";
import { launch, open } from "./browser";
import { allSites } from "./pages";
import { Venue } from "./venue";

const folder = fileURLToPath(new URL("../../docs/console/", import.meta.url));
const WIDTHS = { wide: 1280, narrow: 360 } as const;

it("writes a picture of every page", { timeout: 300_000 }, async () => {
  mkdirSync(folder, { recursive: true });
  const venue = await Venue.start("--name", "example");
  const browser = await launch();
  try {
    const sites = await allSites(venue);
    for (const colorScheme of ["light", "dark"] as const) {
      for (const [size, width] of Object.entries(WIDTHS)) {
        for (const { url, pages } of sites) {
          const { page, close } = await open(browser, url, {
            colorScheme,
            viewport: { width, height: size === "wide" ? 800 : 720 },
          });
          for (const { name, path, ready } of pages) {
            await page.goto(path);
            await page.getByText(ready).first().waitFor();
            await page.waitForFunction(() => document.querySelector("main .spinner") === null);
            await page.screenshot({ path: `${folder}${name}-${colorScheme}-${size}.png` });
          }
          await close();
        }
      }
    }
    for (const { stop } of sites) await stop();
  } finally {
    await browser.close();
    await venue.stop();
  }
});
