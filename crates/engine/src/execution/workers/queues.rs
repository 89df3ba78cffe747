//! What workers wait for: the lanes of each queue that have jobs, and how many may run.
//!
//! The store has the jobs of each lane in order. This table only says which lanes are worth reading,
//! so that a claim costs no more with many lanes than with one: lanes that are empty, that wait for a
//! time, or whose limit is reached are not visited. Callers take turns, and so do the lanes of a
//! caller. The table is rebuilt from the store at start; with several processes each counts what runs
//! as far as it knows, so limits are exact only within one process.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};

use catena_job::JobId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::operations::{QueueSpec, is_push_queue, split_lane};

/// The part of a second's starts that a rate allows at once, so that a batch is not spread out.
const RATE_BURST_MS: f64 = 100.0;

/// The queues of this venue's workers, by full name.
#[derive(Default)]
pub(crate) struct Queues {
    known: Mutex<HashMap<String, Arc<Queue>>>,
    /// The queues from which the venue itself sends jobs.
    pub(crate) pushes: Arc<WokenQueues>,
}

/// The queues of jobs that are sent to URLs and that may have something to send.
#[derive(Default)]
pub(crate) struct WokenQueues {
    names: Mutex<HashSet<Arc<str>>>,
    /// Notified when there is one.
    pub(crate) woken: Notify,
}

impl WokenQueues {
    fn add(&self, name: &Arc<str>) {
        self.names.lock().insert(Arc::clone(name));
        self.woken.notify_one();
    }

    /// Takes the full names of these queues.
    pub(crate) fn take(&self) -> HashSet<Arc<str>> {
        std::mem::take(&mut self.names.lock())
    }
}

impl Queues {
    /// Returns a queue.
    pub(crate) fn get(&self, name: &str) -> Arc<Queue> {
        let mut queues = self.known.lock();
        match queues.get(name) {
            Some(queue) => Arc::clone(queue),
            None => {
                let push = is_push_queue(name).then(|| (name.into(), Arc::clone(&self.pushes)));
                let queue = Arc::new(Queue { push, ..Queue::default() });
                queues.insert(name.to_owned(), Arc::clone(&queue));
                queue
            }
        }
    }

    /// Notes that a job was queued, and wakes a worker that waits for one.
    pub(crate) fn notify(&self, lane: &str) {
        if let Some((name, caller)) = split_lane(lane) {
            let queue = self.get(name);
            queue.lanes.lock().add(caller, lane);
            queue.wake_one();
        }
    }

    /// Forgets queues that nobody uses.
    pub(crate) fn remove_idle(&self) {
        let mut queues = self.known.lock();
        queues.retain(|_, queue| Arc::strong_count(queue) > 1 || !queue.lanes.lock().is_idle());
    }
}

/// One queue.
#[derive(Default)]
pub(crate) struct Queue {
    lanes: Mutex<Lanes>,
    /// Held while jobs are selected, so that two claims do not compete for the same ones.
    pub(crate) selecting: tokio::sync::Mutex<()>,
    /// Notified when there may be a job to claim.
    pub(crate) wake: Notify,
    /// Its full name and whom to tell that there may be a job, if the venue itself sends its jobs.
    push: Option<(Arc<str>, Arc<WokenQueues>)>,
}

#[derive(Default)]
struct Lanes {
    /// The lanes to visit, by caller.
    callers: VecDeque<CallerLanes>,
    /// All known lanes.
    known: HashMap<Arc<str>, Lane>,
    /// Lanes whose first job may not start before a time (Unix time in ms).
    deferred: BTreeMap<(i64, Arc<str>), ()>,
    /// Lanes whose limit is reached, by what is counted.
    blocked: HashMap<String, Vec<Arc<str>>>,
    /// Jobs that are being claimed.
    reserved: HashSet<JobId>,
    /// The number of running jobs, by what is counted.
    running: HashMap<String, u32>,
    /// The earliest time of the next start in ms, by what is counted.
    next_start: HashMap<String, f64>,
}

struct CallerLanes {
    caller: Arc<str>,
    lanes: VecDeque<Arc<str>>,
}

impl CallerLanes {
    fn has(&self, lane: &str) -> bool {
        self.lanes.iter().rev().any(|known| **known == *lane)
    }

    fn remove(&mut self, lane: &str) {
        if let Some(at) = self.lanes.iter().rposition(|known| **known == *lane) {
            self.lanes.remove(at);
        }
    }
}

#[derive(Default)]
struct Lane {
    caller: Option<Arc<str>>,
    /// How often a job was queued: an empty lane is forgotten only if none was queued meanwhile.
    offers: u64,
    /// The number of its jobs that are being claimed.
    reserved: usize,
    place: Place,
}

