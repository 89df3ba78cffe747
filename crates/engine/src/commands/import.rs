//! Imports histories of jobs, which their importer can then read.
//!
//! An imported history is a value like any other: nothing here runs it, and no view of jobs shows it. It
//! is stored under its importer, the venue that its first record names, and the ID of the job. Another
//! copy of the same history adds the records that are missing; a copy that contradicts the known records
//! is refused.

use catena_job::history::{Entry, History, HistoryError};
use catena_job::limits::SUBJOB_DEPTH_MAX;
use catena_job::verify::{Code, Expected, Fault, Verifier, verify};
use catena_job::{Job, JobId, Record};
use catena_value::path::{Path, PathError};
use catena_value::{Map, Value, Vector, encode};

use crate::commands::Commands;
use crate::error::{ChangeError, ImportError, JobError, StoreError};
use crate::limits::{
    IMPORT_HISTORIES_MAX, IMPORTED_BYTES_MAX, IMPORTED_DID_BYTES_MAX, IMPORTED_HISTORIES_MAX,
    IMPORTED_HISTORY_BYTES_MAX, PAGE_MAX,
};
use crate::operations::{Failure, RootId, Roots};
use crate::requests::{Caller, ImportedHistory};

/// One history of a document.
#[derive(Debug, Clone)]
struct Part {
    venue: String,
    job: JobId,
    entries: Vec<Entry>,
    /// The record that the first entry follows. `None` if the entries begin with the first record.
    prev: Option<String>,
}

/// A history after its copies were united.
struct United {
    part: ImportedHistory,
    /// All records. `None` if nothing was added.
    records: Option<Vector>,
    bytes: u64,
    added_bytes: u64,
    is_new: bool,
}

impl Commands {
    /// Imports the history in a document and those of its sub-jobs. Either all of them are stored or
    /// none. Returns them, that of the job first.
    pub(crate) async fn import_history(
        &self,
        caller: &Caller,
        document: Value,
    ) -> Result<Vec<ImportedHistory>, ImportError> {
        if let Some(refusal) = self.anonymous_refusal(caller, "an imported history") {
            return Err(ImportError::Forbidden(refusal));
        }
        let work = move || parts(&document);
        let parts = self.runtime.compute.run(&caller.did, work).await;
        let parts = parts.map_err(|_| ImportError::Store(StoreError::Busy))??;
        let mut local = Vec::new();
        let mut foreign = Vec::new();
        for part in parts {
            match self.compare_with_local(caller, &part).await? {
                Some(found) => local.push(found),
                None => foreign.push(part),
            }
        }
        if foreign.is_empty() {
            return Ok(local);
        }
        self.operations.check_stored_bytes(&caller.did).await?;
        let mut roots: Vec<RootId> =
            foreign.iter().map(|part| RootId::history(&part.venue, part.job)).collect();
        roots.push(RootId::histories());
        let change = move |roots: &mut Roots| import(roots, &foreign);
        let imported = match self.change_roots_computed(caller, roots, change).await {
            Ok(imported) => imported?,
            Err(ChangeError::Store(error)) => return Err(error.into()),
            Err(ChangeError::Refused { error, .. }) => {
                return Err(StoreError::Damaged(error).into());
            }
        };
        local.extend(imported);
        Ok(local)
    }

    /// Removes an imported history. Returns false if there is none.
    pub(crate) async fn remove_history(
        &self,
        caller: &Caller,
        venue: &str,
        job: JobId,
    ) -> Result<bool, ImportError> {
        let root = RootId::history(venue, job);
        let venue = venue.to_owned();
        let roots = vec![root.clone(), RootId::histories()];
        let changed = self.change_roots(caller, roots, move |roots| {
            let Some(stored) = roots.get(&root)? else { return Ok(false) };
            let bytes = number(stored, "bytes");
            roots.set(&root, None)?;
            let index = index(roots)?;
            let count = number(&index, "count").saturating_sub(1);
            let bytes = number(&index, "bytes").saturating_sub(bytes);
            let venue_path = path(["venues".to_owned(), venue.clone()])?;
            let entry = path(["venues".to_owned(), venue.clone(), job.to_string()])?;
            let cells = roots.cells();
            let mut changed = entry.remove(&index, cells).map_err(path_failure)?;
            let rest = venue_path.get(&changed, cells).map_err(path_failure)?;
            if rest.as_ref().and_then(Value::as_map).is_none_or(Map::is_empty) {
                changed = venue_path.remove(&changed, cells).map_err(path_failure)?;
            }
            let changed = with_totals(&changed, count, bytes, roots)?;
            roots.set(&RootId::histories(), Some(changed))?;
            Ok(true)
        });
        changed.await.map_err(|error| match error {
            ChangeError::Store(error) => error.into(),
            ChangeError::Refused { error, .. } => StoreError::Damaged(error).into(),
        })
    }

