import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { alias } from "../vite.config.ts";

export default defineConfig({
  root: fileURLToPath(new URL("..", import.meta.url)),
  resolve: { alias },
  test: { include: ["e2e/screenshots.ts"], environment: "node" },
});
