//! A schedule as it is stored.
//!
//! Every schedule is stored under its owner and, with the same value, in one of two lists of the
//! venue: active ones by the time at which they need attention, all others by their handle. Both
//! roots change in one commit that names the value they had, so that of two processes that change a
//! schedule one is refused. The functions here return what a schedule becomes and change nothing
//! themselves.

use std::sync::Arc;

use catena_job::JobId;
use catena_store::{Effect, RootKey, RootSpace};
use catena_value::{CellSource, LoadError, Map, NoCells, Value, ValueId};

use crate::limits::SCHEDULE_DELAY_MAX_MS;
use crate::requests::schedule::next_time;
use crate::requests::{
    Caller, NewSchedule, Overlap, Restriction, Role, ScheduleState, Scheduled, When,
};

/// The owner under which active schedules are listed by time.
pub(crate) const DUE: &str = "due";

/// The owner under which schedules that are paused or set aside are listed.
pub(crate) const IDLE: &str = "idle";

/// The delay before the second try of a run that was refused, in ms. It doubles with every try.
const FIRST_DELAY_MS: i64 = 1_000;

/// A schedule with everything that is stored of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) scheduled: Scheduled,
    pub(crate) is_anonymous: bool,
    /// The restriction of the caller who scheduled it.
    pub(crate) restriction: Option<Arc<Restriction>>,
    /// The time of the next run without jitter, as Unix time in ms. It identifies the run.
    pub(crate) due: i64,
    /// The end of the mark under which a process starts the run, as Unix time in ms. A process that
    /// has not removed its mark by then is taken to have died.
    pub(crate) marked_until: Option<i64>,
    /// The number of consecutive processes that started it and are not known to have survived that.
    pub(crate) starts: i64,
    /// The epoch of the last of these processes.
    pub(crate) started_by: Option<i64>,
    /// When the last of them was, as Unix time in ms.
    pub(crate) started_at: i64,
    /// When a run that was refused or that waits for the previous one is tried again, as Unix time
    /// in ms.
    pub(crate) retry_at: Option<i64>,
    /// How often the run was put off.
    pub(crate) delays: i64,
}

/// A schedule as it was read, and the ID of its value, which a change must name.
#[derive(Debug, Clone)]
pub(crate) struct StoredEntry {
    pub(crate) entry: Entry,
    pub(crate) id: ValueId,
}

/// Returns the key of a schedule under its owner.
pub(crate) fn own_key(owner: &str, handle: &str) -> RootKey {
    RootKey { space: RootSpace::Schedule, owner: owner_list(owner), name: handle.to_owned() }
}

/// Returns the name of the list of an owner's schedules.
pub(crate) fn owner_list(owner: &str) -> String {
    format!("of:{owner}")
}

/// Returns the key of an entry in one of the two lists of the venue.
pub(crate) fn list_key(list: &str, name: &str) -> RootKey {
    RootKey { space: RootSpace::Schedule, owner: list.to_owned(), name: name.to_owned() }
}

/// Returns the time in the name of an entry of the list by time, as Unix time in ms.
pub(crate) fn time_of_name(name: &str) -> i64 {
    name.split('-').next().and_then(|time| time.parse().ok()).unwrap_or(0)
}

/// Returns the name after all names of the list by time up to a time. Times of equal length sort as
/// text.
pub(crate) fn name_after(time: i64) -> String {
    format!("{:020}-~", time.max(0))
}

impl Entry {
    /// Creates a schedule. `now` is Unix time in ms, `random` decides the jitter.
    pub(crate) fn new(
        handle: String,
        caller: &Caller,
        request: NewSchedule,
        now: i64,
        random: u64,
    ) -> Result<Entry, String> {
        let NewSchedule { operation, input, when, overlap, jitter_ms } = request;
        let (due, cron, time_zone) = match when {
            When::At(time) => (time, None, None),
            When::Cron { expression, time_zone } => {
                let due = next_time(&expression, time_zone.as_deref(), now)?;
                (due, Some(expression), time_zone)
            }
        };
        let scheduled = Scheduled {
            handle,
            owner: caller.did.to_string(),
            operation,
            input,
            time: due.saturating_add(jitter(jitter_ms, random)),
            cron,
            time_zone,
            overlap,
            jitter_ms,
            state: ScheduleState::Active,
            reason: None,
            last_job: None,
            last_time: None,
            skipped: 0,
        };
        Ok(Entry {
            scheduled,
            is_anonymous: !caller.is_authenticated(),
            restriction: caller.restriction.clone(),
            due,
            marked_until: None,
            starts: 0,
            started_by: None,
            started_at: 0,
            retry_at: None,
            delays: 0,
        })
    }