/// Where a lane is.
#[derive(Default, PartialEq)]
enum Place {
    #[default]
    Active,
    Deferred(i64),
    Blocked,
}

impl Lanes {
    fn is_idle(&self) -> bool {
        self.known.is_empty() && self.reserved.is_empty() && self.running.is_empty()
    }

    fn add(&mut self, caller: &str, lane: &str) {
        match self.known.get_mut(lane) {
            Some(known) => {
                known.offers += 1;
                if let Place::Deferred(at) = known.place {
                    // The new job may be ready earlier.
                    known.place = Place::Active;
                    let name: Arc<str> = lane.into();
                    self.deferred.remove(&(at, Arc::clone(&name)));
                    self.activate(name);
                }
            }
            None => {
                let name: Arc<str> = lane.into();
                let entry = Lane { caller: Some(caller.into()), offers: 1, ..Lane::default() };
                self.known.insert(Arc::clone(&name), entry);
                self.activate(name);
            }
        }
    }

    /// Makes a lane one to visit.
    fn activate(&mut self, lane: Arc<str>) {
        let Some(entry) = self.known.get_mut(&lane) else { return };
        entry.place = Place::Active;
        let Some(caller) = entry.caller.clone() else { return };
        match self.callers.iter_mut().find(|known| known.caller == caller) {
            Some(known) => known.lanes.push_back(lane),
            None => self.callers.push_back(CallerLanes { caller, lanes: [lane].into() }),
        }
    }

    /// Takes a lane out of those to visit.
    fn deactivate(&mut self, lane: &str) {
        // The lane that was visited last is behind all others.
        let Some(at) = (0..self.callers.len()).rev().find(|at| self.callers[*at].has(lane)) else {
            return;
        };
        self.callers[at].remove(lane);
        if self.callers[at].lanes.is_empty() {
            self.callers.remove(at);
        }
    }

    fn wake_deferred(&mut self, now: i64) {
        while let Some(((at, lane), ())) = self.deferred.first_key_value() {
            if *at > now {
                return;
            }
            let key = (*at, Arc::clone(lane));
            self.deferred.remove(&key);
            self.activate(key.1);
        }
    }

    fn unblock(&mut self, group: &str) {
        for lane in self.blocked.remove(group).unwrap_or_default() {
            self.activate(lane);
        }
    }
}

/// A lane to read.
pub(super) struct Visit {
    pub(super) lane: Arc<str>,
    pub(super) offers: u64,
    /// The number of its jobs that are being claimed already.
    pub(super) reserved: usize,
    /// The number of callers that take turns.
    pub(super) callers: usize,
}

/// Whether a job may start.
pub(super) enum Admission {
    /// It may, and counts as running until the slot is dropped.
    Admitted(RunningSlot),
    /// As many as allowed run.
    Full,
    /// Not before this Unix time in ms.
    NotBefore(i64),
}

impl Queue {
    /// Wakes somebody who waits for a job.
    pub(crate) fn wake_one(&self) {
        match &self.push {
            Some((name, queues)) => queues.add(name),
            None => self.wake.notify_one(),
        }
    }

    /// Returns the next lane to visit, and moves it behind the others.
    pub(super) fn next_lane(&self, now: i64) -> Option<Visit> {
        let mut lanes = self.lanes.lock();
        lanes.wake_deferred(now);
        let mut caller = lanes.callers.pop_front()?;
        let lane = caller.lanes.pop_front()?;
        caller.lanes.push_back(Arc::clone(&lane));
        lanes.callers.push_back(caller);
        let callers = lanes.callers.len();
        let entry = lanes.known.get(&lane)?;
        Some(Visit { offers: entry.offers, reserved: entry.reserved, lane, callers })
    }

    /// Returns the number of lanes to visit. `now` is Unix time in ms.
    pub(super) fn active(&self, now: i64) -> usize {
        let mut lanes = self.lanes.lock();
        lanes.wake_deferred(now);
        lanes.callers.iter().map(|caller| caller.lanes.len()).sum()
    }

    /// Returns when the first deferred lane becomes ready, as Unix time in ms.
    pub(crate) fn next_ready(&self) -> Option<i64> {
        self.lanes.lock().deferred.keys().next().map(|(at, _)| *at)
    }

    /// Forgets a lane that was empty, unless a job was queued since it was read.
    pub(super) fn forget(&self, visit: &Visit) {
        let mut lanes = self.lanes.lock();
        if lanes.known.get(&visit.lane).is_some_and(|lane| lane.offers == visit.offers) {
            lanes.known.remove(&visit.lane);
            lanes.deactivate(&visit.lane);
        }
    }

