// Questions of agents to people: the count in the header, the list, answers, and those who were faster.

import { expect, it } from "vitest";
import { fixture } from "./fixture";
import type { Fixture } from "./fixture";
import type { Venue } from "./venue";

let { venue, page } = {} as Fixture;
fixture(
  (given) => ({ venue, page } = given),
  async (page) => expect(await page.evaluate(() => "pwned" in window)).toBe(false),
);

interface Asked {
  requestId: string;
}

const run = (venue: Venue, operation: string, input: object): Promise<unknown> =>
  venue.call("POST", "/api/v1/run", { operation, input });

async function ask(agentId: string, question: unknown, options?: unknown[]): Promise<string> {
  await run(venue, "agent:create", { agentId, config: { operation: "test:tally" } });
  const asked = (await run(venue, "agent:ask", { agentId, question, options })) as Asked;
  return asked.requestId;
}

const answer = (id: string, answer: unknown): Promise<unknown> =>
  venue.call("POST", `/api/v1/requests/${encodeURIComponent(id)}`, { answer });

const count = () => page.getByRole("banner").getByRole("link", { name: /for an answer/ });

it("a question of a model is counted in the header, and answered with one of its options", async () => {
  await page.goto("/ui/jobs");
  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Requests" }).waitFor();
  expect(await count().count()).toBe(0);
  const config = { operation: "llm:agent", llmOperation: "test:toolllm", tools: ["agent:ask"] };
  await run(venue, "agent:create", { agentId: "payer", config });
  const call = { question: "Pay the <b>invoice</b>?", options: ["yes", "no", { amount: 12 }] };
  await run(venue, "agent:chat", { agentId: "payer", message: `tool agent_ask ${JSON.stringify(call)}` });
  // The page is not loaded again.
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
  await page.goto("/ui/requests");
  const card = page.locator(`[data-request="${typed}"]`);
  await card.getByLabel("Answer").fill("A long title");
  await answer(typed, "Short");
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
  await run(venue, "agent:delete", { agentId: "brief" });
  await page.goto("/ui/requests");
  await page.getByRole("checkbox", { name: /answered or closed/ }).check();
  const card = page.locator(`[data-request="${id}"]`);
  await card.getByText("Closed: the agent ended before an answer came.").waitFor();
});
