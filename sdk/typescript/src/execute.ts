// Runs the handler of an operation for one claimed job and decides how the job ends.

import { Context } from "./context.js";
import { STOP_GRACE_MS } from "./limits.js";
import type { Operation } from "./operation.js";
import { endOfError, failed, plain } from "./run.js";
import type { End, Run } from "./run.js";

/** Runs the handler to its end. Undefined if nothing is to be reported, because the job no longer belongs to this run. */
export async function execute(run: Run, operation: Operation, stopGraceMs = STOP_GRACE_MS): Promise<End | undefined> {
  const fault = operation.input.check(run.claim.input);
  if (fault !== undefined) return failed(`invalid input: ${fault}`, "invalid_input", "never");
  let output: unknown;
  let thrown: { readonly error: unknown } | undefined;
  try {
    output = await settledOrStopped(run, operation, stopGraceMs);
  } catch (error) {
    thrown = { error };
  }
  if (run.isStopped) return run.isHandedBack ? { awaiting: [] } : undefined;
  if (run.unwound) return run.unwound.end;
  if (thrown) return endOfError(thrown.error);
  try {
    output = plain(output);
  } catch (error) {
    return failed(`invalid output: ${String(error)}`, "invalid_output", "never");
  }
  const wrong = operation.output.check(output);
  return wrong === undefined ? { output } : failed(`invalid output: ${wrong}`, "invalid_output", "never");
}

/** Resolves with the handler, or some time after the job was stopped: a handler that ignores its signal keeps no slot. */
async function settledOrStopped(run: Run, operation: Operation, stopGraceMs: number): Promise<unknown> {
  const context = new Context(run);
  const handler = (async () => operation.handler(run.claim.input, context))();
  let timer: NodeJS.Timeout | undefined;
  const stopped = new Promise<void>((resolve) => {
    const start = (): void => {
      timer = setTimeout(resolve, stopGraceMs);
    };
    if (run.isStopped) start();
    else run.signal.addEventListener("abort", start, { once: true });
  });
  try {
    return await Promise.race([handler, stopped]);
  } finally {
    clearTimeout(timer);
  }
}
