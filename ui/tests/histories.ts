// Generated histories: random walks over the rules, and ways to break them. A history is text,
// because numbers and escapes must reach the verifiers exactly as they are written here.

import { valueId } from "@verify/encode";
import { readText } from "@verify/json";
import { isTerminal, parseStatus } from "@verify/status";

/** A seeded generator (mulberry32), so that every failure can be repeated. */
export class Random {
  constructor(private seed: number) {}

  /** A whole number from 0 to `below` - 1. */
  below(below: number): number {
    this.seed = (this.seed + 0x6d2b79f5) | 0;
    let t = Math.imul(this.seed ^ (this.seed >>> 15), 1 | this.seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % below;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)]!;
  }

  chance(percent: number): boolean {
    return this.below(100) < percent;
  }
}

/** A record as its members, each value as JSON text. Duplicates are possible. */
export type Members = [name: string, json: string][];

export interface Entry {
  id: string;
  members: Members;
}

export interface Chain {
  job: string;
  entries: Entry[];
  children: Map<string, Chain>;
}

const VENUE = "did:key:z6MkVenue";
const VALUES = [
  "1",
  "1.0",
  "-0",
  "-0.0",
  "1e2",
  "0.1",
  "12345678901234567890123",
  "-9223372036854775809",
  '"plain"',
  '"\\u00e9 \\ud83d\\ude00 \\n"',
  '"é 😀"',
  '"\\u202e\\u200b"',
  "null",
  "true",
  "[]",
  "{}",
  '{"a":1,"a":2}',
  '{"a":{"b":[1,1.0,{"c":null}]},"d":"' + "x".repeat(200) + '"}',
  "[" + Array.from({ length: 40 }, (_, i) => i).join(",") + "]",
  "{" + Array.from({ length: 20 }, (_, i) => `"k${i}":${i}`).join(",") + "}",
  '"' + "long ".repeat(1200) + '"',
];

const ATTEMPTS = [
  '{"kind":"attempt","attempt":2}',
  '{"kind":"attempt","attempt":3,"reason":"timed out","code":"timeout"}',
  '{"kind":"attempt","attempt":2,"by":"did:key:z6MkWorker","environment":"py-bare@0","tier":"T2"}',
];
const RECOVERIES = [
  '{"kind":"recovered","reason":"restart"}',
  '{"kind":"recovered","attempt":1,"interruptions":0}',
];

export const text = (value: string): string => JSON.stringify(value);

/** The JSON text of an object. */
export function write(members: Members): string {
  return "{" + members.map(([name, json]) => `${text(name)}:${json}`).join(",") + "}";
}

export function idOf(members: Members): string {
  return valueId(readText(write(members)));
}

export function document(chain: Chain, total = chain.entries.length): string {
  const records = chain.entries.map(
    ({ id, members }) => `{"id":${text(id)},"record":${write(members)}}`,
  );
  const children = [...chain.children].map(([job, child]) => `${text(job)}:${document(child)}`);
  const tail = children.length > 0 ? `,"children":{${children.join(",")}}` : "";
  return `{"records":[${records.join(",")}],"total":${total}${tail}}`;
}

/** Recomputes links and IDs from `from` on, as a forger would who knows the format. */
export function relink(chain: Chain, from: number): void {
  for (let at = from; at < chain.entries.length; at++) {
    const entry = chain.entries[at]!;
    const prev = at === 0 ? "null" : text(chain.entries[at - 1]!.id);
    if (at > 0) set(entry.members, "prev", prev);
    entry.id = idOf(entry.members);
  }
}

export function set(members: Members, name: string, json: string): void {
  const found = members.find(([own]) => own === name);
  if (found) found[1] = json;
  else members.push([name, json]);
}

export function get(members: Members, name: string): string | undefined {
  return members.find(([own]) => own === name)?.[1];
}

function lastOf(chain: Chain): { id: string; status: string; output: string | undefined } {
  const { id, members } = chain.entries[chain.entries.length - 1]!;
  const status = JSON.parse(get(members, "status")!) as string;
  return { id, status, output: get(members, "output") };
}

interface Place {
  readonly job: string;
  readonly link: "step" | "call";
  readonly number: number;
}

interface OpenCall {
  readonly call: number;
  readonly isDetached: boolean;
  readonly child: Chain;
}

class Builder {
  readonly chain: Chain;
  private status = "PENDING";
  private updated = 1_769_683_717_706;
  private held: Members | undefined;
  private open: { step: number; job: string; child: Chain | undefined }[] = [];
  private steps = 0;
  private openCalls: OpenCall[] = [];
  private calls = 0;

