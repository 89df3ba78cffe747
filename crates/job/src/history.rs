//! The history document: a chain as JSON, for exchange between parties.
//!
//! `{"records": [{"id", "record", "signature"?}, …], "total": n, "next"?}`, oldest first, where
//! `record` is exactly the JSON whose Value ID is `id`. A document may also carry the histories of
//! sub-jobs under `children`, by job ID.

use catena_value::{Map, NoCells, Value, Vector};

use crate::ids::JobId;

/// A history document, not yet checked beyond its shape.
#[derive(Debug, Clone)]
pub struct History {
    records: Vector,
    total: Option<u64>,
    has_more: bool,
    children: Option<Map>,
}

/// One entry of a history.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Record ID that the document states; not verified.
    pub id: String,
    /// Fields of the record.
    pub record: Map,
    /// The signature next to the record.
    pub signature: Option<Value>,
}

/// The reason why a document is not a history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The document does not have the shape of a history.
    #[error("not a history document: {0}")]
    Shape(&'static str),
    /// An entry does not have the required shape.
    #[error("{0}")]
    Entry(&'static str),
}

impl History {
    /// Checks the shape of a document, without looking at the records.
    pub fn from_value(document: &Value) -> Result<Self, HistoryError> {
        let shape = HistoryError::Shape;
        let map = document.as_map().ok_or(shape("expected an object with `records`"))?;
        let records = map.field("records").ok_or(shape("`records` is missing"))?;
        let records = records.as_vector().ok_or(shape("`records` must be an array"))?.clone();
        let total = map.field("total").map(|total| {
            let total = total.as_i64().and_then(|total| u64::try_from(total).ok());
            total.ok_or(shape("`total` must be a whole number of at least 0"))
        });
        let children = map.field("children").map(|children| {
            children.as_map().cloned().ok_or(shape("`children` must be an object"))
        });
        let has_more = map.field("next").is_some_and(|next| !next.is_nil());
        Ok(History {
            records,
            total: total.transpose()?,
            has_more,
            children: children.transpose()?,
        })
    }

    /// Number of records in the document.
    pub fn len(&self) -> u64 {
        self.records.len()
    }

    /// Whether the document has no records.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Number of records in the chain, according to the document. `None` if it does not say.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// Whether the document is one page of several and more records follow.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = Result<Entry, HistoryError>> {
        self.records.iter(&NoCells).map(|entry| match entry {
            Ok(entry) => Entry::from_value(&entry),
            Err(_) => Err(HistoryError::Entry("the entry is not in memory")),
        })
    }

    /// The histories of sub-jobs that the document carries.
    pub fn children(&self) -> impl Iterator<Item = Result<History, HistoryError>> {
        let children = self.children.clone().unwrap_or_default();
        let values: Vec<Value> =
            children.iter(&NoCells).filter_map(|entry| Some(entry.ok()?.1)).collect();
        values.into_iter().map(|child| History::from_value(&child))
    }

    /// The history of a sub-job. `None` if the document does not carry it.
    pub fn child(&self, job: JobId) -> Option<Result<History, HistoryError>> {
        let children = self.children.as_ref()?;
        let named = children.field(&job.to_string()).or_else(|| children.field(&job.to_hex()))?;
        Some(History::from_value(named))
    }
}

impl Entry {
    /// Reads an entry from its JSON.
    pub fn from_value(value: &Value) -> Result<Self, HistoryError> {
        let entry = HistoryError::Entry;
        let map = value.as_map().ok_or(entry("expected an object with `id` and `record`"))?;
        let id = map.field("id").ok_or(entry("`id` is missing"))?;
        let id = id.as_str().ok_or(entry("`id` must be a string"))?.to_owned();
        let record = map.field("record").ok_or(entry("`record` is missing"))?;
        let record = record.as_map().ok_or(entry("`record` must be an object"))?.clone();
        Ok(Entry { id, record, signature: map.field("signature").cloned() })
    }

    /// The entry as JSON.
    pub fn to_value(&self) -> Value {
        let record = Value::from(self.record.clone());
        let mut members = vec![("id", self.id.as_str().into()), ("record", record)];
        members.extend(self.signature.clone().map(|signature| ("signature", signature)));
        members.into_iter().collect::<Map>().into()
    }
}
