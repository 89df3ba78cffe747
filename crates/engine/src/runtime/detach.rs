//! Work that continues when the caller that awaits it goes away.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::runtime::Env;

/// A future whose remaining work is spawned as a task if it is dropped after its first poll.
pub(crate) struct DetachOnDrop<T: 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    has_started: bool,
    env: Arc<dyn Env>,
}

impl<T> DetachOnDrop<T> {
    pub(super) fn new(env: Arc<dyn Env>, work: impl Future<Output = T> + Send + 'static) -> Self {
        DetachOnDrop { work: Some(Box::pin(work)), has_started: false, env }
    }
}

impl<T> Future for DetachOnDrop<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.has_started = true;
        let Some(work) = &mut self.work else { return Poll::Pending };
        let result = ready!(work.as_mut().poll(cx));
        self.work = None;
        Poll::Ready(result)
    }
}

impl<T> Drop for DetachOnDrop<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take().filter(|_| self.has_started) {
            self.env.spawn(Box::pin(async move { drop(work.await) }));
        }
    }
}
