// Agents in the words of people: what one may do, when it runs, and what a turn used.

import { asList, asMap, asText } from "@verify/value";
import type { Value } from "@verify/value";
import { jsonText, numberText } from "./json_text";
import { duration } from "./time";

const ABILITIES: Readonly<Record<string, string>> = {
  "*": "do everything",
  crud: "read and change",
  "crud/read": "read",
  "crud/write": "write",
  "crud/delete": "delete",
  invoke: "run",
  "asset/store": "store assets",
  "secret/use": "use secrets",
  "secret/extract": "read the values of secrets",
};

/** What an agent may do. What cannot be read permits nothing, so it gives no sentence. */
export function grantsOf(caps: Value): string[] {
  const grants = asList(asMap(caps)?.get("grant")) ?? asList(caps) ?? [];
  return grants.flatMap((grant) => {
    const can = asText(asMap(grant)?.get("can"));
    const where = asText(asMap(grant)?.get("with"));
    return can === undefined || where === undefined ? [] : [grantSentence(can, where)];
  });
}

/** A capability covers its resource and what is below it; an ability those below it. */
function grantSentence(can: string, where: string): string {
  const ability = can.replace(/\/\*$/, "");
  const path = where.replace(/\*$/, "").replace(/^\/+|\/+$/g, "");
  const verb = ABILITIES[ability];
  const isAll = path === "";
  if (ability === "*") {
    return isAll ? "May do everything that its owner may." : `May do everything at ${path} and below.`;
  }
  if (verb === undefined) {
    return isAll ? `May use ${ability} everywhere.` : `May use ${ability} at ${path} and below.`;
  }
  const isTransitive = /^(crud|invoke)/.test(ability);
  if (isAll) return isTransitive ? `May ${verb} everything of its owner.` : `May ${verb}.`;
  return isTransitive ? `May ${verb} ${path} and what is below it.` : `May ${verb} at ${path} and below.`;
}

/** When an agent runs, by the member `wake` of its configuration. */
export function wakeSentence(config: Value | undefined): string {
  const wake = asMap(config)?.get("wake");
  if (wake === undefined || wake === null) return "when somebody runs it";
  if (wake === "message") return "when a message arrives";
  const map = asMap(wake);
  const every = map?.get("everyMs");
  if (typeof every === "bigint") return `every ${duration(Number(every))}`;
  const cron = asText(map?.get("cron"));
  if (cron !== undefined) return `at ${cron} (${asText(map?.get("timeZone")) ?? "UTC"})`;
  return jsonText(wake);
}

/** Failures in a row after which an agent needs a forced resumption or ends, unless configured otherwise. */
const FAILURES_MAX = 10;

/** How many turns failed in a row, and what happens when there are too many. */
export function failuresSentence(failures: number, config: Value | undefined): string {
  const stated = asMap(config)?.get("maxFailures");
  const most = typeof stated === "bigint" ? Number(stated) : FAILURES_MAX;
  const then = asMap(config)?.get("onFailures") === "terminate" ? "it is terminated" : "it stays suspended";
  const count = `${failures.toLocaleString("en")} of ${most.toLocaleString("en")}`;
  return failures === 0 ? `none; after ${most.toLocaleString("en")}, ${then}` : `${count}; then ${then}`;
}

/** The job that an error names as its cause. */
export function jobIn(error: string): string | undefined {
  return /\(job (0x[0-9a-f]{32}) is [A-Z_]+\)/.exec(error)?.[1];
}

/** What a turn says that it used, in words. */
export function usageOf(result: Value | undefined): string[] {
  const map = asMap(result);
  const usage = asMap(map?.get("usage"));
  const number = (name: string): bigint | undefined => {
    const value = usage?.get(name);
    return typeof value === "bigint" ? value : undefined;
  };
  const [given, made] = [number("inputTokens"), number("outputTokens")];
  const total = number("totalTokens") ?? (given !== undefined && made !== undefined ? given + made : undefined);
  const words: string[] = [];
  if (total !== undefined) {
    const parts = given !== undefined && made !== undefined ? ` (${digits(given)} in, ${digits(made)} out)` : "";
    words.push(`${counted(total, "token")}${parts}`);
  }
  const models = number("modelCalls");
  if (models !== undefined) words.push(counted(models, "model call"));
  const tools = map?.get("toolCalls");
  if (typeof tools === "bigint" && tools > 0n) words.push(counted(tools, "tool call"));
  const cost = costText(usage?.get("cost") ?? map?.get("cost"));
  if (cost !== undefined) words.push(`cost ${cost}`);
  const stopped = asText(map?.get("stopped"));
  if (stopped !== undefined) words.push(`stopped: ${stopped}`);
  return words;
}

const digits = (number: bigint): string => number.toLocaleString("en");

const counted = (number: bigint, what: string): string => `${digits(number)} ${what}${number === 1n ? "" : "s"}`;

/** A number or a text as it is, or `{amount, currency}`. */
function costText(cost: Value | undefined): string | undefined {
  if (typeof cost === "bigint" || typeof cost === "number") return numberText(cost);
  if (typeof cost === "string") return cost;
  const map = asMap(cost);
  const amount = map?.get("amount");
  if (amount === undefined || amount === null || amount instanceof Map) return undefined;
  return [asText(amount) ?? jsonText(amount), asText(map?.get("currency"))].filter((part) => part !== undefined).join(" ");
}
