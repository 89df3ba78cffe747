import { fileURLToPath } from "node:url";
import type { ProxyOptions } from "vite";
import { defineConfig } from "vitest/config";

// A venue to develop against: `CATENA_VENUE=http://127.0.0.1:8787 npm run dev`.
const venue = process.env["CATENA_VENUE"] ?? "http://127.0.0.1:8787";

/** The verifier is a part of the TypeScript library, which both build from the same files. */
export const alias = {
  "@verify": fileURLToPath(new URL("../sdk/typescript/src/verify", import.meta.url)),
};

/** What the console asks the venue for. */
const REQUESTED = ["/api", "/contract", "/readyz", "/livez", "/metrics", "/docs", "/openapi.json"];

/** Passes requests on as if the venue had served the page: it refuses those of pages from elsewhere. */
const toVenue: ProxyOptions = {
  target: venue,
  changeOrigin: true,
  configure: (proxy) =>
    proxy.on("proxyReq", (passed, { headers }) => {
      if (headers.origin === `http://${headers.host}`) passed.setHeader("origin", venue);
    }),
};

export default defineConfig({
  base: "/ui/",
  resolve: { alias },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../crates/server/src/console/dist",
    emptyOutDir: true,
    // Not "assets": the console has pages under that path.
    assetsDir: "files",
    // Images would otherwise become data: URLs, which the page's policy refuses.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
  },
  worker: { format: "es" },
  server: {
    fs: { allow: [".."] },
    proxy: Object.fromEntries(REQUESTED.map((path) => [path, toVenue])),
  },
  // Some tests compute for seconds, and more if the machine is busy.
  test: { include: ["tests/**/*.test.ts"], environment: "node", testTimeout: 120_000 },
});
