//! Cells on demand: from a bounded cache, or from the ledger.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use catena_value::{CellSource, LoadError, Value, ValueId, decode_branch};
use parking_lot::Mutex;

use super::engine::Engine;
use crate::keys::{CELLS, cell};
use crate::limits::CELL_CACHE_BYTES;

/// What a decoded cell takes, roughly, as a multiple of its bytes.
const DECODED_FACTOR: usize = 4;

/// The source of cells that are stored for everybody.
pub(super) struct StoreCells {
    engine: Arc<Engine>,
    cache: Mutex<Cache>,
}

impl StoreCells {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        StoreCells { engine, cache: Mutex::new(Cache::default()) }
    }
}

impl CellSource for StoreCells {
    fn load(&self, id: &ValueId) -> Result<Value, LoadError> {
        if let Some(value) = self.cache.lock().get(id) {
            return Ok(value);
        }
        let row = self
            .engine
            .get(CELLS, cell(id))
            .map_err(|error| LoadError::Source { id: *id, source: Box::new(error) })?;
        let bytes = row.ok_or(LoadError::Missing { id: *id })?;
        let value = decode_branch(id, &bytes)?;
        self.cache.lock().keep(*id, value.clone(), bytes.len() * DECODED_FACTOR);
        Ok(value)
    }
}

/// Decoded cells, oldest first out.
#[derive(Default)]
struct Cache {
    cells: HashMap<ValueId, (Value, usize)>,
    order: VecDeque<ValueId>,
    bytes: usize,
}

impl Cache {
    fn get(&self, id: &ValueId) -> Option<Value> {
        self.cells.get(id).map(|(value, _)| value.clone())
    }

    fn keep(&mut self, id: ValueId, value: Value, bytes: usize) {
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