  constructor(
    private readonly random: Random,
    private readonly depth: number,
    parent?: Place,
  ) {
    const job = jobId(random);
    this.chain = { job, entries: [], children: new Map() };
    const isRejected = random.chance(4);
    const members: Members = [
      ["status", text(isRejected ? "REJECTED" : "PENDING")],
      ["prev", "null"],
      ["updated", String(this.updated)],
      ["id", text(job)],
      ["venue", text(VENUE)],
      ["op", '"test:echo"'],
      ["input", random.pick(VALUES)],
      ["caller", '"did:key:z6MkCaller"'],
      ["created", String(this.updated)],
    ];
    if (random.chance(70)) members.push(["operation", text("ab".repeat(32))]);
    if (parent) {
      const { job, link, number } = parent;
      members.push(["parent", `{"job":${text(job)},"${link}":${number}}`]);
    }
    if (depth > 0 && random.chance(25)) this.reuse(members);
    if (isRejected) members.push(["error", '"refused"']);
    this.status = isRejected ? "REJECTED" : "PENDING";
    this.push(members);
  }

  /** Claims outputs of an earlier run, which few of the later steps contradict. */
  private reuse(members: Members): void {
    const { random } = this;
    const earlier = jobId(random);
    const claims: string[] = [];
    const outputs: string[] = [];
    for (let i = 0; i <= random.below(2); i++) {
      const number = random.chance(92) ? this.steps++ : this.steps;
      const builder = new Builder(random, 0, { job: earlier, link: "step", number });
      const child = random.chance(90) ? builder.complete() : builder.walk(6);
      const { id, output } = lastOf(child);
      const venue = random.chance(15) ? `,"venue":${text(VENUE)}` : "";
      claims.push(`{"step":${number},"job":${text(child.job)},"record":${text(id)}${venue}}`);
      outputs.push(output ?? "null");
      if (random.chance(70)) this.chain.children.set(child.job, child);
    }
    members.push(["reused", `[${claims.join(",")}]`]);
    if (random.chance(75)) members.push(["reusedOutputs", `[${outputs.join(",")}]`]);
  }

  private push(members: Members): void {
    this.chain.entries.push({ id: idOf(members), members });
  }

  private add(status: string, more: Members = []): void {
    this.updated += this.random.below(3);
    const prev = this.chain.entries[this.chain.entries.length - 1]!.id;
    const members: Members = [
      ["status", text(status)],
      ["prev", text(prev)],
      ["updated", String(this.updated)],
      ...more,
    ];
    if (this.random.chance(20)) members.push(["by", '"did:key:z6MkOther"']);
    if (this.random.chance(10)) members.push(["deadline", String(this.updated + 1000)]);
    if (get(members, "trigger") === undefined && this.random.chance(10)) {
      members.push(["trigger", `{"control":${text(prev)}}`]);
    }
    this.status = status;
    this.push(members);
  }

  /** Leads the job straight to its end. */
  complete(): Chain {
    if (this.status === "PENDING") {
      this.add("STARTED");
      this.add("COMPLETE", [["output", this.random.pick(VALUES)]]);
    }
    return this.chain;
  }

  /** Takes up to `most` random steps, or ends the job. */
  walk(most: number): Chain {
    const isEnded = (): boolean =>
      ["COMPLETE", "FAILED", "CANCELLED", "REJECTED", "TIMEOUT"].includes(this.status);
    for (let i = 0; i < most && !isEnded(); i++) this.step();
    return this.chain;
  }

  private step(): void {
    const { random } = this;
    if (random.chance(3)) return this.add("CANCELLED", [["error", '"cancelled"']]);
    if (random.chance(2)) return this.add("TIMEOUT", [["error", '"too late"']]);
    switch (this.status) {
      case "PENDING":
        if (random.chance(10)) return this.add("PENDING", [["note", '{"kind":"recovered"}']]);
        if (random.chance(10)) return this.add("PAUSED");
        return this.add("STARTED");
      case "STARTED":
        return this.whileStarted();
      case "PAUSED":
        return this.whilePaused();
      default:
        if (this.depth > 0 && random.chance(10)) return this.noteCalls();
        if (random.chance(40)) return this.message(random.pick(VALUES));
        if (random.chance(20)) return this.add("PAUSED");
        return this.add("STARTED", [["trigger", '{"messageId":"m","from":"did:key:x"}']]);
    }
  }

  private message(output: string): void {
    this.add(this.status, [
      ["note", '{"kind":"message"}'],
      ["trigger", '{"messageId":"m1"}'],
      ["output", output],
    ]);
  }

