//! `covia`: the caller's workspace and operations, and what the venue keeps for the caller.
//!
//! **What it does:** reads, writes, deletes, appends, copies, lists, slices, inspects, counts and groups
//! the values at paths such as `w/records/1/name`. Paths below `w` and `o` can be changed; agents
//! (`g`), secrets (`s`, names only), jobs (`j`), their records (`h`), assets (`a`) and the venue's own
//! data (`v`) can be read.
//!
//! **Cost:** a change loads and stores the cells on the path to it, and is one commit with its job. A read
//! loads the cells that it returns and creates no job at `POST /run`.
//!
//! **Cancellation:** not needed, it completes at once.
//!
//! **Repetition:** safe: a change is committed together with its job, so it is made once.

use catena_engine::operations::HostReply;
use catena_engine::{
    Adapter, Call, Failure, Need, Operation, Registration, RootId, Roots, TurnFuture,
};
use catena_value::path::Path;
use catena_value::{CellSource, Extent, ExtentError, Map, NoCells, Value};

use crate::covia::address::{Address, NAMESPACES, did_of};
use crate::covia::entries::{account, count_entries};
use crate::covia::obtain::{obtain_copy, prepare_address};
use crate::covia::operations::OPERATIONS;
use crate::definition::{check_reference, registrations};
use crate::fields::{Fields, array, invalid_input, items, object, text};
use crate::limits::{
    CONTAINER_ENTRIES_MAX, COUNT_DEPTH_MAX, INSPECT_BYTES_MAX, INSPECT_PATHS_MAX, READ_BYTES_MAX,
    SLICE_ENTRIES_MAX, WORKSPACE_VALUE_BYTES_MAX, WORKSPACE_VALUE_DEPTH_MAX,
};
use crate::nested;

pub(crate) mod address;
pub(crate) mod entries;
mod obtain;
mod operations;
pub(crate) mod query;
mod render;

pub(crate) use address::path_failure;
pub(crate) use query::{find, read};

/// The adapter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Covia;

// Operations.
//
// Their names, schemas and marks are in [`operations`].

// Input.

/// Returns the address in a member of the input.
fn address(call: &Call, fields: &Fields<'_>, name: &str) -> Result<Address, Failure> {
    Address::parse(&fields.text(name)?, &owner(call)?)
}

/// Returns the paths that an operation reads, and those that it changes.
fn paths(operation: &str, fields: &Fields<'_>) -> Result<(Vec<String>, Vec<String>), Failure> {
    Ok(match operation {
        "copy" => (vec![fields.text("from")?], vec![fields.text("to")?]),
        "list" => (vec![fields.optional_text("path")?.unwrap_or_default()], Vec::new()),
        "inspect" => (inspect_paths(fields)?.0, Vec::new()),
        "write" | "delete" | "append" => (Vec::new(), vec![fields.text("path")?]),
        _ => (vec![fields.text("path")?], Vec::new()),
    })
}

/// Returns the user from whose data a copy is made, if that is not the user whose data changes.
fn copied_from(call: &Call) -> Result<Option<String>, Failure> {
    if call.operation.name() != "copy" {
        return Ok(None);
    }
    let fields = Fields::from_value(&call.input)?;
    let from = fields.text("from")?;
    let from = did_of(&from).unwrap_or(&call.caller.did).to_owned();
    Ok(Some(from).filter(|from| owner(call).is_ok_and(|owner| owner != *from)))
}

/// Returns the user whose data a call uses: the one whose DID its paths name, else the caller. That of a
/// copy is the user whose data changes. Fails if the paths belong to several users, whose data cannot be
/// read at one point in time.
fn owner(call: &Call) -> Result<String, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let (mut read, changed) = paths(call.operation.name(), &fields)?;
    if call.operation.name() == "copy" {
        read.clear();
    }
    let mut owner: Option<&str> = None;
    for path in read.iter().chain(&changed) {
        let did = did_of(path).unwrap_or(&call.caller.did);
        if owner.is_some_and(|owner| owner != did) {
            let text = "the paths belong to different users; read them one by one";
            return Err(Failure::new("invalid_path", text));
        }
        owner = Some(did);
    }
    Ok(owner.unwrap_or(&call.caller.did).to_owned())
}

