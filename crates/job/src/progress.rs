//! Progress: from the reports of an operation to what clients see.
//!
//! A running operation may report counts at any time: items, and bytes in `outputStats`. A
//! [`Meter`] collects the reports of one attempt and makes the value that is stored off-chain: the
//! counts, the percentage and the rate. The percentage never decreases within an attempt.
//! [`ProgressView`] is what an API returns: bytes take precedence over items, and the percentage is
//! at most 99 before the end and 100 after it.

use catena_value::{Map, Value, json};

use crate::limits::{ACTIVE_PERCENT_MAX, REPORT_BYTES_MAX};

const PROCESSED_ITEMS: &str = "processedItems";
const TOTAL_ITEMS: &str = "totalItems";
const OUTPUT_STATS: &str = "outputStats";
const BYTES_PROCESSED: &str = "bytesProcessed";
const BYTES_TOTAL: &str = "bytesTotal";

// Fields that the meter adds to the report.
const PERCENT: &str = "percent";
const RATE: &str = "ratePerSecond";
const ATTEMPT: &str = "attempt";
const AT: &str = "at";

/// Weight of a new measurement in the moving average of the rate.
const RATE_WEIGHT: f64 = 0.3;

/// A count of processed units and their total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Units processed. `None` if not reported.
    pub done: Option<i64>,
    /// Units in total. `None` if not reported.
    pub total: Option<i64>,
}

impl Count {
    /// Reads a count from two fields of a map.
    fn from_fields(map: Option<&Map>, done: &str, total: &str) -> Count {
        let number = |name: &str| map.and_then(|map| map.field(name)).and_then(whole_number);
        Count { done: number(done), total: number(total) }
    }

    /// The processed fraction, 0.0 to 1.0. `None` if the total is unknown or zero.
    fn fraction(self) -> Option<f64> {
        let total = self.total.filter(|total| *total > 0)?;
        Some((self.done.unwrap_or(0) as f64 / total as f64).clamp(0.0, 1.0))
    }

    /// This count, with at least as many processed units as `before` if the total is the same.
    fn not_below(self, before: Count) -> Count {
        if self.total != before.total {
            return self;
        }
        Count { done: self.done.max(before.done), total: self.total }
    }
}

/// The counts of a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Items processed.
    pub items: Count,
    /// Bytes processed.
    pub bytes: Count,
}

/// The unit of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Items,
}

impl Figures {
    /// Reads the counts of a report, or of a stored progress value.
    pub fn from_report(report: &Value) -> Figures {
        let map = report.as_map();
        let stats = map.and_then(|map| map.field(OUTPUT_STATS)).and_then(Value::as_map);
        Figures {
            items: Count::from_fields(map, PROCESSED_ITEMS, TOTAL_ITEMS),
            bytes: Count::from_fields(stats, BYTES_PROCESSED, BYTES_TOTAL),
        }
    }

    /// The percentage by bytes if their total is known, else by items, else 0.
    pub fn percent(&self) -> u8 {
        let fraction = self.bytes.fraction().or(self.items.fraction()).unwrap_or(0.0);
        // The result is between 0 and 100, so the conversion is lossless.
        (fraction * 100.0).floor() as u8
    }

    /// The count that determines percentage and rate, and its unit. `None` if no total is known.
    fn leading_count(&self) -> Option<(Unit, Count)> {
        let has_total = |count: Count| count.fraction().is_some();
        if has_total(self.bytes) {
            Some((Unit::Bytes, self.bytes))
        } else if has_total(self.items) {
            Some((Unit::Items, self.items))
        } else {
            None
        }
    }

    fn not_below(self, before: Figures) -> Figures {
        Figures {
            items: self.items.not_below(before.items),
            bytes: self.bytes.not_below(before.bytes),
        }
    }
}

/// A whole number of at least 0; a double without a fraction counts as one.
fn whole_number(value: &Value) -> Option<i64> {
    let number = match value {
        Value::Double(double) if double.get().fract() == 0.0 => Some(double.get() as i64),
        other => other.as_i64(),
    };
    number.filter(|number| *number >= 0)
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Double(double) => Some(double.get()),
        other => other.as_i64().map(|number| number as f64),
    }
}

