//! Obtains what is in no root: jobs, their records, assets, and what the venue publishes about itself.
//!
//! A value is found where its cells are, and only what the operation returns of it is loaded.

use catena_engine::{Call, Failure, RootId};
use catena_job::JobId;
use catena_value::path::Path;
use catena_value::{CellSource, Map, NoCells, Value, json};

use super::address::{Address, Namespace, path_failure};
use super::{answer, is_read, max_size, number, owner, page, query};
use crate::failures::job_failure;
use crate::fields::{Fields, array, object};
use crate::limits::{HISTORY_RECORDS_MAX, WORKSPACE_VALUE_BYTES_MAX};

/// The level of the Covia API that the venue provides, as `GET /status` reports it.
const API_LEVEL: &str = "0.9.11";

/// Returns what the venue publishes about itself, below `v`.
fn venue_data(call: &Call) -> Result<Value, Failure> {
    let entries = call.host.operations();
    let mut data: Value = Map::new().into();
    let mut set = |path: &str, value: Value| -> Result<(), Failure> {
        let path = Path::parse(path).map_err(path_failure)?;
        data = path.set(&data, &value, &NoCells).map_err(path_failure)?;
        Ok(())
    };
    set("info/version", API_LEVEL.into())?;
    set("info/catena", env!("CARGO_PKG_VERSION").into())?;
    for (name, description) in call.host.adapters() {
        let prefix = format!("{name}:");
        let own = entries.iter().filter(|(_, own)| own.adapter_ref().starts_with(&prefix));
        let paths = own.map(|(path, _)| Value::from(path.as_str())).collect();
        let adapter = object([
            ("name", name.into()),
            ("description", description.into()),
            ("operations", array(paths)),
        ]);
        set(&format!("info/adapters/{name}"), adapter)?;
    }
    for (path, operation) in &entries {
        set(path.strip_prefix("v/").unwrap_or(path), operation.metadata().clone())?;
    }
    Ok(data)
}

/// Obtains a page of the keys of a namespace, and their number.
async fn obtain_keys(call: &Call, namespace: Namespace) -> Result<Option<Value>, Failure> {
    let is_slice = call.operation.name() == "slice";
    // A history can be larger than a page: each is sliced by itself.
    let is_readable = matches!(call.operation.name(), "list" | "count")
        || is_slice && namespace != Namespace::Histories;
    if !is_readable {
        return Err(namespace.refusal());
    }
    if owner(call)? != *call.caller.did {
        let text = format!("only your own `{}` can be listed", namespace.name());
        return Err(Failure::new("invalid_path", text));
    }
    let default = if is_slice { 100 } else { 1_000 };
    let (offset, limit) = page(&Fields::from_value(&call.input)?, default)?;
    let jobs = async |offset: u64, limit: usize| {
        let (jobs, total) = call.host.own_jobs(&call.caller, offset, limit).await?;
        Ok::<_, Failure>((jobs.into_iter().map(|id| Value::from(id.to_string())).collect(), total))
    };
    let (keys, count): (Vec<Value>, u64) = match namespace {
        Namespace::Jobs => jobs(offset, limit).await?,
        Namespace::Assets => {
            let (assets, total) = call.host.own_assets(&call.caller, offset, limit).await?;
            (assets.into_iter().map(|id| id.to_string().into()).collect(), total)
        }
        Namespace::Histories => {
            // The venues of imported histories come first.
            let roots = call.host.read_roots(&call.caller, vec![RootId::histories()]).await?;
            let index = roots.get(&RootId::histories())?;
            let venues = match index.and_then(Value::as_map) {
                Some(index) => index.get(&"venues".into(), roots.cells()),
                None => Ok(None),
            };
            let venues = venues.map_err(|error| query::load_failure(&error))?;
            let venues = venues.and_then(|venues| venues.as_map().cloned()).unwrap_or_default();
            let mut keys = Vec::new();
            for key in venues.keys_from(offset, roots.cells()).take(limit) {
                keys.push(key.map_err(|error| query::load_failure(&error))?);
            }
            let rest = limit.saturating_sub(keys.len());
            let (own, total) = jobs(offset.saturating_sub(venues.len()), rest).await?;
            keys.extend(own);
            (keys, total.saturating_add(venues.len()))
        }
    };
    let mut members = vec![("count", number(count)), ("offset", number(offset))];
    if is_slice {
        members.extend(obtain_entries(call, namespace, keys).await?);
    } else {
        members.push(("keys", array(keys)));
    }
    Ok(Some(members.into_iter().collect::<Map>().into()))
}

/// Obtains the entries of a namespace with these keys, until they have more than `maxSize` bytes.
async fn obtain_entries(
    call: &Call,
    namespace: Namespace,
    keys: Vec<Value>,
) -> Result<Vec<(&'static str, Value)>, Failure> {
    let mut left = max_size(&Fields::from_value(&call.input)?)?;
    let mut values = Vec::new();
    let owner = owner(call)?;
    let mut is_truncated = false;
    for key in keys {
        let path = format!("{}/{}", namespace.name(), key.as_str().unwrap_or_default());
        let address = Address::parse(&path, &owner)?;
        // One that was deleted meanwhile is not there.
        let Some(found) = obtain(call, &address).await? else { continue };
        let Some(found) = query::load_within(&found.value, left, &*found.cells)? else {
            is_truncated = true;
            break;
        };
        let entry = object([("key", key), ("value", found)]);
        let bytes = json::to_string(&entry).map_or(0, |text| text.len());
        left -= i64::try_from(bytes).unwrap_or(i64::MAX);
        is_truncated = left < 0;
        if is_truncated {
            break;
        }
        values.push(entry);
    }
    let mut members = vec![("values", array(values))];
    members.extend(is_truncated.then(|| ("truncated", true.into())));
    Ok(members)
}

