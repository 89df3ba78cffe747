// Secrets: stored and deleted by name, and never shown.

import { expect, it } from "vitest";
import { launch, open } from "./browser";
import { withPaths } from "./made_up";
import { Proxy } from "./proxy";
import { Venue } from "./venue";

it("a secret is stored and deleted, and its value is nowhere in the page", async () => {
  const venue = await Venue.start();
  const proxy = await Proxy.start(venue.url);
  const browser = await launch();
  try {
    const openapi = await withPaths(venue, "/api/v1/secrets", "/api/v1/secrets/{name}");
    let names: string[] = ["MAIL_KEY"];
    proxy.answer = ({ pathname }) => {
      if (pathname === "/openapi.json") return openapi;
      if (pathname === "/api/v1/secrets") return JSON.stringify({ items: names, total: names.length });
      const name = /^\/api\/v1\/secrets\/(\w+)$/.exec(pathname)?.[1];
      if (name === undefined) return undefined;
      names = names.includes(name) ? names.filter((known) => known !== name) : [...names, name];
      return JSON.stringify({ name, stored: true });
    };
    const { page, faults } = await open(browser, proxy.url);
    await page.goto("/ui/workspace");
    const secrets = page.getByRole("region", { name: "Secrets" });
    await secrets.getByText("MAIL_KEY").waitFor();
    await secrets.getByLabel("Name").fill("ARCHIVE_KEY");
    await secrets.getByLabel("Value").fill("a-very-secret-value");
    await secrets.getByRole("button", { name: "Store" }).click();
    await secrets.getByText("ARCHIVE_KEY was stored.").waitFor();
    await secrets.getByRole("listitem").filter({ hasText: "ARCHIVE_KEY" }).waitFor();
    expect(await secrets.getByLabel("Value").inputValue()).toBe("");
    const kept = await page.evaluate(() => document.body.textContent + JSON.stringify(sessionStorage));
    expect(kept).not.toContain("a-very-secret-value");
    await secrets.getByRole("button", { name: "Delete the secret MAIL_KEY" }).click();
    await page.getByRole("button", { name: "Delete it" }).click();
    await secrets.getByText("MAIL_KEY").waitFor({ state: "detached" });
    expect(faults).toEqual([]);
  } finally {
    await browser.close();
    await proxy.stop();
    await venue.stop();
  }
});
