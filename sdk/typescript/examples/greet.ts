// The smallest worker: a function with a retry and a step.
//
//   npx tsc && node dist/examples/greet.js
//   catena run o/greet -i '{"name": "Ada"}'

import { Retry, s, Worker } from "../src/index.js";

const worker = new Worker();

worker.operation(
  {
    name: "greet",
    description: "Greets somebody.",
    input: s.object({ name: s.string(), loud: s.optional(s.boolean()) }),
    output: s.string(),
    retry: { attempts: 3, backoffMs: 500 },
  },
  async ({ name, loud }, ctx) => {
    if (ctx.attempt === 1) throw new Retry("not awake yet");
    const text = await ctx.step("text", () => `Hello, ${name}!`);
    return loud ? text.toUpperCase() : text;
  },
);

await worker.run();
