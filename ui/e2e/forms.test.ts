// Forms made from schemas, and the content of assets.

import { describe, expect, it } from "vitest";
import { fixture } from "./fixture";
import type { Fixture } from "./fixture";

let { venue, page } = {} as Fixture;
fixture((given) => ({ venue, page } = given));

const SCHEMA = {
  type: "object",
  required: ["day", "address"],
  properties: {
    day: { type: "string", format: "date" },
    detail: { enum: ["short", "full", 3] },
    address: {
      type: "object",
      required: ["city"],
      properties: { city: { type: "string" }, zip: { type: "integer", minimum: 1 } },
    },
    recipients: { type: "array", items: { type: "string", format: "email" }, maxItems: 2 },
    isUrgent: { type: "boolean" },
    key: { type: "string", writeOnly: true },
  },
};

describe("a form", () => {
  it("has fields for nested objects, arrays, choices, formats and secrets", async () => {
    const operation = await venue.register({
      name: "Report",
      operation: {
        adapter: "orchestrator",
        input: SCHEMA,
        steps: [{ op: "test:echo", input: { city: ["input", "address", "city"] } }],
        result: [0],
      },
    });
    const requests: string[] = [];
    page.on("request", (request) => requests.push(request.url()));
    await page.goto(`/ui/operations/${operation}`);
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.getByText(/needs? attention/).waitFor();
    await page.getByLabel(/^day /).fill("2026-01-31");
    await page.getByLabel("detail").selectOption("full");
    await page.getByLabel(/^city/).fill("Zürich");
    await page.getByLabel("zip").fill("8001");
    await page.getByRole("button", { name: "Add an item" }).click();
    await page.getByRole("textbox", { name: /^1/ }).fill("a@example.org");
    await page.getByLabel("isUrgent").selectOption("true");
    const secret = page.getByLabel("key", { exact: true });
    expect(await secret.getAttribute("type")).toBe("password");
    await secret.fill("a-very-secret-key");
    await page.getByRole("button", { name: /^curl/ }).click();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    expect(copied).toContain("Zürich");
    expect(copied).not.toContain("a-very-secret-key");
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.locator('.page-head [data-status="COMPLETE"]').waitFor();
    const id = new URL(page.url()).pathname.split("/")[3]!;
    const { input } = (await venue.call("GET", `/api/v1/jobs/${id}`)) as { input: object };
    expect(input).toMatchObject({
      day: "2026-01-31",
      detail: "full",
      address: { city: "Zürich", zip: 8001 },
      recipients: ["a@example.org"],
      isUrgent: true,
    });
    const kept = await page.evaluate(
      () => JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + location.href + document.body.textContent,
    );
    expect(kept + requests.join(" ")).not.toContain("a-very-secret-key");
  });
});

describe("the content of an asset", () => {
  const SCRIPT = "<script>window.pwned=1;parent.pwned=1</script>";
  const upload = async (type: string, body: string): Promise<string> => {
    const metadata = { name: `Content ${type}`, content: { contentType: type, fileName: body } };
    const id = (await venue.call("POST", "/api/v1/assets", metadata)) as string;
    const url = `${venue.url}/api/v1/assets/${id}/content`;
    const response = await fetch(url, { method: "PUT", body, headers: { "content-type": type } });
    expect(response.status, await response.text()).toBeLessThan(300);
    return id;
  };

  it("is shown as an image or as text, and never as a page", async () => {
    const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40" onload="window.pwned=1">
      <script>window.pwned=1</script><rect width="40" height="40" fill="green"/></svg>`;
    await page.goto(`/ui/assets/${await upload("image/svg+xml", svg)}`);
    await page.getByRole("button", { name: "Load the content" }).click();
    const image = page.getByRole("img", { name: "Preview of the content" });
    await image.waitFor();
    await page.waitForFunction(() => (document.querySelector("img.preview") as HTMLImageElement).naturalWidth > 0);
    expect(await image.getAttribute("src")).toMatch(/^blob:/);
    await page.goto(`/ui/assets/${await upload("text/html", SCRIPT)}`);
    await page.getByRole("button", { name: "Load the content" }).click();
    await page.getByLabel("Preview of the content").getByText(SCRIPT).waitFor();
    await page.goto(`/ui/assets/${await upload("application/octet-stream", SCRIPT)}`);
    await page.getByRole("button", { name: "Load the content" }).click();
    await page.getByText("This type of content has no preview.").waitFor();
    const saved = page.waitForEvent("download");
    await page.getByRole("button", { name: "Save" }).click();
    expect((await saved).suggestedFilename()).not.toMatch(/html?$/);
    expect(await page.locator("iframe, object, embed").count()).toBe(0);
  });
});
