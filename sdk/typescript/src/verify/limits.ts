// Every bound of the verifier. They are those of the venue (`crates/value/src/limits.rs` and
// `crates/job/src/limits.rs`), because both must accept and refuse the same documents.

/** Longest encoding that is embedded in its parent, in bytes. Fixed by CAD003. */
export const EMBEDDED_BYTES_MAX = 140;

/** Longest byte sequence in one cell of a string. Fixed by CAD003. */
export const CHUNK_BYTES = 4096;

/** Most entries of a map leaf. Fixed by CAD003. */
export const HASH_LEAF_MAX = 15;

/** Most children of a tree node, and elements of a vector leaf. Fixed by CAD003. */
export const FAN_OUT = 16;

/** Longest two's-complement form of an integer, in bytes. Fixed by CAD003. */
export const INTEGER_BYTES_MAX = 4096;

/** Most decimal digits of an integer of `INTEGER_BYTES_MAX` bytes. */
export const INTEGER_DIGITS_MAX = 9864;

/** Nesting of a response: what a request may nest, inside a record, inside a history. */
export const ANSWER_DEPTH_MAX = 144;

/** Most steps of one job. */
export const STEPS_MAX = 1000;

/** Most calls of one job. */
export const CALLS_MAX = 10_000;

/** Depth to which verification follows sub-jobs of sub-jobs in one document. */
export const SUBJOB_DEPTH_MAX = 8;

/** Member names whose hashes are kept. Records repeat a few dozen names; input may have any. */
export const KEY_HASHES_MAX = 1024;
