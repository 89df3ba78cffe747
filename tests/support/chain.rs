//! A job's history, checked from its JSON alone, without the store and the engine.

use catena_job::verify::{Expected, Report, verify};
use catena_value::{NoCells, Value, json};
use serde_json::Value as Json;

/// A history, as one document.
#[derive(Debug, Clone)]
pub struct Chain {
    /// `{"id", "record"}`, oldest first.
    pub entries: Vec<Json>,
    /// The records as values, from which hashes are computed.
    values: Vec<Value>,
}

impl Chain {
    /// Joins the pages of a history.
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

    /// The number of records.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The record at an index.
    pub fn record(&self, at: usize) -> &Json {
        &self.entries[at]["record"]
    }

    /// The last record.
    pub fn last(&self) -> &Json {
        self.record(self.len() - 1)
    }

    /// The ID of a record as the venue states it.
    pub fn id(&self, at: usize) -> &str {
        self.entries[at]["id"].as_str().unwrap()
    }

    /// The ID of a record, computed here.
    pub fn computed_id(&self, at: usize) -> String {
        let record = self.values[at].as_map().unwrap().field("record").unwrap();
        record.id().to_string()
    }

    /// The statuses without annotations, such as `PENDING STARTED COMPLETE`.
    pub fn statuses(&self) -> String {
        let records = self.entries.iter().map(|entry| &entry["record"]);
        let states = records.filter(|record| record["note"].is_null());
        let words: Vec<_> = states.map(|record| record["status"].as_str().unwrap()).collect();
        words.join(" ")
    }

    /// The number of records with a terminal status.
    pub fn endings(&self) -> usize {
        let ends = |entry: &&Json| is_terminal(entry["record"]["status"].as_str().unwrap());
        self.entries.iter().filter(ends).count()
    }

    /// The message IDs of the `trigger` members, in order.
    pub fn triggers(&self) -> Vec<&str> {
        let ids = |entry| Json::pointer(entry, "/record/trigger/messageId")?.as_str();
        self.entries.iter().filter_map(ids).collect()
    }

    /// Verifies the history as any client could.
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

/// Returns true for the five statuses that end a job.
pub fn is_terminal(status: &str) -> bool {
    matches!(status, "COMPLETE" | "FAILED" | "CANCELLED" | "REJECTED" | "TIMEOUT")
}
