// An order: a charge that happens once, two calls at the same time, and a person who decides.
//
//   npx tsc && node dist/examples/order.js
//   catena run o/order -i '{"item": "book", "amount": 12}'
//
// The job becomes INPUT_REQUIRED; answer it with a message (`true` or `false`) to let it continue.

import { Failure, s, Worker } from "../src/index.js";

const worker = new Worker();

worker.operation(
  {
    name: "order",
    description: "Charges a customer, prepares a parcel and sends it once somebody has approved.",
    input: s.object({ item: s.string(), amount: s.integer({ minimum: 1 }) }),
    output: s.object({ label: s.string(), receipt: s.string() }),
    retry: { attempts: 5 },
    timeoutMs: 7 * 24 * 3600 * 1000,
  },
  async ({ item, amount }, ctx) => {
    // A real service would get ctx.idempotencyKey, so that a repeated request charges once.
    const charge = async (): Promise<string> => `R-${ctx.idempotencyKey.slice(-6)}`;
    const receipt = await ctx.step("charge", charge, { input: { amount } });
    ctx.progress(1, 3);
    const parts = await ctx.calls({ label: ["o/label", { item }], weight: ["test:echo", { grams: 100 * amount }] });
    ctx.progress(2, 3);
    const { grams } = parts.weight as { grams: number };
    if (!(await ctx.ask("approve", `Send ${item}, ${grams} g?`, s.boolean()))) {
      throw new Failure(`${item} was not approved`, { code: "not_approved" });
    }
    const label = parts.label as string;
    ctx.log(`sending ${label}`);
    return { label, receipt };
  },
);

worker.operation(
  { name: "label", input: s.object({ item: s.string() }), output: s.string(), limit: { running: 2 } },
  ({ item }) => `LABEL ${item}`,
);

await worker.run();