    /// Returns the caller on whose authority it is invoked.
    pub(crate) fn caller(&self) -> Caller {
        let role = if self.is_anonymous { Role::Anonymous } else { Role::Known };
        Caller {
            restriction: self.restriction.clone(),
            ..Caller::new(self.scheduled.owner.as_str().into(), role)
        }
    }

    /// Returns the ID of the job of the next run. It is computed from the schedule and the time for
    /// which the run is scheduled, so that the store refuses to create the job a second time.
    pub(crate) fn run_id(&self) -> JobId {
        let text = format!("{}-{}", self.scheduled.handle, self.due);
        let digest = Value::from(text.as_str()).id();
        let mut bytes = [0; 10];
        bytes.copy_from_slice(&digest.as_bytes()[..10]);
        JobId::new(u64::try_from(self.due).unwrap_or(0), bytes)
    }

    /// Returns when an active schedule needs attention, as Unix time in ms.
    pub(crate) fn listed_at(&self) -> i64 {
        self.marked_until.or(self.retry_at).unwrap_or(self.scheduled.time)
    }

    /// Returns it with a mark: a start is counted before the run starts. A process that is still there has
    /// survived its earlier starts, so those are not counted again.
    pub(crate) fn marked(&self, process: i64, now: i64, until: i64) -> Entry {
        let mut entry = self.clone();
        entry.marked_until = Some(until);
        entry.retry_at = None;
        if self.starts == 0 || self.started_by != Some(process) {
            entry.starts += 1;
        }
        entry.started_by = Some(process);
        entry.started_at = now;
        entry
    }

    /// Returns it after its run was started as this job, or `None` if it does not repeat.
    /// `unsurvived` is the number of starts that no process is known to have survived.
    pub(crate) fn with_run(
        &self,
        job: JobId,
        unsurvived: i64,
        now: i64,
        random: u64,
    ) -> Option<Entry> {
        let mut entry = self.advanced(now, random)?;
        entry.starts = unsurvived;
        entry.scheduled.last_job = Some(job);
        entry.scheduled.last_time = Some(self.due);
        entry.scheduled.reason = None;
        Some(entry)
    }

    /// Returns it with its run put off, because nothing can start now. The mark does not count.
    pub(crate) fn delayed(&self, now: i64, at_least_ms: i64, reason: Option<String>) -> Entry {
        let doublings = u32::try_from(self.delays.clamp(0, 16)).unwrap_or(16);
        let delay = (FIRST_DELAY_MS << doublings).max(at_least_ms).min(SCHEDULE_DELAY_MAX_MS);
        let mut entry = self.clone();
        if entry.marked_until.take().is_some() {
            entry.starts = (entry.starts - 1).max(0);
        }
        entry.retry_at = Some(now.saturating_add(delay));
        entry.delays += 1;
        entry.scheduled.reason = reason.or(entry.scheduled.reason);
        entry
    }

    /// Returns it after its run could not be created. A schedule that repeats goes on with its next
    /// time; any other is set aside, so that the failure is seen.
    pub(crate) fn failed(&self, reason: String, now: i64, random: u64) -> Entry {
        let Some(mut entry) = self.advanced(now, random) else { return self.set_aside(reason) };
        entry.starts = (self.starts - 1).max(0);
        entry.scheduled.reason = Some(reason);
        entry
    }

    /// Returns it with its run left out, or `None` if it does not repeat.
    pub(crate) fn skipped(&self, now: i64, random: u64) -> Option<Entry> {
        let mut entry = self.advanced(now, random)?;
        entry.scheduled.skipped += 1;
        Some(entry)
    }

    /// Returns it set aside for a reason.
    pub(crate) fn set_aside(&self, reason: String) -> Entry {
        let mut entry = self.clone();
        entry.scheduled.state = ScheduleState::SetAside;
        entry.scheduled.reason = Some(reason);
        entry.marked_until = None;
        entry.retry_at = None;
        entry
    }

    /// Returns it paused.
    pub(crate) fn paused(&self) -> Entry {
        let mut entry = self.clone();
        entry.scheduled.state = ScheduleState::Paused;
        entry
    }

    /// Returns it active again. Times that passed meanwhile are left out, except for the only time
    /// of a schedule that does not repeat.
    pub(crate) fn resumed(&self, now: i64, random: u64) -> Entry {
        let is_missed = self.scheduled.time <= now;
        let later = if is_missed { self.advanced(now, random) } else { None };
        let mut entry = later.unwrap_or_else(|| self.clone());
        entry.scheduled.state = ScheduleState::Active;
        entry.scheduled.reason = None;
        entry.marked_until = None;
        entry.retry_at = None;
        entry.delays = 0;
        entry.starts = 0;
        entry
    }