/// Collects the progress reports of one attempt.
#[derive(Debug, Clone)]
pub struct Meter {
    attempt: u32,
    figures: Figures,
    percent: u8,
    rate: Option<Rate>,
    value: Option<Value>,
}

/// The current rate, and the measurement it was last updated with.
#[derive(Debug, Clone, Copy)]
struct Rate {
    unit: Unit,
    done: i64,
    at_ms: u64,
    per_second: Option<f64>,
}

impl Meter {
    /// A meter for an attempt. It continues from the stored value if that is of the same attempt.
    pub fn new(attempt: u32, stored: Option<&Value>) -> Meter {
        let mut meter =
            Meter { attempt, figures: Figures::default(), percent: 0, rate: None, value: None };
        let member = |name: &str| stored.and_then(Value::as_map).and_then(|map| map.field(name));
        if let Some(stored) = stored
            && member(ATTEMPT).and_then(Value::as_i64) == Some(i64::from(attempt))
        {
            meter.figures = Figures::from_report(stored);
            let percent = member(PERCENT).and_then(Value::as_i64);
            meter.percent = percent.and_then(|at| u8::try_from(at).ok()).unwrap_or(0).min(100);
            meter.rate = meter.figures.leading_count().map(|(unit, count)| Rate {
                unit,
                done: count.done.unwrap_or(0),
                at_ms: 0,
                per_second: member(RATE).and_then(number),
            });
        }
        meter
    }

    /// Adds a report. `active_ms` is how long the turn has run, without pauses; `now` is Unix time
    /// in ms.
    pub fn report(&mut self, report: &Value, active_ms: u64, now: i64) {
        self.figures = Figures::from_report(report).not_below(self.figures);
        self.percent = self.percent.max(self.figures.percent());
        self.update_rate(active_ms);
        self.value = Some(self.build_value(report, now));
    }

    /// The progress value to store and to send to watchers. `None` before the first report.
    pub fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }

    fn update_rate(&mut self, active_ms: u64) {
        let Some((unit, count)) = self.figures.leading_count() else {
            self.rate = None;
            return;
        };
        let done = count.done.unwrap_or(0);
        let start = Rate { unit, done: 0, at_ms: 0, per_second: None };
        let before = self.rate.filter(|rate| rate.unit == unit).unwrap_or(start);
        let time = active_ms.saturating_sub(before.at_ms);
        if time == 0 {
            self.rate = Some(before);
            return;
        }
        let fresh = (done - before.done).max(0) as f64 * 1000.0 / time as f64;
        let per_second = match before.per_second {
            Some(known) => known + RATE_WEIGHT * (fresh - known),
            None => fresh,
        };
        self.rate = Some(Rate { unit, done, at_ms: active_ms, per_second: Some(per_second) });
    }

    /// The report with the collected counts and the fields that the meter adds.
    fn build_value(&self, report: &Value, now: i64) -> Value {
        let is_short = json::to_string(report).is_ok_and(|text| text.len() <= REPORT_BYTES_MAX);
        let reported = report.as_map().filter(|_| is_short).cloned().unwrap_or_default();
        let stats = reported.field(OUTPUT_STATS).and_then(Value::as_map).cloned();
        let own = [PROCESSED_ITEMS, TOTAL_ITEMS, OUTPUT_STATS, PERCENT, RATE, ATTEMPT, AT];
        let mut members = fields_except(&reported, &own);
        push_number(&mut members, PROCESSED_ITEMS, self.figures.items.done);
        push_number(&mut members, TOTAL_ITEMS, self.figures.items.total);
        let mut bytes = stats
            .map_or(Vec::new(), |stats| fields_except(&stats, &[BYTES_PROCESSED, BYTES_TOTAL]));
        push_number(&mut bytes, BYTES_PROCESSED, self.figures.bytes.done);
        push_number(&mut bytes, BYTES_TOTAL, self.figures.bytes.total);
        if !bytes.is_empty() {
            members.push((OUTPUT_STATS.into(), bytes.into_iter().collect::<Map>().into()));
        }
        members.push((PERCENT.into(), i64::from(self.percent).into()));
        if let Some(per_second) = self.rate.and_then(|rate| rate.per_second) {
            members.push((RATE.into(), rounded(per_second).into()));
        }
        members.push((ATTEMPT.into(), self.attempt.into()));
        members.push((AT.into(), now.into()));
        members.into_iter().collect::<Map>().into()
    }
}

