//! The CPU time that the jobs of one owner may use per day on executors.
//!
//! What an owner has used is a root with the day and a number of milliseconds. It is changed after the end
//! of a job is recorded, and only if there is a quota: an end that a crash separates from it is not
//! counted. Days are those of UTC.

use catena_store::{CommitError, Effect, Effects, RootKey, RootSpace};
use catena_value::{Map, Value};

use crate::commands::Commands;
use crate::error::StoreError;
use crate::jobs::milliseconds;
use crate::limits::CONTENTION_TRIES_MAX;

/// Why a queued job ends whose owner has used the CPU time of the day.
pub(super) const QUOTA: &str = "quota";

/// The owner of the roots that say how much was used.
const CPU: &str = "cpu";

const DAY_MS: i64 = 86_400_000;

impl Commands {
    /// Returns true if the jobs of an owner have used the CPU time of this day.
    pub(super) async fn exceeds_quota(&self, owner: &str) -> Result<bool, StoreError> {
        let Some(quota) = self.runtime.limits.cpu_per_day else { return Ok(false) };
        let root = self.jobs.store.root(&key(owner)).await?;
        let used = root.map_or(0, |root| used_on(&root.value, self.today()));
        Ok(used >= milliseconds(quota))
    }

    /// Adds what an execution used to what its owner has used today, if there is a quota.
    pub(super) async fn count_cpu(&self, owner: &str, execution: &Value) -> Result<(), StoreError> {
        if self.runtime.limits.cpu_per_day.is_none() {
            return Ok(());
        }
        let usage = execution.as_map().and_then(|map| map.field("resource_usage")?.as_map());
        let ms = usage.and_then(|usage| usage.field("cpu_ms")?.as_i64()).unwrap_or(0);
        if ms <= 0 {
            return Ok(());
        }
        for _ in 0..CONTENTION_TRIES_MAX {
            let today = self.today();
            let root = self.jobs.store.root(&key(owner)).await?;
            let used = root.as_ref().map_or(0, |root| used_on(&root.value, today));
            let members =
                [("day", Value::from(today)), ("ms", Value::from(used.saturating_add(ms)))];
            let value = Some(members.into_iter().collect::<Map>().into());
            let expected = root.map(|root| root.id);
            let effect = Effect::SetRoot { key: key(owner), expected, value };
            match self.jobs.store.commit(Effects::one(effect)).await {
                Ok(_) => return Ok(()),
                Err(CommitError::RootMoved { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Busy)
    }

    /// The number of days since 1970.
    fn today(&self) -> i64 {
        self.runtime.now().div_euclid(DAY_MS)
    }
}

fn key(owner: &str) -> RootKey {
    RootKey { space: RootSpace::Venue, owner: CPU.to_owned(), name: owner.to_owned() }
}

/// The milliseconds that a root states for a day.
fn used_on(value: &Value, day: i64) -> i64 {
    let number = |name: &str| value.as_map()?.field(name)?.as_i64();
    if number("day") == Some(day) { number("ms").unwrap_or(0) } else { 0 }
}
