// Ways to tamper with a history: with the text, with the order of the records, and, as a forger who
// knows the format, with the content and every ID that depends on it.

import { document, generate, get, idOf, Random, relink, set, text } from "./histories";
import type { Chain, Entry } from "./histories";

type Tamper = (chain: Chain, random: Random) => string;

const at = (chain: Chain, random: Random): number => random.below(chain.entries.length);

/** Changes records and then recomputes IDs and links, so that only the rules can tell. */
const forged =
  (change: (chain: Chain, index: number, random: Random) => void): Tamper =>
  (chain, random) => {
    const index = at(chain, random);
    change(chain, index, random);
    relink(chain, Math.max(0, Math.min(index, chain.entries.length - 1)));
    return document(chain);
  };

const setField = (name: string, values: readonly string[]): Tamper =>
  forged((chain, index, random) =>
    set(chain.entries[index]!.members, name, random.pick(values)),
  );

const ID = `0x${"12".repeat(32)}`;
const JOB = `0x${"34".repeat(16)}`;
const STATUSES = [
  "PENDING",
  "STARTED",
  "COMPLETE",
  "FAILED",
  "CANCELLED",
  "REJECTED",
  "TIMEOUT",
  "PAUSED",
  "INPUT_REQUIRED",
  "AUTH_REQUIRED",
  "DONE",
].map(text);
const NOTES = [
  '{"kind":"step"}',
  '{"kind":"attempt"}',
  '{"kind":"message"}',
  '{"kind":"held"}',
  '{"kind":"recovered","attempt":0}',
  '{"kind":"other"}',
  '{"kind":"held","outcome":{"status":"CANCELLED"}}',
  '{"kind":"held","outcome":{"status":"COMPLETE","output":1}}',
  `{"kind":"step","started":[{"step":0,"job":"${JOB}","record":"${ID}"}]}`,
  `{"kind":"step","started":[{"step":1000,"job":"${JOB}","record":"${ID}"}]}`,
  `{"kind":"step","ended":[{"step":0,"status":"COMPLETE","record":"${ID}"}]}`,
  `{"kind":"step","ended":[{"step":0,"status":"STARTED","record":"${ID}"}]}`,
  '{"kind":"call"}',
  `{"kind":"call","ended":[{"call":0,"status":"COMPLETE","record":"${ID}"}]}`,
  `{"kind":"call","started":[${call(0)}]}`,
  `{"kind":"call","started":[${call(0)},${call(1)}]}`,
  `{"kind":"call","started":[${call(10_000)}]}`,
  '{"kind":"call","started":{}}',
  '{"kind":"attempt","attempt":2,"code":1}',
  '{"kind":"attempt","tier":[]}',
  '{"kind":"recovered","interruptions":-1}',
  "null",
  "[]",
];

function call(number: number): string {
  return `{"call":${number},"key":"k","op":"test:echo","job":"${JOB}","record":"${ID}"}`;
}

type Fields = Record<string, unknown>;

type Change = (entry: Fields, list: Fields[], random: Random) => void;

/** Ways to change one entry of any list in a note or in `reused`. */
const ANY_CHANGES: readonly Change[] = [
  (entry, _, random) => delete entry[random.pick(Object.keys(entry))],
  (entry, _, random) => (entry[random.pick(Object.keys(entry))] = random.pick([1, "x", null, -1])),
  (entry, list) => list.push({ ...entry }),
  (entry, list) => list.splice(list.indexOf(entry), 1),
  (entry) => delete entry["call"],
  (entry) => (entry["record"] = ID),
];

const START_CHANGES: readonly Change[] = [
  ...ANY_CHANGES,
  (entry) => delete entry["key"],
  (entry) => delete entry["op"],
  (entry) => (entry["key"] = "grid:run-0"),
  (entry) => (entry["detached"] = "yes"),
  (entry) => (entry["detached"] = true),
  (entry) => (entry["call"] = 1),
  (entry) => (entry["call"] = -1),
  (entry) => (entry["call"] = 10_000),
  (entry) => (entry["venue"] = "did:key:other"),
];

const END_CHANGES: readonly Change[] = [
  ...ANY_CHANGES,
  (entry) => (entry["status"] = "CANCELLED"),
  (entry) => (entry["call"] = 0),
  (entry) => (entry["call"] = 9),
];

const CLAIM_CHANGES: readonly Change[] = [
  ...ANY_CHANGES,
  (entry) => delete entry["job"],
  (entry) => (entry["step"] = 0),
  (entry) => (entry["step"] = 7),
  (entry) => (entry["venue"] = "did:key:other"),
];

/** Changes one entry of a list, if there is one. */
function changeEntry(list: unknown, changes: readonly Change[], random: Random): void {
  if (!Array.isArray(list) || list.length === 0) return;
  random.pick(changes)(random.pick(list) as Fields, list as Fields[], random);
}