    /// Returns it with its next time, or `None` if it has none. Times that passed completely while
    /// the venue was down are made up for by the run that was due first.
    fn advanced(&self, now: i64, random: u64) -> Option<Entry> {
        let cron = self.scheduled.cron.as_deref()?;
        let time_zone = self.scheduled.time_zone.as_deref();
        let jitter_ms = self.scheduled.jitter_ms;
        let mut due = next_time(cron, time_zone, self.due).ok()?;
        if due.saturating_add(jitter_ms) <= now {
            due = next_time(cron, time_zone, now).ok()?;
        }
        let mut entry = self.clone();
        entry.due = due;
        entry.scheduled.time = due.saturating_add(jitter(jitter_ms, random));
        entry.marked_until = None;
        entry.retry_at = None;
        entry.delays = 0;
        Some(entry)
    }

    /// Returns its key in one of the two lists of the venue.
    fn listed_key(&self) -> RootKey {
        let handle = &self.scheduled.handle;
        match self.scheduled.state {
            ScheduleState::Active => {
                list_key(DUE, &format!("{:020}-{handle}", self.listed_at().max(0)))
            }
            ScheduleState::Paused | ScheduleState::SetAside => list_key(IDLE, handle),
        }
    }

    fn keys(&self) -> [RootKey; 2] {
        [own_key(&self.scheduled.owner, &self.scheduled.handle), self.listed_key()]
    }

    fn to_value(&self) -> Value {
        let Scheduled { handle, owner, operation, input, time, .. } = &self.scheduled;
        let mut members = vec![
            ("handle", Value::from(handle.as_str())),
            ("operation", operation.as_str().into()),
            ("input", input.clone()),
            ("time", (*time).into()),
            ("owner", owner.as_str().into()),
            ("anonymous", self.is_anonymous.into()),
        ];
        let restriction = self.restriction.as_deref();
        members.extend(restriction.map(|restriction| ("authority", restriction.to_value())));
        let scheduled = &self.scheduled;
        let mut text = |name, text: Option<&str>| {
            members.extend(text.map(|text| (name, Value::from(text))));
        };
        text("cron", scheduled.cron.as_deref());
        text("timeZone", scheduled.time_zone.as_deref());
        text("reason", scheduled.reason.as_deref());
        let is_active = scheduled.state == ScheduleState::Active;
        text("state", (!is_active).then(|| scheduled.state.as_str()));
        let is_default = scheduled.overlap == Overlap::default();
        text("overlap", (!is_default).then(|| scheduled.overlap.as_str()));
        members.extend(scheduled.last_job.map(|job| ("lastJob", job.into())));
        let mut number = |name, number: Option<i64>| {
            members.extend(number.map(|number| (name, Value::from(number))));
        };
        let unless_zero = |number: i64| Some(number).filter(|number| *number != 0);
        number("lastTime", scheduled.last_time);
        number("jitterMs", unless_zero(scheduled.jitter_ms));
        number("skipped", unless_zero(scheduled.skipped));
        number("due", Some(self.due).filter(|due| due != time));
        number("markedUntil", self.marked_until);
        number("starts", unless_zero(self.starts));
        number("startedAt", unless_zero(self.started_at));
        number("startedBy", self.started_by);
        number("retryAt", self.retry_at);
        number("delays", unless_zero(self.delays));
        members.into_iter().collect::<Map>().into()
    }

    /// Parses a stored schedule. Members that earlier versions did not write have defaults.
    pub(crate) fn from_value(value: &Value) -> Option<Entry> {
        let map = value.as_map()?;
        let field = |name: &str| map.get(&name.into(), &NoCells).ok().flatten();
        let text = |name: &str| field(name)?.to_text().map(|text| text.into_owned());
        let number = |name: &str| field(name)?.as_i64();
        let time = number("time")?;
        let state = match text("state").as_deref() {
            None => ScheduleState::Active,
            Some("paused") => ScheduleState::Paused,
            Some("set_aside") => ScheduleState::SetAside,
            Some(_) => return None,
        };
        let overlap = match text("overlap") {
            None => Overlap::default(),
            Some(name) => Overlap::parse(&name)?,
        };
        Some(Entry {
            scheduled: Scheduled {
                handle: text("handle")?,
                owner: text("owner")?,
                operation: text("operation")?,
                input: field("input").unwrap_or_default(),
                time,
                cron: text("cron"),
                time_zone: text("timeZone"),
                overlap,
                jitter_ms: number("jitterMs").unwrap_or(0),
                state,
                reason: text("reason"),
                last_job: text("lastJob").and_then(|job| job.parse().ok()),
                last_time: number("lastTime"),
                skipped: number("skipped").unwrap_or(0),
            },
            is_anonymous: field("anonymous") == Some(Value::Bool(true)),
            restriction: field("authority").as_ref().map(Restriction::from_value),
            due: number("due").unwrap_or(time),
            marked_until: number("markedUntil"),
            starts: number("starts").unwrap_or(0),
            started_by: number("startedBy"),
            started_at: number("startedAt").unwrap_or(0),
            retry_at: number("retryAt"),
            delays: number("delays").unwrap_or(0),
        })
    }

