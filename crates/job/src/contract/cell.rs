//! The cell that a payload describes: what an executor runs.
//!
//! The content of an object is Python source, or a document whose code blocks form one module, in order.
//! Errors of a document are reported by block and by the line within it.

use std::collections::HashSet;

use catena_value::{Map, Value, json};

use super::envelope::{Limits, Plan, check_name};
use super::error::{Category, ContractError};
use super::read::{digest_of, items, present, text};
use crate::limits::CONTRACT_ENTRIES_MAX;

/// The members of a code block that can carry its source. The first that is present counts.
const SOURCE_MEMBERS: [&str; 4] = ["source", "text", "code", "value"];

/// What is called after the body has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entrypoint {
    /// Nothing.
    None,
    /// The function with this name, if there is one.
    IfDefined(String),
    /// The function with this name, which must exist.
    Required(String),
}

/// A dataset that the cell reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    /// `sha256:` and 64 hex digits.
    pub digest: String,
    /// The name under which it appears in addition to its digits.
    pub name: Option<String>,
}

impl Dataset {
    /// Reads an entry with `digest` and, if it has one, `name`.
    pub(super) fn read(entry: &Map) -> Option<Dataset> {
        Some(Dataset { digest: text(entry, "digest")?, name: text(entry, "name") })
    }

    fn digits(&self) -> &str {
        self.digest.trim_start_matches("sha256:")
    }
}

/// An object on which the cell depends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFile {
    /// Its ID.
    pub id: String,
    /// Its content as JSON. `None` if the snapshot has none.
    pub content: Option<String>,
}

/// A code block of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its ID, or its position in the document.
    pub id: String,
    /// The line of the module at which it begins, from 1.
    pub first_line: u32,
    /// The number of its lines.
    pub lines: u32,
}

/// What an executor runs.
#[derive(Debug, Clone, PartialEq)]
pub struct CellPlan {
    /// The module.
    pub source: String,
    /// Its blocks. Empty if the content is plain source.
    pub blocks: Vec<Block>,
    /// What is called after the body has run.
    pub entrypoint: Entrypoint,
    /// Its arguments, as the text of a JSON object.
    pub parameters: String,
    /// The datasets that it reads.
    pub datasets: Vec<Dataset>,
    /// The objects on which it depends.
    pub objects: Vec<ObjectFile>,
    /// What it may use.
    pub limits: Limits,
    /// The formats of files that become artifacts. `None` for all.
    pub formats: Option<Vec<String>>,
    /// Whether stdout is part of the result.
    pub returns_stdout: bool,
    /// Whether stderr is part of the result.
    pub returns_stderr: bool,
}

impl CellPlan {
    /// Reads a payload. A missing snapshot and a wrong digest are errors of dependencies.
    pub fn read(payload: &Value) -> Result<CellPlan, ContractError> {
        let invalid = || ContractError::at("inputs.object", "must be an object");
        let root = payload.as_map().ok_or_else(invalid)?;
        let map = |from: &Map, name: &str| from.field(name).and_then(Value::as_map).cloned();
        let inputs = map(root, "inputs").ok_or_else(invalid)?;
        let target = map(&inputs, "object").ok_or_else(invalid)?;
        let content = map(&target, "content").ok_or_else(invalid)?;
        let (source, blocks) = read_source(&content)?;
        let runtime = map(&target, "runtime").unwrap_or_default();
        check_runtime(&runtime)?;
        let spec = map(root, "output_spec").unwrap_or_default();
        let returns = |name: &str| spec.field(name).and_then(Value::as_bool).unwrap_or(true);
        let formats = present(&spec, "formats").and_then(items).map(|formats| {
            formats.iter().filter_map(|format| Some(format.to_text()?.into_owned())).collect()
        });
        let limits = map(root, "limits").unwrap_or_default();
        let parameters = present(&runtime, "parameters").cloned();
        let parameters = parameters.unwrap_or_else(|| Map::new().into());
        Ok(CellPlan {
            source,
            blocks,
            entrypoint: read_entrypoint(&runtime),
            parameters: json::to_string(&parameters).unwrap_or_default(),
            datasets: read_datasets(&target),
            objects: read_objects(&target, &inputs)?,
            limits: Limits::read(&limits, &Plan::UNLIMITED)?,
            formats,
            returns_stdout: returns("return_stdout"),
            returns_stderr: returns("return_stderr"),
        })
    }

