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

/**
 * Features of Chromium that are off. The popups of the address bar are pages of their own, which take more of the
 * processor for each window than most tests. The others are those that Playwright turns off for Chromium on Linux:
 * if the switch is given twice, only the last one counts.
 */
const FEATURES_OFF = [
  "WebUIOmniboxPopup",
  "WebUIOmniboxAimPopup",
  "AimEnabled",
  "AvoidCorsURLLoaderRestartOnRedirect",
  "AvoidUnnecessaryBeforeUnloadCheckSync",
  "DestroyProfileOnBrowserClose",
  "HttpsFirstBalancedModeAutoEnable",
  "HttpsUpgrades",
  "LensOverlay",
  "MediaRouter",
  "NetworkTimeServiceQuerying",
  "OptimizationHints",
  "PaintHolding",
  "PreconnectToSearch",
  "ThirdPartyStoragePartitioning",
];

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const executablePath = process.env["CHROMIUM"] ?? EXECUTABLE;
  if (executablePath === undefined) throw new Error("install chromium, or set CHROMIUM");
  const args = ["--no-sandbox", `--disable-features=${FEATURES_OFF.join()}`];
  const server = await chromium.launchServer({ executablePath, args, host: "127.0.0.1" });
  project.provide("browser", server.wsEndpoint());
  return () => server.close();
}