/// Returns the addresses that an operation reads, with the paths as the caller wrote them.
fn read_addresses(call: &Call) -> Result<Vec<(String, Address)>, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let texts = paths(call.operation.name(), &fields)?.0;
    let owner = match copied_from(call)? {
        Some(other) => other,
        None => owner(call)?,
    };
    let parse = |text: String| {
        let address = Address::parse(&text, &owner)?;
        Ok((text, address))
    };
    texts.into_iter().map(parse).collect()
}

/// Returns the paths to inspect, and whether they were given as an array.
fn inspect_paths(fields: &Fields<'_>) -> Result<(Vec<String>, bool), Failure> {
    let Some(paths) = fields.get("paths").or(fields.get("path")) else {
        return Err(invalid_input("`paths` is missing"));
    };
    let Some(paths) = paths.as_vector() else {
        let path = text(paths).ok_or_else(|| invalid_input("`paths` must be text or an array"))?;
        return Ok((vec![path], false));
    };
    if paths.len() > INSPECT_PATHS_MAX {
        return Err(invalid_input(format!("at most {INSPECT_PATHS_MAX} paths can be inspected")));
    }
    let path = |path: &Value| text(path).ok_or_else(|| invalid_input("a path must be text"));
    Ok((items(paths)?.iter().map(path).collect::<Result<_, _>>()?, true))
}

/// Returns an offset and a limit.
fn page(fields: &Fields<'_>, limit: i64) -> Result<(u64, usize), Failure> {
    let offset = fields.integer("offset", 0, i64::MAX)?.unwrap_or(0);
    let limit = fields.integer("limit", 0, SLICE_ENTRIES_MAX)?.unwrap_or(limit);
    Ok((u64::try_from(offset).unwrap_or(0), usize::try_from(limit).unwrap_or(0)))
}

pub(crate) fn max_size(fields: &Fields<'_>) -> Result<i64, Failure> {
    let size = fields.integer("maxSize", 0, WORKSPACE_VALUE_BYTES_MAX)?;
    Ok(size.unwrap_or(READ_BYTES_MAX))
}

fn depth(fields: &Fields<'_>) -> Result<u32, Failure> {
    let depth = fields.integer("depth", 1, COUNT_DEPTH_MAX)?.unwrap_or(1);
    Ok(u32::try_from(depth).unwrap_or(1))
}

/// Returns the value to store. Fails if it is too large.
fn stored_value(fields: &Fields<'_>) -> Result<Value, Failure> {
    let value = fields.get_nullable("value").ok_or_else(|| invalid_input("`value` is missing"))?;
    let bytes = u64::try_from(WORKSPACE_VALUE_BYTES_MAX).unwrap_or(u64::MAX);
    let bounds = Extent { bytes, depth: WORKSPACE_VALUE_DEPTH_MAX };
    let too_large = |error| Failure::new("value_too_large", format!("`value` {error}"));
    bounds.measure(value, &NoCells).map_err(too_large)?;
    Ok(value.clone())
}

// Output.

/// Returns the result of a change.
fn written(existed: bool, has_parent: bool) -> Vec<(&'static str, Value)> {
    let mut members = vec![("existed", existed.into())];
    if !has_parent {
        members.push(("pathCreated", true.into()));
    }
    members
}

fn number(count: u64) -> Value {
    i64::try_from(count).unwrap_or(i64::MAX).into()
}

// Execution.

/// Returns the names of secrets, without their values.
fn names_only(secrets: Option<&Value>, cells: &dyn CellSource) -> Result<Value, Failure> {
    let Some(Value::Map(map)) = secrets else { return Ok(Map::new().into()) };
    let redacted = object([("redacted", true.into())]);
    let mut names = Vec::new();
    for name in map.keys_from(0, cells) {
        names.push((name.map_err(|error| query::load_failure(&error))?, redacted.clone()));
    }
    Ok(names.into_iter().collect::<Map>().into())
}

