//! Shared cells, loaded on demand: from a bounded cache, or from the ledger.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use catena_value::{CellSource, LoadError, Value, ValueId, decode_identified};
use parking_lot::Mutex;

use super::driver::LedgerDriver;
use super::known_ids::KnownIds;
use crate::keys::{CELLS, cell_key};
use crate::limits::CELL_CACHE_BYTES;

/// The estimated memory of a decoded cell, as a multiple of its encoded length.
const DECODED_FACTOR: usize = 4;

/// The source of cells that all jobs share.
pub(super) struct StoreCells {
    driver: Arc<LedgerDriver>,
    known_ids: Arc<KnownIds>,
    cache: Mutex<CellCache>,
}

impl StoreCells {
    pub(super) fn new(driver: Arc<LedgerDriver>, known_ids: Arc<KnownIds>) -> Self {
        StoreCells { driver, known_ids, cache: Mutex::new(CellCache::default()) }
    }
}

impl CellSource for StoreCells {
    fn load(&self, id: &ValueId) -> Result<Value, LoadError> {
        if let Some(value) = self.cache.lock().get(id) {
            return Ok(value);
        }
        let row = self
            .driver
            .get(CELLS, cell_key(id))
            .map_err(|error| LoadError::Source { id: *id, source: Box::new(error) })?;
        let bytes = row.ok_or(LoadError::Missing { id: *id })?;
        let value = decode_identified(id, self.known_ids.id_of(&bytes), &bytes)?;
        self.cache.lock().insert(*id, value.clone(), bytes.len() * DECODED_FACTOR);
        Ok(value)
    }
}

/// Decoded cells; the oldest is evicted first.
#[derive(Default)]
struct CellCache {
    cells: HashMap<ValueId, (Value, usize)>,
    order: VecDeque<ValueId>,
    bytes: usize,
}

impl CellCache {
    fn get(&self, id: &ValueId) -> Option<Value> {
        self.cells.get(id).map(|(value, _)| value.clone())
    }

    fn insert(&mut self, id: ValueId, value: Value, bytes: usize) {
        if self.cells.insert(id, (value, bytes)).is_some() {
            return;
        }
        self.order.push_back(id);
        self.bytes += bytes;
        while self.bytes > CELL_CACHE_BYTES {
            let Some(oldest) = self.order.pop_front() else { return };
            self.bytes -= self.cells.remove(&oldest).map_or(0, |(_, bytes)| bytes);
        }
    }
}
