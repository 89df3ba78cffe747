// Every page of the console with something on it, for checks and screenshots.

import type { Venue } from "./venue";

export interface PageEntry {
  readonly name: string;
  readonly path: string;
  /** A text that is there once the page is complete. */
  readonly ready: string | RegExp;
}

const ORCHESTRATION = {
  name: "Nightly report",
  description: "Fetches three sources, joins them and writes a report.",
  operation: {
    adapter: "orchestrator",
    input: {
      type: "object",
      required: ["day"],
      properties: {
        day: { type: "string", format: "date", description: "The day to report on" },
        limit: { type: "integer", minimum: 1, maximum: 1000, default: 100 },
        detail: { enum: ["short", "full"], description: "How much to include" },
        key: { type: "string", writeOnly: true, description: "Key of the archive" },
        recipients: { type: "array", items: { type: "string", format: "email" } },
      },
    },
    steps: [
      { op: "test:delay", name: "orders", input: { delay: ["const", 120], input: ["input", "day"] } },
      { op: "test:delay", name: "refunds", input: { delay: ["const", 40], input: ["input", "day"] } },
      { op: "test:delay", name: "stock", input: { delay: ["const", 80], input: ["input", "day"] } },
      { op: "test:echo", name: "join", input: { orders: [0], refunds: [1] } },
      { op: "test:delay", name: "render", input: { delay: ["const", 90], input: [3] } },
      { op: "test:echo", name: "publish", input: { report: [4], stock: [2] } },
    ],
    result: [5],
  },
};

/** Fills a venue with jobs of every kind and returns the pages that show them. */
export async function populate(venue: Venue): Promise<PageEntry[]> {
  const operation = (await venue.call("POST", "/api/v1/assets", ORCHESTRATION)) as string;
  const report = await venue.invoke(operation, { day: "2026-01-31" }, { wait: true, tags: ["nightly"] });
  await Promise.all(
    Array.from({ length: 30 }, (_, i) => venue.invoke("test:delay", { delay: (i * 37) % 600 }, { wait: 2000 })),
  );
  for (let i = 0; i < 40; i++) await venue.invoke("test:echo", { text: "hello", number: i });
  const calling = await venue.invoke(
    "grid:run",
    { operation: "test:echo", input: { text: "hello" } },
    { wait: true },
  );
  const failed = await venue.invoke("test:error", { message: "the archive did not answer in 30 s" });
  await venue.invoke("test:delay", {});
  const chat = await venue.invoke("test:chat", { topic: "the report" });
  await venue.call("POST", `/api/v1/jobs/${chat}`, { content: "Please send it to the whole team." });
  const running = await venue.invoke(
    "test:progress",
    { totalItems: 100_000, itemMs: 25 },
    { tags: ["import", "customers"] },
  );
  const paused = await venue.invoke("test:progress", { totalItems: 1000, itemMs: 50 });
  await venue.call("PUT", `/api/v1/jobs/${paused}/pause`);
  for (const [cron, n] of [["0 9 * * 1-5", 1], ["*/15 * * * *", 2]] as const) {
    await venue.call("POST", "/api/v1/run", {
      operation: "scheduler:schedule",
      input: { operation: "test:echo", cron, input: { n } },
    });
  }
  return [
    { name: "home", path: "/", ready: "The venue accepts work." },
    { name: "jobs", path: "/ui/jobs", ready: /\d+ jobs/ },
    { name: "job-running", path: `/ui/jobs/${running}`, ready: /about .* left/ },
    { name: "job-failed", path: `/ui/jobs/${failed}`, ready: /verified here/ },
    { name: "job-messages", path: `/ui/jobs/${chat}/messages`, ready: /record \d/ },
    { name: "job-steps", path: `/ui/jobs/${report}/steps`, ready: "Steps" },
    { name: "job-calls", path: `/ui/jobs/${calling}/calls`, ready: "Operations that this job invoked" },
    { name: "job-chain", path: `/ui/jobs/${report}/chain#record-3`, ready: "Record 3" },
    { name: "operations", path: "/ui/operations", ready: "test:echo" },
    { name: "operation", path: `/ui/operations/${operation}`, ready: "Key of the archive" },
    { name: "register", path: "/ui/register", ready: "Preview" },
    { name: "assets", path: "/ui/assets", ready: /1 to \d+ of/ },
    { name: "schedules", path: "/ui/schedules", ready: "New schedule" },
    { name: "settings", path: "/ui/settings", ready: "Anonymous access" },
  ];
}
