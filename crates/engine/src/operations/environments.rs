//! The environments in which executors run code, and where a job that needs one waits.
//!
//! An executor is a worker of the venue itself. It announces its environments; they are stored, so that
//! a version which was known once stays known while it has no executor.

use std::collections::BTreeMap;

use catena_store::{Effect, Effects, RootKey, RootSpace, Store};
use catena_value::{Map, NoCells, Value, Vector};
use parking_lot::RwLock;

use crate::error::StoreError;
use crate::limits::{ENVIRONMENTS_MAX, PAGE_MAX};

/// The owner of the roots that hold environments.
const ENVIRONMENTS: &str = "environments";

/// An environment that an executor has announced.
#[derive(Debug, Clone, PartialEq)]
pub struct Environment {
    /// Its version, such as `py-bare@0123456789ab`.
    pub version: String,
    /// The kind of environment, such as `bare`: several versions of one kind may be known.
    pub profile: String,
    /// The job types that it can run.
    pub job_types: Vec<String>,
    /// When it was last announced, as Unix time in ms.
    pub announced: i64,
}

/// What is known about executors.
#[derive(Debug, Default)]
struct Known {
    environments: BTreeMap<String, Environment>,
    /// Why the executor that reported last has no Python.
    unavailable: Option<String>,
}

/// The environments that are known.
#[derive(Debug, Default)]
pub struct Environments(RwLock<Known>);

/// Where a job waits for an executor, and what its first record says about that.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The queue, without its owner.
    pub queue: String,
    /// From -10 to 10: higher ones have a longer head start.
    pub priority: i64,
    /// Further members of the first record.
    pub members: Vec<(&'static str, Value)>,
}

impl Environments {
    /// Returns an environment by its version.
    pub fn get(&self, version: &str) -> Option<Environment> {
        self.0.read().environments.get(version).cloned()
    }

    /// Returns the version of a profile that was announced last.
    pub fn newest(&self, profile: &str) -> Option<Environment> {
        let known = self.0.read();
        let of_profile = known.environments.values().filter(|known| known.profile == profile);
        of_profile.max_by_key(|known| known.announced).cloned()
    }

    /// Returns all versions.
    pub fn versions(&self) -> Vec<String> {
        self.0.read().environments.keys().cloned().collect()
    }

    /// Returns all environments, by version.
    pub fn list(&self) -> Vec<Environment> {
        self.0.read().environments.values().cloned().collect()
    }

    /// Returns true if any environment can run a job type.
    pub fn has_job_type(&self, job_type: &str) -> bool {
        let known = self.0.read();
        known.environments.values().any(|known| known.job_types.iter().any(|can| can == job_type))
    }

    /// Returns why the executor that reported last cannot run Python, if it said so, and what to do.
    pub fn unavailable(&self) -> Option<String> {
        self.0.read().unavailable.clone()
    }

    /// Reads the environments that were announced before.
    pub(crate) async fn load(&self, store: &dyn Store) -> Result<(), StoreError> {
        let mut after: Option<String> = None;
        loop {
            let names =
                store.roots(RootSpace::Venue, ENVIRONMENTS, after.as_deref(), PAGE_MAX).await?;
            let Some(last) = names.last().cloned() else { return Ok(()) };
            for name in names {
                let Some(root) = store.root(&key(&name)).await? else { continue };
                if let Some(environment) = from_value(&name, &root.value) {
                    self.0.write().environments.insert(name, environment);
                }
            }
            after = Some(last);
        }
    }

    /// Notes what an executor has, and stores what is new.
    pub(crate) async fn announce(
        &self,
        store: &dyn Store,
        announced: Vec<Environment>,
        unavailable: Option<String>,
    ) -> Result<(), StoreError> {
        for environment in &announced {
            let version = &environment.version;
            let is_known = self.get(version).is_some();
            if !is_known && self.versions().len() >= ENVIRONMENTS_MAX {
                return Err(StoreError::Busy);
            }
            if !is_known {
                let value = Some(to_value(environment));
                let effect = Effect::SetRoot { key: key(version), expected: None, value };
                match store.commit(Effects::one(effect)).await {
                    Ok(_) | Err(catena_store::CommitError::RootMoved { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        // All that one executor has become known together.
        let mut known = self.0.write();
        for environment in announced {
            known.environments.insert(environment.version.clone(), environment);
        }
        known.unavailable = unavailable;
        Ok(())
    }
}

fn key(version: &str) -> RootKey {
    let owner = ENVIRONMENTS.to_owned();
    RootKey { space: RootSpace::Venue, owner, name: version.to_owned() }
}

fn to_value(environment: &Environment) -> Value {
    let types: Vector = environment.job_types.iter().map(|kind| kind.as_str().into()).collect();
    let members = [
        ("profile", Value::from(environment.profile.as_str())),
        ("jobTypes", types.into()),
        ("announced", environment.announced.into()),
    ];
    members.into_iter().collect::<Map>().into()
}

fn from_value(version: &str, value: &Value) -> Option<Environment> {
    let map = value.as_map()?;
    let types = map.field("jobTypes")?.as_vector()?.iter(&NoCells).flatten();
    Some(Environment {
        version: version.to_owned(),
        profile: map.field("profile")?.as_str()?.to_owned(),
        job_types: types.filter_map(|kind| Some(kind.as_str()?.to_owned())).collect(),
        announced: map.field("announced")?.as_i64()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(version: &str, profile: &str, announced: i64) -> Environment {
        let job_types = vec!["object_execute".to_owned()];
        Environment { version: version.into(), profile: profile.into(), job_types, announced }
    }

    #[test]
    fn an_environment_is_stored_completely() {
        let one = environment("py-bare@1", "bare", 5);
        assert_eq!(from_value("py-bare@1", &to_value(&one)), Some(one));
    }

    #[test]
    fn the_newest_version_of_a_profile_counts() {
        let environments = Environments::default();
        for (version, profile, at) in [("b@2", "bare", 2), ("b@1", "bare", 9), ("s@1", "sci", 10)] {
            let entry = environment(version, profile, at);
            environments.0.write().environments.insert(version.into(), entry);
        }
        assert_eq!(environments.newest("bare").unwrap().version, "b@1");
        assert_eq!(environments.newest("gpu"), None);
        assert!(environments.has_job_type("object_execute"));
        assert!(!environments.has_job_type("object_render"));
    }
}