    /// Returns the block with a line of the module, and the line within it.
    pub fn locate(&self, line: u32) -> Option<(&Block, u32)> {
        let has = |block: &&Block| {
            (block.first_line..block.first_line + block.lines.max(1)).contains(&line)
        };
        self.blocks.iter().find(has).map(|block| (block, line - block.first_line + 1))
    }
}

/// Checks the content of an object that is executed.
pub(super) fn check_content(content: &Map) -> Result<(), ContractError> {
    read_source(content).map(drop)
}

/// Checks how an object is executed.
pub(super) fn check_runtime(runtime: &Map) -> Result<(), ContractError> {
    let field = |name: &str| format!("inputs.object.runtime.{name}");
    if let Some(language) = present(runtime, "language")
        && language.as_str() != Some("python")
    {
        let text = "only Python can be executed".to_owned();
        let error = ContractError::invalid("UNSUPPORTED_LANGUAGE", text);
        return Err(error.with("field", field("language").as_str()));
    }
    if let Some(name) = present(runtime, "entrypoint") {
        let name = name.to_text().unwrap_or_default();
        let mut characters = name.chars();
        let starts = characters.next().is_some_and(|c| c == '_' || c.is_alphabetic());
        if !starts || name.len() > 255 || !characters.all(|c| c == '_' || c.is_alphanumeric()) {
            return Err(ContractError::at(&field("entrypoint"), "must be the name of a function"));
        }
    }
    match present(runtime, "parameters") {
        Some(parameters) if parameters.as_map().is_none() => {
            Err(ContractError::at(&field("parameters"), "must be an object"))
        }
        _ => Ok(()),
    }
}

fn read_entrypoint(runtime: &Map) -> Entrypoint {
    // The default stated explicitly is still the default.
    match runtime.field("entrypoint") {
        None => Entrypoint::IfDefined("main".to_owned()),
        Some(Value::Nil) => Entrypoint::None,
        Some(name) => match name.to_text().unwrap_or_default().into_owned() {
            main if main == "main" => Entrypoint::IfDefined(main),
            name => Entrypoint::Required(name),
        },
    }
}

fn read_source(content: &Map) -> Result<(String, Vec<Block>), ContractError> {
    let field = "inputs.object.content";
    match text(content, "format").as_deref() {
        Some("python") => {
            let source = content.field("value").and_then(Value::to_text);
            let source = source.ok_or_else(|| {
                ContractError::at(&format!("{field}.value"), "must be the source text")
            })?;
            Ok((source.into_owned(), Vec::new()))
        }
        Some("blockdoc") => {
            let value = content.field("value").and_then(Value::as_map);
            let blocks = value.and_then(|value| items(present(value, "blocks")?));
            let blocks = blocks.filter(|blocks| blocks.len() <= CONTRACT_ENTRIES_MAX);
            let blocks = blocks.ok_or_else(|| {
                ContractError::at(&format!("{field}.value.blocks"), "must be an array of blocks")
            })?;
            join_blocks(&blocks)
        }
        _ => {
            let text = format!("`{field}.format` must be python or blockdoc");
            let error = ContractError::invalid("UNSUPPORTED_FORMAT", text);
            Err(error.with("field", "inputs.object.content.format"))
        }
    }
}

