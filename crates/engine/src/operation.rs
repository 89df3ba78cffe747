//! An operation: the metadata of an asset, read and checked once.

use std::sync::Arc;
use std::time::Duration;

use catena_value::{NoCells, Value, ValueId};

use crate::adapter::{Adapter, Pace};
use crate::schema::Schema;

/// An operation that can be invoked.
pub struct Operation {
    pub(crate) id: ValueId,
    pub(crate) id_text: Arc<str>,
    pub(crate) metadata: Value,
    pub(crate) reference: String,
    pub(crate) adapter: Arc<dyn Adapter>,
    pub(crate) pace: Pace,
    pub(crate) input: Option<Schema>,
    pub(crate) output: Option<Schema>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) recovery: Recovery,
    pub(crate) retry: Option<Retry>,
    pub(crate) read_only: bool,
    /// Whether repeating it does no harm.
    pub(crate) is_repeatable: bool,
}

/// What to do with a job that was running when the venue stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Run it again.
    Rerun,
    /// Fail it: its effects are unknown.
    Fail,
    /// Pause it, and let somebody decide.
    Pause,
}

/// When and how often a failed operation is tried again.
#[derive(Debug, Clone, PartialEq)]
pub struct Retry {
    /// Tries in all, the first included.
    pub attempts: u32,
    /// How long to wait before the second try.
    pub backoff: Duration,
    /// By how much that grows each time.
    pub factor: f64,
    /// The codes of failures that are tried again; empty for all that may pass.
    pub on: Vec<String>,
}

impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "operation {} ({})", self.id_text, self.reference)
    }
}

impl Operation {
    /// The asset ID of its metadata.
    pub fn id(&self) -> ValueId {
        self.id
    }

    /// The metadata of its asset.
    pub fn metadata(&self) -> &Value {
        &self.metadata
    }

    /// One member of the metadata's `operation` object.
    pub fn member(&self, name: &str) -> Option<Value> {
        member(&self.metadata, name)
    }

    /// `operation.adapter`: `name:operation`, or `name` alone.
    pub fn adapter(&self) -> &str {
        &self.reference
    }

    /// The part of [`Operation::adapter`] after the colon; empty when there is none.
    pub fn name(&self) -> &str {
        self.reference.split_once(':').map_or("", |(_, name)| name)
    }

    /// Whether it changes nothing, so that running it needs no job.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// What to do with a job of it that was running when the venue stopped.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }
}

/// One member of the `operation` object of an asset's metadata.
pub(crate) fn member(metadata: &Value, name: &str) -> Option<Value> {
    let operation = metadata.as_map()?.get(&"operation".into(), &NoCells).ok()??;
    operation.as_map()?.get(&name.into(), &NoCells).ok()?
}
