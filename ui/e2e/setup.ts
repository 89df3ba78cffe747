// One browser for all files of tests: starting one for each takes longer than some of the files.

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  interface ProvidedContext {
    /** Where the browser listens. */
    browser: string;
  }
}

const EXECUTABLE = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find(existsSync);

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const executablePath = process.env["CHROMIUM"] ?? EXECUTABLE;
  if (executablePath === undefined) throw new Error("install chromium, or set CHROMIUM");
  const server = await chromium.launchServer({ executablePath, args: ["--no-sandbox"], host: "127.0.0.1" });
  project.provide("browser", server.wsEndpoint());
  return () => server.close();
}
