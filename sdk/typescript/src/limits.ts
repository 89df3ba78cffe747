// Every bound and interval of the library, with its reason.

/** Jobs that a worker runs at once unless told otherwise: enough to overlap waiting, few enough for any host. */
export const PARALLEL_DEFAULT = 4;

/** How long a claim waits for jobs. A worker that drains lets its last claim return, so this also bounds that wait. */
export const CLAIM_WAIT_MS = 3_000;

/** Jobs that one claim may ask for; the most that a venue gives at once. */
export const CLAIM_JOBS_MAX = 256;

/** Queues of one worker; the most from which a venue lets one request claim. */
export const CLAIM_QUEUES_MAX = 16;

/** How long a beat waits for signals. A job claimed in the meantime is covered by the next beat, half a second later. */
export const BEAT_WAIT_MS = 500;

/**
 * Time between the beats of a worker without jobs. They tell the venue that jobs of a claim whose answer was lost are not being run;
 * it offers them again one lease (10 s) after the claim.
 */
export const IDLE_BEAT_MS = 5_000;

/** Least time between two beats, in case a venue repeats a signal instead of waiting for the next one. */
export const BEAT_INTERVAL_MIN_MS = 100;

/**
 * How long a call waits for its result before the job is given back. A job that is given back runs from the top again, which is
 * cheap but not free; most calls end sooner than this.
 */
export const CALL_WAIT_MS = 1_000;

/** The same if every slot of the worker is taken: the called operation may need this very slot. */
export const CALL_WAIT_BUSY_MS = 50;

/** How long a request may take in addition to the time for which it asks the venue to wait. */
export const REQUEST_TIMEOUT_MS = 30_000;

/** Wait before the first repetition of a request that did not reach the venue. It doubles with each further one. */
export const BACKOFF_MIN_MS = 100;

/** Longest wait before a repetition: a venue that restarts gives every worker one lease (10 s) to report again. */
export const BACKOFF_MAX_MS = 3_000;

/** How long running jobs may take to end once the worker was asked to stop. Afterwards they are given back. */
export const GRACE_MS = 30_000;

/** How long a stopped handler may take to notice. Afterwards its slot is used again; its outcome is dropped in any case. */
export const STOP_GRACE_MS = 5_000;

/** Results sent with one claim. The others follow with the next one. */
export const DONE_BATCH_MAX = 64;

/** A larger result is sent by a request of its own, so that a claim never reaches the venue's limit for bodies (10 MB). */
export const DONE_CHARS_MAX = 256 * 1024;

/** Log lines of a job that wait for the next beat. Further ones are dropped and counted. */
export const LOG_LINES_MAX = 1_000;

/** Longest log line; the rest is cut off. */
export const LOG_LINE_CHARS_MAX = 2_000;

/** Longest error text sent to the venue; the rest is cut off. */
export const ERROR_CHARS_MAX = 4_000;

/** Longest time for which a venue lets one request wait for a job, in seconds. */
export const WAIT_S_MAX = 120;

/** Records per page of a history; the most that a venue returns. */
export const HISTORY_PAGE = 1_000;

/** Wait before a broken event stream is opened again, unless the venue states another one. */
export const FOLLOW_RETRY_MS = 1_000;

/** Runs of one job in the test helper. A handler that needs more asks or calls without end. */
export const REPLAYS_MAX = 1_000;

/** How long a token that a key issues for itself is valid, in seconds; a venue accepts at most an hour. */
export const TOKEN_S = 300;

/** After this time a new token is issued, long before the old one expires, even if the clocks differ by a minute. */
export const TOKEN_REFRESH_MS = 120_000;

/** Largest age of a pushed job, and largest difference of the clocks, as Standard Webhooks recommend. */
export const WEBHOOK_AGE_S = 300;

/** Signatures of one request that are tried; a venue sends one. */
export const WEBHOOK_SIGNATURES_MAX = 8;
