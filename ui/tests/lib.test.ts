// The pure parts behind the pages.

import { describe, expect, it } from "vitest";
import { failuresSentence, grantsOf, jobIn, usageOf, wakeSentence } from "../src/lib/agents";
import { draftOf, emptyDraft, readDraft } from "../src/lib/draft";
import type { Draft, Problems } from "../src/lib/draft";
import { callsOf } from "../src/lib/calls";
import { changes } from "../src/lib/diff";
import { jsonText } from "../src/lib/json_text";
import { executionOf } from "../src/api/executions";
import { envelopeOf, executorsOf } from "../src/api/executors";
import { columns, criticalPath, planOf } from "../src/lib/plan";
import { lineOf } from "../src/lib/pointers";
import { rates, sample } from "../src/lib/rates";
import { answerForm, answerMessage, endSentence, questionText, requestOf, shownRequests } from "../src/lib/requests";
import { parseRoute, paths } from "../src/lib/router";
import { fieldOf } from "../src/lib/schema";
import { asCli, asCurl, quote } from "../src/lib/shell";
import { EventParser } from "../src/lib/sse";
import { hourOf, most } from "../src/lib/stats";
import { stateChanges } from "../src/lib/state_diff";
import { duration, relative } from "../src/lib/time";
import { timeline, totals } from "../src/lib/timeline";
import type { Moment } from "../src/lib/timeline";
import { segments, visible } from "../src/lib/visible";
import { EXECUTORS } from "../e2e/made_up";
import { readText } from "@verify/json";
import type { ValueMap } from "@verify/value";

describe("text of unknown origin", () => {
  it("shows characters that cannot be seen by their code point", () => {
    expect(visible("a\u202eb\u200bc")).toBe("a⟨U+202E⟩b⟨U+200B⟩c");
    expect(segments("plain é 😀")).toEqual([{ text: "plain é 😀", isHidden: false }]);
    expect(visible("\ud800")).toBe("⟨U+D800⟩");
    expect(visible("a\u{e0041}b")).toBe("a⟨U+E0041⟩b");
  });
});

describe("the last hour", () => {
  it("adds up what ended, and tells what failed", () => {
    const text = `{"scope":"all","queued":2,"minutes":[
      {"at":60000,"created":3,"started":2,"ended":{"COMPLETE":2,"FAILED":1,"TIMEOUT":1},
       "runningMs":{"p50":5,"p99":320}},
      {"at":120000,"created":0,"started":0,"ended":{}}]}`;
    const hour = hourOf(readText(text));
    expect([hour.isEveryone, hour.queued, hour.minutes.length]).toEqual([true, 2, 2]);
    const [first, second] = hour.minutes;
    expect(first).toMatchObject({ at: 60000, ended: 4, failed: 2, runningP99: 320 });
    expect(second).toMatchObject({ ended: 0, runningP99: undefined, queueDepth: undefined });
    expect(most(hour.minutes.map(({ runningP99 }) => runningP99))).toBe(320);
    expect(most([undefined])).toBe(undefined);
  });
});

describe("JSON text", () => {
  it("reads back to the same value", () => {
    const text = '{"a":[1,1.0,-0.0,1e+300,12345678901234567890,null,true,"\\u0001"],"b":{}}';
    expect(jsonText(readText(text))).toBe(text);
    expect(readText(jsonText(readText(text), 2))).toEqual(readText(text));
  });
});

describe("times", () => {
  it.each([
    [0, "0 ms"],
    [999, "999 ms"],
    [1500, "1.5 s"],
    [61_000, "1 min 1 s"],
    [3_600_000, "1 h"],
    [90_000_000, "1 d 1 h"],
    [-20, "−20 ms"],
  ])("%d ms is %s", (ms, text) => expect(duration(ms)).toBe(text));

  it("are relative to now", () => {
    expect(relative(1000, 2000)).toBe("just now");
    expect(relative(0, 125_000)).toBe("2 min ago");
    expect(relative(125_000, 0)).toBe("in 2 min");
  });
});

