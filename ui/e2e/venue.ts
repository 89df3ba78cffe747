// A venue in a process of its own, with the real binary.

import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** The binary: `CATENA_BIN`, or what a build left in `target`. */
export function binary(): string {
  const found = [
    process.env["CATENA_BIN"],
    join(root, "target/release/catena"),
    join(root, "target/debug/catena"),
  ].find((path) => path !== undefined && existsSync(path));
  if (found === undefined) throw new Error("build the catena binary first, or set CATENA_BIN");
  return found;
}

/** The environment of a venue: settings of whoever runs the tests must not reach it. */
const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("CATENA_")));

export class Venue {
  private process: ChildProcess | undefined;
  /** Any free port at first, and the same one after a restart. */
  private address = "127.0.0.1:0";

  private constructor(
    readonly folder: string,
    private flags: readonly string[],
  ) {}

  get url(): string {
    return `http://${this.address}`;
  }

  static async start(...flags: string[]): Promise<Venue> {
    const folder = mkdtempSync(join(tmpdir(), "catena-console-"));
    const venue = new Venue(folder, flags);
    await venue.restart();
    return venue;
  }

  /** Kills the process and starts another one with other flags. */
  async restartWith(...flags: string[]): Promise<void> {
    await this.kill();
    this.flags = flags;
    await this.restart();
  }

  /** Starts the process, and returns when it is ready. */
  async restart(): Promise<void> {
    const executors = this.flags.includes("--executors") ? [] : ["--executors", "0"];
    const data = join(this.folder, "data");
    const args = ["serve", "--listen", this.address, "--data", data, "--log-format", "json", ...executors, ...this.flags];
    const child = spawn(binary(), args, { env: environment, stdio: ["ignore", "ignore", "pipe"] });
    this.process = child;
    this.address = await addressOf(child);
    for (;;) {
      if (child.exitCode !== null) throw new Error(`the venue ended with ${child.exitCode}`);
      const isReady = await fetch(`${this.url}/readyz`).then(
        (response) => response.ok,
        () => false,
      );
      if (isReady) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** Ends the process without a chance to clean up. */
  async kill(): Promise<void> {
    const child = this.process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await ended;
  }

  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  async call(method: string, path: string, body?: unknown, token?: string): Promise<unknown> {
    const headers: Record<string, string> = {};
    if (token !== undefined) headers["authorization"] = `Bearer ${token}`;
    const init: RequestInit = { method, headers };
    if (body !== undefined) {
      headers["content-type"] = "application/json";
      init.body = typeof body === "string" ? body : JSON.stringify(body);
    }
    const response = await fetch(this.url + path, init);
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return JSON.parse(text);
  }

  /** Invokes an operation and returns the job's ID. */
  async invoke(operation: string, input: unknown, more: object = {}): Promise<string> {
    const job = await this.call("POST", "/api/v1/invoke", { operation, input, ...more });
    return (job as { id: string }).id;
  }

  /** Runs an operation and returns its output. */
  async run(operation: string, input: unknown): Promise<unknown> {
    return this.call("POST", "/api/v1/run", { operation, input });
  }

  /** Registers an asset and returns its ID. */
  async register(metadata: object): Promise<string> {
    return (await this.call("POST", "/api/v1/assets", metadata)) as string;
  }

  async status(id: string): Promise<string> {
    return ((await this.call("GET", `/api/v1/jobs/${id}`)) as { status: string }).status;
  }
}

/** Where a venue listens, which it logs when it is ready. */
async function addressOf(child: ChildProcess): Promise<string> {
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stderr! })) {
    lines.push(line);
    if (!line.includes('"the venue is ready"')) continue;
    // Whatever else it logs is read, so that it never waits for a reader.
    child.stderr!.resume();
    return (JSON.parse(line) as { fields: { address: string } }).fields.address;
  }
  throw new Error(`the venue did not start:\n${lines.join("\n")}`);
}
