// Every page of the console with something on it, for checks and screenshots.

import { withExecutors } from "./made_up";
import { Proxy } from "./proxy";
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

/** Paths and values of the workspace. */
const WORKSPACE: readonly (readonly [string, unknown])[] = [
  ["w/customers/1042", { name: "Ada Lovelace", city: "London", orders: [17, 23, 31], active: true }],
  ["w/customers/1043", { name: "Grace Hopper", city: "New York", orders: [], active: false }],
  ["w/reports", ["2026-01-29", "2026-01-30", "2026-01-31"]],
  ["w/last-run", 1_769_850_000_000],
  ["w/greeting", "Good morning"],
];

/** An agent that has had turns, failed, and waits for an answer. */
async function createAgent(venue: Venue): Promise<void> {
  const run = (operation: string, input: object): Promise<unknown> => venue.run(operation, input);
  const config = {
    operation: "llm:agent",
    llmOperation: "test:toolllm",
    systemPrompt: "You keep the notes in w/notes.",
    tools: ["agent:ask"],
    wake: { everyMs: 3_600_000 },
  };
  const caps = [
    { with: "w/notes", can: "crud/*" },
    { with: "v/ops", can: "invoke" },
  ];
  await run("agent:create", { agentId: "clerk", config, caps });
  for (const message of ["Good morning", 'tool covia_write {"path": "w/notes/today", "value": "the report is due"}']) {
    await run("agent:chat", { agentId: "clerk", message });
  }
  await run("agent:ask", { agentId: "clerk", question: "Which title shall the report have?" });
  await run("agent:ask", { agentId: "clerk", question: "Send the report to the whole team?", options: ["yes", "no"] });
  await run("agent:create", { agentId: "counter", config: { operation: "test:tally" } });
  await run("agent:message", { agentId: "counter", message: { fail: true } });
  await venue.invoke("agent:trigger", { agentId: "counter" }, { wait: true });
}

/** Fills a venue with jobs of every kind and returns the pages that show them. */
export async function populate(venue: Venue): Promise<PageEntry[]> {
  const operation = await venue.register(ORCHESTRATION);
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
    await venue.run("scheduler:schedule", { operation: "test:echo", cron, input: { n } });
  }
  for (const [path, value] of WORKSPACE) {
    await venue.run("covia:write", { path, value });
  }
  await createAgent(venue);
  return [
    { name: "home", path: "/", ready: "The venue accepts work." },
    { name: "jobs", path: "/ui/jobs", ready: /\d+ jobs/ },
    { name: "job-running", path: `/ui/jobs/${running}`, ready: /about .* left/ },
    { name: "job-failed", path: `/ui/jobs/${failed}`, ready: /verified here/ },
    { name: "job-messages", path: `/ui/jobs/${chat}/messages`, ready: /record \d/ },
    { name: "job-steps", path: `/ui/jobs/${report}/steps`, ready: "Steps" },
    { name: "job-calls", path: `/ui/jobs/${calling}/calls`, ready: "Operations that this job invoked" },
    { name: "job-chain", path: `/ui/jobs/${report}/chain#record-3`, ready: /verified here/ },
    { name: "operations", path: "/ui/operations", ready: "test:echo" },
    { name: "operation", path: `/ui/operations/${operation}`, ready: "Key of the archive" },
    { name: "register", path: "/ui/register", ready: "Preview" },
    { name: "assets", path: "/ui/assets", ready: /1 to \d+ of/ },
    { name: "asset", path: `/ui/assets/${operation}`, ready: "Definition" },
    { name: "schedules", path: "/ui/schedules", ready: "New schedule" },
    { name: "workspace", path: "/ui/workspace", ready: /^5 entries/ },
    { name: "workspace-value", path: "/ui/workspace?path=w/customers/1042", ready: "Value ID" },
    { name: "agents", path: "/ui/agents", ready: "counter" },
    { name: "agent", path: "/ui/agents/clerk", ready: "May read and change w/notes and what is below it." },
    { name: "agent-failed", path: "/ui/agents/counter", ready: "The job of the turn that failed" },
    { name: "requests", path: "/ui/requests", ready: "Which title shall the report have?" },
    { name: "settings", path: "/ui/settings", ready: "Anonymous access" },
  ];
}

/** Pages at one address. */
export interface Site {
  readonly url: string;
  readonly pages: readonly PageEntry[];
  readonly stop: () => Promise<void>;
}

/** Code with output, a plot, and an error at its end. */
const CELL = `import math
print("x", "sin(x)")
points = [(x / 10, math.sin(x / 10)) for x in range(80)]
for x, y in points[::20]:
    print(f"{x:.1f} {y:.4f}")
line = " ".join(f"{10 + 30 * x:.0f},{60 - 50 * y:.0f}" for x, y in points)
with open("sine.svg", "w") as file:
    file.write('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 260 120" width="520" height="240">')
    file.write(f'<polyline points="{line}" fill="none" stroke="teal" stroke-width="3"/></svg>')
open("points.txt", "w").write(line)
print(1 / math.floor(points[0][0]))
`;

/** Every page of a venue with an executor. */
export async function allSites(venue: Venue): Promise<Site[]> {
  const pages = await populate(venue);
  const failed = await venue.invoke("exec:python", { code: CELL }, { wait: true });
  await venue.invoke("exec:python", { code: "print(1)" }, { wait: true });
  const proxy = await Proxy.start(venue.url);
  proxy.answer = await withExecutors(venue);
  return [
    { url: venue.url, pages, stop: () => Promise.resolve() },
    {
      url: proxy.url,
      stop: () => proxy.stop(),
      pages: [
        { name: "executions", path: "/ui/executions", ready: "Last heartbeat" },
        { name: "job-execution", path: `/ui/jobs/${failed}/execution`, ready: /verified here/ },
      ],
    },
  ];
}