describe("the timeline", () => {
  const moment = (index: number, status: Moment["status"], at: number, kind?: string): Moment => ({
    index,
    status,
    at,
    kind,
    by: undefined,
    hasMessage: false,
    attempt: undefined,
    isFailedAttempt: false,
  });

  it("separates waiting from working", () => {
    const made = timeline(
      [
        moment(0, "PENDING", 0),
        moment(1, "STARTED", 10),
        moment(2, "STARTED", 15, "recovered"),
        moment(3, "PAUSED", 20),
        moment(4, "STARTED", 50),
        moment(5, "COMPLETE", 60),
      ],
      1000,
    );
    expect([...totals(made)]).toEqual([
      ["waiting", 10],
      ["working", 20],
      ["paused", 30],
    ]);
    expect(made.marks.map(({ kind, record }) => [kind, record])).toEqual([
      ["recovered", 2],
      ["end", 5],
    ]);
    expect(made.to).toBe(60);
  });

  it("counts the time between a failed attempt and the claim of the next one as waiting", () => {
    const failed = { ...moment(2, "STARTED", 30, "attempt"), isFailedAttempt: true, attempt: 2 };
    const claimed = { ...moment(3, "STARTED", 70, "attempt"), attempt: 2 };
    const begin = [moment(0, "PENDING", 0), moment(1, "STARTED", 10)];
    const end = moment(4, "COMPLETE", 80);
    const sums = (...moments: Moment[]) => [...totals(timeline([...begin, ...moments, end], 1000))];
    expect(sums(failed, claimed)).toEqual([
      ["waiting", 50],
      ["working", 30],
    ]);
    // A retry in the venue itself is not recorded when it starts.
    expect(sums(failed)).toEqual([
      ["waiting", 10],
      ["working", 70],
    ]);
  });

  it("goes on until now while the job runs", () => {
    const made = timeline([moment(0, "PENDING", 0), moment(1, "STARTED", 10)], 100);
    expect(made.spans[1]).toEqual({
      activity: "working",
      from: 10,
      to: 100,
      isOpen: true,
      record: 1,
    });
  });
});

describe("calls", () => {
  const id = `0x${"12".repeat(32)}`;
  const job = `0x${"34".repeat(16)}`;
  const start = (call: number, more = ""): string =>
    `{"call":${call},"key":"run-${call}","op":"test:echo","job":"${job}","record":"${id}"${more}}`;
  const record = (updated: number, note: string): ValueMap =>
    readText(`{"status":"STARTED","updated":${updated},"note":${note}}`) as ValueMap;

  it("are read from the notes of a chain, with their ends", () => {
    const calls = callsOf([
      readText('{"status":"PENDING","updated":1}') as ValueMap,
      record(2, `{"kind":"call","started":[${start(0)},${start(1, ',"detached":true')}]}`),
      record(5, `{"kind":"call","ended":[{"call":0,"status":"FAILED","record":"${id}"}]}`),
    ]);
    const common = { op: "test:echo", job, record: id, started: 2 };
    expect(calls).toEqual([
      { ...common, call: 0, key: "run-0", isDetached: false, status: "FAILED", ended: 5 },
      { ...common, call: 1, key: "run-1", isDetached: true, status: undefined, ended: undefined },
    ]);
  });

  it("leave out what is malformed", () => {
    const notes = ['{"kind":"call","started":[{"call":-1}]}', '{"kind":"other"}', "null"];
    expect(callsOf(notes.map((note) => record(1, note)))).toEqual([]);
  });
});

describe("a plan", () => {
  const definition = `{"operation":{"adapter":"orchestrator","steps":[
    {"op":"a","input":{"x":["input","n"]}},
    {"op":"b","input":{"x":["const",[0]]}},
    {"op":"c","input":{"values":["array",[0],{"y":[1,"path"]}]}},
    {"op":"d","input":["concat","text",[2]]}]}}`;
  const plan = planOf(readText(definition))!;

  it("takes its edges from the sources, not from constants", () => {
    expect(plan.map(({ needs }) => needs)).toEqual([[], [], [0, 1], [2]]);
    expect(columns(plan)).toEqual([0, 0, 1, 2]);
  });

  it("has the path with the largest sum as its critical one", () => {
    expect(criticalPath(plan, (step) => (step === 1 ? 5 : 1))).toEqual([1, 2, 3]);
  });

  it("is undefined for other operations", () => {
    expect(planOf(readText('{"operation":{"adapter":"test:echo"}}'))).toBeUndefined();
  });
});

