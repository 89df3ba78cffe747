// Signing in, and losing the venue.

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { go, intervalsOf, tryNow } from "./browser";
import { bench } from "./fixture";
import type { Bench } from "./fixture";
import { populate } from "./pages";
import { binary } from "./venue";
import type { Venue } from "./venue";

let { start, open } = {} as Bench;
bench((given) => ({ start, open } = given));

/** A token that the venue issues. */
function token(venue: Venue): string {
  const data = join(venue.folder, "data");
  const args = ["token", "create", "--data", data];
  return execFileSync(binary(), args, { stdio: ["ignore", "pipe", "ignore"] }).toString().trim();
}

describe("a venue without anonymous access", () => {
  it("asks for a token, and asks again without losing what was typed", async () => {
    const venue = await start("--public-access", "off");
    const secret = token(venue);
    const page = await open(venue.url);
    await page.goto("/ui/operations/v/test/ops/error");
    const dialog = page.getByRole("dialog", { name: "Sign in" });
    await dialog.waitFor();
    await page.getByLabel("Token").fill(secret);
    await dialog.getByRole("button", { name: "Sign in" }).click();
    await page.getByLabel("message").fill("typed before the token expired");
    // From now on the venue refuses the token, as it would after its expiry.
    let isExpired = true;
    await page.route("**/api/v1/invoke", (route) =>
      isExpired
        ? route.fulfill({ status: 401, json: { error: "the token is expired", code: "token_invalid" } })
        : route.continue(),
    );
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await dialog.waitFor();
    await dialog.getByText("the token is expired").waitFor();
    isExpired = false;
    await page.getByLabel("Token").fill(secret);
    await dialog.getByRole("button", { name: "Sign in" }).click();
    await page.waitForURL(/\/ui\/jobs\/0x/);
    await page.getByText("typed before the token expired").first().waitFor();
    await page.getByText("verified here: 3 records").waitFor();
    const kept = await page.evaluate(() => [
      JSON.stringify(localStorage),
      JSON.stringify(sessionStorage),
      location.href,
    ]);
    expect(kept.join(" ")).not.toContain(secret);
  });

  it("does not ask again on its own after the dialog was dismissed", async () => {
    const venue = await start("--public-access", "off");
    const secret = token(venue);
    const page = await open(venue.url);
    const elapse = await intervalsOf(page);
    await page.goto("/ui/jobs");
    const dialog = page.getByRole("dialog", { name: "Sign in" });
    await dialog.getByRole("button", { name: "Not now" }).click();
    await page.getByText("Sign in to see this").waitFor();
    // The list is read at intervals; two more answers must not bring the dialog back.
    for (let i = 0; i < 2; i++) {
      const answered = page.waitForResponse((response) => response.url().includes("/api/v1/jobs"));
      await elapse();
      await answered;
    }
    expect(await dialog.count()).toBe(0);
    await page.goto("/ui/operations");
    await dialog.waitFor();
    await page.getByLabel("Token").fill(secret);
    await dialog.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("test:echo").first().waitFor();
  });

  it("keeps the token until the tab is closed if asked to", async () => {
    const venue = await start("--public-access", "off");
    const secret = token(venue);
    const page = await open(venue.url);
    await page.goto("/ui/settings");
    await page.getByLabel("Token").fill(secret);
    await page.getByLabel("Keep it until this tab is closed").check();
    await page.getByRole("dialog").getByRole("button", { name: "Sign in" }).click();
    await page.getByText("signed in", { exact: true }).waitFor();
    await page.reload();
    await page.getByText("signed in", { exact: true }).waitFor();
    expect(await page.evaluate(() => JSON.stringify(localStorage))).not.toContain(secret);
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("dialog", { name: "Sign in" }).waitFor();
  });
});

describe("the theme", () => {
  it("follows the system unless the reader chooses another one, which is kept", async () => {
    const venue = await start();
    const page = await open(venue.url, { colorScheme: "light" });
    await page.goto("/ui/settings");
    const background = (): Promise<string> => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await background();
    await page.emulateMedia({ colorScheme: "dark" });
    const dark = await background();
    expect(dark).not.toBe(light);
    await page.getByRole("button", { name: "Light" }).click();
    expect(await background()).toBe(light);
    await page.reload();
    await page.getByRole("button", { name: "Light" }).waitFor();
    expect(await background()).toBe(light);
    await page.getByRole("button", { name: "As the system" }).click();
    expect(await background()).toBe(dark);
  });
});

describe("a venue that is killed", () => {
  it("before it sent the verifier can still be verified when it is back", async () => {
    const venue = await start();
    const page = await open(venue.url);
    const id = await venue.invoke("test:echo", {}, { wait: true });
    const script = "**/worker-*.js";
    await page.context().route(script, (route) => route.abort());
    await page.goto(`/ui/jobs/${id}`);
    await page.getByText("the verifier could not be started").waitFor();
    await page.context().unroute(script);
    await page.getByRole("button", { name: "Verify here" }).click();
    await page.getByText(/verified here: \d+ records/).waitFor();
  });

  it("is noticed, and what was missed is shown when it is back", async () => {
    const venue = await start();
    const page = await open(venue.url);
    const id = await venue.invoke("test:never", {});
    await page.goto(`/ui/jobs/${id}`);
    await page.locator('.page-head [data-status="STARTED"]').waitFor();
    await venue.kill();
    await page.locator(".banner", { hasText: "The venue cannot be reached" }).waitFor();
    await venue.restart();
    await page.getByText(/Connected again after/).waitFor();
    await page.getByText(/1 job changed meanwhile/).waitFor();
    await page.getByText("recovered after a restart").first().waitFor({ state: "attached" });
    // The page follows the job again.
    await venue.call("PUT", `/api/v1/jobs/${id}/cancel`);
    await page.locator('.page-head [data-status="CANCELLED"]').waitFor();
    await page.getByText(/verified here: \d+ records/).waitFor();
  });

  it("is said on every page, and every page is complete again when it is back", async () => {
    const venue = await start();
    const page = await open(venue.url);
    const pages = [
      ...(await populate(venue)),
      { name: "executions", path: "/ui/executions", ready: "No code has run yet." },
    ];
    // Pages are reached without loading the document again, which a venue that was killed cannot send.
    await page.goto("/ui/nothing");
    await venue.kill();
    for (const { path } of pages) {
      await go(page, path);
      await page.locator(".banner", { hasText: "The venue cannot be reached" }).waitFor();
      await page.waitForFunction(() => document.querySelector("main .spinner") === null);
      expect(await page.locator("main h1").count(), path).toBe(1);
    }
    await go(page, "/ui/operations");
    await page.getByText("This page loads again as soon as the venue is back.").first().waitFor();
    await page.getByRole("button", { name: "Try now" }).waitFor();
    await venue.restart();
    // Without waiting for the next attempt, which comes after a pause that has grown.
    await tryNow(page);
    await page.getByText(/Connected again after/).waitFor();
    for (const { path, ready } of pages) {
      await go(page, path);
      await page.getByText(ready).first().waitFor();
    }
  });
});
