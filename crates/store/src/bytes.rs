//! Reading and writing the fields of stored rows: fixed-width numbers big-endian, counts as base-128
//! varints, byte strings with their length before them.
//!
//! A row that cannot be decoded is an error, never a reason to panic: every read names the field it
//! expected.

/// A stored row that cannot be decoded. The text names the field that was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("stored row is damaged: no {0}")]
pub struct DamagedRow(pub &'static str);

pub(crate) fn put_count(count: u64, out: &mut Vec<u8>) {
    let mut rest = count;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

pub(crate) fn put_bytes(run: &[u8], out: &mut Vec<u8>) {
    put_count(run.len() as u64, out);
    out.extend_from_slice(run);
}

pub(crate) fn put_time(at: i64, out: &mut Vec<u8>) {
    put_count(at.max(0) as u64, out);
}

/// Reads fields from the front of a row.
pub(crate) struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(row: &'a [u8]) -> Self {
        FieldReader { rest: row }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The bytes that have not been read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take_bytes(
        &mut self,
        len: usize,
        what: &'static str,
    ) -> Result<&'a [u8], DamagedRow> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DamagedRow(what))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<[u8; N], DamagedRow> {
        self.take_bytes(N, what)?.try_into().map_err(|_| DamagedRow(what))
    }

    pub(crate) fn byte(&mut self, what: &'static str) -> Result<u8, DamagedRow> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(crate) fn number(&mut self, what: &'static str) -> Result<u64, DamagedRow> {
        self.array(what).map(u64::from_be_bytes)
    }

    pub(crate) fn count(&mut self, what: &'static str) -> Result<u64, DamagedRow> {
        let mut count = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            count |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(count);
            }
        }
        Err(DamagedRow(what))
    }

    pub(crate) fn time(&mut self, what: &'static str) -> Result<i64, DamagedRow> {
        i64::try_from(self.count(what)?).map_err(|_| DamagedRow(what))
    }

    pub(crate) fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], DamagedRow> {
        let len = usize::try_from(self.count(what)?).map_err(|_| DamagedRow(what))?;
        self.take_bytes(len, what)
    }

    pub(crate) fn text(&mut self, what: &'static str) -> Result<&'a str, DamagedRow> {
        str::from_utf8(self.bytes(what)?).map_err(|_| DamagedRow(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_read_back_as_they_were_written() {
        let mut row = Vec::new();
        for count in [0, 1, 127, 128, 300, u64::MAX] {
            put_count(count, &mut row);
        }
        put_bytes(b"run", &mut row);
        let mut fields = FieldReader::new(&row);
        for count in [0, 1, 127, 128, 300, u64::MAX] {
            assert_eq!(fields.count("count"), Ok(count));
        }
        assert_eq!(fields.text("run"), Ok("run"));
        assert!(fields.is_empty());
        assert_eq!(fields.byte("more"), Err(DamagedRow("more")));
    }

    #[test]
    fn a_length_beyond_the_row_is_damage() {
        let mut row = Vec::new();
        put_count(u64::MAX, &mut row);
        assert_eq!(FieldReader::new(&row).bytes("run"), Err(DamagedRow("run")));
        assert_eq!(FieldReader::new(&[0xff; 12]).count("count"), Err(DamagedRow("count")));
    }
}