/// Returns the value at an address in a root.
fn locate(address: &Address, roots: &Roots) -> Result<Option<Value>, Failure> {
    let cells = roots.cells();
    match address {
        Address::Top => {
            let empty = Value::from(Map::new());
            let names = NAMESPACES.map(|name| (name, empty.clone()));
            Ok(Some(names.into_iter().collect::<Map>().into()))
        }
        Address::Root { root, path, is_writable } => match roots.get(root)? {
            Some(value) => query::find(value, path, cells),
            // A user's namespace exists, even if nothing was written to it.
            None if *is_writable && path.segments().is_empty() => Ok(Some(Map::new().into())),
            None => Ok(None),
        },
        Address::Namespace(namespace) => Err(namespace.refusal()),
        Address::Agents => {
            let Some(Value::Map(agents)) = roots.get(&RootId::agent_controls())? else {
                return Ok(Some(Map::new().into()));
            };
            let mut ids = Vec::new();
            for id in agents.keys_from(0, cells) {
                let id = id.map_err(|error| query::load_failure(&error))?;
                ids.push((id.clone(), object([("agentId", id)])));
            }
            Ok(Some(ids.into_iter().collect::<Map>().into()))
        }
        Address::Secrets(path) => {
            let names = names_only(roots.get(&RootId::secrets())?, cells)?;
            query::find(&names, path, &NoCells)
        }
        // Obtained before the roots were read.
        Address::Job(..) | Address::History(..) | Address::Asset(..) | Address::Venue(_) => {
            Ok(None)
        }
    }
}

/// Returns true if what an address names is read before the roots are.
fn is_obtained(address: &Address) -> bool {
    address.root().is_none() && *address != Address::Top
}

/// Returns what was obtained for each path that an operation reads.
fn obtained(call: &Call) -> Result<Vec<Option<Value>>, Failure> {
    let prepared = call.prepared.as_ref().and_then(Value::as_vector);
    let prepared = prepared.map_or_else(|| Ok(Vec::new()), items)?;
    // An absent value is an empty array, any other an array of one.
    let first = |value: &Value| value.as_vector()?.as_leaf()?.first().cloned();
    Ok(prepared.iter().map(first).collect())
}

/// Returns the values that an operation copies, with the paths as the caller wrote them.
pub(crate) fn located(call: &Call, roots: &Roots) -> Result<Vec<(String, Option<Value>)>, Failure> {
    let mut obtained = obtained(call)?.into_iter();
    let is_foreign = copied_from(call)?.is_some();
    let mut found = Vec::new();
    for (text, address) in read_addresses(call)? {
        let prepared = obtained.next().flatten();
        if is_foreign || is_obtained(&address) {
            found.push((text, prepared));
            continue;
        }
        let value = locate(&address, roots)?;
        value.as_ref().map_or(Ok(()), |value| check_size(value, roots.cells()))?;
        found.push((text, value));
    }
    Ok(found)
}

/// Fails if a value is larger than one that can be written.
fn check_size(value: &Value, cells: &dyn CellSource) -> Result<(), Failure> {
    let bytes = u64::try_from(WORKSPACE_VALUE_BYTES_MAX).unwrap_or(u64::MAX);
    let bounds = Extent { bytes, depth: WORKSPACE_VALUE_DEPTH_MAX };
    match bounds.measure(value, cells) {
        Ok(_) => Ok(()),
        Err(ExtentError::Load(error)) => Err(query::load_failure(&error)),
        Err(error) => Err(Failure::new("value_too_large", format!("the value {error}"))),
    }
}

/// Stores a value at a path. Returns the members of the result.
pub(crate) fn store(
    roots: &mut Roots,
    (root, path): (RootId, Path),
    value: &Value,
) -> Result<Vec<(&'static str, Value)>, Failure> {
    let current = roots.get(&root)?.cloned().unwrap_or_else(|| Map::new().into());
    let cells = roots.cells();
    let replaced = query::find(&current, &path, cells)?;
    let existed = replaced.is_some();
    let has_parent = check_parent(&current, &path, existed, cells)?;
    let changed = path.set(&current, value, cells).map_err(path_failure)?;
    let created = created_entries(&current, &path, existed, has_parent, cells)?;
    let added = count_entries(value, cells)?.saturating_add(created);
    let removed = replaced.map_or(Ok(0), |replaced| count_entries(&replaced, cells))?;
    account(roots, &root, &current, (added, removed))?;
    roots.set(&root, Some(changed))?;
    Ok(written(existed, has_parent))
}