describe("a form", () => {
  const schema = readText(`{"type":"object","required":["name","count"],"properties":{
    "name":{"type":"string","minLength":2},
    "count":{"type":"integer","minimum":1},
    "secret":{"type":"string","writeOnly":true},
    "kind":{"enum":["a",1,null]},
    "when":{"type":["integer","string","null"]},
    "address":{"type":"object","required":["street"],"properties":{"street":{"type":"string"}}},
    "list":{"type":"array","items":{"type":"number"}},
    "node":{"$ref":"#/$defs/node"}},
    "$defs":{"node":{"type":"object","properties":{"next":{"$ref":"#/$defs/node"}}}}}`);
  const field = fieldOf(schema);
  const text = (text: string): Draft => ({ kind: "text", text });
  const read = (members: Record<string, Draft>): [string, Problems] => {
    const problems: Problems = new Map();
    const value = readDraft(field, { kind: "object", members }, true, "", problems);
    return [jsonText(value ?? null), problems];
  };

  it("has one field per member, required ones first", () => {
    if (field.kind !== "object") throw new Error(field.kind);
    const kinds = field.members.map(({ name, field }) => `${name}:${field.kind}`);
    expect(kinds.slice(0, 7)).toEqual([
      "name:text",
      "count:number",
      "secret:text",
      "kind:choice",
      "when:scalar",
      "address:object",
      "list:array",
    ]);
    expect(field.members[2]!.field.isSecret).toBe(true);
  });

  it("gives exact JSON and leaves out what was not entered", () => {
    const [json, problems] = read({
      name: text("ab"),
      count: text("12345678901234567890"),
      when: text("2026-01-31T09:00:00Z"),
      list: { kind: "array", items: [text("1.50"), text("2")] },
    });
    expect(problems.size).toBe(0);
    expect(json).toBe(
      '{"name":"ab","count":12345678901234567890,"when":"2026-01-31T09:00:00Z","list":[1.5,2]}',
    );
  });

  it("says what is wrong with each field", () => {
    const [, problems] = read({ name: text("a"), count: text("1.5") });
    expect([...problems.keys()]).toEqual(["name", "count"]);
    expect(read({ name: text("ab"), count: text("0") })[1].get("count")).toContain("at least 1");
    expect(read({})[1].get("name")).toBe("A value is required.");
  });

  it("sends a required text that is empty only if the schema allows that", () => {
    const problemsOf = (schema: string): number => {
      const problems: Problems = new Map();
      readDraft(fieldOf(readText(schema)), text(""), true, "", problems);
      return problems.size;
    };
    expect(problemsOf('{"type":"string"}')).toBe(0);
    expect(problemsOf('{"type":"string","pattern":"^a?$"}')).toBe(0);
    expect(problemsOf('{"type":"string","pattern":"^a$"}')).toBe(1);
    expect(problemsOf('{"type":"string","format":"date"}')).toBe(1);
  });

  it("reads a value back into what was typed", () => {
    const value = readText('{"name":"ab","count":7,"kind":1,"address":{"street":"x"},"more":[1]}');
    const problems: Problems = new Map();
    const draft = draftOf(field, value);
    expect(readText(jsonText(readDraft(field, draft, true, "", problems)!))).toEqual(value);
    expect(problems.size).toBe(0);
  });

  it("is a field for JSON where a form cannot express the schema", () => {
    for (const other of ["{}", "true", '{"anyOf":[{"type":"string"}]}', '{"type":"object"}']) {
      expect(fieldOf(readText(other)).kind, other).toBe("json");
    }
    expect(emptyDraft(fieldOf(undefined))).toEqual({ kind: "text", text: "" });
  });
});

describe("a definition", () => {
  it("has its problems at the right line", () => {
    const source = '{\n "a": {"b": [\n  1,\n  "x, }",\n  {"c/d": 2}]},\n "e": 3\n}';
    expect(lineOf(source, "/a/b/0")).toBe(3);
    expect(lineOf(source, "/a/b/2/c~1d")).toBe(5);
    expect(lineOf(source, "/e")).toBe(6);
    expect(lineOf(source, "/a/b/2/missing")).toBe(5);
  });
});