    /// Compares a history with the job of this venue that it claims to be. `None` if there is no such job
    /// that the caller can see.
    async fn compare_with_local(
        &self,
        caller: &Caller,
        part: &Part,
    ) -> Result<Option<ImportedHistory>, ImportError> {
        if part.venue != *self.jobs.did {
            return Ok(None);
        }
        let mut known = Vec::new();
        let view = match self.views.job(caller, part.job).await {
            Ok(view) => view,
            Err(JobError::Store(error)) => return Err(error.into()),
            Err(_) => return Ok(None),
        };
        loop {
            let page = self.views.history(caller, part.job, known.len() as u64, PAGE_MAX).await;
            let page = match page {
                Ok(page) => page,
                Err(JobError::Store(error)) => return Err(error.into()),
                Err(_) => return Ok(None),
            };
            if page.records.is_empty() {
                break;
            }
            known.extend(page.records.iter().map(|record| record.id().to_string()));
        }
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let (at, shared) = shared(part, &known)?;
        if let Some(entry) = part.entries.get(shared) {
            // The venue has no such record: somebody else wrote it.
            return Err(fork(part, at + shared, "no record", &entry.id));
        }
        Ok(Some(ImportedHistory {
            venue: part.venue.clone(),
            job: part.job,
            records: known.len() as u64,
            added: 0,
            head: view.job.head().to_string(),
            status: view.status(),
            is_local: true,
        }))
    }
}

/// Returns the histories in a document, after checking what can be checked without other copies.
fn parts(document: &Value) -> Result<Vec<Part>, ImportError> {
    let history = History::from_value(document).map_err(|error| malformed(&error))?;
    let is_complete =
        !history.has_more() && history.total().is_none_or(|total| total == history.len());
    let first = part(&history, document)?;
    if is_complete && first.prev.is_none() {
        verify(document, &Expected::default()).map_err(ImportError::Invalid)?;
    }
    let mut parts = vec![first];
    let mut open = vec![(history, 0)];
    while let Some((history, depth)) = open.pop() {
        for child in history.children() {
            let child = child.map_err(|error| malformed(&error))?;
            if depth >= SUBJOB_DEPTH_MAX || parts.len() >= IMPORT_HISTORIES_MAX {
                let text = format!(
                    "a document has at most {IMPORT_HISTORIES_MAX} histories, nested at most {SUBJOB_DEPTH_MAX} deep"
                );
                return Err(invalid(text));
            }
            parts.push(part(&child, &Value::Nil)?);
            open.push((child, depth + 1));
        }
    }
    let mut seen = std::collections::HashSet::new();
    if parts.iter().any(|part| !seen.insert((part.venue.clone(), part.job))) {
        return Err(invalid("the document has two histories of the same job".to_owned()));
    }
    Ok(parts)
}

/// Returns one history with the job that it belongs to. Later records do not name it, so a document that
/// continues a known history has the members `venue` and `job`.
fn part(history: &History, document: &Value) -> Result<Part, ImportError> {
    let entries: Result<Vec<Entry>, HistoryError> = history.entries().collect();
    let entries = entries.map_err(|error| malformed(&error))?;
    let Some(first) = entries.first() else {
        return Err(invalid("the history has no records".to_owned()));
    };
    let record = Record::from_map(first.record.clone())
        .map_err(|error| invalid(format!("record 0: {error}")))?;
    let prev = record.prev().map(|prev| prev.to_string());
    let (venue, job) = if prev.is_none() {
        let job = Job::from_first_record(&record)
            .map_err(|error| invalid(format!("record 0: {error}")))?;
        (job.venue().to_owned(), job.id())
    } else {
        let member = |name: &str| document.as_map().and_then(|map| map.field(name)?.as_str());
        let venue = member("venue").map(str::to_owned);
        let job = member("job").and_then(|job| job.parse::<JobId>().ok());
        let missing = "a document that begins with a later record names its `venue` and `job`";
        venue.zip(job).ok_or_else(|| invalid(missing.to_owned()))?
    };
    let is_did = venue.starts_with("did:") && venue.len() <= IMPORTED_DID_BYTES_MAX;
    if !is_did || venue.contains('/') {
        return Err(invalid(format!("`{venue}` is not the DID of a venue")));
    }
    Ok(Part { venue, job, entries, prev })
}

