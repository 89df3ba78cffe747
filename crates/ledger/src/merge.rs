//! The one merged range iterator: several ordered layers read as one table.
//!
//! Layers are given newest first. For each key the newest layer that has a slot for it decides; a tombstone there hides
//! the key in all older layers. Every range read goes through here, so this is the only place where layers are merged.

use std::cmp::Ordering;

use crate::error::RowReadError;
use crate::types::{Direction, Key, RowBytes, Slot};

/// One ordered source of rows.
pub type Layer<'a> = Box<dyn Iterator<Item = Result<(Key, Slot), RowReadError>> + 'a>;

/// Merged slots, tombstones included: several layers as one.
pub struct MergedSlots<'a> {
    layers: Vec<LayerHead<'a>>,
    direction: Direction,
    failed: bool,
}

/// A layer and the row it would yield next.
struct LayerHead<'a> {
    next: Option<(Key, Slot)>,
    rest: Layer<'a>,
    started: bool,
}

impl<'a> MergedSlots<'a> {
    /// Merges layers, newest first, each already ordered in `direction`.
    pub fn new(layers: Vec<Layer<'a>>, direction: Direction) -> Self {
        let layers =
            layers.into_iter().map(|rest| LayerHead { next: None, rest, started: false }).collect();
        Self { layers, direction, failed: false }
    }

    fn start(&mut self) -> Result<(), RowReadError> {
        for head in self.layers.iter_mut().filter(|head| !head.started) {
            head.started = true;
            head.advance()?;
        }
        Ok(())
    }

    /// The newest layer among those holding the key that comes first.
    fn winning_layer(&self) -> Option<usize> {
        let mut first: Option<(usize, &Key)> = None;
        for (position, head) in self.layers.iter().enumerate() {
            let Some((key, _)) = &head.next else { continue };
            if first.is_none_or(|(_, best)| self.comes_before(key, best)) {
                first = Some((position, key));
            }
        }
        first.map(|(position, _)| position)
    }

    fn comes_before(&self, key: &Key, other: &Key) -> bool {
        let wanted = match self.direction {
            Direction::Forward => Ordering::Less,
            Direction::Backward => Ordering::Greater,
        };
        key.cmp(other) == wanted
    }

    fn step(&mut self) -> Result<Option<(Key, Slot)>, RowReadError> {
        self.start()?;
        let Some(winner) = self.winning_layer() else { return Ok(None) };
        let row = self.layers[winner].take_row()?;
        if let Some((key, _)) = &row {
            self.skip_key(key)?;
        }
        Ok(row)
    }

    /// Skips a key that was just decided in all older layers.
    fn skip_key(&mut self, key: &Key) -> Result<(), RowReadError> {
        for head in &mut self.layers {
            if head.next.as_ref().is_some_and(|(other, _)| other == key) {
                head.advance()?;
            }
        }
        Ok(())
    }
}

impl LayerHead<'_> {
    fn advance(&mut self) -> Result<(), RowReadError> {
        self.next = self.rest.next().transpose()?;
        Ok(())
    }

    fn take_row(&mut self) -> Result<Option<(Key, Slot)>, RowReadError> {
        let row = self.next.take();
        self.advance()?;
        Ok(row)
    }
}

impl Iterator for MergedSlots<'_> {
    type Item = Result<(Key, Slot), RowReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let row = self.step();
        self.failed = row.is_err();
        row.transpose()
    }
}

/// Merged rows as a reader sees them, without the deleted ones.
pub struct Merged<'a> {
    slots: MergedSlots<'a>,
}

impl<'a> Merged<'a> {
    /// Merges layers, newest first, each already ordered in `direction`.
    pub fn new(layers: Vec<Layer<'a>>, direction: Direction) -> Self {
        Self { slots: MergedSlots::new(layers, direction) }
    }
}

impl Iterator for Merged<'_> {
    type Item = Result<(Key, RowBytes), RowReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.slots.next()? {
                Ok((key, Slot::Put(value) | Slot::New(value))) => return Some(Ok((key, value))),
                Ok((_, Slot::Deleted)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Copies as much of `slots` as a reader of `limit` rows can need: up to `limit` rows that exist, and every tombstone
/// between them.
pub fn copy_up_to_limit(
    slots: MergedSlots<'_>,
    limit: usize,
) -> Result<Vec<(Key, Slot)>, RowReadError> {
    let mut copied = Vec::new();
    let mut rows = 0;
    if limit == 0 {
        return Ok(copied);
    }
    for row in slots {
        let (key, slot) = row?;
        rows += usize::from(slot != Slot::Deleted);
        copied.push((key, slot));
        if rows == limit {
            break;
        }
    }
    Ok(copied)
}
