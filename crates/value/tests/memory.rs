//! Decoding never takes more memory than a small multiple of its input. The test is alone in its
//! binary, because it measures the allocator.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use catena_value::{decode, decode_message, encode_message, json};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Allowed bytes of memory per byte of input. An element of one byte becomes a handle of 24, a
/// member of two an entry of 80, an empty container of two or three bytes a node; growing vectors
/// double. The worst case is about 73.
const BYTES_PER_INPUT_BYTE: usize = 80;

/// Allowed bytes for the cache of names and other one-time costs.
const FIXED_BYTES: usize = 300_000;

fn peak(work: impl FnOnce()) -> usize {
    PeakAlloc.reset_peak_usage();
    let before = PeakAlloc.current_usage();
    work();
    PeakAlloc.peak_usage().saturating_sub(before)
}

fn check(name: &str, input: &[u8]) {
    let bound = input.len() * BYTES_PER_INPUT_BYTE + FIXED_BYTES;
    for used in [
        peak(|| drop(decode(input))),
        peak(|| drop(decode_message(input))),
        peak(|| drop(json::read(input))),
    ] {
        assert!(used <= bound, "{name}: {used} bytes for an input of {}", input.len());
    }
}

#[test]
fn memory_is_bounded_by_the_input() {
    let huge_count = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    for tag in 0..=255u8 {
        let mut claim = vec![tag];
        claim.extend_from_slice(&huge_count);
        check("a huge count", &claim);
        claim.extend_from_slice(&[0; 20_000]);
        check("a huge count and zeros", &claim);
        check("the same byte", &vec![tag; 100_000]);
    }
    for (name, text) in [
        ("a valid message of nils", format!("[{}null]", "null,".repeat(100_000))),
        ("a valid message of empty vectors", format!("[{}[]]", "[],".repeat(100_000))),
        ("a valid message of empty maps", format!("[{}{{}}]", "{},".repeat(100_000))),
    ] {
        let message = encode_message(&json::read(text.as_bytes()).unwrap());
        assert!(decode_message(&message).is_ok());
        check(name, &message);
    }
    check("nested vectors", &[0x80, 0x01].repeat(50_000));
    check("many empty arrays", format!("[{}[]]", "[],".repeat(100_000)).as_bytes());
    check("many empty objects", format!("[{}{{}}]", "{},".repeat(100_000)).as_bytes());
    check("many ones", format!("[{}1]", "1,".repeat(300_000)).as_bytes());
    let members: Vec<_> = (0..50_000).map(|i| format!("\"{i}\":0")).collect();
    check("many members", format!("{{{}}}", members.join(",")).as_bytes());
    check("deep", &[b'['; 1_000_000]);
    check("a long string", format!("\"{}\"", "x".repeat(2_000_000)).as_bytes());
}