describe("an event stream", () => {
  it("is parsed whatever the pieces are", () => {
    const stream = 'retry: 1000\nevent: job-update\nid: 1\ndata: {"a":1}\n\n: ping\n\nevent: progress\ndata: x\ndata: y\n\n';
    for (const size of [1, 3, 7, 1000]) {
      const parser = new EventParser();
      const events = [];
      for (let at = 0; at < stream.length; at += size) {
        events.push(...parser.push(stream.slice(at, at + size)));
      }
      expect(events).toEqual([
        { event: "job-update", id: "1", data: '{"a":1}' },
        { event: "progress", id: undefined, data: "x\ny" },
      ]);
    }
  });
});

describe("commands to copy", () => {
  it("are quoted for a shell and never contain a token", () => {
    expect(quote("it's")).toBe("'it'\\''s'");
    const curl = asCurl("http://127.0.0.1:1", "test:echo", '{"a":"$(id)"}', true);
    expect(curl).toContain('$CATENA_TOKEN"');
    expect(curl).toContain(`'{"operation":"test:echo","input":{"a":"$(id)"}}'`);
    expect(asCli("http://x", "a b", "1")).toBe("catena run --venue http://x 'a b' -i 1");
  });
});

describe("paths", () => {
  it("lead to pages and back", () => {
    expect(parseRoute("/")).toEqual({ page: "home" });
    expect(parseRoute(paths.job("0xab", "chain"))).toEqual({ page: "job", id: "0xab", tab: "chain" });
    expect(parseRoute(paths.operation("v/ops/http/get"))).toEqual({
      page: "operation",
      name: "v/ops/http/get",
    });
    expect(parseRoute("/ui/jobs/0xab/nothing").page).toBe("unknown");
    expect(parseRoute("/ui/%E0%A4%A").page).toBe("unknown");
  });
});

describe("a record", () => {
  it("is shown by what it changed", () => {
    const before = readText('{"status":"PENDING","prev":null,"updated":1}') as ValueMap;
    const after = readText('{"status":"STARTED","prev":"0x","updated":1,"by":"did:x"}') as ValueMap;
    expect(changes(before, after).map(({ name, kind }) => `${name} ${kind}`)).toEqual([
      "status changed",
      "updated same",
      "by added",
    ]);
  });
});

describe("rates", () => {
  it("come from the difference of two samples", () => {
    const metrics = (ended: number, fast: number, all: number): Map<string, number> =>
      new Map([
        ['catena_jobs_ended_total{status="COMPLETE"}', ended],
        ['catena_http_request_seconds_bucket{le="0.005",method="POST",route="/api/v1/invoke"}', fast],
        ['catena_http_request_seconds_bucket{le="0.1",method="POST",route="/api/v1/invoke"}', all],
        ['catena_http_request_seconds_bucket{le="+Inf",method="POST",route="/api/v1/invoke"}', all],
      ]);
    const found = rates([sample(metrics(10, 5, 5), 0), sample(metrics(30, 85, 105), 2000)]);
    expect(found.endedPerSecond).toBe(10);
    expect(found.invokeP50).toBe(5);
    expect(found.invokeP99).toBe(100);
  });
});

describe("the state of an agent", () => {
  it("is compared member by member", () => {
    const before = readText('{"a":{"b":1,"c":[1]},"d":1,"e":true}');
    const after = readText('{"a":{"b":1.0,"c":[1]},"e":true,"f":null}');
    expect(stateChanges(before, after)).toEqual([
      { path: "a.b", before: 1n, after: 1 },
      { path: "d", before: 1n, after: undefined },
      { path: "f", before: undefined, after: null },
    ]);
    expect(stateChanges("x", "x")).toEqual([]);
    expect(stateChanges("x", readText("{}")).map(({ path }) => path)).toEqual([""]);
  });
});

