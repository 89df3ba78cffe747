// The text/event-stream format, for streams that are read with `fetch`.

export interface ServerEvent {
  readonly event: string;
  readonly id: string | undefined;
  readonly data: string;
}

/** Parses an event stream piece by piece. */
export class EventParser {
  private rest = "";
  private event = "";
  private data: string[] = [];
  private id: string | undefined;

  /** The events that this piece completes. */
  push(piece: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    const lines = (this.rest + piece).split(/\r\n|\n|\r/);
    this.rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        const found = this.dispatch();
        if (found) events.push(found);
      } else this.field(line);
    }
    return events;
  }

  private field(line: string): void {
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.event = value;
    else if (name === "data") this.data.push(value);
    else if (name === "id" && !value.includes("\0")) this.id = value;
  }

  private dispatch(): ServerEvent | undefined {
    const { event, data, id } = this;
    this.event = "";
    this.data = [];
    this.id = undefined;
    if (data.length === 0) return undefined;
    return { event: event || "message", id, data: data.join("\n") };
  }
}