/// Returns true if the container in which a path is exists. Fails if it is full.
fn check_parent(
    root: &Value,
    path: &Path,
    existed: bool,
    cells: &dyn CellSource,
) -> Result<bool, Failure> {
    if existed {
        return Ok(true);
    }
    let segments = path.segments();
    let parent = segments.iter().take(segments.len().saturating_sub(1)).cloned();
    let parent = Path::from_segments(parent).map_err(path_failure)?;
    let Some(parent) = query::find(root, &parent, cells)? else { return Ok(false) };
    if query::len(&parent).is_some_and(|len| len >= CONTAINER_ENTRIES_MAX) {
        let text = format!("an object or array has at most {CONTAINER_ENTRIES_MAX} entries");
        return Err(Failure::new("too_many_entries", text));
    }
    Ok(!parent.is_nil())
}

/// Returns the number of entries that a write creates along its path.
fn created_entries(
    root: &Value,
    path: &Path,
    existed: bool,
    has_parent: bool,
    cells: &dyn CellSource,
) -> Result<u64, Failure> {
    if existed {
        return Ok(0);
    }
    let segments = path.segments();
    let mut created = 1;
    let mut parents = segments.len().saturating_sub(1);
    while !has_parent && parents > 0 {
        let parent = segments.iter().take(parents).cloned();
        let parent = Path::from_segments(parent).map_err(path_failure)?;
        if query::find(root, &parent, cells)?.is_some() {
            break;
        }
        created += 1;
        parents -= 1;
    }
    Ok(created)
}

fn append(
    roots: &mut Roots,
    (root, path): (RootId, Path),
    value: &Value,
) -> Result<Value, Failure> {
    let current = roots.get(&root)?.cloned().unwrap_or_else(|| Map::new().into());
    let cells = roots.cells();
    let found = query::find(&current, &path, cells)?;
    let has_parent = check_parent(&current, &path, found.is_some(), cells)?;
    let index = found.as_ref().and_then(Value::as_vector).map_or(0, |vector| vector.len());
    if index >= CONTAINER_ENTRIES_MAX {
        let text = format!("an array has at most {CONTAINER_ENTRIES_MAX} entries");
        return Err(Failure::new("too_many_entries", text));
    }
    let created = created_entries(&current, &path, found.is_some(), has_parent, cells)?;
    let existed = found.is_some_and(|found| !found.is_nil());
    let changed = path.append(&current, value, cells).map_err(path_failure)?;
    let added = count_entries(value, cells)?.saturating_add(created).saturating_add(1);
    account(roots, &root, &current, (added, 0))?;
    roots.set(&root, Some(changed))?;
    let mut members = written(existed, has_parent);
    members.push(("index", number(index)));
    members.push(("newSize", number(index + 1)));
    Ok(members.into_iter().collect::<Map>().into())
}

fn delete(roots: &mut Roots, (root, path): (RootId, Path)) -> Result<Value, Failure> {
    let deleted = |deleted: bool| Ok(object([("deleted", deleted.into())]));
    let Some(current) = roots.get(&root)?.cloned() else { return deleted(false) };
    let Some(found) = query::find(&current, &path, roots.cells())? else { return deleted(false) };
    let changed = path.remove(&current, roots.cells()).map_err(path_failure)?;
    let removed = count_entries(&found, roots.cells())?;
    // An element of an array stays, as null.
    let is_gone = query::find(&changed, &path, roots.cells())?.is_none();
    account(roots, &root, &current, (0, removed.saturating_add(u64::from(is_gone))))?;
    roots.set(&root, Some(changed))?;
    deleted(true)
}

/// Executes an operation that changes something.
fn change(call: &Call, roots: &mut Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let target = |name: &str| address(call, &fields, name)?.writable(&fields.text(name)?);
    match call.operation.name() {
        "write" => {
            let members = store(roots, target("path")?, &stored_value(&fields)?)?;
            Ok(members.into_iter().collect::<Map>().into())
        }
        "append" => append(roots, target("path")?, &stored_value(&fields)?),
        "delete" => delete(roots, target("path")?),
        "copy" => {
            let to = target("to")?;
            let Some((from, Some(value))) = located(call, roots)?.into_iter().next() else {
                let text = format!("there is nothing at `{}`", fields.text("from")?);
                return Err(Failure::new("not_found", text));
            };
            let is_own = copied_from(call)?.is_none();
            if is_own && matches!(Address::parse(&from, &owner(call)?)?, Address::Secrets(_)) {
                return Err(Failure::new("not_found", "a secret cannot be copied"));
            }
            Ok(store(roots, to, &value)?.into_iter().collect::<Map>().into())
        }
        _ => Err(nested::unsupported_operation(call)),
    }
}

