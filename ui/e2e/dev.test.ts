// The console from its sources: `npm run dev` in front of a running venue.

import { createServer } from "vite";
import { expect, it, vi } from "vitest";
import { open } from "./browser";
import { closeClean, fixture } from "./fixture";
import type { Fixture } from "./fixture";

let { venue, browser } = {} as Fixture;
fixture((given) => ({ venue, browser } = given));

it("`npm run dev` serves pages that run and verify jobs on a running venue, and lends its origin to no other page", async () => {
  vi.stubEnv("CATENA_VENUE", venue.url);
  // The page is made from the sources, whatever other tests use.
  vi.stubEnv("CATENA_CONSOLE", "");
  const server = await createServer({ logLevel: "error", server: { host: "127.0.0.1", port: 0, watch: null } });
  try {
    await server.listen();
    const { port } = server.httpServer!.address() as { port: number };
    const origin = `http://127.0.0.1:${port}`;
    const watched = await open(browser, origin);
    const { page } = watched;
    await page.goto("/ui/");
    await page.getByText("The venue accepts work.").waitFor();
    await page.getByRole("button", { name: "Run it" }).click();
    await page.getByText("verified here: 3 records").waitFor();
    await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Executions" }).click();
    await page.getByText("No executor is connected: code waits until one is.").waitFor();
    await closeClean(watched);
    const foreign = await fetch(`${origin}/api/v1/invoke`, {
      method: "POST",
      headers: { origin: "http://evil.example", "content-type": "application/json" },
      body: JSON.stringify({ operation: "test:echo", input: 1 }),
    });
    expect(foreign.status, await foreign.text()).toBe(403);
  } finally {
    await server.close();
    vi.unstubAllEnvs();
  }
});