  private whileStarted(): void {
    const { random } = this;
    switch (random.below(11)) {
      case 0:
        return this.add("STARTED", [["note", random.pick(ATTEMPTS)]]);
      case 1:
        return this.add("STARTED", [["note", random.pick(RECOVERIES)]]);
      case 2:
        return this.message("1.0");
      case 3:
        return this.add("PAUSED");
      case 4:
        return this.add(random.pick(["INPUT_REQUIRED", "AUTH_REQUIRED"]), [
          ["message", '"which one?"'],
        ]);
      case 5:
        return this.add("FAILED", [["error", '"broke"']]);
      case 6:
        if (this.open.length > 0) return this.endSteps("COMPLETE");
        if (this.hasOpenCalls() && random.chance(80)) return this.noteCalls();
        return this.add("COMPLETE", [["output", random.pick(VALUES)]]);
      case 7:
      case 8:
        return this.depth > 0 ? this.noteCalls() : this.add("PAUSED");
      default:
        return this.depth > 0 ? this.startSteps() : this.add("PAUSED");
    }
  }

  private startSteps(): void {
    const started: string[] = [];
    for (let i = 0; i <= this.random.below(2); i++) {
      const step = this.steps++;
      const place = { job: this.chain.job, link: "step", number: step } as const;
      const builder = new Builder(this.random, this.depth - 1, place);
      const child = builder.walk(8);
      const first = child.entries[0]!.id;
      started.push(`{"step":${step},"job":${text(child.job)},"record":${text(first)}}`);
      this.open.push({ step, job: child.job, child });
      if (this.random.chance(80)) this.chain.children.set(child.job, child);
    }
    this.add("STARTED", [["note", `{"kind":"step","started":[${started.join(",")}]}`]]);
  }

  private endSteps(wanted: string): void {
    const ended: string[] = [];
    for (const { step, child } of this.open) {
      const { id, status } = lastOf(child!);
      const isEnded = isTerminal(parseStatus(status)!);
      ended.push(
        `{"step":${step},"status":${text(isEnded ? status : wanted)},"record":${text(id)}}`,
      );
    }
    this.open = [];
    this.add(this.status, [["note", `{"kind":"step","ended":[${ended.join(",")}]}`]]);
  }

  private hasOpenCalls(): boolean {
    return this.openCalls.some(({ isDetached }) => !isDetached);
  }

  /** Starts up to two calls, and ends some of those whose jobs have ended. */
  private noteCalls(): void {
    const { random } = this;
    const lists: string[] = [];
    if (random.chance(60)) {
      const started = Array.from({ length: 1 + random.below(2) }, () => this.startCall());
      lists.push(`"started":[${started.join(",")}]`);
    }
    const canEnd = ({ child }: OpenCall): boolean => isTerminal(parseStatus(lastOf(child).status)!);
    const ending = this.openCalls.filter((call) => canEnd(call) && random.chance(80));
    const ended = ending.map(({ call, child }) => {
      const { id, status } = lastOf(child);
      return `{"call":${call},"status":${text(status)},"record":${text(id)}}`;
    });
    this.openCalls = this.openCalls.filter((call) => !ending.includes(call));
    if (ended.length > 0) lists.push(`"ended":[${ended.join(",")}]`);
    this.add(this.status, [["note", `{${['"kind":"call"', ...lists].join(",")}}`]]);
  }

  private startCall(): string {
    const { random } = this;
    const call = this.calls++;
    const place = { job: this.chain.job, link: "call", number: call } as const;
    const builder = new Builder(random, this.depth - 1, place);
    const child = random.chance(70) ? builder.complete() : builder.walk(8);
    const isDetached = random.chance(25);
    this.openCalls.push({ call, isDetached, child });
    if (random.chance(80)) this.chain.children.set(child.job, child);
    const members: Members = [
      ["call", String(call)],
      ["key", text(`grid:run-${call}`)],
      ["op", '"test:echo"'],
      ["job", text(child.job)],
      ["record", text(child.entries[0]!.id)],
    ];
    if (isDetached || random.chance(10)) members.push(["detached", String(isDetached)]);
    return write(members);
  }

  private whilePaused(): void {
    const { random } = this;
    if (this.depth > 0 && random.chance(10)) return this.noteCalls();
    const isDone = this.open.length === 0 && !this.hasOpenCalls();
    if (!this.held && (isDone || random.chance(10)) && random.chance(50)) {
      const outcome: Members = random.chance(50)
        ? [["status", '"COMPLETE"'], ["output", random.pick(VALUES)]]
        : [["status", '"FAILED"'], ["error", '"late"']];
      this.held = outcome;
      return this.add("PAUSED", [["note", `{"kind":"held","outcome":${write(outcome)}}`]]);
    }
    this.add("STARTED");
    if (this.held) {
      const [status, field] = this.held;
      this.held = undefined;
      this.add(JSON.parse(status![1]) as string, [field!]);
    }
  }
}

export function jobId(random: Random): string {
  let digits = "0x";
  for (let i = 0; i < 32; i++) digits += random.below(16).toString(16);
  return digits;
}

/**
 * A history that mostly follows the rules: now and then a step ended as its child did not, a reused
 * step runs after all, or the job ends before its calls.
 */
export function generate(random: Random): Chain {
  return new Builder(random, random.below(3)).walk(3 + random.below(25));
}
