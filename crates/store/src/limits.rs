//! Every bound of the domain store, with its reason. Those of the embedded ledger are its options.

/// Records in a job's own row. Rewriting the row for each append is quadratic in them; eight cover
/// nearly every job.
pub const ROW_RECORDS_MAX: u64 = 8;

/// Bytes of records in a job's own row, for the same reason.
pub const ROW_BYTES_MAX: usize = 4 * 1024;

/// Longest branch cell kept inside a job's row. Longer ones are stored once for everybody.
pub const LOCAL_CELL_BYTES_MAX: usize = 4 * 1024;

/// Cells of one commit that travel ahead of it in an entry of their own, so that no journal frame
/// outgrows its segment.
pub const AHEAD_BYTES: usize = 512 * 1024;

/// Messages that wait for one job.
pub const MESSAGES_MAX: u32 = 1_000;

/// Idempotency keys that one caller may have at a time.
pub const IDEMPOTENCY_KEYS_MAX: u64 = 100_000;

/// Rows of one page of a list.
pub const PAGE_ROWS_MAX: usize = 1_000;

/// Rows that one page of a filtered list looks at before it answers with what it has.
pub const PAGE_LOOKED_AT_MAX: usize = 20_000;

/// Cells that the collector removes in one commit, so that it never keeps writers waiting.
pub const COLLECT_BATCH: usize = 256;

/// Decoded cells kept in memory for lazy readers.
pub const CELL_CACHE_BYTES: usize = 16 * 1024 * 1024;

/// Jobs indexed anew in one commit of a rebuild.
pub const REBUILD_BATCH: usize = 500;
