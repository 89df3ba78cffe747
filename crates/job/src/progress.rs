//! How far a job is: from what it reports to what people see.
//!
//! A running operation reports figures whenever it likes: items, and bytes in `outputStats`. A
//! [`Meter`] takes the reports of one try and makes the value that is kept beside the chain: the
//! figures, how far that is, and how fast it goes. What is shown never goes back within a try.
//! [`Shown`] is what a door makes of it: bytes count before items, at most 99 % before the end and
//! 100 % after it.

use catena_value::{Map, Value, json};

const PROCESSED_ITEMS: &str = "processedItems";
const TOTAL_ITEMS: &str = "totalItems";
const OUTPUT_STATS: &str = "outputStats";
const BYTES_PROCESSED: &str = "bytesProcessed";
const BYTES_TOTAL: &str = "bytesTotal";

/// Members that the meter adds to what was reported.
const PERCENT: &str = "percent";
const RATE: &str = "ratePerSecond";
const ATTEMPT: &str = "attempt";
const AT: &str = "at";

/// Bytes of a report as JSON. Of a longer one only the figures are kept.
pub const REPORT_BYTES_MAX: usize = 8 * 1024;

/// Most that is shown of a job that has not ended.
pub const ACTIVE_PERCENT_MAX: u8 = 99;

/// How much of a new measurement goes into the rate.
const RATE_WEIGHT: f64 = 0.3;

/// Something that is counted: how much is done, and of how much.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// What is done.
    pub done: Option<i64>,
    /// Of how much.
    pub total: Option<i64>,
}

impl Count {
    fn of(map: Option<&Map>, done: &str, total: &str) -> Count {
        let number = |name: &str| map.and_then(|map| map.field(name)).and_then(whole);
        Count { done: number(done), total: number(total) }
    }

    /// The share that is done, when there is something to do.
    fn share(self) -> Option<f64> {
        let total = self.total.filter(|total| *total > 0)?;
        Some((self.done.unwrap_or(0) as f64 / total as f64).clamp(0.0, 1.0))
    }

    /// This count, but of the same total not less than was done before.
    fn not_below(self, before: Count) -> Count {
        match self.total == before.total {
            true => Count { done: self.done.max(before.done), total: self.total },
            false => self,
        }
    }
}

/// What was reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Items.
    pub items: Count,
    /// Bytes.
    pub bytes: Count,
}

/// What a rate is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Items,
}

impl Figures {
    /// The figures of a report, or of what was kept of one.
    pub fn of(report: &Value) -> Figures {
        let map = report.as_map();
        let stats = map.and_then(|map| map.field(OUTPUT_STATS)).and_then(Value::as_map);
        Figures {
            items: Count::of(map, PROCESSED_ITEMS, TOTAL_ITEMS),
            bytes: Count::of(stats, BYTES_PROCESSED, BYTES_TOTAL),
        }
    }

    /// How far that is: by bytes if there are any, else by items, else not at all.
    pub fn percent(&self) -> u8 {
        let share = self.bytes.share().or(self.items.share()).unwrap_or(0.0);
        // Between 0 and 100, so nothing is lost.
        (share * 100.0).floor() as u8
    }

    /// What the rate is measured in, and how much of it is done.
    fn measured(&self) -> Option<(Unit, Count)> {
        let has_share = |count: Count| count.share().is_some();
        match (has_share(self.bytes), has_share(self.items)) {
            (true, _) => Some((Unit::Bytes, self.bytes)),
            (false, true) => Some((Unit::Items, self.items)),
            (false, false) => None,
        }
    }

    fn not_below(self, before: Figures) -> Figures {
        Figures {
            items: self.items.not_below(before.items),
            bytes: self.bytes.not_below(before.bytes),
        }
    }
}

