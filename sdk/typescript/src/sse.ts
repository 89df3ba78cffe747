// Server-sent events: lines to frames.

export interface Frame {
  readonly event: string;
  readonly data: string;
  readonly id: string | undefined;
}

/** Collects lines into frames. */
export class Parser {
  /** The wait before reconnecting, if the stream stated one. */
  retryMs: number | undefined;
  private rest = "";
  private event = "";
  private id: string | undefined;
  private data: string[] = [];

  /** Takes the next part of the stream. Returns the frames that it completes. */
  push(text: string): Frame[] {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop() ?? "";
    return lines.map((line) => this.line(line.replace(/\r$/, ""))).filter((frame) => frame !== undefined);
  }

  private line(line: string): Frame | undefined {
    if (line === "") return this.complete();
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.event = value;
    else if (name === "data") this.data.push(value);
    else if (name === "id") this.id = value;
    else if (name === "retry" && /^\d+$/.test(value)) this.retryMs = Number(value);
    return undefined;
  }

  private complete(): Frame | undefined {
    const { data, event, id } = this;
    this.data = [];
    this.event = "";
    this.id = undefined;
    return data.length > 0 ? { event: event || "message", data: data.join("\n"), id } : undefined;
  }
}
