//! Identifiers of jobs and records. They have types of their own, so that neither is ever passed
//! as a bare string.

use std::fmt;
use std::str::FromStr;

use catena_value::{IdText, ParseIdError, Value, ValueId};

/// Identifies a job within its venue: 128 bits in the layout of a version 7 UUID, with every free
/// bit random. IDs created later sort later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId([u8; 16]);

/// The text is not a job ID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a job ID: expected 32 hex digits, with or without `0x`, or a UUID")]
pub struct ParseJobIdError;

impl JobId {
    /// Makes an ID from the Unix time in ms and ten random bytes.
    pub fn new(now_ms: u64, random: [u8; 10]) -> Self {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&now_ms.to_be_bytes()[2..]);
        bytes[6..].copy_from_slice(&random);
        bytes[6] = 0x70 | bytes[6] & 0x0f;
        bytes[8] = 0x80 | bytes[8] & 0x3f;
        JobId(bytes)
    }

    /// The ID with these 16 bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        JobId(bytes)
    }

    /// The 16 bytes of the ID.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// 32 hex digits without a prefix: the form used in lists and URLs.
    pub fn to_hex(&self) -> String {
        self.text().as_str()[2..].to_owned()
    }

    /// `0x` and 32 hex digits, without an allocation.
    pub fn text(&self) -> IdText<34> {
        IdText::new(&self.0)
    }

    /// The same bits as a UUID.
    pub fn to_uuid(&self) -> String {
        let hex = self.to_hex();
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        parts.join("-")
    }
}

impl FromStr for JobId {
    type Err = ParseJobIdError;

    fn from_str(text: &str) -> Result<Self, ParseJobIdError> {
        let digits = text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text);
        let is_plain = match digits.len() {
            32 => true,
            36 if is_uuid_shaped(digits) => false,
            _ => return Err(ParseJobIdError),
        };
        let mut number = 0;
        for byte in digits.bytes().filter(|byte| is_plain || *byte != b'-') {
            let digit = char::from(byte).to_digit(16).ok_or(ParseJobIdError)?;
            number = number << 4 | u128::from(digit);
        }
        Ok(JobId(number.to_be_bytes()))
    }
}

fn is_uuid_shaped(text: &str) -> bool {
    text.match_indices('-').map(|(at, _)| at).eq([8, 13, 18, 23])
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<JobId> for Value {
    fn from(id: JobId) -> Self {
        Value::from(id.text().as_str())
    }
}

/// Identifies a record: the Value ID of the record as a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(ValueId);

impl RecordId {
    /// The record ID with this Value ID.
    pub const fn new(id: ValueId) -> Self {
        RecordId(id)
    }

    /// The Value ID of the record.
    pub const fn value_id(&self) -> &ValueId {
        &self.0
    }
}

impl FromStr for RecordId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        text.parse().map(RecordId)
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<RecordId> for Value {
    fn from(id: RecordId) -> Self {
        Value::from(id.value_id().text().as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_id_has_the_layout_of_a_version_7_uuid() {
        let id = JobId::new(0x0123_4567_89ab, [0xff; 10]);
        assert_eq!(id.to_string(), "0x0123456789ab7fffbfffffffffffffff");
        assert_eq!(id.to_uuid(), "01234567-89ab-7fff-bfff-ffffffffffff");
        assert!(JobId::new(1, [0xff; 10]) < JobId::new(2, [0; 10]));
    }

    #[test]
    fn a_job_id_reads_back_from_every_form() {
        let id = JobId::new(1_769_683_717_706, [7; 10]);
        let forms = [
            id.to_string(),
            id.to_hex(),
            id.to_hex().to_uppercase(),
            id.to_uuid(),
            "0X".to_owned() + &id.to_hex(),
        ];
        for form in forms {
            assert_eq!(form.parse(), Ok(id), "{form}");
        }
        let misplaced = id.to_uuid().replacen('-', "", 1) + "-";
        for bad in [
            "",
            "0x",
            "42322",
            "0x12345678901234567890123456789012ff",
            &misplaced,
            "+1234567890123456789012345678901",
            "zz345678901234567890123456789012",
        ] {
            assert_eq!(bad.parse::<JobId>(), Err(ParseJobIdError), "{bad}");
        }
    }
}
