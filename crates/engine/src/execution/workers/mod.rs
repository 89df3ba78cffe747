//! The jobs that workers hold.
//!
//! A worker is a process of its own. The store says which worker holds a job, and under which fence;
//! the lease of a worker is renewed by its claims and beats. What is kept here is how a worker learns
//! that a job was paused or ended: the job has a [`RunHandle`](crate::execution::RunHandle), as if it ran in this process, and the
//! handle wakes the beat on which the worker waits. After a restart, or if the worker talks to another
//! process of the venue, the handle is made from what the store says.

pub(crate) mod claims;
pub(crate) mod queues;
pub(crate) mod sessions;
pub(crate) mod slots;