/// Returns the list or the number of the entries of a namespace that is not a root. `None` if another path
/// is read.
fn listed(call: &Call) -> Result<Option<Value>, Failure> {
    let addresses = read_addresses(call)?;
    let Some((_, Address::Namespace(_))) = addresses.first() else { return Ok(None) };
    let keys = call.prepared.as_ref().and_then(Value::as_vector).and_then(|all| all.as_leaf());
    let keys = keys.and_then(|all| all.first()).and_then(Value::as_vector);
    let keys = keys.and_then(|keys| keys.as_leaf()).and_then(|keys| keys.first());
    let Some(keys) = keys.and_then(Value::as_map) else { return Ok(None) };
    let member = |name: &str| keys.field(name).cloned().unwrap_or_default();
    let mut members =
        vec![("exists", true.into()), ("type", "Map".into()), ("count", member("count"))];
    let shown: &[&'static str] = match call.operation.name() {
        "list" => &["keys", "offset"],
        "slice" => &["values", "offset", "truncated"],
        _ => &[],
    };
    let shown = shown.iter().filter_map(|name| Some((*name, keys.field(name)?.clone())));
    members.extend(shown);
    Ok(Some(members.into_iter().collect::<Map>().into()))
}

/// Executes an operation that only reads.
fn query(call: &Call, roots: &Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    if let Some(listed) = listed(call)? {
        return Ok(listed);
    }
    let mut obtained = obtained(call)?.into_iter();
    let mut answers = Vec::new();
    for (text, address) in read_addresses(call)? {
        let prepared = obtained.next().flatten();
        let answer = match prepared.filter(|_| is_obtained(&address)) {
            Some(prepared) => prepared,
            None => answer(call, &fields, locate(&address, roots)?.as_ref(), roots.cells())?,
        };
        answers.push((text, answer));
    }
    if call.operation.name() == "inspect" && inspect_paths(&fields)?.1 {
        let text = |answer: Value| answer.as_map()?.field("result").cloned();
        let texts = answers.into_iter().map(|(path, answer)| (path, text(answer)));
        let texts: Map = texts.map(|(path, text)| (path, text.unwrap_or_default())).collect();
        return Ok(object([("result", texts.into())]));
    }
    Ok(answers.pop().map(|(_, answer)| answer).unwrap_or_default())
}

/// Returns true if an operation only reads.
fn is_read(operation: &str) -> bool {
    matches!(operation, "read" | "list" | "slice" | "count" | "aggregate" | "inspect")
}

/// Returns the result of a read of one value.
fn answer(
    call: &Call,
    fields: &Fields<'_>,
    found: Option<&Value>,
    cells: &dyn CellSource,
) -> Result<Value, Failure> {
    match call.operation.name() {
        "read" => query::read(found, max_size(fields)?, cells),
        "list" => {
            let (offset, limit) = page(fields, 1_000)?;
            query::list(found, offset, limit, cells)
        }
        "slice" => {
            let (offset, limit) = page(fields, 100)?;
            query::slice(found, offset, limit, max_size(fields)?, cells)
        }
        "count" => query::count(found, depth(fields)?, cells),
        "aggregate" => match fields.optional_text("groupBy")? {
            Some(path) => {
                let path = Path::parse(&path).map_err(path_failure)?;
                query::aggregate(found, depth(fields)?, &path, cells)
            }
            None => query::count(found, depth(fields)?, cells),
        },
        "inspect" => {
            let budget = fields.integer("budget", 1, INSPECT_BYTES_MAX)?.unwrap_or(1_000);
            let budget = usize::try_from(budget).unwrap_or(0);
            let is_compact = fields.get("compact") == Some(&true.into());
            let text = render::render(found, budget, is_compact, cells)?;
            let mut members = vec![("result", text.into())];
            members.extend(query::id_member(found));
            Ok(members.into_iter().collect::<Map>().into())
        }
        _ => Err(nested::unsupported_operation(call)),
    }
}