/** How many histories are generated in search of one that can be tampered with. */
const TRIES = 20;

/** This chain or another one that meets the condition. */
function suitable(chain: Chain, random: Random, isSuitable: (chain: Chain) => boolean): Chain {
  let found = chain;
  for (let i = 0; i < TRIES && !isSuitable(found); i++) found = generate(random);
  return found;
}

/** Changes the commitment to a step or a call. */
const changeCommitment =
  (kind: "step" | "call", list: "started" | "ended"): Tamper =>
  (chain, random) => {
    const isNoted = ({ members }: Entry): boolean => {
      const note = get(members, "note");
      return (note?.startsWith(`{"kind":"${kind}"`) && note.includes(`"${list}"`)) ?? false;
    };
    const found = suitable(chain, random, ({ entries }) => entries.some(isNoted));
    const noted = found.entries.filter(isNoted);
    if (noted.length > 0) {
      const entry = random.pick(noted);
      const note = JSON.parse(get(entry.members, "note")!) as Fields;
      changeEntry(note[list], list === "started" ? START_CHANGES : END_CHANGES, random);
      set(entry.members, "note", JSON.stringify(note));
      relink(found, found.entries.indexOf(entry));
    }
    return document(found);
  };

const hasReused = ({ entries }: Chain): boolean => get(entries[0]!.members, "reused") !== undefined;

/** Makes the notes of a chain name the first and the last record of a child that was changed. */
function recommit(chain: Chain, child: Chain): void {
  const name = (entry: Fields, id: string): void => void (entry["record"] = id);
  const first = child.entries[0]!.id;
  const last = child.entries[child.entries.length - 1]!.id;
  const numbers = new Set<unknown>();
  for (const { members } of chain.entries) {
    const json = get(members, "note");
    if (!json?.includes('"record"')) continue;
    const note = JSON.parse(json) as Record<string, Fields[] | undefined>;
    const link = String(note["kind"]);
    for (const entry of note["started"] ?? []) {
      if (entry["job"] !== child.job) continue;
      numbers.add(`${link} ${String(entry[link])}`);
      name(entry, first);
    }
    for (const entry of note["ended"] ?? []) {
      if (numbers.has(`${link} ${String(entry[link])}`)) name(entry, last);
    }
    set(members, "note", JSON.stringify(note));
  }
  const { members } = chain.entries[0]!;
  const reused = get(members, "reused");
  if (reused?.includes(child.job)) {
    const list = JSON.parse(reused) as Fields[];
    for (const entry of list) if (entry["job"] === child.job) name(entry, last);
    set(members, "reused", JSON.stringify(list));
  }
  relink(chain, 0);
}

