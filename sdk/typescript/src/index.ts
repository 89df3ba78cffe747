// Run TypeScript and JavaScript functions as durable, verifiable jobs of a Catena venue.

export { Client, isEnded, resultOf } from "./client.js";
export type { Event, InvokeOptions, Job, WaitOptions } from "./client.js";
export type { Call, Context } from "./context.js";
export {
  CallFailed,
  CatenaError,
  Failure,
  Fenced,
  JobFailed,
  Retry,
  Stopped,
  Unreachable,
  VenueError,
  VerificationFailed,
} from "./errors.js";
export { Key } from "./key.js";
export { define } from "./operation.js";
export type { Definition, Handler, Operation, RetryPolicy } from "./operation.js";
export { s } from "./schema.js";
export type { Infer, JsonSchema, Schema } from "./schema.js";
export type { Access } from "./venue.js";
export { verify as verifyHistory } from "./verify/verify.js";
export type { Report } from "./verify/verify.js";
export { checkWebhook, NotAuthentic, receive } from "./webhook.js";
export type { PushedJob, ReceiveOptions } from "./webhook.js";
export { Worker } from "./worker.js";
export type { WorkerOptions } from "./worker.js";
