import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { BaseSequencer } from "vitest/node";
import type { TestSpecification } from "vitest/node";
import { alias } from "../vite.config.ts";

/** Files that take long, although some of them are short. */
const LONG = /\/(axe|hostile|jobs|session|states|scale)\.test\.ts$/;

/** Long files are first, so that one worker is not left with one of them when all the others are done. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = ({ moduleId }: TestSpecification): boolean => LONG.test(moduleId);
    const sorted = await super.sort(files);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

export default defineConfig({
  root: fileURLToPath(new URL("..", import.meta.url)),
  resolve: { alias },
  test: {
    include: ["e2e/**/*.test.ts"],
    environment: "node",
    globalSetup: "e2e/setup.ts",
    // Two files at a time: a test mostly waits for a page or a venue. Figures are measured alone.
    fileParallelism: process.env["CATENA_E2E_EXACT"] !== "1",
    maxWorkers: 2,
    sequence: { sequencer: LongestFirst },
    // What the files import takes longer to load than some of them run, and keeps nothing that one could leave to another.
    isolate: false,
    testTimeout: 180_000,
    hookTimeout: 180_000,
    // The default of a second is too short for a machine that is busy with other tests.
    expect: { poll: { timeout: 60_000 } },
  },
});
