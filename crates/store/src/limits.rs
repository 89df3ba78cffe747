//! Every bound of the store, with its reason. The bounds of the ledger below are in
//! `catena_ledger::limits` and in its options.

use std::time::Duration;

/// Records in a job's own row. Rewriting the row for each append is quadratic in them; eight cover
/// nearly every job.
pub const ROW_RECORDS_MAX: u64 = 8;

/// Bytes of records in a job's own row, for the same reason.
pub const ROW_BYTES_MAX: usize = 4 * 1024;

/// Longest branch cell, in bytes, that is stored inside a job's row. Longer ones are stored once and
/// shared by all jobs.
pub const LOCAL_CELL_BYTES_MAX: usize = 4 * 1024;

/// Bytes of cells above which a commit sends them ahead in entries of their own, so that no journal
/// frame outgrows its segment.
pub const AHEAD_BYTES: usize = 512 * 1024;

/// Messages that may wait for one job: a sender that is faster than its job is refused.
pub const MESSAGES_MAX: u32 = 1_000;

/// Idempotency keys that one caller may have at a time: they take disk space until they expire.
pub const IDEMPOTENCY_KEYS_MAX: u64 = 100_000;

/// Rows of one page of a list: a page is built in memory.
pub const PAGE_ROWS_MAX: usize = 1_000;

/// Rows that one page of a filtered list reads before it returns what it has, so that a rare match
/// does not hold up the caller.
pub const PAGE_SCANNED_MAX: usize = 20_000;

/// Rows of a table in the order of commits that are read at once. Each has the entries of a batch.
pub const POSITION_ROWS_MAX: usize = 64;

/// Changes of jobs that are kept for readers that reconnect: about 60 bytes each on disk. A reader
/// that missed more reads the list again.
pub const CHANGES_MAX: usize = 100_000;

/// Cells that the collector removes in one commit, so that it never keeps writers waiting.
pub const COLLECT_BATCH: usize = 256;

/// Bytes of decoded cells that are cached for lazy readers.
pub const CELL_CACHE_BYTES: usize = 16 * 1024 * 1024;

/// Encodings whose IDs are kept after they were written: the roots and cells that the next change reads.
pub const KNOWN_IDS_MAX: usize = 8_192;

/// Longest encoding whose ID is kept, so that all of them together take at most 8 MiB, and usually 3.
pub const KNOWN_ENCODING_BYTES_MAX: usize = 1_024;

/// Index rows written in one commit of a rebuild, so that a commit stays below the size of a frame.
pub const REBUILD_BATCH: usize = 500;

/// Lists whose counts are cached: about 100 bytes each, and 8 for every [`LIST_MARK_STEP`] jobs.
pub const LIST_COUNTS_MAX: usize = 10_000;

/// Jobs of a list between those whose positions are remembered, so that a page far from its ends is found without
/// reading all jobs before it.
pub const LIST_MARK_STEP: u64 = 1_000;

/// Queues whose fronts are remembered: about 100 bytes each.
pub const QUEUE_FRONTS_MAX: usize = 10_000;

/// Jobs that were read recently and are cached.
pub const RECENT_JOBS_MAX: usize = 8_192;

/// Longest row, in bytes, whose job is cached: an entry then takes at most 20 kB, and usually 2 kB.
pub const RECENT_ROW_BYTES_MAX: usize = 4_096;

/// Problems that a check report lists; the others are only counted, so that a report of a damaged
/// store fits in memory.
pub const PROBLEMS_MAX: usize = 100;

/// Longest request on the admin socket, in bytes: a word and a path.
pub const ADMIN_REQUEST_BYTES_MAX: u64 = 8 * 1024;

/// How long a connection to the admin socket may take to send its request: the socket serves one
/// connection at a time.
pub const ADMIN_REQUEST_TIME_MAX: Duration = Duration::from_secs(5);

/// Content up to this length, in bytes, is returned to the caller and never stored as a blob of its
/// own. A file costs two syncs and a directory entry; a row of this size is part of a commit that
/// happens anyway.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;

/// How long a blob may be, in bytes, unless [`crate::blob::Options`] say otherwise: the limit of the
/// API for the content of an asset.
pub const BLOB_BYTES_MAX: u64 = 100 * 1024 * 1024;

/// Bytes that a blob reader returns at a time and a writer gathers before it writes: large enough
/// that the cost of a system call does not matter, small enough that a thousand open blobs fit into
/// memory.
pub const CHUNK_BYTES: usize = 64 * 1024;

/// The longest range, in bytes, that one call may request from a
/// [`BlobSource`](crate::blob::BlobSource): it is held in memory.
pub const RANGE_BYTES_MAX: usize = 1024 * 1024;

/// Entries of one page of a blob listing: what object stores return at a time.
pub const LIST_PAGE_ENTRIES: usize = 1000;

/// Bytes that are uploaded to an object store at a time. Object stores refuse parts below 5 MiB
/// except the last, and some need all of them alike. An upload needs memory for one part, since it is
/// sent before the next one is gathered.
pub const PART_BYTES: usize = 5 * 1024 * 1024;

/// Hints that wait for a process. A process that receives more loses some, and notices the changes
/// when it checks.
pub const HINTS_MAX: usize = 65_536;

/// Files and folders of a data folder whose permissions are checked when it is opened. Those beyond
/// are protected by the folder that contains them.
pub const SECURED_FILES_MAX: usize = 10_000;

/// Bytes of the address of a socket, without the zero byte at its end.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Holders of blobs that are read at a time.
pub const HOLDERS_PAGE_MAX: usize = 500;

/// Shared cells that the committer knows to be stored: those that changes of a thousand agents refer to. They take 2 MiB.
pub const KNOWN_CELLS_MAX: usize = 65_536;

/// Roots whose values the committer knows. They take less than 2 MiB.
pub const KNOWN_ROOTS_MAX: usize = 8_192;

/// Bytes of a cell that the committer writes without looking whether it is stored already.
pub const UNCHECKED_CELL_BYTES_MAX: usize = 1_024;
