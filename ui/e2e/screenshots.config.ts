import { mergeConfig } from "vitest/config";
import base from "./vitest.config.ts";

const config = mergeConfig(base, {});
config.test = { ...config.test, include: ["e2e/screenshots.ts"] };
export default config;
