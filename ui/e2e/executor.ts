// A venue with an executor, which runs Python in the sandbox of this machine.

import { envelopeOf } from "../src/api/executors";
import { jsonText } from "../src/lib/json_text";
import { Venue } from "./venue";

const CODE = { source: "pass", environment: undefined, mayReuse: true };
const REVISION = "00000000-0000-4000-8000-0000000000ff";

/** Starts a venue with one executor, and returns when that can run code. */
export async function startWithExecutor(...flags: string[]): Promise<Venue> {
  const venue = await Venue.start("--executors", "1", ...flags);
  for (;;) {
    const response = await fetch(`${venue.url}/contract/v1/jobs`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: jsonText(envelopeOf(CODE, REVISION)),
    });
    if (response.ok) return venue;
    // Until an executor has announced an environment, the request is refused and creates no job.
    if (response.status !== 503) throw new Error(`code cannot run here: ${await response.text()}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
