//! The API of workers: processes that run jobs of their owner's queues.

pub(crate) mod routes;
