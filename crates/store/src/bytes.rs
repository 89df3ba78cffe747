//! Reading and writing the fields of stored rows: fixed-width numbers big-endian, counts in base
//! 128, runs with their length before them.
//!
//! A row that cannot be read is damage, never a reason to panic: every reader says what it looked
//! for.

/// A row that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("stored row is damaged: no {0}")]
pub struct Damaged(pub &'static str);

pub(crate) fn put_count(count: u64, out: &mut Vec<u8>) {
    let mut rest = count;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

pub(crate) fn put_run(run: &[u8], out: &mut Vec<u8>) {
    put_count(run.len() as u64, out);
    out.extend_from_slice(run);
}

pub(crate) fn put_time(at: i64, out: &mut Vec<u8>) {
    put_count(at.max(0) as u64, out);
}

/// Reads fields from the front of a row.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(row: &'a [u8]) -> Self {
        Fields { rest: row }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What has not been read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Damaged(what))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Damaged> {
        self.take(N, what)?.try_into().map_err(|_| Damaged(what))
    }

    pub(crate) fn byte(&mut self, what: &'static str) -> Result<u8, Damaged> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(crate) fn number(&mut self, what: &'static str) -> Result<u64, Damaged> {
        self.array(what).map(u64::from_be_bytes)
    }

    pub(crate) fn count(&mut self, what: &'static str) -> Result<u64, Damaged> {
        let mut count = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            count |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(count);
            }
        }
        Err(Damaged(what))
    }

    pub(crate) fn time(&mut self, what: &'static str) -> Result<i64, Damaged> {
        i64::try_from(self.count(what)?).map_err(|_| Damaged(what))
    }

    pub(crate) fn run(&mut self, what: &'static str) -> Result<&'a [u8], Damaged> {
        let len = usize::try_from(self.count(what)?).map_err(|_| Damaged(what))?;
        self.take(len, what)
    }

    pub(crate) fn text(&mut self, what: &'static str) -> Result<&'a str, Damaged> {
        str::from_utf8(self.run(what)?).map_err(|_| Damaged(what))
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
        put_run(b"run", &mut row);
        let mut fields = Fields::new(&row);
        for count in [0, 1, 127, 128, 300, u64::MAX] {
            assert_eq!(fields.count("count"), Ok(count));
        }
        assert_eq!(fields.text("run"), Ok("run"));
        assert!(fields.is_empty());
        assert_eq!(fields.byte("more"), Err(Damaged("more")));
    }

    #[test]
    fn a_length_beyond_the_row_is_damage() {
        let mut row = Vec::new();
        put_count(u64::MAX, &mut row);
        assert_eq!(Fields::new(&row).run("run"), Err(Damaged("run")));
        assert_eq!(Fields::new(&[0xff; 12]).count("count"), Err(Damaged("count")));
    }
}
