// A venue in a process of its own, with the real binary.

import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
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

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}

export class Venue {
  private process: ChildProcess | undefined;

  private constructor(
    readonly port: number,
    readonly folder: string,
    private flags: readonly string[],
  ) {}

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  static async start(...flags: string[]): Promise<Venue> {
    const folder = mkdtempSync(join(tmpdir(), "catena-console-"));
    const venue = new Venue(await freePort(), folder, flags);
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
    const listen = `127.0.0.1:${this.port}`;
    const executors = this.flags.includes("--executors") ? [] : ["--executors", "0"];
    const args = ["serve", "--listen", listen, "--data", join(this.folder, "data"), ...executors, ...this.flags];
    const child = spawn(binary(), args, { stdio: "ignore" });
    this.process = child;
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
