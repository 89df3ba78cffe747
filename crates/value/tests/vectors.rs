//! The published vectors, byte for byte.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use catena_value::{
    Double, Signed, Value, ValueId, Vector, branches, decode, decode_message, encode,
    encode_message, is_embedded, json,
};
use ed25519_dalek::{Signer, SigningKey};
use serde_json::Value as Json;
use support::{generate, hex, read_edn, unhex};

fn vectors() -> Json {
    serde_json::from_str(include_str!("../vectors/cad003.json")).unwrap()
}

fn text<'a>(vector: &'a Json, field: &str) -> Option<&'a str> {
    vector.get(field).and_then(Json::as_str)
}

/// The expected result for a vector.
enum Expected {
    Value(Value),
    /// The strict reader refuses a text that the reference implementation reads with loss.
    Refused,
}

fn expected(vector: &Json) -> Expected {
    if let Some(source) = text(vector, "json") {
        return match json::read(source.as_bytes()) {
            Ok(value) => Expected::Value(value),
            Err(error) => {
                let note = text(vector, "note").unwrap_or("");
                let may_refuse = note.contains("unpaired surrogate") || note.contains("nfinity");
                assert!(may_refuse, "{}: {error}", vector["name"]);
                Expected::Refused
            }
        };
    }
    if let Some(source) = text(vector, "json_utf8_hex") {
        assert!(json::read(&unhex(source)).is_err(), "{}", vector["name"]);
        return Expected::Refused;
    }
    Expected::Value(if let Some(source) = text(vector, "edn") {
        read_edn(source)
    } else if let Some(name) = text(vector, "gen") {
        generate(name, vector["n"].as_i64().unwrap())
    } else if let Some(bits) = text(vector, "double_bits") {
        Value::Double(Double::from_bits(u64::from_str_radix(bits, 16).unwrap()))
    } else if let Some(source) = text(vector, "json_gen") {
        let n = source.trim_start_matches("[ string_abc(").trim_end_matches(") ]");
        Vector::from_items(vec![generate("string_abc", n.parse().unwrap())]).into()
    } else {
        signed(vector)
    })
}

fn signed(vector: &Json) -> Value {
    let value = json::read(text(vector, "signed_json").unwrap().as_bytes()).unwrap();
    let seed: [u8; 32] = unhex(text(vector, "ed25519_seed_hex").unwrap()).try_into().unwrap();
    let key = SigningKey::from_bytes(&seed);
    let message = Signed::message(&value);
    assert_eq!(hex(&message), text(vector, "signed_message_hex").unwrap());
    let signature = key.sign(&message).to_bytes();
    Value::Signed(Signed::new(key.verifying_key().as_bytes(), &signature, value))
}

#[test]
fn every_value_has_the_published_encoding_and_id() {
    let vectors = vectors();
    let (mut checked, mut refused) = (0, 0);
    for vector in vectors["vectors"].as_array().unwrap() {
        let name = &vector["name"];
        let Expected::Value(value) = expected(vector) else {
            refused += 1;
            continue;
        };
        let encoding = encode(&value);
        let id = ValueId::of_encoding(&encoding);
        assert_eq!(encoding.len() as u64, vector["encoding_len"].as_u64().unwrap(), "{name}");
        if let Some(published) = text(vector, "encoding_hex") {
            assert_eq!(hex(&encoding), published, "{name}");
        }
        assert_eq!(id.to_hex(), text(vector, "value_id").unwrap(), "{name}");
        assert_eq!(value.id(), id, "{name}");
        assert_eq!(is_embedded(&value), vector["embedded"].as_bool().unwrap(), "{name}");
        assert_eq!(branches(&value).len() as u64, vector["branches"].as_u64().unwrap(), "{name}");
        let decoded = decode(&encoding).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(encode(&decoded), encoding, "{name}");
        let message = encode_message(&value);
        assert_eq!(decode_message(&message).unwrap().id(), id, "{name}");
        checked += 1;
    }
    assert_eq!((checked, refused), (625, 12));
}

#[test]
fn the_decoder_accepts_and_refuses_what_it_must() {
    let vectors = vectors();
    let mut checked = 0;
    for case in vectors["decode"].as_array().unwrap() {
        let bytes = unhex(text(case, "hex").unwrap());
        let name = &case["name"];
        let decoded = decode(&bytes);
        match text(case, "expect").unwrap() {
            "accept" => assert_eq!(encode(&decoded.unwrap()), bytes, "{name}"),
            "reject" => {
                let error = decoded.err().unwrap_or_else(|| panic!("{name} was accepted"));
                assert!(error.offset <= bytes.len(), "{name}: {error}");
            }
            // Sparse records: no venue on the network accepts them, so neither does this decoder.
            "unspecified" => assert!(decoded.is_err(), "{name}"),
            other => panic!("unknown expectation {other}"),
        }
        checked += 1;
    }
    assert_eq!(checked, 166);
}

#[test]
fn messages_carry_complete_values_or_nothing() {
    let vectors = vectors();
    let mut checked = 0;
    for case in vectors["multicell"].as_array().unwrap() {
        let name = &case["name"];
        let message = unhex(text(case, "message_hex").unwrap());
        let decoded = decode_message(&message);
        if text(case, "expect") == Some("reject") {
            assert!(decoded.is_err(), "{name} was accepted");
        } else {
            let value = decoded.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(value.id().to_hex(), text(case, "value_id").unwrap(), "{name}");
            let again = decode_message(&encode_message(&value)).unwrap();
            assert_eq!(again.id(), value.id(), "{name}");
        }
        if let Some(source) = text(case, "json") {
            let value = json::read(source.as_bytes()).unwrap();
            assert_eq!(encode_message(&value).len(), message.len(), "{name}");
        }
        checked += 1;
    }
    assert_eq!(checked, 21);
}

#[test]
fn texts_that_are_not_json_are_refused() {
    let vectors = vectors();
    let cases = vectors["json_syntax"].as_array().unwrap();
    for case in cases {
        let source = text(case, "json").unwrap();
        assert!(json::read(source.as_bytes()).is_err(), "{source:?} was accepted");
    }
    assert_eq!(cases.len(), 30);
}
