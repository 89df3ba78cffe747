//! Steps on other venues: the tasks that run them, and messages to them.

mod messages;
mod task;

pub(super) use messages::PendingDelivery;
pub(super) use task::{RemoteEvent, RemoteTasks, RemoteWork, TaskContext};
