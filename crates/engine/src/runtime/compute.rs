//! Compute threads: where work runs that would keep a thread of the runtime busy.
//!
//! The threads of the runtime answer requests, so nothing may occupy one for longer than about a
//! millisecond: neither the compilation of a schema nor an instant operation on a large input. Such
//! work runs here, on a few threads of its own with a large stack. Callers take turns, one caller
//! cannot occupy every thread while others wait, and the queue of each is bounded.
//!
//! Work cannot be interrupted. At its deadline, whoever waits for it is told so and the result is
//! dropped, but the thread is free only when the work has ended; what is submitted must therefore
//! be bounded by itself. Nothing waits for these threads when the process stops.
//!
//! A thread ends when no work is left, so an idle venue has none, and a paused environment can run
//! the work of a test to its end at once.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::limits::{
    COMPUTE_QUEUE_MAX, COMPUTE_QUEUE_PER_CALLER_MAX, COMPUTE_STACK_BYTES, COMPUTE_THREADS_MAX,
    COMPUTE_THREADS_PER_CALLER_MAX, COMPUTE_TIME_MAX,
};
use crate::runtime::{Env, Working, current_work};

/// Why work on a compute thread has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ComputeError {
    /// Too much work is waiting. Nothing was done.
    #[error("too much work is waiting for a thread")]
    Busy,
    /// The work did not end within [`COMPUTE_TIME_MAX`].
    #[error("it took longer than {} s", COMPUTE_TIME_MAX.as_secs())]
    Late,
    /// The work panicked.
    #[error("it panicked; this is a bug")]
    Panicked,
}

type Work = Box<dyn FnOnce() + Send>;

/// The compute threads of a process.
pub(crate) struct Compute {
    env: Arc<dyn Env>,
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    /// The callers with work that waits, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    callers: HashMap<Arc<str>, Share>,
    waiting: usize,
    threads: usize,
}

/// The work of one caller.
#[derive(Default)]
struct Share {
    waiting: VecDeque<Work>,
    running: usize,
}

impl Queue {
    fn add(&mut self, caller: &str, work: Work) -> Result<(), ComputeError> {
        let caller: Arc<str> = match self.callers.get_key_value(caller) {
            Some((known, _)) => Arc::clone(known),
            None => caller.into(),
        };
        let share = self.callers.entry(Arc::clone(&caller)).or_default();
        if self.waiting >= COMPUTE_QUEUE_MAX || share.waiting.len() >= COMPUTE_QUEUE_PER_CALLER_MAX
        {
            self.forget_idle(&caller);
            return Err(ComputeError::Busy);
        }
        if share.waiting.is_empty() {
            self.turns.push_back(caller);
        }
        share.waiting.push_back(work);
        self.waiting += 1;
        Ok(())
    }

    /// Takes the next work: that of the first caller whose share of the threads is not exhausted,
    /// who then has the last turn.
    fn take(&mut self) -> Option<(Arc<str>, Work)> {
        let is_entitled = |caller: &Arc<str>| {
            self.callers
                .get(caller)
                .is_some_and(|share| share.running < COMPUTE_THREADS_PER_CALLER_MAX)
        };
        let turn = self.turns.iter().position(is_entitled)?;
        let caller = self.turns.remove(turn)?;
        let share = self.callers.get_mut(&caller)?;
        let work = share.waiting.pop_front()?;
        share.running += 1;
        self.waiting -= 1;
        if !share.waiting.is_empty() {
            self.turns.push_back(Arc::clone(&caller));
        }
        Some((caller, work))
    }

    fn finish(&mut self, caller: &Arc<str>) {
        if let Some(share) = self.callers.get_mut(caller) {
            share.running -= 1;
        }
        self.forget_idle(caller);
    }

    fn forget_idle(&mut self, caller: &Arc<str>) {
        let is_idle = |share: &Share| share.waiting.is_empty() && share.running == 0;
        if self.callers.get(caller).is_some_and(is_idle) {
            self.callers.remove(caller);
        }
    }
}

impl Compute {
    pub(super) fn new(env: Arc<dyn Env>) -> Self {
        Compute { env, queue: Arc::default() }
    }

