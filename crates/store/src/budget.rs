//! The number of sub-jobs of one root that may run at a time, over its entire tree and in all
//! processes.
//!
//! Drivers that find no room wait in line: when a step ends, the driver at the front is notified and
//! may start one step before it joins the line again, so nested orchestrations share what there is
//! and none starves. Only steps that run count: orchestrations, steps that wait for people and steps
//! that are paused take no room.
//!
//! What is counted follows from the jobs of the tree, so it is not stored: a budget exists while a
//! process uses it, and who uses it first counts what runs already.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};

use catena_job::JobId;
use parking_lot::Mutex;

/// A step: the orchestration that it belongs to, and its index.
pub type StepKey = (JobId, u32);

/// What one root may run at a time.
pub struct RootBudget {
    max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// False until the steps are counted that ran before. No step starts until then.
    is_counted: bool,
    running: HashSet<StepKey>,
    /// Drivers that wait for room, in the order in which they came.
    waiting: VecDeque<JobId>,
    /// When the line was last checked, as Unix time in ms.
    checked_at: i64,
}

impl State {
    /// Returns the driver that may start a step now.
    fn next(&self, max: usize) -> Option<JobId> {
        self.waiting.front().copied().filter(|_| self.has_room(max))
    }

    fn has_room(&self, max: usize) -> bool {
        self.is_counted && self.running.len() < max
    }
}

impl RootBudget {
    /// Creates the budget of a root of which it is not known yet what runs.
    pub fn new(max: usize) -> RootBudget {
        RootBudget { max, state: Mutex::default() }
    }

    /// Makes room for a step, or puts its driver in line. Returns true if the step may start.
    pub fn try_start(&self, step: StepKey) -> bool {
        let mut state = self.state.lock();
        let driver = step.0;
        let is_next = state.waiting.front().is_none_or(|front| *front == driver);
        if state.has_room(self.max) && is_next {
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
    pub fn count(&self, step: StepKey) {
        self.state.lock().running.insert(step);
    }

    /// Notes that everything is counted that ran before. Returns the driver that may start a step.
    pub fn set_counted(&self) -> Option<JobId> {
        let mut state = self.state.lock();
        state.is_counted = true;
        state.next(self.max)
    }

    /// Returns true if everything is counted that ran before.
    pub fn is_counted(&self) -> bool {
        self.state.lock().is_counted
    }

    /// Stops counting a step. Returns the driver that may start one instead.
    pub fn release(&self, step: StepKey) -> Option<JobId> {
        let mut state = self.state.lock();
        if state.running.remove(&step) { state.next(self.max) } else { None }
    }

    /// Takes a driver that does not want to start a step out of the line. Returns the driver that
    /// may start one instead.
    pub fn leave(&self, driver: JobId) -> Option<JobId> {
        let mut state = self.state.lock();
        let before = state.waiting.len();
        state.waiting.retain(|waiting| *waiting != driver);
        if state.waiting.len() < before { state.next(self.max) } else { None }
    }

    /// Returns the driver at the front of the line if there is room for a step.
    pub fn next(&self) -> Option<JobId> {
        self.state.lock().next(self.max)
    }

    /// Returns how many more steps may run.
    pub fn room(&self) -> usize {
        self.max.saturating_sub(self.state.lock().running.len())
    }

    /// Stops counting all steps of an orchestration that has ended.
    pub fn release_all(&self, driver: JobId) -> Option<JobId> {
        let mut state = self.state.lock();
        state.running.retain(|(parent, _)| *parent != driver);
        state.waiting.retain(|waiting| *waiting != driver);
        state.next(self.max)
    }

    /// Returns true if the line has not been checked for so long: one of many that wait does.
    pub fn begin_check(&self, now: i64, interval_ms: i64) -> bool {
        let mut state = self.state.lock();
        // A clock that was set back must not stop the checks.
        let is_due = (now - state.checked_at).abs() >= interval_ms;
        if is_due {
            state.checked_at = now;
        }
        is_due
    }

    /// Returns the drivers that wait for room, in the order in which they came.
    pub fn waiting(&self) -> Vec<JobId> {
        self.state.lock().waiting.iter().copied().collect()
    }

    /// Returns the orchestrations whose steps are counted.
    pub fn counted_parents(&self) -> BTreeSet<JobId> {
        self.state.lock().running.iter().map(|(parent, _)| *parent).collect()
    }
}

/// The budgets that are in use.
#[derive(Default)]
pub(crate) struct Budgets(Mutex<HashMap<JobId, Weak<RootBudget>>>);

impl Budgets {
    /// Returns the budget of a root, and true if nobody used it before.
    pub(crate) fn get(&self, root: JobId, max: usize) -> (Arc<RootBudget>, bool) {
        let mut budgets = self.0.lock();
        if let Some(budget) = budgets.get(&root).and_then(Weak::upgrade) {
            return (budget, false);
        }
        let budget = Arc::new(RootBudget::new(max));
        if budgets.len() == budgets.capacity() {
            budgets.retain(|_, budget| budget.strong_count() > 0);
        }
        budgets.insert(root, Arc::downgrade(&budget));
        (budget, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(number: u8) -> JobId {
        JobId::from_bytes([number; 16])
    }

    fn counted(max: usize) -> RootBudget {
        let budget = RootBudget::new(max);
        assert_eq!(budget.set_counted(), None);
        budget
    }

    #[test]
    fn drivers_that_find_no_room_are_served_in_order() {
        let budget = counted(2);
        assert!(budget.try_start((driver(1), 0)));
        assert!(budget.try_start((driver(1), 1)));
        assert!(!budget.try_start((driver(1), 2)));
        assert!(!budget.try_start((driver(2), 0)));
        assert!(!budget.try_start((driver(3), 0)));
        assert_eq!(budget.waiting(), [driver(1), driver(2), driver(3)]);
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
        let budget = counted(1);
        budget.count((driver(1), 0));
        budget.count((driver(1), 0));
        assert!(!budget.try_start((driver(1), 1)));
        assert_eq!(budget.release((driver(1), 0)), Some(driver(1)));
        assert_eq!(budget.release((driver(1), 0)), None);
        assert!(budget.try_start((driver(1), 1)));
    }

    #[test]
    fn nothing_starts_before_what_runs_is_counted() {
        let budget = RootBudget::new(2);
        assert!(!budget.try_start((driver(2), 0)));
        budget.count((driver(1), 0));
        budget.count((driver(1), 1));
        assert_eq!(budget.set_counted(), None, "there is no room");
        assert_eq!(budget.counted_parents(), [driver(1)].into());
        assert_eq!(budget.release((driver(1), 0)), Some(driver(2)));
        assert!(budget.try_start((driver(2), 0)));
    }

    #[test]
    fn a_budget_is_shared_while_somebody_uses_it() {
        let budgets = Budgets::default();
        let (first, is_new) = budgets.get(driver(1), 4);
        assert!(is_new);
        first.set_counted();
        assert!(first.try_start((driver(1), 0)));
        let (second, is_new) = budgets.get(driver(1), 4);
        assert!(!is_new);
        assert_eq!(second.room(), 3);
        assert!(first.begin_check(5_000, 1_000) && !second.begin_check(5_999, 1_000));
        assert!(second.begin_check(6_000, 1_000) && first.begin_check(1_000, 1_000));
        drop((first, second));
        assert!(budgets.get(driver(1), 4).1, "it is counted again");
    }
}
