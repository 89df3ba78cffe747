//! The number of sub-jobs of one root that may run at a time, over its entire tree.
//!
//! Drivers that find no room wait in line: when a step ends, the driver at the front is notified and
//! may start one step before it joins the line again, so nested orchestrations share what there is
//! and none starves. Only steps that run count: orchestrations, steps that wait for people and steps
//! that are paused take no room.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use catena_job::JobId;
use parking_lot::Mutex;

use crate::runtime::Reservation;

/// A step: the orchestration that it belongs to, and its index.
pub(super) type StepKey = (JobId, u32);

/// The share of one orchestration in what its root may run at a time.
pub(super) struct Share {
    pub(super) job: JobId,
    /// The root of its tree, whose total of sub-jobs is bounded.
    pub(super) root: JobId,
    pub(super) budget: Arc<Budget>,
    /// The memory of its values, which it reserves.
    pub(super) memory: Reservation,
}

/// What one root may run at a time.
pub(super) struct Budget {
    max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: HashSet<StepKey>,
    /// Drivers that wait for room, in the order in which they came.
    waiting: VecDeque<JobId>,
}

impl State {
    /// Returns the driver that may start a step now.
    fn next(&self, max: usize) -> Option<JobId> {
        if self.running.len() < max { self.waiting.front().copied() } else { None }
    }
}

impl Budget {
    pub(super) fn new(max: usize) -> Budget {
        Budget { max, state: Mutex::default() }
    }

    /// Makes room for a step, or puts its driver in line. Returns true if the step may start.
    pub(super) fn try_start(&self, step: StepKey) -> bool {
        let mut state = self.state.lock();
        let driver = step.0;
        let is_next = state.waiting.front().is_none_or(|front| *front == driver);
        if state.running.len() < self.max && is_next {
            if !state.waiting.is_empty() {
                state.waiting.pop_front();
            }
            state.running.insert(step);
            return true;
        }
        if !state.waiting.contains(&driver) {
            state.waiting.push_back(driver);
        }
        false
    }

    /// Counts a step that runs already.
    pub(super) fn count(&self, step: StepKey) {
        self.state.lock().running.insert(step);
    }

    /// Stops counting a step. Returns the driver that may start one instead.
    pub(super) fn release(&self, step: StepKey) -> Option<JobId> {
        let mut state = self.state.lock();
        if state.running.remove(&step) { state.next(self.max) } else { None }
    }

    /// Takes a driver that does not want to start a step out of the line. Returns the driver that
    /// may start one instead.
    pub(super) fn leave(&self, driver: JobId) -> Option<JobId> {
        let mut state = self.state.lock();
        let before = state.waiting.len();
        state.waiting.retain(|waiting| *waiting != driver);
        if state.waiting.len() < before { state.next(self.max) } else { None }
    }

    /// Returns the driver at the front of the line if there is room for a step.
    pub(super) fn next(&self) -> Option<JobId> {
        self.state.lock().next(self.max)
    }

    /// Returns how many more steps may run.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.max.saturating_sub(self.state.lock().running.len())
    }

    /// Stops counting all steps of an orchestration that has ended.
    pub(super) fn release_all(&self, driver: JobId) -> Option<JobId> {
        let mut state = self.state.lock();
        state.running.retain(|(parent, _)| *parent != driver);
        state.waiting.retain(|waiting| *waiting != driver);
        state.next(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(number: u8) -> JobId {
        JobId::from_bytes([number; 16])
    }

    #[test]
    fn drivers_that_find_no_room_are_served_in_order() {
        let budget = Budget::new(2);
        assert!(budget.try_start((driver(1), 0)));
        assert!(budget.try_start((driver(1), 1)));
        assert!(!budget.try_start((driver(1), 2)));
        assert!(!budget.try_start((driver(2), 0)));
        assert!(!budget.try_start((driver(3), 0)));
        assert_eq!(budget.release((driver(1), 0)), Some(driver(1)));
        assert!(!budget.try_start((driver(2), 0)), "another driver is first");
        assert!(budget.try_start((driver(1), 2)));
        assert!(!budget.try_start((driver(1), 3)), "it is last in line now");
        assert_eq!(budget.release((driver(1), 1)), Some(driver(2)));
        // The second driver was cancelled.
        assert_eq!(budget.release_all(driver(2)), Some(driver(3)));
        assert!(budget.try_start((driver(3), 0)));
        assert_eq!(budget.leave(driver(1)), None, "there is no room");
    }

    #[test]
    fn a_step_counts_once() {
        let budget = Budget::new(1);
        budget.count((driver(1), 0));
        budget.count((driver(1), 0));
        assert!(!budget.try_start((driver(1), 1)));
        assert_eq!(budget.release((driver(1), 0)), Some(driver(1)));
        assert_eq!(budget.release((driver(1), 0)), None);
        assert!(budget.try_start((driver(1), 1)));
    }
}
