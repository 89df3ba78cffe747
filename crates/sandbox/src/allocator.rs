//! What the allocator of the process keeps.
//!
//! The allocator of the GNU C library keeps what is freed for later, in a heap for every few threads. After
//! requests with large bodies a process can keep a gigabyte of which nothing is in use. It is here because
//! calling that library needs `unsafe` code.

use crate::limits::{ARENA_KEPT_BYTES_MAX, ARENA_STEP_BYTES, ARENAS_MAX, MAPPED_BLOCK_BYTES_MIN};
use crate::sys;

/// Bounds the arenas of the allocator, and makes it return large blocks to the kernel when they are freed. Without this
/// it learns from the first ones that large blocks are common, and keeps them. To be called before threads are started.
pub fn return_large_blocks() {
    sys::bound_arenas(ARENAS_MAX);
    sys::map_large_blocks(MAPPED_BLOCK_BYTES_MIN, ARENA_KEPT_BYTES_MAX, ARENA_STEP_BYTES);
}

/// Returns to the kernel what the allocator keeps. It takes milliseconds if that is much.
pub fn release_free_memory() {
    sys::release_free_memory();
}
