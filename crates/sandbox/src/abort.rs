//! A mark that a process leaves in a file when it aborts.
//!
//! SIGABRT, SIGSEGV and SIGBUS are how a process ends because of what it does itself: a failed
//! allocation, an overflow of the stack, an invalid address. SIGKILL and a power failure leave no mark.
//! The mark says which signal it was and what the threads were working on. What the threads are working on
//! can also be kept in a file all the time ([`share_words`]), which a SIGKILL leaves as it is.

use std::fs::File;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::sys;

/// How a mark begins. The number of the signal follows as eight bytes, big-endian.
const HEADER: [u8; 8] = *b"aborted\n";

/// Bytes of the header with the signal, and of each item after it.
const ITEM_BYTES: usize = 16;

struct Marker {
    file: File,
    work: &'static [AtomicU64],
    entry_words: usize,
}

static MARKER: OnceLock<Marker> = OnceLock::new();

/// What an aborted process left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbortMark {
    /// The number of the signal.
    pub signal: u64,
    /// What its threads were working on.
    pub work: Vec<[u8; ITEM_BYTES]>,
}

impl AbortMark {
    /// Reads a mark. `None` if there is none.
    pub fn parse(bytes: &[u8]) -> Option<AbortMark> {
        let rest = bytes.strip_prefix(&HEADER)?;
        let (signal, items) = rest.split_first_chunk::<8>()?;
        let (items, _) = items.as_chunks::<ITEM_BYTES>();
        Some(AbortMark { signal: u64::from_be_bytes(*signal), work: items.to_vec() })
    }
}

/// File systems that write a page where it was before. On others, a page that cannot be written because the
/// disk is full would end the process.
const IN_PLACE: [i128; 3] = [0xEF53, 0x5846_5342, 0x0102_1994];

/// Makes this process write a mark to a file when it aborts. The first two words of each entry of the table
/// are an ID that a thread is working on, or zero. At most once per process.
pub fn mark_aborts(file: File, work: &'static [AtomicU64], entry_words: usize) -> io::Result<()> {
    if MARKER.set(Marker { file, work, entry_words }).is_err() {
        return Err(io::Error::from(io::ErrorKind::AlreadyExists));
    }
    sys::observe_fatal_signals(leave_mark)
}

/// Returns the words at the beginning of a file, shared with it: the kernel writes them to the file whatever
/// becomes of the process. An error if the file system may refuse to write a page later.
pub fn share_words(file: &File, words: usize) -> io::Result<&'static [AtomicU64]> {
    // The type of this number differs between platforms.
    let kind = i128::from(rustix::fs::fstatfs(file)?.f_type);
    if !IN_PLACE.contains(&kind) {
        return Err(io::Error::from(io::ErrorKind::Unsupported));
    }
    sys::map_words(file, words)
}

/// Writes the mark. Runs in a signal handler: it neither allocates nor takes a lock, and writes in small
/// pieces because its stack is small.
fn leave_mark(signal: i32) {
    // What handles an overflow of the stack aborts in turn.
    static IS_MARKED: AtomicBool = AtomicBool::new(false);
    let Some(marker) = MARKER.get() else { return };
    if IS_MARKED.swap(true, Ordering::Relaxed) {
        return;
    }
    write(&marker.file, HEADER, u64::from(signal.unsigned_abs()).to_be_bytes());
    for entry in marker.work.chunks_exact(marker.entry_words) {
        let first = entry[0].load(Ordering::Relaxed);
        let second = entry[1].load(Ordering::Relaxed);
        if first != 0 || second != 0 {
            write(&marker.file, first.to_be_bytes(), second.to_be_bytes());
        }
    }
}

fn write(file: &File, first: [u8; 8], second: [u8; 8]) {
    let mut item = [0; ITEM_BYTES];
    item[..8].copy_from_slice(&first);
    item[8..].copy_from_slice(&second);
    // Nothing can be done about a failure here.
    let _ = rustix::io::write(file, &item);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_says_what_was_worked_on() {
        let mut bytes = HEADER.to_vec();
        bytes.extend(6u64.to_be_bytes());
        bytes.extend([7; 16]);
        bytes.extend([8; 5]);
        let mark = AbortMark { signal: 6, work: vec![[7; 16]] };
        assert_eq!(AbortMark::parse(&bytes), Some(mark));
        assert_eq!(AbortMark::parse(b""), None);
        assert_eq!(AbortMark::parse(b"aborted"), None);
    }

    #[test]
    fn shared_words_are_in_the_file() {
        let path = std::env::temp_dir().join(format!("catena-words-{}", std::process::id()));
        std::fs::write(&path, [0; 32]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        if let Ok(words) = share_words(&file, 4) {
            words[1].store(u64::from_ne_bytes([7; 8]), Ordering::Relaxed);
            assert_eq!(std::fs::read(&path).unwrap()[8..16], [7; 8]);
        }
        assert!(share_words(&file, 5).is_err(), "the file is too short");
        std::fs::remove_file(&path).unwrap();
    }
}
