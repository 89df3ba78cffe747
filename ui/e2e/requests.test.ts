// Questions of agents and jobs to people: the count in the header, the list, answers, and those who were faster.

import { expect, it } from "vitest";
import { intervalsOf } from "./browser";
import { fixture } from "./fixture";
import type { Fixture } from "./fixture";

let { venue, page } = {} as Fixture;
fixture((given) => ({ venue, page } = given));

interface Asked {
  requestId: string;
}

async function ask(agentId: string, question: unknown, options?: unknown[]): Promise<string> {
  await venue.run("agent:create", { agentId, config: { operation: "test:tally" } });
  const asked = (await venue.run("agent:ask", { agentId, question, options })) as Asked;
  return asked.requestId;
}

const answer = (id: string, answer: unknown): Promise<unknown> =>
  venue.call("POST", `/api/v1/requests/${encodeURIComponent(id)}`, { answer });

const count = () => page.getByRole("banner").getByRole("link", { name: /for an answer/ });

it("a question of a model is counted in the header, and answered with one of its options", async () => {
  const elapse = await intervalsOf(page);
  await page.goto("/ui/jobs");
  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Requests" }).waitFor();
  expect(await count().count()).toBe(0);
  const config = { operation: "llm:agent", llmOperation: "test:toolllm", tools: ["agent:ask"] };
  await venue.run("agent:create", { agentId: "payer", config });
  const call = { question: "Pay the <b>invoice</b>?", options: ["yes", "no", { amount: 12 }] };
  await venue.run("agent:chat", { agentId: "payer", message: `tool agent_ask ${JSON.stringify(call)}` });
  // The page is not loaded again.
  await elapse();
  await count().getByText("1 question waits for an answer").waitFor({ state: "attached" });
  await count().click();
  const card = page.getByRole("article", { name: "Pay the <b>invoice</b>?" });
  await card.getByRole("link", { name: "payer" }).waitFor();
  await card.getByRole("button", { name: '{"amount":12}' }).waitFor();
  expect(await card.getByRole("textbox").count()).toBe(0);
  await card.getByRole("button", { name: "no" }).click();
  await card.getByText("You answered no. The agent gets it as a message.").waitFor();
  await count().waitFor({ state: "detached" });
  const { requests } = (await venue.call("GET", "/api/v1/requests?all=true&agent=payer")) as {
    requests: { status: string; answer: unknown }[];
  };
  expect(requests.map(({ status, answer }) => [status, answer])).toEqual([["ANSWERED", "no"]]);
  await page.getByRole("checkbox", { name: /answered or closed/ }).check();
  await page.getByRole("link", { name: "payer" }).click();
  await page.getByRole("region", { name: "Inbox" }).getByText("Pay the <b>invoice</b>?").waitFor();
});

it("a question without options is answered in one's own words", async () => {
  const id = await ask("asker", { text: "Which <img src=x onerror=window.pwned=1>\u202e colour?" });
  await page.goto("/ui/requests");
  await count().waitFor();
  const card = page.locator(`[data-request="${id}"]`);
  await card.getByRole("heading").getByText("U+202E", { exact: true }).waitFor();
  expect(await card.getByRole("button", { name: "Answer" }).isDisabled()).toBe(true);
  await card.getByLabel("Answer").fill('green "or" blue');
  await card.getByRole("button", { name: "Answer" }).click();
  await card.getByText('You answered green "or" blue.').waitFor();
  const { value } = (await venue.call("GET", `/api/v1/values/read?path=h/${id}/answer`)) as { value: unknown };
  expect(value).toBe('green "or" blue');
});

it("one that somebody else answered says so, and nothing that was typed is lost", async () => {
  const typed = await ask("typist", "What is the title?");
  const chosen = await ask("chooser", "Go on?", ["yes", "no"]);
  const elapse = await intervalsOf(page);
  await page.goto("/ui/requests");
  const card = page.locator(`[data-request="${typed}"]`);
  await card.getByLabel("Answer").fill("A long title");
  await answer(typed, "Short");
  await elapse();
  await card.getByText("Somebody else has answered this: Short").waitFor();
  await card.getByText("What you typed was not sent: A long title").waitFor();
  await card.getByRole("button", { name: "Discard it" }).click();
  await card.waitFor({ state: "detached" });
  // The venue refuses the second answer (409), because the page does not know of the first.
  await page.route("**/api/v1/requests/*", async (route) => {
    await answer(chosen, "no");
    await route.continue();
  });
  const other = page.locator(`[data-request="${chosen}"]`);
  const refused = page.waitForResponse((response) => response.status() === 409);
  await other.getByRole("button", { name: "yes" }).click();
  await refused;
  await other.getByText("Somebody else has answered this: no").waitFor();
});

it("one whose agent has ended is closed", async () => {
  const id = await ask("brief", "Still there?");
  await venue.run("agent:delete", { agentId: "brief" });
  await page.goto("/ui/requests");
  await page.getByRole("checkbox", { name: /answered or closed/ }).check();
  const card = page.locator(`[data-request="${id}"]`);
  await card.getByText("Closed: the agent ended before an answer came.").waitFor();
});

it("a question of a job names the job, and is answered in a form of its schema", async () => {
  const schema = {
    type: "object",
    required: ["copies"],
    properties: { copies: { type: "integer", minimum: 1 }, key: { type: "string", writeOnly: true } },
  };
  const job = await venue.invoke("jobs:ask", { question: "How many copies?", schema });
  await page.goto("/ui/requests");
  const card = page.getByRole("article", { name: "How many copies?" });
  const send = card.getByRole("button", { name: "Answer", exact: true });
  await send.click();
  await card.getByText("1 field needs attention.").waitFor();
  await card.getByLabel(/^copies/).fill("3");
  await card.getByLabel("key", { exact: true }).fill("a-very-secret-key");
  await send.click();
  await card.getByText('You answered {"copies":3,"key":"…"}. The job gets it as a message.').waitFor();
  await card.getByRole("link", { name: /^job/ }).click();
  await page.waitForURL(`**/ui/jobs/${job}`);
  await page.locator('.page-head [data-status="COMPLETE"]').waitFor();
  const { output } = (await venue.call("GET", `/api/v1/jobs/${job}`)) as { output: { answer: unknown } };
  expect(output.answer).toEqual({ copies: 3, key: "a-very-secret-key" });
});

it("one whose job has ended is closed, and nothing that was entered is lost", async () => {
  const question = "How many are still needed?";
  const job = await venue.invoke("jobs:ask", { question, schema: { type: "integer" } });
  const elapse = await intervalsOf(page);
  await page.goto("/ui/requests");
  const card = page.getByRole("article", { name: question });
  await card.getByLabel(/^Answer/).fill("7");
  await venue.call("PUT", `/api/v1/jobs/${job}/cancel`);
  await elapse();
  await card.getByText("Closed: the job ended before an answer came.").waitFor();
  await card.getByText("What you typed was not sent: 7").waitFor();
  await card.getByRole("button", { name: "Discard it" }).click();
  await card.waitFor({ state: "detached" });
});
