// Secrets: stored and deleted by name, and never shown.

import { expect, it } from "vitest";
import { fixture } from "./fixture";
import type { Fixture } from "./fixture";

let { venue, page } = {} as Fixture;
fixture((given) => ({ venue, page } = given));

const VALUE = "a-very-secret-value";

it("a secret is stored and deleted, and its value is nowhere in the page", async () => {
  const names = async (): Promise<string> => JSON.stringify(await venue.call("GET", "/api/v1/secrets"));
  const received: string[] = [];
  page.on("response", (response) => void response.text().then((text) => received.push(text), () => undefined));
  await page.goto("/ui/workspace");
  const secrets = page.getByRole("region", { name: "Secrets" });
  for (const name of ["MAIL_KEY", "ARCHIVE_KEY"]) {
    await secrets.getByLabel("Name").fill(name);
    await secrets.getByLabel("Value").fill(VALUE);
    expect(await secrets.getByLabel("Value").getAttribute("type")).toBe("password");
    await secrets.getByRole("button", { name: "Store" }).click();
    await secrets.getByText(`${name} was stored.`).waitFor();
    await secrets.getByRole("listitem").filter({ hasText: name }).waitFor();
    expect(await secrets.getByLabel("Value").inputValue()).toBe("");
  }
  expect(await names()).toContain("ARCHIVE_KEY");
  const kept = await page.evaluate(
    () => document.body.textContent + JSON.stringify(sessionStorage) + JSON.stringify(localStorage) + location.href,
  );
  expect(kept + received.join()).not.toContain(VALUE);
  await secrets.getByRole("button", { name: "Delete the secret MAIL_KEY" }).click();
  await page.getByRole("button", { name: "Delete it" }).click();
  await secrets.getByText("MAIL_KEY").waitFor({ state: "detached" });
  expect(await names()).not.toContain("MAIL_KEY");
});
