//! The random workload of the crash driver, and the model it is compared with.

use std::collections::BTreeMap;

use super::rng::Rng;
use crate::error::error_chain;
use crate::manual::ManualLedger;
use crate::tx::Tx;
use crate::types::{Direction, KeyRange, Table, TableId};
use crate::view::View;

/// The tables of every simulated ledger. The IDs are not consecutive on purpose.
pub const TABLES: [Table; 3] = [
    Table { id: TableId(1), name: "jobs" },
    Table { id: TableId(2), name: "owners" },
    Table { id: TableId(7), name: "live" },
];

/// Few keys, so that they are overwritten, deleted and put again.
const KEYS: u64 = 40;

/// Upper bounds of value lengths; the last one is used rarely.
const VALUE_BYTES: [u64; 4] = [0, 20, 200, 3000];

/// The expected content of a ledger: `(table, key) -> value`.
pub type Model = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

/// One operation of an entry.
#[derive(Debug, Clone)]
pub enum Op {
    /// Sets a row.
    Put(TableId, Vec<u8>, Vec<u8>),
    /// Removes a row.
    Delete(TableId, Vec<u8>),
    /// Appends a byte to a row: depends on what was there.
    Append(TableId, Vec<u8>),
}

/// The error of an entry that refuses itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal;

/// One submission of the workload.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its operations, in order. An entry without operations only reads.
    pub ops: Vec<Op>,
    /// Whether it refuses itself after its last operation.
    pub refuses: bool,
}

impl Entry {
    /// Runs the operations on a ledger.
    pub fn run(&self, tx: &mut Tx<'_>) -> Result<(), Refusal> {
        for op in &self.ops {
            match op {
                Op::Put(table, key, value) => tx.put(*table, key.clone(), value.clone()),
                Op::Delete(table, key) => tx.delete(*table, key.clone()),
                Op::Append(table, key) => {
                    let old = tx.get(*table, key).map_err(|_| Refusal)?;
                    tx.put(*table, key.clone(), appended(old.as_deref()));
                }
            }
        }
        if self.refuses { Err(Refusal) } else { Ok(()) }
    }
}

/// Applies the operations of an entry to a model.
pub fn apply(model: &mut Model, entry: &Entry) {
    for op in &entry.ops {
        match op {
            Op::Put(table, key, value) => {
                model.insert((table.0, key.clone()), value.clone());
            }
            Op::Delete(table, key) => {
                model.remove(&(table.0, key.clone()));
            }
            Op::Append(table, key) => {
                let row = (table.0, key.clone());
                let value = appended(model.get(&row).map(Vec::as_slice));
                model.insert(row, value);
            }
        }
    }
}

fn appended(old: Option<&[u8]>) -> Vec<u8> {
    let mut value = old.unwrap_or(&[]).to_vec();
    value.truncate(64);
    let last = value.last().copied().unwrap_or(0);
    value.push(last.wrapping_add(1));
    value
}

/// An entry of up to five operations; sometimes a read, sometimes one that refuses.
pub fn random_entry(rng: &mut Rng) -> Entry {
    let ops = (0..rng.below(6)).map(|_| random_op(rng)).collect();
    Entry { ops, refuses: rng.chance(10) }
}

fn random_op(rng: &mut Rng) -> Op {
    let table = rng.pick(&TABLES).id;
    let key = format!("key-{:02}", rng.below(KEYS)).into_bytes();
    match rng.below(10) {
        0..=4 => Op::Put(table, key, random_value(rng)),
        5..=7 => Op::Delete(table, key),
        _ => Op::Append(table, key),
    }
}

fn random_value(rng: &mut Rng) -> Vec<u8> {
    let most = if rng.chance(10) { VALUE_BYTES[3] } else { rng.pick(&VALUE_BYTES[..3]) };
    let len = rng.below(most + 1) as usize;
    let byte = rng.number() as u8;
    vec![byte; len.min(1200)]
}

/// All rows of a ledger.
pub fn contents(ledger: &ManualLedger, direction: Direction) -> Result<Model, String> {
    view_contents(&ledger.view(), direction)
}

/// All rows of a view. An error if they are not in order.
pub fn view_contents(view: &View, direction: Direction) -> Result<Model, String> {
    let mut model = Model::new();
    for table in TABLES {
        let mut last: Option<Vec<u8>> = None;
        let rows = view
            .range(table.id, &KeyRange::all(), direction)
            .map_err(|error| error_chain(&error))?;
        for row in rows {
            let (key, value) = row.map_err(|error| error_chain(&error))?;
            let ordered = last
                .as_deref()
                .is_none_or(|last| (last < &key[..]) == (direction == Direction::Forward));
            if !ordered {
                return Err(format!("table {} is out of order", table.name));
            }
            last = Some(key.to_vec());
            model.insert((table.id.0, key.to_vec()), value.to_vec());
        }
    }
    Ok(model)
}