/// Joins the code blocks of a document to one module.
fn join_blocks(blocks: &[Value]) -> Result<(String, Vec<Block>), ContractError> {
    let mut source = String::new();
    let mut found = Vec::new();
    let mut line = 1;
    for (at, block) in blocks.iter().enumerate() {
        let field = format!("inputs.object.content.value.blocks.{at}");
        let block = block.as_map();
        let block = block.ok_or_else(|| ContractError::at(&field, "must be an object"))?;
        let is_python = text(block, "language").is_none_or(|language| language == "python");
        if text(block, "type").as_deref() != Some("code") || !is_python {
            continue;
        }
        let code = SOURCE_MEMBERS.iter().find_map(|name| text(block, name));
        let code = code.ok_or_else(|| ContractError::at(&field, "has no `source` text"))?;
        let code = code.strip_suffix('\n').unwrap_or(&code);
        let lines = u32::try_from(code.split('\n').count()).unwrap_or(u32::MAX);
        let id = text(block, "id").unwrap_or_else(|| at.to_string());
        found.push(Block { id, first_line: line, lines });
        source.push_str(code);
        source.push('\n');
        line += lines;
    }
    Ok((source, found))
}

fn dependencies(target: &Map, kind: &str) -> Vec<Map> {
    let list = present(target, "dependencies").and_then(items).unwrap_or_default();
    let maps = list.iter().filter_map(|entry| entry.as_map().cloned());
    maps.filter(|entry| text(entry, "kind").as_deref() == Some(kind)).collect()
}

fn read_datasets(target: &Map) -> Vec<Dataset> {
    dependencies(target, "dataset").iter().filter_map(Dataset::read).collect()
}

/// Checks that every name stands for one file. `list` is the field of these datasets, which have their own.
pub(super) fn check_dataset_names(
    list: &str,
    datasets: &[(String, Dataset)],
) -> Result<(), ContractError> {
    let digests: HashSet<&str> = datasets.iter().map(|(_, dataset)| dataset.digits()).collect();
    let mut names = HashSet::new();
    for (field, dataset) in datasets {
        let Some(name) = dataset.name.as_deref() else { continue };
        let field = format!("{field}.name");
        if name != dataset.digits() && digests.contains(name) {
            return Err(ContractError::at(&field, "is the digest of another dataset"));
        }
        if !names.insert(name) {
            return Err(ContractError::at(&field, "occurs twice: each dataset needs its own"));
        }
    }
    if digests.union(&names).count() > CONTRACT_ENTRIES_MAX {
        let text = format!("must not have more than {CONTRACT_ENTRIES_MAX} digests and names");
        return Err(ContractError::at(list, text));
    }
    Ok(())
}

fn read_objects(target: &Map, inputs: &Map) -> Result<Vec<ObjectFile>, ContractError> {
    let snapshots = present(inputs, "dependency_snapshots").and_then(items).unwrap_or_default();
    let mut files = Vec::new();
    for dependency in dependencies(target, "object") {
        let id = text(&dependency, "id").unwrap_or_default();
        let snapshot = snapshots.iter().filter_map(Value::as_map).find(|snapshot| {
            text(snapshot, "kind").as_deref() == Some("object")
                && text(snapshot, "id").as_deref() == Some(&id)
        });
        let snapshot = snapshot.ok_or_else(|| {
            let text = format!("the payload has no snapshot of object {id}");
            dependency_error("SNAPSHOT_MISSING", text).with("object_id", id.as_str())
        })?;
        let content = match snapshot.field("content").filter(|content| !content.is_nil()) {
            None => None,
            Some(content) => Some(checked_content(&id, snapshot, content)?),
        };
        files.push(ObjectFile { id, content });
    }
    Ok(files)
}