describe("an agent in words", () => {
  it("may do what its capabilities cover", () => {
    const text = `{"grant":[{"with":"w/notes/","can":"crud/read"},{"with":"*","can":"invoke"},{"with":"","can":"*"},
      {"with":"/w/a/*","can":"crud/*"},{"with":"s/key","can":"secret/use"},{"with":"w","can":"x/y"},{"with":"w"}]}`;
    expect(grantsOf(readText(text))).toEqual([
      "May read w/notes and what is below it.",
      "May run everything of its owner.",
      "May do everything that its owner may.",
      "May read and change w/a and what is below it.",
      "May use secrets at s/key and below.",
      "May use x/y at w and below.",
    ]);
    expect(grantsOf(readText(`[]`))).toEqual([]);
  });

  it("runs when its configuration says so", () => {
    const said = (config: string): string => wakeSentence(readText(config));
    expect(said("{}")).toBe("when somebody runs it");
    expect(said(`{"wake":null}`)).toBe("when somebody runs it");
    expect(said(`{"wake":"message"}`)).toBe("when a message arrives");
    expect(said(`{"wake":{"everyMs":60000}}`)).toBe("every 1 min");
    expect(said(`{"wake":{"cron":"0 9 * * MON","timeZone":"Europe/Berlin"}}`)).toBe("at 0 9 * * MON (Europe/Berlin)");
    expect(said(`{"wake":{"later":1}}`)).toBe(`{"later":1}`);
  });

  it("fails so often, and then stays suspended or ends", () => {
    expect(failuresSentence(0, readText("{}"))).toBe("none; after 10, it stays suspended");
    const config = readText(`{"maxFailures":3,"onFailures":"terminate"}`);
    expect(failuresSentence(2, config)).toBe("2 of 3; then it is terminated");
    const job = `0x${"0123456789abcdef".repeat(2)}`;
    expect(jobIn(`the transition failed: no (job ${job} is FAILED)`)).toBe(job);
    expect(jobIn("no job")).toBeUndefined();
  });

  it("used so many tokens in a turn", () => {
    const used = (result: string): string[] => usageOf(readText(result));
    expect(used(`{"toolCalls":1,"usage":{"inputTokens":1200,"outputTokens":2,"totalTokens":1202,"modelCalls":2}}`)).toEqual([
      "1,202 tokens (1,200 in, 2 out)",
      "2 model calls",
      "1 tool call",
    ]);
    expect(used(`{"toolCalls":0,"usage":{"inputTokens":1,"outputTokens":0,"cost":0.25}}`)).toEqual([
      "1 token (1 in, 0 out)",
      "cost 0.25",
    ]);
    expect(used(`{"cost":{"amount":"0.10","currency":"EUR"},"stopped":"tokenBudget"}`)).toEqual([
      "cost 0.10 EUR",
      "stopped: tokenBudget",
    ]);
    expect(used(`{"seen":["hello"]}`)).toEqual([]);
    expect(used(`"text"`)).toEqual([]);
  });
});

