//! Row values: immutable, shared bytes.
//!
//! A value is made on the writer's thread and stays in the overlay until the flush. Two things keep that cheap. Short
//! values are stored inline. Others are copied, when their batch is published, into one allocation per batch
//! ([`gather`]): the writers' allocations are freed at once instead of one by one by the flusher, whose thread would
//! then contend with theirs for the allocator.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::limits::GATHERED_BYTES_MAX;

/// The longest value that is stored inline, in bytes.
const INLINE_BYTES: usize = 22;

/// A row's value.
#[derive(Clone)]
pub struct RowBytes(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Own(Arc<[u8]>),
    Part { batch: Arc<Vec<u8>>, start: u32, len: u32 },
}

impl Deref for RowBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Own(bytes) => bytes,
            Repr::Part { batch, start, len } => &batch[*start as usize..][..*len as usize],
        }
    }
}

impl RowBytes {
    fn inline(value: &[u8]) -> Option<Self> {
        let mut bytes = [0; INLINE_BYTES];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(RowBytes(Repr::Inline { len: value.len() as u8, bytes }))
    }

    fn is_gatherable(&self) -> bool {
        !matches!(self.0, Repr::Inline { .. }) && self.len() <= GATHERED_BYTES_MAX
    }
}

/// Moves values of moderate length into one allocation that they share. `each` must visit the same values every time.
pub fn gather(mut each: impl FnMut(&mut dyn FnMut(&mut RowBytes))) {
    let mut total = 0;
    each(&mut |value| total += if value.is_gatherable() { value.len() } else { 0 });
    if u32::try_from(total).is_err() {
        return;
    }
    let mut batch = Vec::with_capacity(total);
    each(&mut |value| {
        if value.is_gatherable() {
            batch.extend_from_slice(value);
        }
    });
    let batch = Arc::new(batch);
    let mut start = 0;
    each(&mut |value| {
        if value.is_gatherable() {
            let len = value.len() as u32;
            *value = RowBytes(Repr::Part { batch: Arc::clone(&batch), start, len });
            start += len;
        }
    });
}

impl From<Arc<Vec<u8>>> for RowBytes {
    fn from(bytes: Arc<Vec<u8>>) -> Self {
        match u32::try_from(bytes.len()) {
            Ok(len) => RowBytes(Repr::Part { batch: bytes, start: 0, len }),
            Err(_) => RowBytes(Repr::Own(bytes.as_slice().into())),
        }
    }
}

impl From<&[u8]> for RowBytes {
    fn from(value: &[u8]) -> Self {
        RowBytes::inline(value).unwrap_or_else(|| RowBytes(Repr::Own(value.into())))
    }
}

impl<const N: usize> From<[u8; N]> for RowBytes {
    fn from(value: [u8; N]) -> Self {
        RowBytes::from(&value[..])
    }
}

impl From<Vec<u8>> for RowBytes {
    fn from(value: Vec<u8>) -> Self {
        RowBytes::inline(&value).unwrap_or_else(|| Arc::new(value).into())
    }
}

impl AsRef<[u8]> for RowBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for RowBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for RowBytes {}

impl fmt::Debug for RowBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathered_values_hold_the_same_bytes() {
        let lens = [0, 1, INLINE_BYTES, INLINE_BYTES + 1, 600, 4096, 4097, 70_000, 300];
        let plain: Vec<Vec<u8>> =
            lens.iter().enumerate().map(|(at, len)| vec![at as u8; *len]).collect();
        let mut values: Vec<RowBytes> = plain.iter().cloned().map(RowBytes::from).collect();
        for _ in 0..2 {
            gather(|visit| values.iter_mut().for_each(visit));
            let back: Vec<Vec<u8>> = values.iter().map(|value| value.to_vec()).collect();
            assert_eq!(back, plain);
        }
    }

    #[test]
    fn gathering_gives_back_what_the_writer_allocated() {
        let row = Arc::new(vec![7; 600]);
        let mut values = [RowBytes::from(Arc::clone(&row))];
        gather(|visit| values.iter_mut().for_each(visit));
        assert_eq!(Arc::strong_count(&row), 1);
        assert_eq!(*values[0], **row);
    }

    #[test]
    fn a_value_takes_no_more_than_three_words() {
        assert_eq!(size_of::<RowBytes>(), 24);
    }
}
