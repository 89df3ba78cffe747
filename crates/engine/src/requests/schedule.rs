//! What can be scheduled, and for when.

use catena_job::JobId;
use catena_value::Value;
use jiff::tz::TimeZone;

/// When to invoke an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// Once, at this Unix time in ms.
    At(i64),
    /// Repeatedly, by a cron expression.
    Cron {
        /// The expression.
        expression: String,
        /// The IANA name of the time zone in which it is read. `None` for UTC.
        time_zone: Option<String>,
    },
}

impl When {
    /// Returns the first time after `now`; both are Unix times in ms. Fails if it cannot be read.
    pub fn next_time(&self, now: i64) -> Result<i64, String> {
        match self {
            When::At(time) => Ok(*time),
            When::Cron { expression, time_zone } => {
                next_time(expression, time_zone.as_deref(), now)
            }
        }
    }
}

/// What happens when a schedule is due while the job of its previous run has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overlap {
    /// Both run.
    #[default]
    Allow,
    /// The new run is left out.
    Skip,
    /// The new run starts when the previous one has ended. At most one run waits.
    Queue,
}

impl Overlap {
    /// All policies.
    pub const ALL: [Overlap; 3] = [Overlap::Allow, Overlap::Skip, Overlap::Queue];

    /// Returns the name of the policy.
    pub const fn as_str(self) -> &'static str {
        match self {
            Overlap::Allow => "allow",
            Overlap::Skip => "skip",
            Overlap::Queue => "queue",
        }
    }

    /// Returns the policy with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Overlap::ALL.into_iter().find(|policy| policy.as_str() == name)
    }
}

/// A request to schedule an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSchedule {
    /// A reference to the operation, in any form.
    pub operation: String,
    /// The input of the operation.
    pub input: Value,
    /// When to invoke it.
    pub when: When,
    /// What happens if the previous run has not ended.
    pub overlap: Overlap,
    /// Each run is delayed by a random time of at most this many ms.
    pub jitter_ms: i64,
}

impl NewSchedule {
    /// Creates a request with defaults for everything that is optional.
    pub fn new(operation: impl Into<String>, input: Value, when: When) -> Self {
        let operation = operation.into();
        NewSchedule { operation, input, when, overlap: Overlap::default(), jitter_ms: 0 }
    }
}

/// Whether a schedule is invoked at its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleState {
    /// It is.
    Active,
    /// It was paused by a request.
    Paused,
    /// The venue stopped invoking it, for the reason in [`Scheduled::reason`]. A resume activates it.
    SetAside,
}

impl ScheduleState {
    /// Returns the name of the state.
    pub const fn as_str(self) -> &'static str {
        match self {
            ScheduleState::Active => "active",
            ScheduleState::Paused => "paused",
            ScheduleState::SetAside => "set_aside",
        }
    }
}

/// An invocation that waits for its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Scheduled {
    /// The handle by which it is cancelled, paused or triggered.
    pub handle: String,
    /// The DID of its owner, on whose authority it is invoked.
    pub owner: String,
    /// The operation reference, as the caller wrote it.
    pub operation: String,
    /// The input of the operation.
    pub input: Value,
    /// When it is invoked next, as Unix time in ms.
    pub time: i64,
    /// The cron expression, if it repeats.
    pub cron: Option<String>,
    /// The IANA name of the time zone of the cron expression. `None` for UTC.
    pub time_zone: Option<String>,
    /// What happens if the previous run has not ended.
    pub overlap: Overlap,
    /// Each run is delayed by a random time of at most this many ms.
    pub jitter_ms: i64,
    /// Whether it is invoked at its times.
    pub state: ScheduleState,
    /// Why it was set aside, or why its last run was delayed or failed to start.
    pub reason: Option<String>,
    /// The job of its last run.
    pub last_job: Option<JobId>,
    /// The time for which its last run was scheduled, as Unix time in ms.
    pub last_time: Option<i64>,
    /// The number of runs that were left out because the previous one had not ended.
    pub skipped: i64,
}

/// Returns the first time of a cron expression after a time. Both are Unix times in ms.
pub(crate) fn next_time(cron: &str, time_zone: Option<&str>, after: i64) -> Result<i64, String> {
    let pattern: croner::Cron = cron.parse().map_err(|error: croner::errors::CronError| {
        format!("`cron` is not a cron expression: {error}")
    })?;
    let zone = match time_zone {
        None => TimeZone::UTC,
        Some(name) => find_time_zone(name)?,
    };
    let after = jiff::Timestamp::from_millisecond(after).map_err(|error| error.to_string())?;
    let next = pattern.find_next_occurrence(&after.to_zoned(zone), false);
    let next = next.map_err(|error| format!("`cron` has no next time: {error}"))?;
    Ok(next.timestamp().as_millisecond())
}

/// Returns a time zone by its IANA name, from the database that is part of this program: every
/// replica computes the same times, whatever is installed on its machine.
fn find_time_zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| {
        format!("`timeZone` is {name:?}, which is not an IANA name such as Europe/Zurich")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> i64 {
        text.parse::<jiff::Timestamp>().unwrap().as_millisecond()
    }

    #[test]
    fn a_cron_expression_is_read_in_its_time_zone() {
        let after = ms("2026-01-10T12:00:00Z");
        assert_eq!(next_time("0 9 * * *", None, after).unwrap(), ms("2026-01-11T09:00:00Z"));
        let zurich = Some("Europe/Zurich");
        assert_eq!(next_time("0 9 * * *", zurich, after).unwrap(), ms("2026-01-11T08:00:00Z"));
        let summer = ms("2026-07-10T12:00:00Z");
        assert_eq!(next_time("0 9 * * *", zurich, summer).unwrap(), ms("2026-07-11T07:00:00Z"));
        assert!(next_time("0 9 * * *", Some("Mars/Base"), after).unwrap_err().contains("IANA"));
        assert!(next_time("every day", None, after).unwrap_err().contains("cron"));
    }

    #[test]
    fn a_daily_time_occurs_once_a_day_when_the_clocks_change() {
        let zurich = Some("Europe/Zurich");
        // 02:30 does not exist on 29 March 2026, and exists twice on 25 October 2026.
        for (from, days) in [("2026-03-27T12:00:00Z", 4), ("2026-10-23T12:00:00Z", 4)] {
            let mut at = ms(from);
            let mut dates = Vec::new();
            for _ in 0..days {
                at = next_time("30 2 * * *", zurich, at).unwrap();
                let zone = find_time_zone("Europe/Zurich").unwrap();
                let zoned = jiff::Timestamp::from_millisecond(at).unwrap().to_zoned(zone);
                dates.push(zoned.date());
            }
            let expected: Vec<_> =
                (0..days).map(|day| dates[0].saturating_add(jiff::Span::new().days(day))).collect();
            assert_eq!(dates, expected);
        }
    }
}
