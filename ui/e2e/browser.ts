// Debian's Chromium, and what every page is checked for.

import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import type { Browser, BrowserContext, BrowserContextOptions, Page } from "playwright-core";
import { inject } from "vitest";

/** The browser that `setup.ts` has started. Closing it closes the pages of this file only. */
export const connect = (): Promise<Browser> => chromium.connect(inject("browser"));

export interface Watched {
  readonly page: Page;
  /** Scripts that failed, reports of the page's policy, and requests to other origins. */
  readonly faults: string[];
  readonly close: () => Promise<void>;
}

/** What pages share: caches, what is stored, and permissions. */
export async function newContext(
  browser: Browser,
  origin: string,
  options: BrowserContextOptions = {},
): Promise<BrowserContext> {
  const context = await browser.newContext({ baseURL: origin, ...options });
  if (process.env["CATENA_CONSOLE"] === "built") await useBuiltFiles(context, origin);
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  // Nothing takes this long, except on a machine that is busy with other tests.
  context.setDefaultTimeout(60_000);
  return context;
}

/** A page in a context of its own, on which everything that must not happen is recorded. */
export async function open(browser: Browser, origin: string, options?: BrowserContextOptions): Promise<Watched> {
  const context = await newContext(browser, origin, options);
  return { ...(await openIn(context, origin)), close: () => context.close() };
}

/** The same in a context that others use, too. */
export async function openIn(context: BrowserContext, origin: string): Promise<Watched> {
  const page = await context.newPage();
  const faults: string[] = [];
  page.on("pageerror", (error) => faults.push(`script: ${error.message}`));
  page.on("dialog", (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("console", (message) => {
    if (/Content Security Policy|Trusted/.test(message.text())) faults.push(message.text());
  });
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.origin !== origin && url.protocol !== "blob:") faults.push(`request: ${request.url()}`);
  });
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error(`Content Security Policy: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  return { page, faults, close: () => page.close() };
}

/** Goes to another page of the console without loading the document again. */
export const go = (page: Page, path: string): Promise<void> =>
  page.evaluate((path) => {
    history.pushState(null, "", path);
    dispatchEvent(new PopStateEvent("popstate"));
  }, path);

/**
 * Prepares a page that is not loaded yet. The function that this returns calls everything that the page calls at
 * intervals, as if their time had passed, so that a test does not wait for seconds. The intervals themselves go on.
 */
export async function intervalsOf(page: Page): Promise<() => Promise<void>> {
  await page.addInitScript(() => {
    const { setInterval, clearInterval } = window;
    const running = new Map<number, () => void>();
    const start = (call: () => void, ms: number): number => {
      const id = setInterval(call, ms);
      running.set(id, call);
      return id;
    };
    const stop = (id: number): void => {
      running.delete(id);
      clearInterval(id);
    };
    const elapse = (): void => running.forEach((call) => call());
    Object.assign(window, { setInterval: start, clearInterval: stop, elapse });
  });
  return () => page.evaluate(() => (window as unknown as { elapse: () => void }).elapse());
}

/**
 * Presses "Try now" unless the venue has been found again meanwhile, which replaces the button by another one: a
 * click by Playwright, which looks for the button first, could then press that one.
 */
export const tryNow = (page: Page): Promise<void> =>
  page.evaluate(() => {
    const buttons = [...document.querySelectorAll<HTMLElement>(".banner button")];
    buttons.find((button) => button.textContent?.trim() === "Try now")?.click();
  });

const dist = fileURLToPath(new URL("../../crates/server/src/console/dist/", import.meta.url));

/**
 * Uses the files that `npm run build` wrote instead of those in the binary, with the headers of the
 * binary: `CATENA_CONSOLE=built npm run e2e` needs no Rust compiler after a change of the console.
 */
async function useBuiltFiles(context: BrowserContext, origin: string): Promise<void> {
  const { headers } = await fetch(`${origin}/ui/`, { headers: { accept: "text/html" } });
  const policy = headers.get("content-security-policy") ?? "";
  // An expression and not a function, for which every request would have to be passed to this process.
  const isConsole = new RegExp(`^${origin.replaceAll(".", "\\.")}/(ui/.*)?([?#].*)?$`);
  await context.route(isConsole, (route, request) => {
    const name = /^\/ui\/(files\/[\w.-]+)$/.exec(new URL(request.url()).pathname)?.[1];
    const path = join(dist, name ?? "index.html");
    // The page may have been closed meanwhile.
    return route.fulfill({ path, headers: { "content-security-policy": policy } }).catch(() => undefined);
  });
}