    /// Runs work of a caller on a compute thread. If the caller of this function stops waiting,
    /// work that has not started is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        caller: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ComputeError> {
        let (sender, result) = oneshot::channel();
        let current = current_work();
        let work = move || {
            let _working = current.map(Working::on);
            if !sender.is_closed() {
                let done = catch_unwind(AssertUnwindSafe(work));
                // Nobody may be waiting any more.
                drop(sender.send(done.map_err(|_| ComputeError::Panicked)));
            }
        };
        self.submit(caller, Box::new(work))?;
        tokio::select! {
            biased;
            done = result => done.unwrap_or(Err(ComputeError::Panicked)),
            () = self.env.sleep(COMPUTE_TIME_MAX) => Err(ComputeError::Late),
        }
    }

    fn submit(&self, caller: &str, work: Work) -> Result<(), ComputeError> {
        let mut queue = self.queue.lock();
        queue.add(caller, work)?;
        if queue.threads >= COMPUTE_THREADS_MAX {
            return Ok(());
        }
        queue.threads += 1;
        let is_first = queue.threads == 1;
        drop(queue);
        let shared = Arc::clone(&self.queue);
        let started =
            self.env.spawn_thread(COMPUTE_STACK_BYTES, Box::new(move || work_off(&shared)));
        if let Err(error) = started {
            self.queue.lock().threads -= 1;
            tracing::warn!(%error, "cannot start a compute thread");
            // Another thread takes the work, unless there is none.
            if is_first {
                return Err(ComputeError::Busy);
            }
        }
        Ok(())
    }
}

/// Runs work on a thread with the stack of a compute thread and waits for its end. Only for work
/// that is bounded by a second and cannot be awaited.
pub(crate) fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ComputeError> {
    let current = current_work();
    let work = move || {
        let _working = current.map(Working::on);
        work()
    };
    let thread = std::thread::Builder::new().stack_size(COMPUTE_STACK_BYTES).spawn(work);
    let thread = thread.map_err(|_| ComputeError::Busy)?;
    thread.join().map_err(|_| ComputeError::Panicked)
}

/// Runs work until none is left that may run now.
fn work_off(queue: &Mutex<Queue>) {
    loop {
        let taken = {
            let mut queue = queue.lock();
            let taken = queue.take();
            if taken.is_none() {
                queue.threads -= 1;
            }
            taken
        };
        let Some((caller, work)) = taken else { return };
        work();
        queue.lock().finish(&caller);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(queue: &mut Queue, caller: &str) -> Result<(), ComputeError> {
        queue.add(caller, Box::new(|| {}))
    }

    fn take(queue: &mut Queue) -> Option<Arc<str>> {
        queue.take().map(|(caller, _)| caller)
    }

    #[test]
    fn callers_take_turns() {
        let mut queue = Queue::default();
        for caller in ["a", "a", "a", "b", "c"] {
            add(&mut queue, caller).unwrap();
        }
        let mut order = Vec::new();
        while let Some(caller) = take(&mut queue) {
            queue.finish(&caller);
            order.push(caller.to_string());
        }
        assert_eq!(order, ["a", "b", "c", "a", "a"]);
        assert!(queue.callers.is_empty() && queue.waiting == 0);
    }

    #[test]
    fn one_caller_does_not_occupy_every_thread() {
        let mut queue = Queue::default();
        for _ in 0..COMPUTE_THREADS_MAX {
            add(&mut queue, "a").unwrap();
        }
        for _ in 0..COMPUTE_THREADS_PER_CALLER_MAX {
            assert_eq!(take(&mut queue).as_deref(), Some("a"));
        }
        assert_eq!(take(&mut queue), None);
        add(&mut queue, "b").unwrap();
        assert_eq!(take(&mut queue).as_deref(), Some("b"));
        queue.finish(&"a".into());
        assert_eq!(take(&mut queue).as_deref(), Some("a"));
    }

    #[test]
    fn the_queue_of_a_caller_is_bounded() {
        let mut queue = Queue::default();
        for _ in 0..COMPUTE_QUEUE_PER_CALLER_MAX {
            add(&mut queue, "a").unwrap();
        }
        assert_eq!(add(&mut queue, "a"), Err(ComputeError::Busy));
        add(&mut queue, "b").unwrap();
    }

    #[test]
    fn the_queue_of_all_callers_is_bounded() {
        let mut queue = Queue::default();
        for caller in 0..COMPUTE_QUEUE_MAX {
            add(&mut queue, &caller.to_string()).unwrap();
        }
        assert_eq!(add(&mut queue, "late"), Err(ComputeError::Busy));
        assert!(!queue.callers.contains_key("late"));
    }

    #[tokio::test]
    async fn work_returns_its_result_or_its_panic() {
        let compute = Compute::new(Arc::new(crate::runtime::SystemEnv::new()));
        assert_eq!(compute.run("a", || 1 + 1).await, Ok(2));
        let panicked = compute.run("a", || assert_eq!(1, 2, "as intended")).await;
        assert_eq!(panicked, Err(ComputeError::Panicked));
        assert_eq!(compute.run("a", || 3).await, Ok(3));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_takes_too_long_is_given_up() {
        let compute = Compute::new(Arc::new(crate::runtime::SystemEnv::new()));
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        // The clock advances because nothing else is to be done.
        let late = compute.run("a", move || blocked.recv().is_ok()).await;
        assert_eq!(late, Err(ComputeError::Late));
        drop(release);
    }
}