/// A number that counts something.
fn whole(value: &Value) -> Option<i64> {
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

/// Takes the reports of one try.
#[derive(Debug, Clone)]
pub struct Meter {
    attempt: u32,
    figures: Figures,
    percent: u8,
    rate: Option<Rate>,
    value: Option<Value>,
}

/// How fast it goes.
#[derive(Debug, Clone, Copy)]
struct Rate {
    unit: Unit,
    done: i64,
    at_ms: u64,
    per_second: Option<f64>,
}

impl Meter {
    /// A meter for a try. What was kept before counts if it is of the same try.
    pub fn new(attempt: u32, kept: Option<&Value>) -> Meter {
        let mut meter =
            Meter { attempt, figures: Figures::default(), percent: 0, rate: None, value: None };
        let member = |name: &str| kept.and_then(Value::as_map).and_then(|map| map.field(name));
        if let Some(kept) = kept
            && member(ATTEMPT).and_then(Value::as_i64) == Some(i64::from(attempt))
        {
            meter.figures = Figures::of(kept);
            let percent = member(PERCENT).and_then(Value::as_i64);
            meter.percent = percent.and_then(|at| u8::try_from(at).ok()).unwrap_or(0).min(100);
            meter.rate = meter.figures.measured().map(|(unit, count)| Rate {
                unit,
                done: count.done.unwrap_or(0),
                at_ms: 0,
                per_second: member(RATE).and_then(number),
            });
        }
        meter
    }

    /// Takes a report. `active_ms` is the time that the turn has run, pauses left out; `now` is
    /// the time of day.
    pub fn report(&mut self, report: &Value, active_ms: u64, now: i64) {
        self.figures = Figures::of(report).not_below(self.figures);
        self.percent = self.percent.max(self.figures.percent());
        self.measure(active_ms);
        self.value = Some(self.write(report, now));
    }

    /// What is to be kept and told; nothing before the first report.
    pub fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }

    fn measure(&mut self, active_ms: u64) {
        let Some((unit, count)) = self.figures.measured() else {
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

    /// The report with the figures that count, and what the meter knows.
    fn write(&self, report: &Value, now: i64) -> Value {
        let is_short = json::to_string(report).is_ok_and(|text| text.len() <= REPORT_BYTES_MAX);
        let reported = report.as_map().filter(|_| is_short).cloned().unwrap_or_default();
        let stats = reported.field(OUTPUT_STATS).and_then(Value::as_map).cloned();
        let own = [PROCESSED_ITEMS, TOTAL_ITEMS, OUTPUT_STATS, PERCENT, RATE, ATTEMPT, AT];
        let mut members = others(&reported, &own);
        put(&mut members, PROCESSED_ITEMS, self.figures.items.done);
        put(&mut members, TOTAL_ITEMS, self.figures.items.total);
        let mut bytes =
            stats.map_or(Vec::new(), |stats| others(&stats, &[BYTES_PROCESSED, BYTES_TOTAL]));
        put(&mut bytes, BYTES_PROCESSED, self.figures.bytes.done);
        put(&mut bytes, BYTES_TOTAL, self.figures.bytes.total);
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

fn others(map: &Map, own: &[&str]) -> Vec<(Value, Value)> {
    let is_other = |key: &Value| !key.as_str().is_some_and(|key| own.contains(&key));
    let fields = map.fields().into_iter().filter(|(key, _)| is_other(key));
    fields.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn put(members: &mut Vec<(Value, Value)>, name: &str, number: Option<i64>) {
    members.extend(number.map(|number| (name.into(), number.into())));
}

/// Three digits after the point are enough for people.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// What the record that ends a job keeps of its last progress: what was reported.
pub fn last_report(kept: &Value) -> Value {
    match kept {
        Value::Map(map) if map.field(AT).is_some() => {
            others(map, &[PERCENT, RATE, ATTEMPT, AT]).into_iter().collect::<Map>().into()
        }
        other => other.clone(),
    }
}

/// Whether a job moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It is being carried out.
    Moving,
    /// It waits: for its turn, or for somebody.
    Waiting,
    /// It has ended.
    Ended,
}

/// What people see.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// Of a hundred.
    pub percent: u8,
    /// Items done; 0 when unknown.
    pub processed_items: i64,
    /// Of how many; 0 when unknown.
    pub total_items: i64,
    /// Bytes, and whatever else was reported about the output.
    pub output_stats: Option<Value>,
    /// Bytes or items per second, while it moves.
    pub rate_per_second: Option<f64>,
    /// How long it may still take, while it moves.
    pub remaining_ms: Option<i64>,
    /// When it was last reported.
    pub at: Option<i64>,
}

impl Shown {
    /// What to show of a job. `steps` are those that ended and all, when it is an orchestration:
    /// they count when nothing else was reported.
    pub fn of(kept: Option<&Value>, steps: Option<(u64, u64)>, stage: Stage) -> Shown {
        let member = |name: &str| kept.and_then(Value::as_map).and_then(|map| map.field(name));
        let mut figures = kept.map(Figures::of).unwrap_or_default();
        if let (None, Some((ended, total))) = (figures.measured(), steps) {
            let number = |count: u64| Some(i64::try_from(count).unwrap_or(i64::MAX));
            figures.items = Count { done: number(ended), total: number(total) };
        }
        let known = member(PERCENT).and_then(Value::as_i64).and_then(|at| u8::try_from(at).ok());
        let active = known.unwrap_or(0).max(figures.percent()).min(ACTIVE_PERCENT_MAX);
        let rate = member(RATE).and_then(number).filter(|_| stage == Stage::Moving);
        Shown {
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
    let (_, count) = figures.measured()?;
    let left = count.total?.saturating_sub(count.done.unwrap_or(0)).max(0);
    let time = left as f64 * 1000.0 / per_second;
    // Also refuses what a rate of nothing gives.
    (time.is_finite() && time < 1e15).then(|| time.ceil() as i64)
}

#[cfg(test)]
mod tests;
