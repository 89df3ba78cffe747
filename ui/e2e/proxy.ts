// A proxy in front of the real venue that alters the histories it passes on, as a dishonest operator
// or a broken disk would.

import { createServer, request } from "node:http";
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Entry {
  id: string;
  record: Record<string, unknown>;
}

export interface HistoryPage {
  records: Entry[];
  total: number;
  next?: number;
}

/** Alters the text of a page of records. */
export type Tamper = (text: string) => string;

/** A tampering that works on the parsed page. */
export const onPage =
  (change: (page: HistoryPage) => void): Tamper =>
  (text) => {
    const page = JSON.parse(text) as HistoryPage;
    change(page);
    return JSON.stringify(page);
  };

/** An answer that is not JSON. */
export interface Made {
  readonly type: string;
  readonly body: string;
}

export class Proxy {
  tamper: Tamper | undefined;
  /** Answers a request with JSON text, without the venue. Undefined passes it on. */
  answer: ((url: URL) => string | Made | undefined) | undefined;
  private readonly server: Server;

  private constructor(private readonly venue: string) {
    this.server = createServer((incoming, outgoing) => this.pass(incoming, outgoing));
  }

  static async start(venue: string): Promise<Proxy> {
    const proxy = new Proxy(venue);
    await new Promise<void>((resolve) => proxy.server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  /** Passes everything on as it is. */
  reset(): void {
    this.tamper = undefined;
    this.answer = undefined;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  private pass(incoming: IncomingMessage, outgoing: ServerResponse): void {
    const target = new URL(incoming.url ?? "/", this.venue);
    const made = this.answer?.(target);
    if (made !== undefined) {
      const { type, body } = typeof made === "string" ? { type: "application/json", body: made } : made;
      outgoing.writeHead(200, { "content-type": type });
      return void outgoing.end(body);
    }
    const headers = { ...incoming.headers, host: target.host };
    if (headers.origin) headers.origin = this.venue;
    const { tamper } = this;
    const isAltered = tamper !== undefined && /\/history$/.test(target.pathname);
    if (isAltered) delete headers["accept-encoding"];
    const passed = request(target, { method: incoming.method, headers }, (response) => {
      if (!isAltered) {
        outgoing.writeHead(response.statusCode ?? 502, response.headers);
        response.pipe(outgoing);
        return;
      }
      const parts: Buffer[] = [];
      response.on("data", (part: Buffer) => parts.push(part));
      response.on("end", () => {
        const body = Buffer.from(tamper(Buffer.concat(parts).toString("utf8")), "utf8");
        const length = String(body.length);
        outgoing.writeHead(response.statusCode ?? 502, {
          ...response.headers,
          "content-length": length,
        });
        outgoing.end(body);
      });
    });
    passed.on("error", () => outgoing.destroy());
    incoming.pipe(passed);
  }

  stop(): Promise<void> {
    this.server.closeAllConnections();
    return new Promise((resolve) => this.server.close(() => resolve()));
  }
}