/// Obtains what is copied from the data of another user, completely, because its cells belong to that user.
pub(super) async fn obtain_copy(
    call: &Call,
    other: &str,
    address: &Address,
) -> Result<Option<Value>, Failure> {
    let Address::Root { root, path, .. } = address else {
        let text = "of another user's data, the workspace, operations, agents and imported histories can be copied";
        return Err(Failure::new("invalid_path", text));
    };
    let roots = call.host.read_roots_of(other, vec![root.clone()]).await?;
    let Some(value) = roots.get(root)? else { return Ok(None) };
    let Some(found) = query::find(value, path, roots.cells())? else { return Ok(None) };
    load_copy(&found, roots.cells()).map(Some)
}

/// Loads a value that is copied. Fails if it is larger than one that can be written.
fn load_copy(value: &Value, cells: &dyn CellSource) -> Result<Value, Failure> {
    let loaded = query::load_within(value, WORKSPACE_VALUE_BYTES_MAX, cells)?;
    let text = "the value is larger than a value that can be written";
    loaded.ok_or_else(|| Failure::new("value_too_large", text))
}

/// A value that is not in a root. Only the parts on the path to it are loaded.
struct Obtained {
    value: Value,
    /// Where the cells of its other parts are.
    cells: Box<dyn CellSource + Send + Sync>,
}

impl Obtained {
    /// Finds the value at a path.
    fn find(
        root: &Value,
        path: &Path,
        cells: impl CellSource + Send + Sync + 'static,
    ) -> Result<Option<Obtained>, Failure> {
        let found = query::find(root, path, &cells)?;
        Ok(found.map(|value| Obtained { value, cells: Box::new(cells) }))
    }
}

/// Obtains the value that an address names, if it is neither in a root nor a namespace.
async fn obtain(call: &Call, address: &Address) -> Result<Option<Obtained>, Failure> {
    match address {
        Address::Job(id, path) => {
            match call.host.job(&call.caller, *id).await.map_err(job_failure) {
                Ok(view) => match view.cells {
                    Some(cells) => Obtained::find(&view.job.to_value(), path, cells),
                    None => Obtained::find(&view.job.to_value(), path, NoCells),
                },
                Err(failure) if failure.code == "job_not_found" => Ok(None),
                Err(failure) => Err(failure),
            }
        }
        Address::History(id, path) => obtain_records(call, *id, path).await,
        Address::Asset(reference, path) => {
            let text = call.host.asset(&call.caller, reference).await?;
            match text.and_then(|text| json::read(text.as_bytes()).ok()) {
                Some(metadata) => Obtained::find(&metadata, path, NoCells),
                None => Ok(None),
            }
        }
        Address::Venue(path) => Obtained::find(&venue_data(call)?, path, NoCells),
        Address::Namespace(_)
        | Address::Top
        | Address::Root { .. }
        | Address::Agents
        | Address::Secrets(_) => Ok(None),
    }
}

/// Obtains a part of the records of a job: of one of them, if the path names one.
async fn obtain_records(call: &Call, id: JobId, path: &Path) -> Result<Option<Obtained>, Failure> {
    let segments = path.segments();
    let index = segments.first().and_then(|index| index.parse::<u64>().ok());
    let (from, limit) = index.map_or((0, HISTORY_RECORDS_MAX), |index| (index, 1));
    let page = match call.host.history(&call.caller, id, from, limit).await.map_err(job_failure) {
        Ok(page) => page,
        Err(failure) if failure.code == "job_not_found" => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let entry = |record: &catena_job::Record| {
        object([("id", record.id().into()), ("record", record.to_value())])
    };
    let mut entries = page.records.iter().map(entry);
    if index.is_none() {
        return Obtained::find(&array(entries.collect()), path, page.cells);
    }
    let Some(entry) = entries.next() else { return Ok(None) };
    let rest = Path::from_segments(segments.iter().skip(1).cloned()).map_err(path_failure)?;
    Obtained::find(&entry, &rest, page.cells)
}

/// Obtains what an operation needs of an address that is in no root: the result of a read, or the value
/// to copy.
pub(super) async fn prepare_address(
    call: &Call,
    address: &Address,
) -> Result<Option<Value>, Failure> {
    if let Address::Namespace(namespace) = address {
        return obtain_keys(call, *namespace).await;
    }
    let found = obtain(call, address).await?;
    if !is_read(call.operation.name()) {
        return found.map(|found| load_copy(&found.value, &*found.cells)).transpose();
    }
    let fields = Fields::from_value(&call.input)?;
    match found {
        Some(found) => answer(call, &fields, Some(&found.value), &*found.cells).map(Some),
        None => answer(call, &fields, None, &NoCells).map(Some),
    }
}