export const TAMPERS: Readonly<Record<string, Tamper>> = {
  none: (chain) => document(chain),
  "one byte": (chain, random) => {
    const bytes = document(chain);
    const index = random.below(bytes.length);
    const code = 0x20 + random.below(0x5f);
    return bytes.slice(0, index) + String.fromCharCode(code) + bytes.slice(index + 1);
  },
  "one digit": (chain, random) => {
    const bytes = document(chain);
    const digits = [...bytes.matchAll(/[0-9a-f]/g)];
    const index = random.pick(digits).index;
    return bytes.slice(0, index) + random.pick([..."0123456789abcdef"]) + bytes.slice(index + 1);
  },
  "drop a record": (chain, random) => {
    const total = chain.entries.length;
    chain.entries.splice(at(chain, random), 1);
    return document(chain, random.chance(50) ? total : chain.entries.length);
  },
  "swap two records": (chain, random) => {
    const [a, b] = [at(chain, random), at(chain, random)];
    const { entries } = chain;
    [entries[a], entries[b]] = [entries[b]!, entries[a]!];
    return document(chain);
  },
  "repeat a record": (chain, random) => {
    const entry = chain.entries[at(chain, random)]!;
    chain.entries.splice(at(chain, random), 0, entry);
    return document(chain);
  },
  "fork": (chain, random) => {
    const entry = chain.entries[at(chain, random)]!;
    const members = entry.members.map((member) => [...member] as [string, string]);
    set(members, "updated", "1769683999999");
    chain.entries.push({ id: idOf(members), members });
    return document(chain);
  },
  "cut the end": (chain, random) => {
    const total = chain.entries.length;
    chain.entries.length = 1 + random.below(total);
    return document(chain, random.chance(50) ? total : chain.entries.length);
  },
  "add a duplicate member": (chain, random) => {
    const { members } = chain.entries[at(chain, random)]!;
    members.unshift([random.pick(members)[0], "1"]);
    return document(chain);
  },
  "respell a number": (chain) => document(chain).replaceAll('"output":1.0', '"output":1'),
  "change the status": setField("status", STATUSES),
  "change the time": setField("updated", ["0", "1769683717705", "1769683717706.0", "-1", '"1"']),
  "change the input": setField("input", ["2", '"other"']),
  "change the operation": setField("operation", ["null", '"other"']),
  "change the caller": setField("caller", ['"did:key:other"', "1"]),
  "change the venue": setField("venue", ['"did:key:other"', "1"]),
  "change the job": setField("id", [text(JOB), '"0x"', text(JOB.toUpperCase())]),
  "change the creation": setField("created", ["0", "1769683717707", "1e3"]),
  "change the parent": setField("parent", [
    "null",
    `{"job":"${JOB}","step":0}`,
    `{"job":"${JOB}","call":0}`,
    `{"job":"${JOB}","step":-1,"call":4294967295}`,
    `{"job":"${JOB}","call":4294967296}`,
    `{"job":"${JOB}","call":1.0}`,
    '{"job":"x"}',
    '{"job":1}',
  ]),
  "change the note": setField("note", NOTES),
  "change the trigger": setField("trigger", [
    "{}",
    '{"messageId":1}',
    '{"messageId":"m"}',
    '{"control":"m"}',
    '{"control":1}',
    `{"control":${text(ID)}}`,
    `{"control":${text(ID.slice(2).toUpperCase())}}`,
    `{"control":${text(ID)},"messageId":1}`,
  ]),
  "change the causer": setField("by", ['"did:key:other"', "1"]),
  "change the deadline": setField("deadline", ["1", '"tomorrow"']),
  "change the start of a step": changeCommitment("step", "started"),
  "change the end of a step": changeCommitment("step", "ended"),
  "change the start of a call": changeCommitment("call", "started"),
  "change the end of a call": changeCommitment("call", "ended"),
  "change what was reused": (chain, random) => {
    const found = suitable(chain, random, hasReused);
    const { members } = found.entries[0]!;
    const list = JSON.parse(get(members, "reused") ?? "[]") as unknown;
    changeEntry(list, CLAIM_CHANGES, random);
    set(members, "reused", JSON.stringify(list));
    relink(found, 0);
    return document(found);
  },
  "change the reused outputs": (chain, random) => {
    const found = random.chance(80) ? suitable(chain, random, hasReused) : chain;
    const { members } = found.entries[0]!;
    const values = ["[]", "[1]", '["plain"]', "[1,2]", "null", "{}", "[null,null]"];
    set(members, "reusedOutputs", random.pick(values));
    if (random.chance(20)) set(members, "reused", random.pick(["[]", "[1]", "[{}]", "{}"]));
    relink(found, 0);
    return document(found);
  },
  "name another parent": (chain, random) => {
    const found = suitable(chain, random, ({ children }) => children.size > 0);
    const children = [...found.children.values()];
    if (children.length > 0) {
      const child = random.pick(children);
      const link = random.pick(["step", "call"]);
      const parent = `{"job":${text(found.job)},"${link}":${random.below(3)}}`;
      set(child.entries[0]!.members, "parent", parent);
      relink(child, 0);
      recommit(found, child);
    }
    return document(found);
  },
  "change the output": setField("output", ["1", "1.0", "null"]),
  "change the error": setField("error", ['"other"', "1"]),
  "set another field": setField("surprise", ["1"]),
  "break a link": forged((chain, index) => {
    chain.entries[index]!.members.splice(1, 1);
  }),
  "spell a link differently": (chain, random) => {
    const entry = chain.entries[at(chain, random)]!;
    set(entry.members, "prev", random.pick([text(ID), text(ID.toUpperCase()), '"0x"', "1"]));
    entry.id = idOf(entry.members);
    return document(chain);
  },
  "forge the order": forged((chain, index, random) => {
    const other = at(chain, random);
    const { entries } = chain;
    [entries[index], entries[other]] = [entries[other]!, entries[index]!];
    relink(chain, Math.min(index, other));
  }),
  "forge a gap": forged((chain, index) => chain.entries.splice(index, 1)),
  "tamper with a child": (chain, random) => {
    for (const child of chain.children.values()) {
      const entry = child.entries[at(child, random)]!;
      set(entry.members, "updated", "1769683999999");
      if (random.chance(50)) relink(child, child.entries.indexOf(entry));
    }
    return document(chain);
  },
  "swap two children": (chain) => {
    const jobs = [...chain.children.keys()];
    const [a, b] = jobs;
    if (a && b) {
      const [first, second] = [chain.children.get(a)!, chain.children.get(b)!];
      chain.children.set(a, second);
      chain.children.set(b, first);
    }
    return document(chain);
  },
  "state another total": (chain) => document(chain, chain.entries.length + 1),
};