    /// Leaves a lane alone until a time, unless a job was queued since it was read.
    pub(super) fn defer(&self, visit: &Visit, until: i64) {
        let mut lanes = self.lanes.lock();
        let Some(lane) = lanes.known.get_mut(&visit.lane) else { return };
        if lane.offers == visit.offers && lane.place == Place::Active {
            lane.place = Place::Deferred(until);
            lanes.deactivate(&visit.lane);
            lanes.deferred.insert((until, Arc::clone(&visit.lane)), ());
        }
    }

    /// Leaves a lane alone until a job of a group ends, unless one has ended since its limit was
    /// found to be reached: nobody would visit the lane again.
    pub(super) fn block(&self, visit: &Visit, spec: &QueueSpec, group: &str) {
        let mut lanes = self.lanes.lock();
        let running = lanes.running.get(group).copied().unwrap_or(0);
        if spec.limit.as_ref().is_none_or(|limit| running < limit.running) {
            return;
        }
        let Some(lane) = lanes.known.get_mut(&visit.lane) else { return };
        if lane.place == Place::Active {
            lane.place = Place::Blocked;
            lanes.deactivate(&visit.lane);
            lanes.blocked.entry(group.to_owned()).or_default().push(Arc::clone(&visit.lane));
        }
    }

    /// Reserves a job for one claim. `None` if another claim has it.
    pub(super) fn reserve(self: &Arc<Self>, lane: &Arc<str>, job: JobId) -> Option<Reservation> {
        let mut lanes = self.lanes.lock();
        if !lanes.reserved.insert(job) {
            return None;
        }
        if let Some(entry) = lanes.known.get_mut(lane) {
            entry.reserved += 1;
        }
        Some(Reservation { queue: Arc::clone(self), lane: Arc::clone(lane), job })
    }

    /// Decides whether a job may start now, and counts it.
    pub(super) fn admit(
        self: &Arc<Self>,
        spec: &QueueSpec,
        groups: (&str, &str),
        now: i64,
    ) -> Admission {
        let (running_group, rate_group) = groups;
        let mut lanes = self.lanes.lock();
        if let Some(limit) = &spec.limit
            && lanes.running.get(running_group).is_some_and(|running| *running >= limit.running)
        {
            return Admission::Full;
        }
        if let Some(rate) = &spec.rate {
            let spacing = 1_000.0 / rate.per_second;
            let at = lanes.next_start.get(rate_group).copied().unwrap_or(0.0).max(now as f64);
            if at > now as f64 + RATE_BURST_MS {
                // Rounded up, so that the lane is not read too early.
                return Admission::NotBefore((at - RATE_BURST_MS).ceil() as i64);
            }
            lanes.next_start.retain(|_, at| *at > now as f64);
            lanes.next_start.insert(rate_group.to_owned(), at + spacing);
        }
        drop(lanes);
        Admission::Admitted(self.count_running(running_group))
    }

    /// Counts a running job, whatever the limit is.
    pub(super) fn count_running(self: &Arc<Self>, group: &str) -> RunningSlot {
        *self.lanes.lock().running.entry(group.to_owned()).or_default() += 1;
        RunningSlot { queue: Arc::downgrade(self), group: group.to_owned() }
    }
}

/// A job that is being claimed. It can be claimed again when this is dropped.
pub(crate) struct Reservation {
    queue: Arc<Queue>,
    lane: Arc<str>,
    job: JobId,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut lanes = self.queue.lanes.lock();
        lanes.reserved.remove(&self.job);
        if let Some(entry) = lanes.known.get_mut(&self.lane) {
            entry.reserved = entry.reserved.saturating_sub(1);
        }
    }
}

/// A running job, as limits count it. It is counted until this is dropped.
pub(crate) struct RunningSlot {
    queue: Weak<Queue>,
    group: String,
}