describe("questions to people", () => {
  const request = (id: string, created: number) =>
    requestOf(readText(`{"id":"${id}","agentId":"a","status":"OPEN","created":${created},"question":"${id}?"}`));

  it("are read with their options, which may be any values", () => {
    const text = `{"id":"a~1","agentId":"a","status":"ANSWERED","created":5,"question":{"text":"Go on?"},
      "options":["yes",2,null],"answer":2,"sessionId":"s"}`;
    const read = requestOf(readText(text));
    expect(read).toMatchObject({ id: "a~1", status: "ANSWERED", created: 5, session: "s" });
    expect(read.options).toEqual(["yes", 2n, null]);
    expect(read.asker).toEqual({ kind: "agent", id: "a" });
    expect(read.answer).toBe(2n);
    expect(questionText(read.question)).toBe("Go on?");
    expect(questionText(readText(`{"text":"Go on?","sum":3}`))).toBeUndefined();
    expect(request("b", 1).options).toBeUndefined();
  });

  const job = "0x0123456789abcdef0123456789abcdef";
  const ofJob = (more: string) =>
    requestOf(readText(`{"id":"~${job.slice(2)}","job":"${job}","status":"OPEN","created":1,"question":"?"${more}}`));

  it("name the job that asks, which is told from an agent", () => {
    expect(ofJob("").asker).toEqual({ kind: "job", id: job });
    expect(parseRoute(paths.job(ofJob("").asker!.id))).toEqual({ page: "job", id: job, tab: "overview" });
    expect(requestOf(readText(`{"id":"x"}`)).asker).toBeUndefined();
  });

  it("are answered by buttons, by a form of their schema, or by a text", () => {
    const schema = `,"schema":{"type":"integer","minimum":1}`;
    expect(answerForm(ofJob(""))).toBe("text");
    expect(answerForm(ofJob(`,"schema":null`))).toBe("text");
    expect(answerForm(ofJob(schema))).toBe("schema");
    expect(answerForm(ofJob(`${schema},"options":[1,2]`))).toBe("options");
    const field = fieldOf(ofJob(schema).schema);
    expect(field).toMatchObject({ kind: "number", isInteger: true, minimum: 1 });
    const problems: Problems = new Map();
    expect(readDraft(field, { kind: "text", text: "12345678901234567890" }, true, "", problems)).toBe(
      12345678901234567890n,
    );
    expect(problems.size).toBe(0);
    readDraft(field, { kind: "text", text: "0" }, true, "", problems);
    expect(problems.get("")).toBe("The number must be at least 1.");
  });

  it("say what became of them in terms of who asked", () => {
    const ended = (asker: string, status: string) => endSentence(requestOf(readText(`{${asker},"status":"${status}"}`)));
    expect(ended(`"agentId":"a"`, "CLOSED")).toBe("Closed: the agent ended before an answer came.");
    expect(ended(`"job":"0x1"`, "CLOSED")).toBe("Closed: the job ended before an answer came.");
    expect(ended(`"job":"0x1"`, "ANSWERED")).toBe("Answered by a message to the job.");
    expect(ended(`"job":"0x1"`, "OPEN")).toBeUndefined();
  });

  it("of a job get the answer as a member of a message, whatever its own members are", () => {
    const answer = `{"content":"x"}`;
    const asked = readText(`{"question":"?","requestId":"~1","schema":{}}`);
    expect(answerMessage(asked, answer)).toBe(`{"answer":{"content":"x"}}`);
    expect(answerMessage(readText(`{"schema":{}}`), answer)).toBe(answer);
    expect(answerMessage(undefined, answer)).toBe(answer);
  });

  it("stay on the page while they are in use, in order", () => {
    const [a, b, c] = [request("a", 3), request("b", 2), request("c", 1)];
    const used = new Map([
      ["b", b],
      ["c", c],
    ]);
    expect(shownRequests([a, b], used).map(({ id }) => id)).toEqual(["c", "b", "a"]);
    expect(shownRequests([a], new Map()).map(({ id }) => id)).toEqual(["a"]);
  });
});

describe("executors", () => {
  it("are read with their isolation, slots, times and environments", () => {
    const { slots, running, executors, environments } = executorsOf(readText(JSON.stringify(EXECUTORS)));
    expect([slots, running]).toEqual([3, 1]);
    expect(executors[0]).toMatchObject({ name: "host-4711-ab12cd", tier: "T2", slots: 2, running: 1 });
    expect(executors[0]?.heartbeat).toBe(Date.UTC(2026, 10, 17, 10, 0, 7));
    expect(executors[1]).toMatchObject({ tier: undefined, leaseUntil: undefined, environments: [] });
    expect(executors[1]?.tiers).toEqual([
      { name: "T1", isAvailable: false, reason: "user namespaces are not allowed" },
    ]);
    expect(environments.map(({ isDefault, executors }) => [isDefault, executors])).toEqual([
      [true, 1],
      [false, 0],
    ]);
  });

  it("may be missing, and then code says why it waits", () => {
    const waiting = executionOf(readText(`{"status":"PENDING","hint":"No executor is connected."}`), null);
    expect(waiting.hint).toBe("No executor is connected.");
    expect(executorsOf(readText("{}"))).toEqual({ slots: 0, running: 0, executors: [], environments: [] });
  });

  it("say what code wrote that failed, where the envelope has no outputs", () => {
    const said = readText(`{"outputs":{"stdout":"1.0","stdout_truncated":true,"stderr":""}}`);
    const failed = executionOf(readText(`{"status":"FAILED","outputs":{}}`), said);
    expect(failed.stdout).toEqual({ text: "1.0", isTruncated: true });
    expect(failed.stderr).toEqual({ text: "", isTruncated: false });
  });

  it("get code of the playground, for one environment or the default", () => {
    const revision = "00000000-0000-4000-8000-000000000001";
    const code = { source: 'print("1")', environment: undefined, mayReuse: false };
    const text = (environment: string | undefined) => jsonText(envelopeOf({ ...code, environment }, revision));
    expect(text("py-sci@1")).toContain('"env_version":"py-sci@1"');
    expect(text(undefined)).not.toContain("env_version");
    expect(text(undefined)).toContain(`"document_revision_id":"${revision}"`);
  });
});
