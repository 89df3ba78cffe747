// Ways to tamper with a history: with the text, with the order of the records, and, as a forger who
// knows the format, with the content and every ID that depends on it.

import { document, idOf, Random, relink, set, text } from "./histories";
import type { Chain } from "./histories";

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
  "null",
  "[]",
];

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
  "change the parent": setField("parent", ["null", `{"job":"${JOB}","step":0}`, '{"job":"x"}']),
  "change the note": setField("note", NOTES),
  "change the trigger": setField("trigger", ["{}", '{"messageId":1}', '{"messageId":"m"}']),
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