/// Returns at which position of the known records a history begins, and how many of its entries are known.
fn shared(part: &Part, known: &[&str]) -> Result<(usize, usize), ImportError> {
    let at = match &part.prev {
        None => 0,
        Some(prev) => match known.iter().position(|id| id == prev) {
            Some(at) => at + 1,
            None => {
                let text = format!("the records up to {prev} are missing; import them first");
                return Err(invalid(text));
            }
        },
    };
    let rest = known.get(at..).unwrap_or_default();
    let shared = rest.len().min(part.entries.len());
    for (offset, (entry, known)) in part.entries.iter().zip(rest).enumerate() {
        if entry.id != *known {
            return Err(fork(part, at + offset, known, &entry.id));
        }
    }
    Ok((at, shared))
}

/// Stores histories, or changes nothing.
fn import(
    roots: &mut Roots,
    parts: &[Part],
) -> Result<Result<Vec<ImportedHistory>, ImportError>, Failure> {
    let mut united = Vec::new();
    for part in parts {
        match unite(roots, part)? {
            Ok(found) => united.push(found),
            Err(error) => return Ok(Err(error)),
        }
    }
    let mut index = index(roots)?;
    let new = united.iter().filter(|united| united.is_new).count() as u64;
    let count = number(&index, "count").saturating_add(new);
    let added = united.iter().map(|united| united.added_bytes).sum();
    let bytes = number(&index, "bytes").saturating_add(added);
    if count > IMPORTED_HISTORIES_MAX || bytes > IMPORTED_BYTES_MAX {
        let text = format!(
            "a user has at most {IMPORTED_HISTORIES_MAX} imported histories with {IMPORTED_BYTES_MAX} bytes; \
             remove some first"
        );
        return Ok(Err(ImportError::Full(text)));
    }
    for one in &united {
        let Some(records) = &one.records else { continue };
        let part = &one.part;
        let members = [
            ("venue", part.venue.as_str().into()),
            ("job", part.job.into()),
            ("bytes", integer(one.bytes)),
            ("records", Value::Vector(records.clone())),
        ];
        let value: Map = members.into_iter().collect();
        roots.set(&RootId::history(&part.venue, part.job), Some(value.into()))?;
        let summary = [
            ("records", integer(part.records)),
            ("head", part.head.as_str().into()),
            ("status", part.status.into()),
            ("bytes", integer(one.bytes)),
            ("imported", roots.now().into()),
        ];
        let summary: Map = summary.into_iter().collect();
        let entry = path(["venues".to_owned(), part.venue.clone(), part.job.to_string()])?;
        index = entry.set(&index, &summary.into(), roots.cells()).map_err(path_failure)?;
    }
    if united.iter().any(|united| united.records.is_some()) {
        let index = with_totals(&index, count, bytes, roots)?;
        roots.set(&RootId::histories(), Some(index))?;
    }
    Ok(Ok(united.into_iter().map(|united| united.part).collect()))
}

