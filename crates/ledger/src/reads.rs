//! The read interface of a ledger: the same whether threads run it or a simulation steps it.

use std::sync::Arc;

use crate::backup::{self, BackupReport};
use crate::counters::CounterSnapshot;
use crate::disk::Disk;
use crate::error::{BackupError, RowReadError};
use crate::open::OpenReport;
use crate::shared::{Health, RowPage, Shared};
use crate::types::{Direction, KeyRange, RowBytes, TableId};
use crate::view::View;

/// A read handle of an open ledger. Reading never waits for a writer.
#[derive(Debug, Clone)]
pub struct Reads {
    pub(crate) shared: Arc<Shared>,
    report: OpenReport,
}

impl Reads {
    pub(crate) fn new(shared: Arc<Shared>, report: OpenReport) -> Self {
        Self { shared, report }
    }

    /// The report of opening the ledger.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// A row, as of the last durable batch.
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<RowBytes>, RowReadError> {
        self.shared.get(None, table, key)
    }

    /// At most `limit` rows of a range, all as of one moment.
    pub fn range(
        &self,
        table: TableId,
        range: &KeyRange,
        direction: Direction,
        limit: usize,
    ) -> Result<RowPage, RowReadError> {
        self.shared.range(None, table, range, direction, limit)
    }

    /// A view of all rows as of this moment, for long scans.
    pub fn view(&self) -> View {
        self.shared.view()
    }

    /// The sequence of the last durable batch.
    pub fn sequence(&self) -> u64 {
        self.shared.overlay.read().sequence
    }

    /// The estimated memory of the rows that are durable but not in the index yet, in bytes.
    pub fn overlay_bytes(&self) -> usize {
        self.shared.overlay.read().bytes()
    }

    /// Whether writes are accepted.
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// The current values of the counters.
    pub fn counters(&self) -> CounterSnapshot {
        self.shared.counters.snapshot()
    }

    /// Copies the ledger, as of this moment and while it runs, to an empty disk.
    pub fn backup_to(&self, destination: Arc<dyn Disk>) -> Result<BackupReport, BackupError> {
        backup::copy(&self.shared.view(), &self.shared.options, destination)
    }
}
