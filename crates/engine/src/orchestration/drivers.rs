//! The drivers of this process, and the events that reach them.

use std::collections::HashMap;
use std::sync::Arc;

use catena_job::JobId;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::jobs::DriverEvents;
use crate::limits::CONCURRENT_STEPS_MAX;
use crate::orchestration::remote::RemoteEvent;
use crate::requests::JobView;

/// An event for the driver of an orchestration.
pub(super) enum DriverEvent {
    /// A sub-job changed.
    Child(JobView),
    /// A message was queued for the orchestration.
    Message,
    /// A remote step changed.
    Remote(u32, RemoteEvent),
}

/// The drivers of this process. The number of queued events is bounded by what the sub-jobs of an
/// orchestration do, which the limits on steps and history bound.
#[derive(Default)]
pub(crate) struct Drivers(Mutex<HashMap<JobId, Driver>>);

struct Driver {
    events: UnboundedSender<DriverEvent>,
    slots: Arc<Semaphore>,
}

impl Drivers {
    /// Sends an event to the driver of a job. Returns false if it has none here.
    pub(super) fn send(&self, job: JobId, event: DriverEvent) -> bool {
        let drivers = self.0.lock();
        drivers.get(&job).is_some_and(|driver| driver.events.send(event).is_ok())
    }

    /// Returns true if a job has a driver here.
    pub(super) fn contains(&self, job: JobId) -> bool {
        self.0.lock().contains_key(&job)
    }

    /// Returns the slots for concurrent sub-jobs of a job: those of its parent, which it shares, or
    /// new ones.
    pub(super) fn slots(&self, parent: Option<JobId>) -> Arc<Semaphore> {
        let drivers = self.0.lock();
        match parent.and_then(|parent| drivers.get(&parent)) {
            Some(parent) => Arc::clone(&parent.slots),
            None => Arc::new(Semaphore::new(CONCURRENT_STEPS_MAX)),
        }
    }

    /// Registers the driver of a job.
    pub(super) fn subscribe(self: &Arc<Self>, job: JobId, slots: Arc<Semaphore>) -> Subscription {
        let (sender, events) = unbounded_channel();
        self.0.lock().insert(job, Driver { events: sender, slots });
        Subscription { drivers: Arc::clone(self), job, events }
    }
}

impl DriverEvents for Drivers {
    fn child_changed(&self, parent: JobId, child: &JobView) -> bool {
        self.send(parent, DriverEvent::Child(child.clone()))
    }

    fn message_queued(&self, job: JobId) {
        self.send(job, DriverEvent::Message);
    }
}

/// A driver's registration. It ends when it is dropped.
pub(super) struct Subscription {
    drivers: Arc<Drivers>,
    job: JobId,
    pub(super) events: UnboundedReceiver<DriverEvent>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.drivers.0.lock().remove(&self.job);
    }
}