/// All fields of a map except those with these names.
fn fields_except(map: &Map, names: &[&str]) -> Vec<(Value, Value)> {
    let is_other = |key: &Value| !key.as_str().is_some_and(|key| names.contains(&key));
    let fields = map.fields().into_iter().filter(|(key, _)| is_other(key));
    fields.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn push_number(members: &mut Vec<(Value, Value)>, name: &str, number: Option<i64>) {
    members.extend(number.map(|number| (name.into(), number.into())));
}

/// Rounds to three decimal places, which is enough for display.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// The last report without the fields that the meter added: what the final record of a job keeps.
pub fn last_report(stored: &Value) -> Value {
    match stored {
        Value::Map(map) if map.field(AT).is_some() => {
            fields_except(map, &[PERCENT, RATE, ATTEMPT, AT]).into_iter().collect::<Map>().into()
        }
        other => other.clone(),
    }
}

/// The stage of a job, as far as its progress is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The job is running.
    Running,
    /// The job waits in the queue, or for input.
    Waiting,
    /// The job has ended.
    Ended,
}

/// The progress of a job as clients see it.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressView {
    /// Percentage, 0 to 100.
    pub percent: u8,
    /// Items processed; 0 if unknown.
    pub processed_items: i64,
    /// Items in total; 0 if unknown.
    pub total_items: i64,
    /// Byte counts, and any other statistics reported about the output.
    pub output_stats: Option<Value>,
    /// Bytes or items per second. `None` unless the job is running.
    pub rate_per_second: Option<f64>,
    /// Estimated remaining time in ms. `None` unless the job is running.
    pub remaining_ms: Option<i64>,
    /// Time of the last report: Unix time in ms.
    pub at: Option<i64>,
}

impl ProgressView {
    /// The view of a job with this stored progress value. `steps` are the numbers of ended steps
    /// and of all steps of an orchestration; they count if nothing else was reported.
    pub fn new(stored: Option<&Value>, steps: Option<(u64, u64)>, stage: Stage) -> ProgressView {
        let member = |name: &str| stored.and_then(Value::as_map).and_then(|map| map.field(name));
        let mut figures = stored.map(Figures::from_report).unwrap_or_default();
        if let (None, Some((ended, total))) = (figures.leading_count(), steps) {
            let number = |count: u64| Some(i64::try_from(count).unwrap_or(i64::MAX));
            figures.items = Count { done: number(ended), total: number(total) };
        }
        let known = member(PERCENT).and_then(Value::as_i64).and_then(|at| u8::try_from(at).ok());
        let active = known.unwrap_or(0).max(figures.percent()).min(ACTIVE_PERCENT_MAX);
        let rate = member(RATE).and_then(number).filter(|_| stage == Stage::Running);
        ProgressView {
            percent: if stage == Stage::Ended { 100 } else { active },
            processed_items: figures.items.done.unwrap_or(0),
            total_items: figures.items.total.unwrap_or(0),
            output_stats: member(OUTPUT_STATS).filter(|stats| !stats.is_nil()).cloned(),
            rate_per_second: rate,
            remaining_ms: rate.and_then(|rate| remaining_ms(&figures, rate)),
            at: member(AT).and_then(Value::as_i64),
        }
    }
}

fn remaining_ms(figures: &Figures, per_second: f64) -> Option<i64> {
    let (_, count) = figures.leading_count()?;
    let left = count.total?.saturating_sub(count.done.unwrap_or(0)).max(0);
    let time = left as f64 * 1000.0 / per_second;
    // A rate of zero gives infinity or NaN.
    (time.is_finite() && time < 1e15).then(|| time.ceil() as i64)
}

#[cfg(test)]
mod tests;