/// Returns the content of a snapshot as JSON, if it has the digest that the snapshot states: of the text
/// itself if it is one, else of its JSON.
fn checked_content(id: &str, snapshot: &Map, content: &Value) -> Result<String, ContractError> {
    let json = json::to_string(content).unwrap_or_default();
    let found = match content.to_text() {
        Some(text) => digest_of(text.as_bytes()),
        None => digest_of(json.as_bytes()),
    };
    let stated = text(snapshot, "content_digest").unwrap_or_default();
    if stated == found {
        return Ok(json);
    }
    let text = format!("the snapshot of object {id} does not have the digest that it states");
    let error = dependency_error("DIGEST_MISMATCH", text);
    Err(error.with("object_id", id).with("expected", stated.as_str()).with("found", found.as_str()))
}

fn dependency_error(code: &str, text: String) -> ContractError {
    ContractError::new(Category::DependencyError, code, text)
}

/// Returns the payload of an operation that runs a cell without a document: `{code, entrypoint?,
/// parameters?, datasets?, limits?}`.
pub fn payload_of_code(input: &Map) -> Result<Map, ContractError> {
    let code = input.field("code").and_then(Value::to_text);
    let code = code.ok_or_else(|| ContractError::at("code", "must be the source text"))?;
    let mut dependencies = Vec::new();
    let datasets = match present(input, "datasets") {
        None => Vec::new(),
        Some(datasets) => {
            let found = items(datasets).filter(|list| list.len() <= CONTRACT_ENTRIES_MAX);
            found.ok_or_else(|| ContractError::at("datasets", "must be an array"))?
        }
    };
    let mut named = Vec::new();
    for (at, dataset) in datasets.iter().enumerate() {
        let field = format!("datasets.{at}");
        let dataset = match dataset.as_map() {
            Some(map) => {
                check_name(map, &format!("{field}.name"))?;
                Dataset::read(map)
            }
            None => dataset.to_text().map(|digest| Dataset { digest: digest.into(), name: None }),
        };
        let dataset = dataset.filter(|dataset| super::is_digest(&dataset.digest));
        let dataset = dataset.ok_or_else(|| {
            let text = "must be `sha256:` and 64 lower-case hex digits, or an object with `digest`";
            ContractError::at(&field, text)
        })?;
        let mut members =
            vec![("kind", Value::from("dataset")), ("digest", dataset.digest.as_str().into())];
        members.extend(dataset.name.as_deref().map(|name| ("name", name.into())));
        dependencies.push(super::read::object(members));
        named.push((field, dataset));
    }
    check_dataset_names("datasets", &named)?;
    let mut runtime = vec![("language", Value::from("python"))];
    runtime.extend(input.field("entrypoint").map(|name| ("entrypoint", name.clone())));
    runtime.extend(input.field("parameters").map(|values| ("parameters", values.clone())));
    let limits = input.field("limits").filter(|limits| !limits.is_nil()).cloned();
    let target = super::read::object([
        ("type", "code".into()),
        (
            "content",
            super::read::object([("format", "python".into()), ("value", code.as_ref().into())]),
        ),
        ("dependencies", catena_value::Vector::from_items(dependencies).into()),
        ("runtime", super::read::object(runtime)),
    ]);
    let members = [
        ("schema_version", Value::from(super::SCHEMA_VERSION)),
        ("job_type", super::JobType::ObjectExecute.as_str().into()),
        ("limits", limits.unwrap_or_else(|| Map::new().into())),
        (
            "environment",
            super::read::object([
                ("language", "python".into()),
                ("network_access", "disabled".into()),
            ]),
        ),
        ("inputs", super::read::object([("object", target)])),
    ];
    Ok(members.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        json::read(text.as_bytes()).unwrap()
    }

    fn plan(object: &str, snapshots: &str) -> Result<CellPlan, ContractError> {
        let text = format!(
            r#"{{"inputs":{{"object":{object},"dependency_snapshots":{snapshots}}},"limits":{{"cpu_ms":7}}}}"#
        );
        CellPlan::read(&value(&text))
    }

    #[test]
    fn code_blocks_form_one_module_in_order() {
        let object = r#"{"content":{"format":"blockdoc","value":{"blocks":[
            {"id":"a","type":"code","language":"python","source":"x = 1\ny = 2\n"},
            {"type":"text","text":"not code"},
            {"type":"code","language":"javascript","source":"no"},
            {"type":"code","language":"python","text":"print(x)"}]}}}"#;
        let plan = plan(object, "[]").unwrap();
        assert_eq!(plan.source, "x = 1\ny = 2\nprint(x)\n");
        let at = |line| plan.locate(line).map(|(block, line)| (block.id.as_str(), line));
        assert_eq!([at(1), at(2), at(3)], [Some(("a", 1)), Some(("a", 2)), Some(("3", 1))]);
        assert_eq!(at(4), None);
        assert_eq!((plan.limits.cpu_ms, plan.limits.memory_mb), (7, 512));
    }

    #[test]
    fn the_entrypoint_is_a_name_or_nothing() {
        let entrypoint = |runtime: &str| {
            let object =
                format!(r#"{{"content":{{"format":"python","value":""}},"runtime":{runtime}}}"#);
            plan(&object, "[]").map(|plan| plan.entrypoint)
        };
        assert_eq!(entrypoint("{}").unwrap(), Entrypoint::IfDefined("main".into()));
        assert_eq!(entrypoint(r#"{"entrypoint":null}"#).unwrap(), Entrypoint::None);
        assert_eq!(
            entrypoint(r#"{"entrypoint":"run"}"#).unwrap(),
            Entrypoint::Required("run".into())
        );
        assert!(entrypoint(r#"{"entrypoint":"a b"}"#).is_err());
        assert!(entrypoint(r#"{"parameters":[1]}"#).is_err());
    }

    #[test]
    fn an_object_needs_its_snapshot_and_the_snapshot_its_digest() {
        const ID: &str = "018f4d2e-0000-7000-8000-000000000001";
        let object = format!(
            r#"{{"content":{{"format":"python","value":""}},"dependencies":[{{"kind":"object","id":"{ID}"}}]}}"#
        );
        let error = plan(&object, "[]").unwrap_err();
        assert_eq!(
            (error.category, error.code.as_str()),
            (Category::DependencyError, "SNAPSHOT_MISSING")
        );
        let snapshot = |digest: &str, content: &str| {
            format!(
                r#"[{{"kind":"object","id":"{ID}","content_digest":"{digest}","content":{content}}}]"#
            )
        };
        let found = plan(&object, &snapshot(&digest_of(b"{\"a\":1}"), "{\"a\":1}")).unwrap();
        assert_eq!(found.objects[0].content.as_deref(), Some("{\"a\":1}"));
        assert!(plan(&object, &snapshot(&digest_of(b"hi"), "\"hi\"")).is_ok());
        let error = plan(&object, &snapshot(&digest_of(b"other"), "\"hi\"")).unwrap_err();
        assert_eq!(error.code, "DIGEST_MISMATCH");
    }

    #[test]
    fn code_alone_is_a_payload_too() {
        let input = value(r#"{"code":"print(1)","parameters":{"x":1},"limits":{"timeout_ms":5}}"#);
        let members = payload_of_code(input.as_map().unwrap()).unwrap();
        let plan = CellPlan::read(&members.into()).unwrap();
        assert_eq!((plan.source.as_str(), plan.parameters.as_str()), ("print(1)", "{\"x\":1}"));
        assert_eq!((plan.limits.timeout_ms, plan.formats), (5, None));
        for wrong in [
            r#"{"code":"","datasets":["sha256:1"]}"#.to_owned(),
            format!(
                r#"{{"code":"","datasets":[{{"digest":"{}","name":"../a"}}]}}"#,
                digest_of(b"")
            ),
        ] {
            assert!(payload_of_code(value(&wrong).as_map().unwrap()).is_err(), "{wrong}");
        }
    }
}
