//! A job's history, checked from its JSON alone: no store, no engine, no word of the venue's.

use catena_job::verify::{Expected, Report, verify};
use catena_value::{NoCells, Value, json};
use serde_json::Value as Json;

/// A history, as one document.
#[derive(Debug, Clone)]
pub struct Chain {
    /// `{"id", "record"}`, oldest first.
    pub entries: Vec<Json>,
    /// The same, as values: what hashes are computed from.
    values: Vec<Value>,
}

impl Chain {
    /// Puts pages of a history together.
    pub fn of_pages<'a>(pages: impl IntoIterator<Item = &'a [u8]>) -> Chain {
        let (mut entries, mut values) = (Vec::new(), Vec::new());
        for page in pages {
            let plain: Json = serde_json::from_slice(page).unwrap();
            entries.extend(plain["records"].as_array().unwrap().iter().cloned());
            let page = json::read(page).unwrap();
            let records = page.as_map().unwrap().field("records").unwrap().clone();
            let records = records.as_vector().unwrap().iter(&NoCells).map(Result::unwrap);
            values.extend(records);
        }
        Chain { entries, values }
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A record.
    pub fn record(&self, at: usize) -> &Json {
        &self.entries[at]["record"]
    }

    /// The last record.
    pub fn last(&self) -> &Json {
        self.record(self.len() - 1)
    }

    /// The ID that the venue gives for a record.
    pub fn id(&self, at: usize) -> &str {
        self.entries[at]["id"].as_str().unwrap()
    }

    /// The ID of a record, computed here.
    pub fn computed_id(&self, at: usize) -> String {
        let record = self.values[at].as_map().unwrap().field("record").unwrap();
        record.id().to_string()
    }

    /// The statuses, annotations left out: `PENDING STARTED COMPLETE`.
    pub fn statuses(&self) -> String {
        let records = self.entries.iter().map(|entry| &entry["record"]);
        let states = records.filter(|record| record["note"].is_null());
        let words: Vec<_> = states.map(|record| record["status"].as_str().unwrap()).collect();
        words.join(" ")
    }

    /// How many records end the job.
    pub fn endings(&self) -> usize {
        let ends = |entry: &&Json| is_terminal(entry["record"]["status"].as_str().unwrap());
        self.entries.iter().filter(ends).count()
    }

    /// What triggered records, in order: the message IDs.
    pub fn triggers(&self) -> Vec<&str> {
        let ids = |entry| Json::pointer(entry, "/record/trigger/messageId")?.as_str();
        self.entries.iter().filter_map(ids).collect()
    }

    /// Verifies the whole as anybody could.
    #[track_caller]
    pub fn verify(&self) -> Report {
        let total = i64::try_from(self.values.len()).unwrap();
        let records = Value::Vector(self.values.iter().cloned().collect());
        let members = [("records", records), ("total", total.into())];
        let document: Value = members.into_iter().collect::<catena_value::Map>().into();
        match verify(&document, &Expected::default()) {
            Ok(report) => report,
            Err(fault) => panic!("{fault} in {:#?}", self.entries),
        }
    }
}

/// Whether a status is one of the five that end a job.
pub fn is_terminal(status: &str) -> bool {
    matches!(status, "COMPLETE" | "FAILED" | "CANCELLED" | "REJECTED" | "TIMEOUT")
}
