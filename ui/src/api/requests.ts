// Questions of agents and jobs to people. A question is answered once.

import { Store } from "../lib/store";
import { requestOf } from "../lib/requests";
import type { HumanRequest } from "../lib/requests";
import { jsonText } from "../lib/json_text";
import { asList, asMap } from "@verify/value";
import type { Value } from "@verify/value";
import { readJson, send } from "./client";

/** How many questions wait for an answer. Undefined while it is not known. */
export const openRequests = new Store<number | undefined>(undefined);

export interface RequestQuery {
  /** Those of one agent. */
  readonly agent?: string | undefined;
  /** Also those that were answered or closed. */
  readonly isAll?: boolean;
}

/** The questions, oldest first. */
export async function listRequests(query: RequestQuery, signal?: AbortSignal): Promise<HumanRequest[]> {
  const parameters = new URLSearchParams();
  if (query.agent !== undefined) parameters.set("agent", query.agent);
  if (query.isAll) parameters.set("all", "true");
  const text = parameters.toString();
  const answer = await readJson(`/api/v1/requests${text === "" ? "" : `?${text}`}`, { signal });
  const found = requestsIn(answer);
  if (query.agent === undefined) openRequests.set(found.filter(({ status }) => status === "OPEN").length);
  return found;
}

/** Counts the questions that wait. A missing token opens no dialog: nobody asked for this. */
export async function countRequests(signal?: AbortSignal): Promise<void> {
  openRequests.set(requestsIn(await readJson("/api/v1/requests", { signal, mayAsk: false })).length);
}

const requestsIn = (answer: Value): HumanRequest[] =>
  (asList(asMap(answer)?.get("requests")) ?? []).map(requestOf);

export async function answerRequest(id: string, answer: Value): Promise<void> {
  const path = `/api/v1/requests/${encodeURIComponent(id)}`;
  await send(path, { method: "POST", body: `{"answer":${jsonText(answer)}}` });
  openRequests.update((open) => (open === undefined ? open : Math.max(0, open - 1)));
}

/** What became of a question. Undefined if there is no such question any more. */
export async function readRequest(
  { id, asker }: HumanRequest,
  signal?: AbortSignal,
): Promise<HumanRequest | undefined> {
  // Those of jobs are listed with all others.
  const agent = asker?.kind === "agent" ? asker.id : undefined;
  return (await listRequests({ agent, isAll: true }, signal)).find((request) => request.id === id);
}