/// Unites a history with what is stored of it, and verifies the result.
fn unite(roots: &Roots, part: &Part) -> Result<Result<United, ImportError>, Failure> {
    let stored = roots.get(&RootId::history(&part.venue, part.job))?;
    let mut entries = Vec::new();
    let records = match stored {
        Some(stored) => path(["records".to_owned()])?.get(stored, roots.cells()),
        None => Ok(None),
    };
    if let Some(Value::Vector(records)) = records.map_err(path_failure)? {
        for entry in records.iter(roots.cells()) {
            let entry = entry.and_then(|entry| entry.fully_loaded(roots.cells()));
            let entry = entry.map_err(|error| Failure::transient("store", error.to_string()))?;
            let entry = Entry::from_value(&entry);
            entries.push(entry.map_err(|error| Failure::new("internal", error.to_string()))?);
        }
    }
    let known: Vec<&str> = entries.iter().map(|entry: &Entry| entry.id.as_str()).collect();
    let (at, shared) = match shared(part, &known) {
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    let mut is_changed = false;
    for (stored, found) in entries.iter_mut().skip(at).zip(&part.entries) {
        if stored.signature.is_none() && found.signature.is_some() {
            stored.signature.clone_from(&found.signature);
            is_changed = true;
        }
    }
    let added: Vec<Entry> = part.entries.iter().skip(shared).cloned().collect();
    let added_count = added.len() as u64;
    is_changed |= added_count > 0;
    entries.extend(added);
    let mut verifier = Verifier::default();
    for entry in &entries {
        if let Err(fault) = verifier.push(entry.clone()) {
            return Ok(Err(ImportError::Invalid(fault)));
        }
    }
    let expected = Expected { job: Some(part.job), venue: Some(part.venue.clone()), head: None };
    let job = match verifier.finish(&expected) {
        Ok(job) => job,
        Err(fault) => return Ok(Err(ImportError::Invalid(fault))),
    };
    let values: Vec<Value> = entries.iter().map(Entry::to_value).collect();
    let bytes: u64 = values.iter().map(encoded_bytes).sum();
    if bytes > IMPORTED_HISTORY_BYTES_MAX {
        let text = format!("an imported history has at most {IMPORTED_HISTORY_BYTES_MAX} bytes");
        return Ok(Err(ImportError::Full(text)));
    }
    let before = stored.map_or(0, |stored| number(stored, "bytes"));
    Ok(Ok(United {
        part: ImportedHistory {
            venue: part.venue.clone(),
            job: part.job,
            records: job.count(),
            added: added_count,
            head: job.head().to_string(),
            status: job.status(),
            is_local: false,
        },
        records: is_changed.then(|| values.into_iter().collect()),
        bytes,
        added_bytes: bytes.saturating_sub(before),
        is_new: stored.is_none(),
    }))
}

/// Returns the bytes of a value that is in memory, with all its cells.
fn encoded_bytes(value: &Value) -> u64 {
    let mut bytes = 0;
    let mut open = vec![value.clone()];
    while let Some(value) = open.pop() {
        match &value {
            Value::Map(map) => {
                for (key, member) in map.fields() {
                    bytes += encode(key).len() as u64;
                    open.push(member.clone());
                }
            }
            Value::Vector(vector) => {
                open.extend(vector.iter(&catena_value::NoCells).filter_map(Result::ok));
            }
            Value::String(text) => bytes += text.len(),
            Value::Blob(blob) => bytes += blob.len(),
            scalar => bytes += encode(scalar).len() as u64,
        }
        bytes += 2;
    }
    bytes
}

fn index(roots: &Roots) -> Result<Value, Failure> {
    let stored = roots.get(&RootId::histories())?;
    Ok(stored.cloned().unwrap_or_else(|| Map::new().into()))
}

fn with_totals(index: &Value, count: u64, bytes: u64, roots: &Roots) -> Result<Value, Failure> {
    let count_path = path(["count".to_owned()])?;
    let bytes_path = path(["bytes".to_owned()])?;
    let index = count_path.set(index, &integer(count), roots.cells()).map_err(path_failure)?;
    bytes_path.set(&index, &integer(bytes), roots.cells()).map_err(path_failure)
}

fn number(map: &Value, name: &str) -> u64 {
    let found = map.as_map().and_then(|map| map.field(name)?.as_i64());
    found.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

fn integer(number: u64) -> Value {
    i64::try_from(number).unwrap_or(i64::MAX).into()
}

fn path<const N: usize>(segments: [String; N]) -> Result<Path, Failure> {
    Path::from_segments(segments).map_err(path_failure)
}

fn path_failure(error: PathError) -> Failure {
    Failure::new("internal", error.to_string())
}

fn invalid(reason: String) -> ImportError {
    let fault = Fault { subjob: None, record: None, code: Code::MalformedHistory, reason };
    ImportError::Invalid(fault)
}

fn malformed(error: &HistoryError) -> ImportError {
    invalid(error.to_string())
}

fn fork(part: &Part, at: usize, known: &str, found: &str) -> ImportError {
    ImportError::Fork {
        venue: part.venue.clone(),
        job: part.job,
        record: at as u64,
        known: known.to_owned(),
        found: found.to_owned(),
    }
}
