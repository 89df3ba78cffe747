//! Network namespaces that workers use one after the other.
//!
//! The kernel takes longer to make and remove a network namespace than all other namespaces of a worker
//! together. A zygote therefore keeps those that it made, and the supervisor says which one a worker gets: one
//! that no other worker has, until no process of this worker is left.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::NETWORKS_MAX;

/// Which namespaces of one zygote are in use.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    used: Mutex<BTreeSet<usize>>,
}

/// The namespace of one worker. It can be used again when this is dropped, which must not happen while
/// processes of the worker are left.
#[derive(Debug)]
pub(crate) struct Network {
    networks: Arc<Networks>,
    number: usize,
}

impl Networks {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the first free namespace as used and returns its number. `None` if there are too many; the
    /// worker then gets a namespace that is not used again.
    pub(crate) fn claim(&self) -> Option<usize> {
        let mut used = self.lock();
        let number = (0..NETWORKS_MAX).find(|number| !used.contains(number))?;
        used.insert(number);
        Some(number)
    }

    /// The guard of a namespace that was claimed. A claim without a guard lasts as long as the zygote.
    pub(crate) fn guard(networks: &Arc<Networks>, number: usize) -> Network {
        Network { networks: Arc::clone(networks), number }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.networks.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_one_user_at_a_time() {
        let networks = Arc::new(Networks::default());
        let mut guards: Vec<Network> = (0..NETWORKS_MAX)
            .map(|expected| {
                let number = networks.claim().unwrap();
                assert_eq!(number, expected);
                Networks::guard(&networks, number)
            })
            .collect();
        assert_eq!(networks.claim(), None);
        drop(guards.remove(3));
        assert_eq!(networks.claim(), Some(3));
        assert_eq!(networks.claim(), None, "a claim without a guard is never given back");
    }
}
