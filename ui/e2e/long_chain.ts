// A chain of any length for a job that exists: the proxy answers with it, page by page.

import { valueId } from "@verify/encode";
import { readText } from "@verify/json";

interface RealJob {
  readonly venue: string;
  readonly caller: string;
  readonly op: string;
  readonly operation: string;
  readonly created: number;
}

export class LongChain {
  private readonly records: string[] = [];
  private prev = "null";

  constructor(
    private readonly id: string,
    private readonly job: unknown,
    private readonly total: number,
  ) {}

  private record(at: number): string {
    const { venue, caller, op, created } = this.job as RealJob;
    const first =
      `"id":"${this.id}","venue":"${venue}","op":"${op}","caller":"${caller}","input":{},` +
      `"created":${created}`;
    const note = `"note":{"kind":"attempt","attempt":${at + 2},"reason":"the request timed out"}`;
    const more = at === 0 ? first : at === 1 ? `"deadline":${created + 9e9}` : note;
    const status = at === 0 ? "PENDING" : "STARTED";
    return `{"status":"${status}","prev":${this.prev},"updated":${created + at},${more}}`;
  }

  /** The records up to a position are made when they are first asked for. */
  private upTo(count: number): void {
    while (this.records.length < Math.min(count, this.total)) {
      const record = this.record(this.records.length);
      const id = valueId(readText(record));
      this.prev = `"${id}"`;
      this.records.push(`{"id":"${id}","record":${record}}`);
    }
  }

  answer(url: URL): string | undefined {
    if (url.pathname !== `/api/v1/jobs/${this.id}/history`) return undefined;
    const from = Number(url.searchParams.get("from") ?? 0);
    const to = Math.min(this.total, from + Number(url.searchParams.get("limit") ?? 1000));
    this.upTo(to);
    const next = to < this.total ? `,"next":${to}` : "";
    return `{"records":[${this.records.slice(from, to).join(",")}],"total":${this.total}${next}}`;
  }
}
