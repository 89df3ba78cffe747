//! The drivers of this process, and the events that reach them.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use catena_job::JobId;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::jobs::DriverEvents;
use crate::orchestration::Orchestration;
use crate::orchestration::remote::RemoteEvent;
use crate::requests::JobView;

/// An event for the driver of an orchestration.
pub(super) enum DriverEvent {
    /// A sub-job changed.
    Child(JobView),
    /// A message was queued for the orchestration.
    Message,
    /// There may be room to start a step.
    Room,
    /// A remote step changed.
    Remote(u32, RemoteEvent),
}

/// The drivers of this process. The number of queued events is bounded by what the sub-jobs of an
/// orchestration do, which the limits on steps and history bound.
#[derive(Default)]
pub(crate) struct Drivers {
    drivers: Mutex<HashMap<JobId, Driver>>,
    orchestration: OnceLock<Weak<Orchestration>>,
}

struct Driver {
    events: UnboundedSender<DriverEvent>,
    /// The sub-jobs that have not ended.
    open: Vec<JobId>,
}

impl Drivers {
    /// Sets what starts drivers. It is a weak reference because that owns this.
    pub(super) fn set_orchestration(&self, orchestration: Weak<Orchestration>) {
        let _ = self.orchestration.set(orchestration);
    }

    /// Sends an event to the driver of a job. Returns false if it has none here.
    pub(super) fn send(&self, job: JobId, event: DriverEvent) -> bool {
        let drivers = self.drivers.lock();
        drivers.get(&job).is_some_and(|driver| driver.events.send(event).is_ok())
    }

    /// Returns true if a job has a driver here.
    pub(super) fn contains(&self, job: JobId) -> bool {
        self.drivers.lock().contains_key(&job)
    }

    /// Registers the driver of a job.
    pub(super) fn subscribe(self: &Arc<Self>, job: JobId) -> Subscription {
        let (sender, events) = unbounded_channel();
        self.drivers.lock().insert(job, Driver { events: sender, open: Vec::new() });
        Subscription { drivers: Arc::clone(self), job, events, is_registered: true }
    }

    /// Sets the open sub-jobs of a driver, for checks without a notification.
    pub(super) fn set_open(&self, job: JobId, open: Vec<JobId>) {
        if let Some(driver) = self.drivers.lock().get_mut(&job) {
            driver.open = open;
        }
    }
}

impl DriverEvents for Drivers {
    fn child_changed(&self, parent: JobId, child: &JobView) {
        if self.send(parent, DriverEvent::Child(child.clone())) {
            return;
        }
        let concerns_parent =
            !matches!(child.status(), catena_job::Status::Pending | catena_job::Status::Started);
        if let Some(orchestration) = self.orchestration.get().and_then(Weak::upgrade)
            && concerns_parent
        {
            let driving = Arc::clone(&orchestration);
            orchestration.runtime.spawn(async move { driving.drive_parent(parent).await });
        }
    }

    fn message_queued(&self, job: JobId) {
        self.send(job, DriverEvent::Message);
    }

    fn is_driven(&self, job: JobId) -> bool {
        self.contains(job)
    }

    fn open_children(&self) -> Vec<JobId> {
        self.drivers.lock().values().flat_map(|driver| driver.open.clone()).collect()
    }
}

/// A driver's registration. It ends when it is dropped.
pub(super) struct Subscription {
    drivers: Arc<Drivers>,
    job: JobId,
    pub(super) events: UnboundedReceiver<DriverEvent>,
    is_registered: bool,
}

impl Subscription {
    /// Ends the registration. Returns true if events arrived that nobody has handled.
    pub(super) fn end(&mut self) -> bool {
        self.unregister();
        self.events.try_recv().is_ok()
    }

    fn unregister(&mut self) {
        if std::mem::take(&mut self.is_registered) {
            self.drivers.drivers.lock().remove(&self.job);
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.unregister();
    }
}
