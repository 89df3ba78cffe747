//! Helpers to read values, and texts with a form.

use catena_value::{Map, NoCells, Value};
use sha2::{Digest as _, Sha256};

/// Returns true if a text is a UUID: 32 hex digits in five groups.
pub fn is_uuid(text: &str) -> bool {
    let is_shaped = text.match_indices('-').map(|(at, _)| at).eq([8, 13, 18, 23]);
    text.len() == 36 && is_shaped && text.bytes().all(|byte| byte == b'-' || is_hex(byte))
}

/// Returns true if a text is `sha256:` and 64 lower-case hex digits.
pub fn is_digest(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|byte| is_hex(byte) && !byte.is_ascii_uppercase())
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_hexdigit()
}

/// Returns the UUID that is derived from texts: the same for the same texts, in the form of version 8.
pub fn uuid_of(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text.as_bytes());
    }
    let digest: [u8; 32] = hash.finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    bytes[6] = 0x80 | bytes[6] & 0x0f;
    bytes[8] = 0x80 | bytes[8] & 0x3f;
    crate::JobId::from_bytes(bytes).to_uuid()
}

/// Returns `sha256:` and the digest of some bytes.
pub(super) fn digest_of(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    let mut text = String::from("sha256:");
    for byte in digest {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns a Unix time in ms as ISO 8601 in UTC, with milliseconds.
pub fn format_time(unix_ms: i64) -> String {
    let days = unix_ms.div_euclid(86_400_000);
    let ms = unix_ms.rem_euclid(86_400_000);
    let (year, month, day) = civil_date(days);
    let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
    let (second, milli) = (ms / 1000 % 60, ms % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Returns year, month and day of a number of days since 1970-01-01, in the Gregorian calendar. Years
/// begin in March here, so that the leap day is the last one.
fn civil_date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Returns a member of an object that is neither absent nor null.
pub(super) fn present<'a>(map: &'a Map, name: &str) -> Option<&'a Value> {
    map.field(name).filter(|value| !value.is_nil())
}

/// Returns a member of an object as text.
pub(super) fn text(map: &Map, name: &str) -> Option<String> {
    Some(present(map, name)?.to_text()?.into_owned())
}

/// Returns the items of an array, or `None` if the value is not one.
pub(super) fn items(value: &Value) -> Option<Vec<Value>> {
    value.as_vector()?.iter(&NoCells).collect::<Result<_, _>>().ok()
}

/// Returns an object with these members.
pub(super) fn object<'a>(members: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    members.into_iter().collect::<Map>().into()
}

/// Returns an array of texts.
pub(super) fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Value {
    texts.into_iter().map(Value::from).collect::<catena_value::Vector>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_have_one_form() {
        assert!(is_uuid("018f4d2e-0000-7000-8000-00000000abCD"));
        for wrong in
            ["", "018f4d2e00007000800000000000abcd", "018f4d2e-0000-7000-8000-00000000abcg"]
        {
            assert!(!is_uuid(wrong), "{wrong}");
        }
        let digest = digest_of(b"abc");
        assert!(is_digest(&digest) && digest.starts_with("sha256:ba7816bf"));
        assert!(!is_digest(&digest.to_uppercase()) && !is_digest(&digest[7..]));
    }

    #[test]
    fn a_derived_uuid_is_a_uuid_and_stays_the_same() {
        let one = uuid_of(&["did:key:z1"]);
        assert!(is_uuid(&one) && one.as_bytes()[14] == b'8');
        assert_eq!(one, uuid_of(&["did:key:z1"]));
        assert_ne!(uuid_of(&["a", "b"]), uuid_of(&["ab", ""]));
    }

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(format_time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(format_time(951_782_400_123), "2000-02-29T00:00:00.123Z");
        assert_eq!(format_time(1_768_039_212_000), "2026-01-10T10:00:12.000Z");
        assert_eq!(format_time(-1), "1969-12-31T23:59:59.999Z");
    }
}
