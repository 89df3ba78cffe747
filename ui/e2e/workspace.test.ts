// The workspace: browsing, editing, and containers with many entries.

import { describe, expect, it } from "vitest";
import { intervalsOf } from "./browser";
import { attack, fixture } from "./fixture";
import type { Fixture } from "./fixture";
import { ADDRESS_TEXTS, HOSTILE } from "./hostile";

let { venue, page } = {} as Fixture;
fixture((given) => ({ venue, page } = given));

const write = (path: string, value: unknown): Promise<unknown> =>
  venue.run("covia:write", { path, value });

async function read(path: string): Promise<unknown> {
  const query = `/api/v1/values/read?path=${encodeURIComponent(path)}`;
  return ((await venue.call("GET", query)) as { value?: unknown }).value;
}

const entries = () => page.getByRole("region", { name: "Entries" });
const value = () => page.getByRole("region", { name: "Value" });

describe("the workspace", () => {
  it("is filled, edited, copied and emptied", async () => {
    await page.goto("/ui/workspace");
    await page.getByRole("link", { name: /^Values/ }).click();
    await entries().getByText("There is nothing here yet.").waitFor();
    await value().getByRole("button", { name: "Add an entry" }).click();
    await page.getByLabel("Name").fill("notes/first");
    await page.getByLabel("Value (text)").fill("hello");
    await page.getByRole("button", { name: "Add", exact: true }).click();
    await value().getByText("It was added.").waitFor();
    expect(await read("w/notes/first")).toBe("hello");
    await entries().getByRole("link", { name: /^notes/ }).click();
    await entries().getByRole("link", { name: /^first/ }).click();
    await value().getByRole("button", { name: "Edit" }).click();
    await page.getByRole("button", { name: "JSON" }).click();
    const editor = page.getByLabel("Value (JSON)");
    await editor.fill('{"n": 123456789012345678901234567890, "x": }');
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText(/This is not JSON in line 1/).waitFor();
    await editor.fill('{"n": 123456789012345678901234567890, "x": 1.0}');
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("123456789012345678901234567890").first().waitFor();
    await page.getByText("1.0", { exact: true }).first().waitFor();
    await value().getByRole("button", { name: "Copy to…" }).click();
    await page.getByLabel("Path of the copy").fill("w/copied");
    await page.getByRole("button", { name: "Copy", exact: true }).click();
    await value().getByText("It was copied to w/copied.").waitFor();
    await value().getByRole("button", { name: "Delete" }).click();
    await page.getByRole("button", { name: "Delete it" }).click();
    await page.waitForURL(/path=w\/notes$/);
    expect(await read("w/notes/first")).toBe(undefined);
    expect(await read("w/copied")).toMatchObject({ x: 1 });
  });

  it("says when somebody else has changed what is being edited", async () => {
    await write("w/shared", "before");
    const elapse = await intervalsOf(page);
    await page.goto("/ui/workspace?path=w/shared");
    await value().getByRole("button", { name: "Edit" }).click();
    await page.getByLabel("Value (text)").fill("mine");
    await write("w/shared", "theirs");
    await elapse();
    await page.getByText(/has changed since you opened it/).waitFor();
    expect(await page.getByLabel("Value (text)").inputValue()).toBe("mine");
  });

  it("appends to an array, and shows what cannot be changed without such buttons", async () => {
    await write("w/list", ["a", "b"]);
    await page.goto("/ui/workspace?path=w/list");
    await entries().getByText("2 entries").waitFor();
    await value().getByRole("button", { name: "Add an entry" }).click();
    await page.getByLabel("Value (text)").fill("c");
    await page.getByRole("button", { name: "Append" }).click();
    await entries().getByText("3 entries").waitFor();
    expect(await read("w/list")).toEqual(["a", "b", "c"]);
    await page.goto("/ui/workspace?path=v/info");
    await entries().getByRole("link", { name: /^version/ }).waitFor();
    expect(await page.getByRole("button", { name: /^(Edit|Delete|Add an entry)$/ }).count()).toBe(0);
    await page.goto("/ui/workspace?path=w/nothing/here");
    await page.getByText("There is nothing at this path.").waitFor();
  });

  it("with 100,000 entries has few rows in the document, and reads only what is in view", async () => {
    const many = Array.from({ length: 100_000 }, (_, n) => [`entry-${n}`, n]);
    await write("w/many", Object.fromEntries(many));
    let reads = 0;
    page.on("request", (request) => {
      if (request.url().includes("/values/slice")) reads++;
    });
    await page.goto("/ui/workspace?path=w/many");
    await entries().getByText("100,000 entries").waitFor();
    await value().getByText(/too large to be shown in one piece/).waitFor();
    await entries().getByRole("group", { name: "Entries" }).evaluate((element) => {
      element.scrollTop = element.scrollHeight;
    });
    const last = page.locator('[data-entry="99999"]');
    await last.waitFor();
    expect(await page.locator(".entry-item").count()).toBeLessThan(200);
    expect(reads).toBeLessThan(6);
    await last.click();
    await value().getByText("Integer", { exact: true }).waitFor();
  });

  it("shows hostile names and values as text", async () => {
    const names = HOSTILE.map((text) => text.slice(0, 200)).filter((text) => text !== "__proto__");
    const object = new Map<string, unknown>(names.map((name, at) => [name, HOSTILE[at]]));
    await write("w/hostile", Object.fromEntries(object));
    await write("w/texts", HOSTILE);
    await page.goto("/ui/workspace?path=w/hostile");
    await entries().getByText(`${object.size} entries`).waitFor();
    await entries().getByText("U+202E").first().waitFor();
    await page.goto("/ui/workspace?path=w/texts");
    await entries().getByText("40 entries").waitFor();
    for (const at of [0, 1, 11, 25, 33]) {
      await page.goto(`/ui/workspace?path=w/texts/${at}`);
      await value().getByText("String", { exact: true }).waitFor();
    }
    const pathOf = (text: string): string => `/ui/workspace?path=${encodeURIComponent(`w/${text}`)}`;
    await attack(page, ADDRESS_TEXTS.map(pathOf), "Workspace");
    await page.getByRole("heading", { name: "Workspace" }).waitFor();
  });
});
