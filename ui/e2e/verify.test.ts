// The badge: what this browser found in the records that it received.

import { execFileSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { fixture } from "./fixture";
import type { Fixture } from "./fixture";
import { onPage } from "./proxy";
import type { Tamper } from "./proxy";
import { binary } from "./venue";

const ORCHESTRATION = {
  name: "Three in a row",
  operation: {
    adapter: "orchestrator",
    steps: [
      { op: "test:delay", input: { delay: ["const", 30] } },
      { op: "test:delay", input: { delay: ["const", 30], input: [0] } },
      { op: "test:delay", input: { delay: ["const", 30], input: [1] } },
    ],
    result: [2],
  },
};

let { venue, proxy, page } = {} as Fixture;
let job: string;
fixture((given) => ({ venue, proxy, page } = given), {
  isProxied: true,
  prepare: async (venue) => {
    job = await venue.invoke(await venue.register(ORCHESTRATION), {}, { wait: true });
  },
});

/** What `catena verify` says about the same text. */
function verdict(text: string): { code?: string; record?: number; records?: number } {
  try {
    const out = execFileSync(binary(), ["verify", "--json", "-"], { input: text, stdio: "pipe" });
    return JSON.parse(out.toString()) as { records: number };
  } catch (error) {
    const { stderr } = error as { stderr: Buffer };
    return JSON.parse(stderr.toString()) as { code: string; record: number };
  }
}

async function history(id = job): Promise<string> {
  return (await fetch(`${venue.url}/api/v1/jobs/${id}/history`)).text();
}

/** The text with one digit of one record's time replaced. */
const oneByte: Tamper = (text) => {
  const at = [...text.matchAll(/"updated":\d{12}(\d)/g)][4]!;
  const index = at.index + at[0].length - 1;
  return text.slice(0, index) + ((Number(at[1]) + 1) % 10) + text.slice(index + 1);
};

describe("a chain", () => {
  it("is verified here, with its sub-jobs on request", async () => {
    const { records } = verdict(await history());
    await page.goto(`/ui/jobs/${job}/chain`);
    await page.getByText(`verified here: ${records} records`).waitFor();
    await page.getByRole("button", { name: "Verify the sub-jobs too" }).click();
    await page.getByText("Sub-jobs: 3 verified, 0 unavailable.").waitFor();
    await page.getByText(`verified here: ${records} records, 3 sub-jobs`).waitFor();
  });

  it("is verified together with the jobs that it called, which are listed", async () => {
    const inner = { operation: "test:echo", input: { text: "called" } };
    const id = await venue.invoke("grid:run", inner, { wait: true });
    expect(await venue.status(id)).toBe("COMPLETE");
    await page.goto(`/ui/jobs/${id}`);
    await page.getByRole("link", { name: "Calls (1)" }).click();
    const row = page.getByRole("row", { name: /test:echo/ });
    await row.locator('[data-status="COMPLETE"]').waitFor();
    await page.getByRole("link", { name: "Chain", exact: true }).click();
    await page.getByRole("button", { name: "Verify the sub-jobs too" }).click();
    await page.getByText("Sub-jobs: 1 verified, 0 unavailable.").waitFor();
    await page.getByRole("link", { name: "Calls (1)" }).click();
    await row.getByRole("link", { name: /test:echo/ }).click();
    await page.getByText("Called by").waitFor();
    await page.getByRole("link", { name: "parent job" }).click();
    await row.waitFor();
    expect(page.url()).toContain(`${id}/calls`);
  });

  it("of a rerun is verified together with the jobs whose outputs it reused", async () => {
    const again = (await venue.call("POST", `/api/v1/jobs/${job}/rerun`, { from: 2 })) as {
      id: string;
    };
    await page.goto(`/ui/jobs/${again.id}/chain`);
    await page.locator('.page-head [data-status="COMPLETE"]').waitFor();
    const { records } = verdict(await history(again.id));
    await page.getByText(`verified here: ${records} records`).waitFor();
    await page.getByRole("button", { name: "Verify the sub-jobs too" }).click();
    await page.getByText("Sub-jobs: 3 verified, 0 unavailable.").waitFor();
  });

  it("can be linked to record by record", async () => {
    // The first delay lies between record 2 and this one, so that their times differ.
    await page.goto(`/ui/jobs/${job}/chain#record-3`);
    const record = page.getByRole("article", { name: "Record 3" });
    await record.locator(".fact", { hasText: "Caused by" }).getByText("the venue").waitFor();
    await record.getByText("Changes from the previous record").waitFor();
    await record.locator(".diff-changed", { hasText: "updated" }).locator("del").waitFor();
    await page.keyboard.press("j");
    await page.getByRole("article", { name: "Record 4" }).waitFor();
    expect(page.url()).toContain("#record-4");
  });

  it.each<[string, Tamper]>([
    ["one byte is altered", oneByte],
    ["one record is dropped", onPage((page) => page.records.splice(3, 1))],
    [
      "one record is dropped and the total adjusted",
      onPage((page) => {
        page.records.splice(3, 1);
        page.total--;
      }),
    ],
    [
      "two records are swapped",
      onPage(({ records }) => {
        [records[2], records[4]] = [records[4]!, records[2]!];
      }),
    ],
    [
      "the last record is dropped",
      onPage((page) => {
        page.records.pop();
      }),
    ],
  ])("shows the mismatch at the right record when %s", async (_, tamper) => {
    const { record } = verdict(tamper(await history()));
    expect(record).toBeTypeOf("number");
    proxy.tamper = tamper;
    await page.goto(`/ui/jobs/${job}/chain`);
    await page.getByText(`mismatch at record ${record}`, { exact: true }).waitFor();
    const fault = page.locator(".record-detail .callout.bad");
    if (record! < (JSON.parse(tamper(await history())) as { records: object[] }).records.length) {
      await fault.getByText("ID as received").waitFor();
      await fault.getByText("ID as computed here").waitFor();
    } else {
      await page.locator(".callout.bad").first().waitFor();
    }
  });

  it("is not mistaken for valid when the last record and the total are withheld", async () => {
    proxy.tamper = onPage((page) => {
      page.records.pop();
      page.total--;
    });
    await page.goto(`/ui/jobs/${job}/chain`);
    await page.getByRole("link", { name: "mismatch in the history" }).waitFor();
    await page.getByText(/expected head 0x/).first().waitFor();
  });

  it("is verified from the text: 1 is not 1.0", async () => {
    const body = '{"operation":"test:echo","input":{"x":1.0},"wait":true}';
    const echo = (await venue.call("POST", "/api/v1/invoke", body)) as { id: string };
    await page.goto(`/ui/jobs/${echo.id}`);
    await page.getByText("verified here: 3 records").waitFor();
    proxy.tamper = (text) => text.replace('{"x":1.0}', '{"x":1}');
    await page.goto(`/ui/jobs/${echo.id}/chain`);
    await page.reload();
    await page.getByText("mismatch at record 0", { exact: true }).waitFor();
  });
});