    /// Returns the effects that store a new schedule.
    pub(crate) fn create(&self) -> Vec<Effect> {
        replace(None, Some(self))
    }
}

impl StoredEntry {
    /// Parses the value of a root. `None` if it is not a schedule that this version can read.
    pub(crate) fn load(
        value: &Value,
        id: ValueId,
        cells: &dyn CellSource,
    ) -> Result<Option<StoredEntry>, LoadError> {
        let entry = Entry::from_value(&value.fully_loaded(cells)?);
        Ok(entry.map(|entry| StoredEntry { entry, id }))
    }

    /// Returns the effects that replace it, or remove it. They are refused if it has changed.
    pub(crate) fn replace(&self, with: Option<&Entry>) -> Vec<Effect> {
        replace(Some(self), with)
    }
}

fn replace(before: Option<&StoredEntry>, after: Option<&Entry>) -> Vec<Effect> {
    let old_keys = before.map(|before| before.entry.keys()).into_iter().flatten();
    let mut keys: Vec<RootKey> = old_keys.collect();
    let old_count = keys.len();
    let new_keys: Vec<RootKey> = after.map(Entry::keys).into_iter().flatten().collect();
    for key in &new_keys {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    let value = after.map(Entry::to_value);
    let effect = |(at, key): (usize, RootKey)| {
        let expected = before.filter(|_| at < old_count).map(|before| before.id);
        let value = value.clone().filter(|_| new_keys.contains(&key));
        Effect::SetRoot { key, expected, value }
    };
    keys.into_iter().enumerate().map(effect).collect()
}

/// Returns a random part of the jitter, in ms.
fn jitter(jitter_ms: i64, random: u64) -> i64 {
    let range = u64::try_from(jitter_ms).unwrap_or(0).saturating_add(1);
    i64::try_from(random % range).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_769_683_717_000;
    const MINUTE: i64 = 60_000;

    fn entry(cron: Option<&str>) -> Entry {
        let when = match cron {
            None => When::At(NOW + MINUTE),
            Some(cron) => When::Cron { expression: cron.to_owned(), time_zone: None },
        };
        let request = NewSchedule::new("test:echo", 1.into(), when);
        let caller = Caller::known("did:key:alice");
        Entry::new("ab".to_owned(), &caller, request, NOW, 0).unwrap()
    }

    fn stored(entry: &Entry) -> StoredEntry {
        StoredEntry { entry: entry.clone(), id: entry.to_value().id() }
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let plain = entry(Some("* * * * *"));
        assert_eq!(Entry::from_value(&plain.to_value()), Some(plain.clone()));
        let mut full = plain.marked(1, NOW, NOW + 5);
        full.scheduled.time_zone = Some("Europe/Zurich".to_owned());
        full.scheduled.overlap = Overlap::Queue;
        full.scheduled.jitter_ms = 7;
        full.scheduled.state = ScheduleState::SetAside;
        full.scheduled.reason = Some("why".to_owned());
        full.scheduled.last_job = Some(JobId::from_bytes([7; 16]));
        full.scheduled.last_time = Some(3);
        full.scheduled.skipped = 2;
        full.due -= 1;
        full.retry_at = Some(9);
        full.delays = 4;
        assert_eq!(Entry::from_value(&full.to_value()), Some(full));
    }

    #[test]
    fn a_schedule_of_an_earlier_version_is_read() {
        let text = r#"{"handle":"ab","operation":"test:echo","input":{"n":4},"time":5,
            "owner":"did:key:alice","anonymous":false,"cron":"0 0 1 1 *"}"#;
        let value = catena_value::json::read(text.as_bytes()).unwrap();
        let entry = Entry::from_value(&value).unwrap();
        assert_eq!(entry.to_value().id(), value.id(), "its value is unchanged");
        assert_eq!((entry.due, entry.listed_at()), (5, 5));
        assert_eq!(entry.scheduled.overlap, Overlap::Allow);
    }

    #[test]
    fn a_mark_counts_a_start_and_a_refusal_does_not() {
        let marked = entry(None).marked(1, NOW, NOW + 10);
        assert_eq!((marked.starts, marked.listed_at()), (1, NOW + 10));
        assert_eq!(marked.marked(1, NOW, NOW + 10).starts, 1, "that process is still there");
        assert_eq!(marked.marked(2, NOW, NOW + 10).starts, 2);
        let delayed = marked.delayed(NOW, 0, Some("full".to_owned()));
        assert_eq!((delayed.starts, delayed.retry_at), (0, Some(NOW + 1_000)));
        let again = delayed.marked(1, NOW, NOW + 10).delayed(NOW, 0, None);
        assert_eq!((again.starts, again.retry_at), (0, Some(NOW + 2_000)));
        let late = Entry { delays: 60, ..again };
        assert_eq!(late.delayed(NOW, 0, None).retry_at, Some(NOW + SCHEDULE_DELAY_MAX_MS));
    }

    #[test]
    fn the_next_time_follows_the_previous_one_or_now() {
        let job = JobId::from_bytes([7; 16]);
        let every_minute = entry(Some("* * * * *"));
        let first = every_minute.due;
        let next = every_minute.with_run(job, 0, first + 5, 0).unwrap();
        assert_eq!(next.due, first + MINUTE);
        let missed = every_minute.with_run(job, 0, first + 10 * MINUTE + 5, 0).unwrap();
        assert_eq!(missed.due, first + 11 * MINUTE, "missed times are made up for by one run");
        assert_eq!(missed.scheduled.last_time, Some(first));
        assert!(entry(None).with_run(job, 0, NOW, 0).is_none());
    }

    #[test]
    fn jitter_delays_a_run_and_leaves_the_times_where_they_are() {
        let mut jittered = entry(Some("* * * * *"));
        jittered.scheduled.jitter_ms = MINUTE;
        let first = jittered.due;
        let next = jittered.skipped(first + MINUTE - 1, 30_000).unwrap();
        assert_eq!((next.due, next.scheduled.time), (first + MINUTE, first + MINUTE + 30_000));
        assert_eq!((0..=9).map(|random| jitter(4, random)).max(), Some(4));
        assert_eq!(jitter(0, 12), 0);
    }

    #[test]
    fn a_run_that_cannot_be_created_is_seen() {
        let once = entry(None).marked(1, NOW, NOW + 1).failed("gone".to_owned(), NOW, 0);
        assert_eq!(once.scheduled.state, ScheduleState::SetAside);
        let cron =
            entry(Some("* * * * *")).marked(1, NOW, NOW + 1).failed("gone".to_owned(), NOW, 0);
        assert_eq!(cron.scheduled.state, ScheduleState::Active);
        assert_eq!((cron.starts, cron.scheduled.reason.as_deref()), (0, Some("gone")));
    }

    #[test]
    fn a_resume_leaves_out_what_was_missed() {
        let paused = entry(Some("* * * * *")).paused();
        let resumed = paused.resumed(NOW + 10 * MINUTE, 0);
        assert!(resumed.due > NOW + 10 * MINUTE);
        assert_eq!(resumed.scheduled.state, ScheduleState::Active);
        let once = entry(None).paused().resumed(NOW + 10 * MINUTE, 0);
        assert_eq!(once.due, NOW + MINUTE, "its only time is made up for");
    }

    #[test]
    fn a_run_has_one_id() {
        let one = entry(Some("* * * * *"));
        assert_eq!(one.run_id(), one.marked(1, NOW, NOW + 1).delayed(NOW, 0, None).run_id());
        assert_ne!(one.run_id(), one.skipped(NOW, 0).unwrap().run_id());
    }

    #[test]
    fn a_change_replaces_both_roots_and_names_what_it_replaces() {
        let before = stored(&entry(None));
        let expected_count = |effects: &[Effect]| {
            let named =
                |effect: &&Effect| matches!(effect, Effect::SetRoot { expected: Some(_), .. });
            (effects.len(), effects.iter().filter(named).count())
        };
        assert_eq!(expected_count(&before.entry.create()), (2, 0));
        let moved = before.entry.marked(1, NOW, NOW + 1);
        assert_eq!(expected_count(&before.replace(Some(&moved))), (3, 2));
        assert_eq!(expected_count(&before.replace(None)), (2, 2));
        let same_place = Entry { starts: 5, ..before.entry.clone() };
        assert_eq!(expected_count(&before.replace(Some(&same_place))), (2, 2));
    }
}
