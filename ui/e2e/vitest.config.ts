import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { alias } from "../vite.config.ts";

export default defineConfig({
  root: fileURLToPath(new URL("..", import.meta.url)),
  resolve: { alias },
  test: {
    include: ["e2e/**/*.test.ts"],
    environment: "node",
    // One browser at a time: the machines that run this have few cores.
    fileParallelism: false,
    testTimeout: 180_000,
    hookTimeout: 180_000,
  },
});
