//! The interface through which the venue sends jobs to services that run them.
//!
//! The engine opens no socket. An adapter whose operations have a URL implements
//! [`Adapter::deliver`](super::Adapter::deliver); the engine claims the job as a worker would, and
//! records what the service answered.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use catena_job::JobId;
use catena_value::Value;

use crate::operations::control::RunControl;
use crate::operations::failure::Failure;
use crate::operations::federation::Identity;
use crate::operations::operation::Operation;

/// A delivery that is under way. It is cancelled by dropping it.
pub type DeliveryFuture = Pin<Box<dyn Future<Output = Delivered> + Send + 'static>>;

/// A job to send to the service that runs it.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The operation, whose definition names the URL.
    pub operation: Arc<Operation>,
    /// The job.
    pub job: JobId,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// What is sent: the document that a claim would return, with the values of secret fields and with
    /// a token by which the receiver can end the job.
    pub document: Value,
    /// Identifies this request in traces: the header `traceparent`.
    pub trace: String,
    /// How long the receiver may take to answer.
    pub time: Duration,
    /// Pausing and sleeping.
    pub control: RunControl,
    /// Signs as the venue.
    pub identity: Identity,
}

/// What the receiver of a job answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivered {
    /// It has run the job.
    Ended(Result<Value, Failure>),
    /// It will end the job later.
    Accepted,
}
