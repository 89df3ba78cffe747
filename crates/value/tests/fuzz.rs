//! Arbitrary bytes never make a decoder panic, and everything that a decoder accepts is canonical.
//!
//! Runs for a bounded time as a test; the same targets run under a fuzzing engine with
//! `cargo bolero test NAME`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::time::Duration;

use catena_value::{Value, decode, decode_message, encode, encode_message, json};

/// Time for each target.
const TIME: Duration = Duration::from_secs(3);

fn cell_is_canonical_or_refused(bytes: &[u8]) {
    if let Ok(value) = decode(bytes) {
        assert_eq!(encode(&value), bytes);
    }
}

fn message_is_complete_or_refused(bytes: &[u8]) {
    if let Ok(value) = decode_message(bytes) {
        let again = decode_message(&encode_message(&value)).unwrap();
        assert_eq!(again.id(), value.id());
    }
}

/// Applies edits (position, byte) to valid bytes, so that deep code paths are reached as well.
fn edited(bytes: &[u8], edits: &[(u16, u8)], cut: u16) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, byte) in edits {
        if !bytes.is_empty() {
            let at = usize::from(*at) % bytes.len();
            bytes[at] = *byte;
        }
    }
    bytes.truncate(bytes.len().saturating_sub(usize::from(cut) % 8));
    bytes
}

/// Encodings of values of every kind.
fn samples() -> Vec<Vec<u8>> {
    let documents: serde_json::Value =
        serde_json::from_str(include_str!("../vectors/cad003.json")).unwrap();
    let hex = |text: &str| -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(byte).collect()
    };
    let vectors = documents["vectors"].as_array().unwrap();
    vectors.iter().filter_map(|v| v["encoding_hex"].as_str()).map(hex).collect()
}

#[test]
fn any_bytes_as_a_cell() {
    bolero::check!()
        .with_test_time(TIME)
        .for_each(|bytes: &[u8]| cell_is_canonical_or_refused(bytes));
}

#[test]
fn damaged_cells() {
    let samples = samples();
    bolero::check!().with_type::<(u16, Vec<(u16, u8)>, u16)>().with_test_time(TIME).for_each(
        |(sample, edits, cut)| {
            let sample = &samples[usize::from(*sample) % samples.len()];
            let edits = &edits[..edits.len().min(4)];
            cell_is_canonical_or_refused(&edited(sample, edits, *cut));
        },
    );
}

#[test]
fn damaged_messages() {
    let texts = [
        format!("[{}]", vec!["\"some longer text that fills the cell\""; 40].join(",")),
        format!("{{{}}}", (0..60).map(|i| format!("\"k{i}\":{i}")).collect::<Vec<_>>().join(",")),
        format!("\"{}\"", "x".repeat(9_000)),
    ];
    let value = |text: &String| json::read(text.as_bytes()).unwrap();
    let samples: Vec<_> = texts.iter().map(|text| encode_message(&value(text))).collect();
    bolero::check!().with_type::<(u8, Vec<(u16, u8)>, u16)>().with_test_time(TIME).for_each(
        |(sample, edits, cut)| {
            let sample = &samples[usize::from(*sample) % samples.len()];
            let edits = &edits[..edits.len().min(4)];
            message_is_complete_or_refused(&edited(sample, edits, *cut));
        },
    );
}

#[test]
fn any_bytes_as_json() {
    bolero::check!().with_test_time(TIME).for_each(|bytes: &[u8]| {
        let Ok(value) = json::read(bytes) else { return };
        let text = json::to_string(&value).unwrap();
        assert_eq!(json::read(text.as_bytes()).unwrap().id(), value.id());
    });
}

#[test]
fn damaged_json() {
    let sample = br#"{"a":[1,-2.5e3,"x\u00e9\n",{"b":null,"c":[true,false,[]]}],"big":12345678901234567890}"#;
    bolero::check!().with_type::<(Vec<(u16, u8)>, u16)>().with_test_time(TIME).for_each(
        |(edits, cut)| {
            let text = edited(sample, &edits[..edits.len().min(3)], *cut);
            if let Ok(value) = json::read(&text) {
                let again = json::read(json::to_string(&value).unwrap().as_bytes()).unwrap();
                assert!(again == value || value == Value::Nil);
            }
        },
    );
}
