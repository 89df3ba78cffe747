// Verifies histories off the page's thread, page by page, so that the console stays responsive and
// holds one page of records at a time, however long the chain is.

import type { Job } from "@verify/chain";
import { JsonError, readBytes } from "@verify/json";
import { Fault } from "@verify/fault";
import type { FaultInfo, PageResult, Request, Response } from "./messages";
import { incomplete, readHistory, subjobsOf, Verifier } from "@verify/verify";
import type { Report } from "@verify/verify";

interface Session {
  readonly verifier: Verifier;
  total: number | undefined;
  hasMore: boolean;
  finished: { job: Job; report: Report } | undefined;
}

const sessions = new Map<number, Session>();

function sessionOf(id: number): Session {
  let session = sessions.get(id);
  if (!session) {
    session = { verifier: new Verifier(), total: undefined, hasMore: false, finished: undefined };
    sessions.set(id, session);
  }
  return session;
}

function pushPage(session: Session, bytes: ArrayBuffer): PageResult {
  const history = readHistory(readBytes(new Uint8Array(bytes)));
  for (const entry of history.records) session.verifier.push(entry);
  session.total = history.total;
  session.hasMore = history.hasMore;
  return { count: session.verifier.count, total: history.total, hasMore: history.hasMore };
}

function respond(request: Request): Response {
  if (request.type === "close") {
    sessions.delete(request.session);
    return { type: "child" };
  }
  const session = sessionOf(request.session);
  switch (request.type) {
    case "page":
      return { type: "page", result: pushPage(session, request.bytes) };
    case "finish": {
      const { verifier, total } = session;
      if (total !== undefined && total !== verifier.count) throw incomplete(verifier.count, total);
      const job = verifier.finish(request.expected);
      const report = verifier.report(job);
      session.finished = { job, report };
      const subjobs = subjobsOf(job, verifier.claims).map(({ job, isRemote }) => ({ job, isRemote }));
      return { type: "finish", result: { report, subjobs } };
    }
    case "child": {
      const parent = sessionOf(request.parent);
      const child = session.finished;
      if (!parent.finished || !child) {
        return { type: "error", message: "a verification is not finished" };
      }
      const subjobs = subjobsOf(parent.finished.job, parent.verifier.claims);
      const named = subjobs.filter(({ job }) => job === child.job.id);
      if (named.length === 0) {
        throw new Fault("commitment", "the parent job did not commit to this sub-job");
      }
      for (const subjob of named) subjob.check(child.job, child.report);
      return { type: "child" };
    }
  }
}

function faultInfo(error: unknown): FaultInfo | undefined {
  if (error instanceof Fault) {
    return { code: error.code, reason: error.reason, record: error.record };
  }
  if (error instanceof JsonError) {
    return { code: "invalid_json", reason: error.message, record: undefined };
  }
  return undefined;
}

self.onmessage = (event: MessageEvent<{ number: number; request: Request }>) => {
  const { number, request } = event.data;
  let response: Response;
  try {
    response = respond(request);
  } catch (error) {
    const fault = faultInfo(error);
    response = fault
      ? { type: "fault", fault }
      : { type: "error", message: error instanceof Error ? error.message : String(error) };
  }
  self.postMessage({ number, response });
};