impl Adapter for Covia {
    fn name(&self) -> &'static str {
        "covia"
    }

    fn description(&self) -> &'static str {
        "Reads and changes the caller's workspace and operations."
    }

    fn frees_storage(&self, name: &str) -> bool {
        matches!(name, "delete")
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn check(&self, operation: &Operation) -> Vec<(String, String)> {
        check_reference(operation.adapter_ref(), OPERATIONS)
    }

    fn needs(&self, operation: &Operation, input: &Value) -> Vec<Need> {
        // An input without paths is refused by the operation itself.
        let fields = Fields::from_value(input);
        let found = fields.and_then(|fields| paths(operation.name(), &fields));
        let Ok((read, changed)) = found else { return Vec::new() };
        let ability = if operation.name() == "delete" { "crud/delete" } else { "crud/write" };
        let read = read.into_iter().map(|path| Need::new("crud/read", path));
        read.chain(changed.into_iter().map(|path| Need::new(ability, path))).collect()
    }

    fn roots_owner(&self, call: &Call) -> Option<String> {
        owner(call).ok().filter(|owner| *owner != *call.caller.did)
    }

    fn roots(&self, call: &Call) -> Result<Vec<RootId>, Failure> {
        let mut roots: Vec<RootId> = match copied_from(call)? {
            Some(_) => Vec::new(),
            None => {
                read_addresses(call)?.into_iter().filter_map(|(_, found)| found.root()).collect()
            }
        };
        let fields = Fields::from_value(&call.input)?;
        let target = match call.operation.name() {
            "write" | "delete" | "append" => Some("path"),
            "copy" => Some("to"),
            _ => None,
        };
        if let Some(name) = target {
            roots.push(address(call, &fields, name)?.writable(&fields.text(name)?)?.0);
            roots.push(RootId::entry_counts());
        }
        Ok(roots)
    }

    fn prepare(&self, call: &Call) -> Option<HostReply<Value, Failure>> {
        let addresses = read_addresses(call).ok()?;
        let other = copied_from(call).ok().flatten();
        if other.is_none() && !addresses.iter().any(|(_, address)| is_obtained(address)) {
            return None;
        }
        let call = call.clone();
        Some(Box::pin(async move {
            let mut values = Vec::new();
            for (_, address) in &addresses {
                if let Some(other) = &other {
                    let copied = obtain_copy(&call, other, address).await?;
                    values.push(array(copied.into_iter().collect()));
                    continue;
                }
                let value = if is_obtained(address) {
                    prepare_address(&call, address).await?
                } else {
                    None
                };
                values.push(array(value.into_iter().collect()));
            }
            Ok(array(values))
        }))
    }

    fn run_on_roots(&self, call: &Call, roots: &mut Roots) -> Result<Value, Failure> {
        match call.operation.name() {
            "write" | "delete" | "append" | "copy" => change(call, roots),
            _ => query(call, roots),
        }
    }

    fn run(&self, call: Call) -> TurnFuture {
        let failure = nested::unsupported_operation(&call);
        Box::pin(std::future::ready(catena_engine::Turn::Failed(failure)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    #[test]
    fn a_value_to_store_is_bounded() {
        let stored = |text: &str| {
            let input = value(text);
            stored_value(&Fields::from_value(&input).unwrap()).map_err(|failure| failure.code)
        };
        assert_eq!(stored(r#"{"value":null}"#), Ok(Value::Nil), "a stored null is a value");
        assert_eq!(stored("{}"), Err("invalid_input".to_owned()));
        let long = format!(r#"{{"value":"{}"}}"#, "x".repeat(17 << 20));
        assert_eq!(stored(&long), Err("value_too_large".to_owned()));
    }

    #[test]
    fn secrets_show_their_names_only() {
        let secrets = value(r#"{"API_KEY":"sealed"}"#);
        let shown = names_only(Some(&secrets), &NoCells).unwrap();
        assert_eq!(shown, value(r#"{"API_KEY":{"redacted":true}}"#));
    }
}
