// Operations: a handler with the definition under which the venue knows it.

import type { Context } from "./context.js";
import { s } from "./schema.js";
import type { Schema } from "./schema.js";
import { valueId } from "./verify/encode.js";
import { readText } from "./verify/json.js";

/** When a failed attempt is repeated. Members that are absent have the venue's defaults. */
export interface RetryPolicy {
  /** Attempts in total, 1 to 100. */
  readonly attempts: number;
  /** Wait before the second attempt. */
  readonly backoffMs?: number;
  /** Factor by which each further wait grows. */
  readonly factor?: number;
  /** Fraction by which a wait may be longer at random. */
  readonly jitter?: number;
  /** Time limit of one attempt. */
  readonly timeoutMs?: number;
  /** Failure codes that are retried. */
  readonly on?: readonly string[];
}

/** The definition of an operation. */
export interface Definition<I, O> {
  /** The operation is `o/<name>`. */
  readonly name: string;
  /** The operation's name unless it is given. */
  readonly queue?: string;
  readonly description?: string;
  readonly input?: Schema<I>;
  readonly output?: Schema<O>;
  readonly timeoutMs?: number;
  readonly retry?: RetryPolicy;
  readonly idempotent?: boolean;
  readonly recovery?: "rerun" | "fail" | "pause";
  /** -10 to 10. */
  readonly priority?: number;
  /** How many jobs of the queue run at once, in total or for each value at a path of the input. */
  readonly limit?: { readonly running: number; readonly by?: readonly (string | number)[] };
  /** How many jobs of the queue start per second, in total or for each value at a path of the input. */
  readonly rate?: { readonly perSecond: number; readonly by?: readonly (string | number)[] };
  /** Names of secrets of the caller that the handler gets as `context.secrets`. */
  readonly secrets?: readonly string[];
}

export type Handler<I, O> = (input: I, context: Context) => O | Promise<O>;

/** A function that runs as a job. */
export interface Operation {
  readonly name: string;
  readonly queue: string;
  readonly input: Schema<unknown>;
  readonly output: Schema<unknown>;
  readonly handler: Handler<unknown, unknown>;
  /** Attempts that the operation's retry policy allows. */
  readonly attempts: number;
  /** The asset that is registered. */
  readonly metadata: { readonly [member: string]: unknown };
  /** The ID under which the venue stores this definition: 64 hex digits. */
  readonly assetId: string;
}

/** Makes an operation of a function. The handler's types follow from the schemas. */
export function define<I = unknown, O = unknown>(definition: Definition<I, O>, handler: Handler<I, O>): Operation {
  const { name, queue = name, description, input = s.any(), output = s.any(), ...options } = definition;
  const metadata = {
    name,
    ...(description === undefined ? {} : { description }),
    operation: { adapter: "worker", queue, input: input.json, output: output.json, ...options },
  };
  return {
    name,
    queue,
    input,
    output,
    handler: handler as Handler<unknown, unknown>,
    attempts: definition.retry?.attempts ?? 1,
    metadata,
    assetId: valueId(readText(JSON.stringify(metadata))).slice(2),
  };
}