impl Drop for RunningSlot {
    fn drop(&mut self) {
        let Some(queue) = self.queue.upgrade() else { return };
        let mut lanes = queue.lanes.lock();
        if let Some(running) = lanes.running.get_mut(&self.group) {
            *running = running.saturating_sub(1);
            if *running == 0 {
                lanes.running.remove(&self.group);
            }
        }
        lanes.unblock(&self.group);
        drop(lanes);
        queue.wake_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::{QueueOwner, RunningLimit, StartRate};

    const NOW: i64 = 1_000_000;

    fn lanes(queue: &Queue, count: usize) -> Vec<String> {
        let visits = (0..count).map_while(|_| queue.next_lane(NOW));
        visits.map(|visit| visit.lane.replace('\n', "|")).collect()
    }

    fn spec(running: Option<u32>, per_second: Option<f64>) -> QueueSpec {
        QueueSpec {
            queue: "q".into(),
            url: None,
            owner: QueueOwner::Reference,
            priority: 0,
            limit: running.map(|running| RunningLimit { running, by: Vec::new() }),
            rate: per_second.map(|per_second| StartRate { per_second, by: Vec::new() }),
            secrets: Vec::new(),
        }
    }

    #[test]
    fn callers_take_turns_and_so_do_their_lanes() {
        let queues = Queues::default();
        for lane in ["o/q\na\n1", "o/q\na\n2", "o/q\na\n3", "o/q\nb\n"] {
            queues.notify(lane);
        }
        let queue = queues.get("o/q");
        assert_eq!(lanes(&queue, 4), ["o/q|a|1", "o/q|b|", "o/q|a|2", "o/q|b|"]);
    }

    #[test]
    fn an_empty_lane_is_forgotten_unless_a_job_was_queued_meanwhile() {
        let queues = Queues::default();
        queues.notify("o/q\na\n");
        let queue = queues.get("o/q");
        let visit = queue.next_lane(NOW).unwrap();
        queues.notify("o/q\na\n");
        queue.forget(&visit);
        let visit = queue.next_lane(NOW).expect("the lane has a new job");
        queue.forget(&visit);
        assert!(queue.next_lane(NOW).is_none());
        drop(queue);
        queues.remove_idle();
        assert!(queues.known.lock().is_empty());
    }

    #[test]
    fn a_lane_that_waits_for_a_time_is_visited_then() {
        let queues = Queues::default();
        queues.notify("o/q\na\n");
        let queue = queues.get("o/q");
        let visit = queue.next_lane(NOW).unwrap();
        queue.defer(&visit, NOW + 50);
        assert!(queue.next_lane(NOW + 49).is_none());
        assert_eq!(queue.next_ready(), Some(NOW + 50));
        assert!(queue.next_lane(NOW + 50).is_some());
    }

    #[test]
    fn a_lane_at_its_limit_is_visited_again_when_a_job_of_its_group_ends() {
        let queues = Queues::default();
        queues.notify("o/q\na\n");
        let queue = queues.get("o/q");
        let spec = spec(Some(1), None);
        let Admission::Admitted(slot) = queue.admit(&spec, ("g", ""), NOW) else { panic!() };
        assert!(matches!(queue.admit(&spec, ("g", ""), NOW), Admission::Full));
        assert!(matches!(queue.admit(&spec, ("h", ""), NOW), Admission::Admitted(_)));
        let visit = queue.next_lane(NOW).unwrap();
        queue.block(&visit, &spec, "g");
        assert!(queue.next_lane(NOW).is_none());
        drop(slot);
        assert!(queue.next_lane(NOW).is_some());
    }

    #[test]
    fn a_lane_whose_limit_is_no_longer_reached_when_it_is_blocked_stays_one_to_visit() {
        let queues = Queues::default();
        queues.notify("o/q\na\n");
        let queue = queues.get("o/q");
        let spec = spec(Some(1), None);
        let Admission::Admitted(slot) = queue.admit(&spec, ("g", ""), NOW) else { panic!() };
        let visit = queue.next_lane(NOW).unwrap();
        assert!(matches!(queue.admit(&spec, ("g", ""), NOW), Admission::Full));
        // The job that ran ends at this moment.
        drop(slot);
        queue.block(&visit, &spec, "g");
        assert!(queue.next_lane(NOW).is_some());
    }

    #[test]
    fn a_rate_is_kept_in_the_long_run() {
        let queue = Arc::new(Queue::default());
        let spec = spec(None, Some(100.0));
        let mut started = 0;
        for now in NOW..NOW + 1_000 {
            while let Admission::Admitted(_) = queue.admit(&spec, ("", ""), now) {
                started += 1;
            }
        }
        assert!((100..=111).contains(&started), "{started}");
    }

    #[test]
    fn a_job_is_reserved_by_one_claim() {
        let queues = Queues::default();
        queues.notify("o/q\na\n");
        let queue = queues.get("o/q");
        let visit = queue.next_lane(NOW).unwrap();
        let job = JobId::from_bytes([1; 16]);
        let first = queue.reserve(&visit.lane, job).unwrap();
        assert!(queue.reserve(&visit.lane, job).is_none());
        assert_eq!(queue.next_lane(NOW).unwrap().reserved, 1);
        drop(first);
        assert!(queue.reserve(&visit.lane, job).is_some());
    }
}
