//! The processes that use a store, and the hints that they send each other.
//!
//! A folder is open in one operating-system process at a time, which its lock ensures. So leases and
//! hints are kept in memory: a holder that is not here belongs to a process that has ended.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::limits::HINTS_MAX;
use crate::store::{Hint, Holder, HolderKey, ProcessLease};

/// The registered processes.
#[derive(Default)]
pub(super) struct Members {
    members: Mutex<HashMap<HolderKey, Member>>,
    /// The number of members, to be read without the lock.
    count: AtomicUsize,
    /// When the leases of workers end.
    workers: Mutex<HashMap<HolderKey, ProcessLease>>,
}

struct Member {
    holder: Holder,
    until: i64,
    sender: mpsc::Sender<Hint>,
    /// Taken by the process that receives the hints.
    receiver: Option<mpsc::Receiver<Hint>>,
}

impl Members {
    pub(super) fn renew(&self, holder: &Holder, now: i64, until: i64) -> Vec<ProcessLease> {
        let mut members = self.members.lock();
        let member = members.entry(holder.key()).or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(HINTS_MAX);
            Member { holder: holder.clone(), until, sender, receiver: Some(receiver) }
        });
        member.until = until;
        members.retain(|_, member| member.until > now);
        self.count.store(members.len(), Ordering::SeqCst);
        drop(members);
        self.leases(now)
    }

    pub(super) fn renew_worker(&self, worker: &Holder, until: i64) {
        let mut workers = self.workers.lock();
        match workers.get_mut(&worker.key()) {
            Some(lease) => lease.until = lease.until.max(until),
            None => {
                let lease = ProcessLease { holder: worker.clone(), until };
                workers.insert(worker.key(), lease);
            }
        }
    }

    pub(super) fn remove(&self, holder: &Holder) {
        self.workers.lock().remove(&holder.key());
        let mut members = self.members.lock();
        members.remove(&holder.key());
        self.count.store(members.len(), Ordering::SeqCst);
    }

    pub(super) fn leases(&self, now: i64) -> Vec<ProcessLease> {
        let members = self.members.lock();
        let live = members.values().filter(|member| member.until > now);
        let mut leases: Vec<ProcessLease> = live
            .map(|member| ProcessLease { holder: member.holder.clone(), until: member.until })
            .collect();
        drop(members);
        let mut workers = self.workers.lock();
        workers.retain(|_, lease| lease.until > now);
        leases.extend(workers.values().cloned());
        leases
    }

    pub(super) fn take_hints(&self, holder: &Holder) -> Option<mpsc::Receiver<Hint>> {
        self.members.lock().get_mut(&holder.key())?.receiver.take()
    }

    /// Sends a hint to all other members. A member that has too many already loses it.
    pub(super) fn send_hint(&self, from: &Holder, hint: &Hint) {
        if !self.has_peers() {
            return;
        }
        let members = self.members.lock();
        let key = from.key();
        for (_, member) in members.iter().filter(|(other, _)| **other != key) {
            drop(member.sender.try_send(hint.clone()));
        }
    }

    pub(super) fn has_peers(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 1
    }
}
