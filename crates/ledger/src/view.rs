//! A view: all rows as of one moment, for long scans.
//!
//! It holds a copy of the active rows, a reference to the flushing ones and the index snapshot below them. While a view
//! exists, the index cannot reuse the pages of its moment, so the file may grow: drop views when done. A view fails with
//! an error if the index had to be reopened because the disk was full.

use std::sync::Arc;

use crate::error::RowReadError;
use crate::index::IndexSnapshot;
use crate::merge::Merged;
use crate::overlay::{Flushing, Generation};
use crate::shared::layer;
use crate::types::{Direction, KeyRange, RowBytes, TableId};

/// All rows as of one moment.
#[derive(Debug)]
pub struct View {
    active: Generation,
    flushing: Option<Arc<Flushing>>,
    index: Arc<IndexSnapshot>,
    sequence: u64,
}

impl View {
    pub(crate) fn new(
        active: Generation,
        flushing: Option<Arc<Flushing>>,
        index: Arc<IndexSnapshot>,
        sequence: u64,
    ) -> Self {
        Self { active, flushing, index, sequence }
    }

    /// The sequence of the last batch that the view contains.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// A row's value.
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<RowBytes>, RowReadError> {
        match self.generations().find_map(|rows| rows.get(table, key)) {
            Some(slot) => Ok(slot.clone().value()),
            None => self.index.get(table, key),
        }
    }

    /// An iterator over the rows of a range, which reads them lazily.
    pub fn range(
        &self,
        table: TableId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Merged<'_>, RowReadError> {
        let mut layers: Vec<_> =
            self.generations().map(|rows| layer(rows, table, range, direction)).collect();
        layers.push(self.index.range(table, range, direction)?);
        Ok(Merged::new(layers, direction))
    }

    fn generations(&self) -> impl Iterator<Item = &Generation> {
        std::iter::once(&self.active).chain(self.flushing.as_ref().map(|flushing| &flushing.rows))
    }
}
