// The errors of the library, and those by which a handler says how its job ends.

/** The base of every error of this library. */
export class CatenaError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The venue could not be reached, or the connection broke before it answered. */
export class Unreachable extends CatenaError {}

/** What a venue says when it refuses a request. */
export interface ErrorBody {
  readonly error?: string;
  readonly code?: string;
  readonly retry?: string;
  readonly detail?: string;
  readonly hint?: string;
  readonly [member: string]: unknown;
}

/** The venue refused a request. */
export class VenueError extends CatenaError {
  readonly code: string;
  /** `never`, `same_request`, `after_read` or `later`. */
  readonly retry: string;
  readonly hint: string | undefined;

  constructor(
    /** HTTP status. */
    readonly status: number,
    /** The entire response. */
    readonly body: ErrorBody,
  ) {
    const code = body.code ?? "unknown";
    const text = body.error ?? `HTTP status ${status}`;
    super(`${text} (${code})` + (body.hint === undefined ? "" : `. ${body.hint}`));
    this.code = code;
    this.retry = body.retry ?? "never";
    this.hint = body.hint;
  }

  /** Whether the same request may succeed later. */
  get isTransient(): boolean {
    return [429, 502, 503, 504].includes(this.status) || ["same_request", "later"].includes(this.retry);
  }
}

/** Another worker holds the job now, or it has ended: nothing that this run does counts any more. */
export class Fenced extends VenueError {}

/** A job ended without an output. */
export class JobFailed extends CatenaError {
  constructor(
    readonly job: string,
    readonly status: string,
    readonly reason: string | undefined,
  ) {
    super(`job ${job} is ${status}` + (reason === undefined ? "" : `: ${reason}`));
  }
}

/** An operation that a handler called ended without an output. */
export class CallFailed extends JobFailed {
  constructor(
    /** The key of the call. */
    readonly key: string,
    job: string,
    status: string,
    reason: string | undefined,
  ) {
    super(job, status, reason);
  }
}

/** A history is incomplete, was changed, or breaks a rule. */
export class VerificationFailed extends CatenaError {
  constructor(
    readonly code: string,
    readonly reason: string,
    /** Index of the first invalid record. Undefined if the fault concerns the entire history. */
    readonly record?: number | undefined,
    /** Sub-job in which the fault is. Undefined if it is in the job itself. */
    readonly subjob?: string | undefined,
  ) {
    const place = record === undefined ? "" : ` at record ${record}`;
    super(`${reason} (${code}${place}${subjob === undefined ? "" : ` of sub-job ${subjob}`})`);
  }
}

/** Thrown by a handler: the job fails, and another attempt would not help. */
export class Failure extends CatenaError {
  /** A code of your own, by which `retry.on` and people can tell failures apart. */
  readonly code: string | undefined;

  constructor(message: string, options: { code?: string } = {}) {
    super(message);
    this.code = options.code;
  }
}

/** Thrown by a handler: this attempt failed, and another one may succeed. Without `afterMs`, the operation's `retry` decides when. */
export class Retry extends CatenaError {
  readonly afterMs: number | undefined;
  readonly code: string | undefined;

  constructor(message: string, options: { afterMs?: number; code?: string } = {}) {
    super(message);
    if (options.afterMs !== undefined && !(options.afterMs >= 0)) throw new RangeError("`afterMs` must not be negative");
    this.afterMs = options.afterMs === undefined ? undefined : Math.round(options.afterMs);
    this.code = options.code;
  }
}

/** The reason of an aborted `ctx.signal`: the job was cancelled, timed out, or belongs to another worker. */
export class Stopped extends CatenaError {
  constructor() {
    super("the job was stopped");
  }
}
