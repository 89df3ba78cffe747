//! Operations as tools.
//!
//! A tool takes an object and gives an object, and its name is one that the strictest clients take.
//! An operation need not be like that: what is no object travels inside one, `input` on the way in
//! and `result` on the way out. The table is made once, from the catalogue that everything else is
//! made from.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use catena_engine::{Engine, Operation};
use catena_value::{Map, NoCells, Value};

use super::outcome::Answer;
use super::{Answered, Asked, Refusal, Revision, about, text};
use crate::limits::{MCP_PAGE_MAX, MCP_TOOL_NAME_BYTES_MAX};
use crate::values::{list as list_of, object};

/// The member that carries an input which is no object.
const INPUT: &str = "input";

/// The member that carries an output which is no object.
const RESULT: &str = "result";

/// The member of a call's arguments that carries delegations.
pub(super) const DELEGATIONS: &str = "ucans";

/// Every tool.
pub(crate) struct Tools {
    by_name: BTreeMap<String, Arc<Tool>>,
    by_operation: HashMap<String, Arc<Tool>>,
}

/// An operation as a tool.
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) operation: Arc<Operation>,
    input: Shape,
    output: Shape,
}

/// How a value travels.
#[derive(Debug, Clone, PartialEq)]
enum Shape {
    /// Nothing is said about it: as it is, if it is an object.
    Free,
    /// As it is; the schema says that it is an object.
    Bare(Value),
    /// As the one member of an object, with this schema.
    Wrapped(Value),
}

impl Tools {
    /// Those operations of an engine that the operator wants to show: adapters (`json`), operations
    /// (`json:merge`, `v/ops/json/merge`), or `*` for all.
    pub(crate) fn of(engine: &Engine, wanted: &[String]) -> Tools {
        let mut tools = Tools { by_name: BTreeMap::new(), by_operation: HashMap::new() };
        let mut used = vec![false; wanted.len()];
        for entry in engine.operations() {
            let operation = entry.operation;
            let adapter = operation.adapter().split(':').next().unwrap_or_default().to_owned();
            let is_meant = |word: &String| {
                let names = ["*", &adapter, operation.adapter(), &entry.path];
                names.contains(&word.as_str())
            };
            let meant: Vec<bool> = wanted.iter().map(is_meant).collect();
            used.iter_mut().zip(&meant).for_each(|(used, meant)| *used |= meant);
            if meant.contains(&true) {
                tools.add(operation);
            }
        }
        for (word, _) in wanted.iter().zip(used).filter(|(_, used)| !used) {
            tracing::warn!(%word, "mcp.tools names something that no operation is called");
        }
        tools
    }

    fn add(&mut self, operation: Arc<Operation>) {
        let own = operation.member("toolName");
        let own = own.as_ref().and_then(Value::as_str).unwrap_or(operation.adapter());
        let name = free_name(&plain(own), |name| self.by_name.contains_key(name));
        let tool = Arc::new(Tool {
            name: name.clone(),
            input: Shape::of_input(operation.member("input")),
            output: Shape::of_output(operation.member("output")),
            operation: Arc::clone(&operation),
        });
        self.by_operation.insert(operation.id_text().to_owned(), Arc::clone(&tool));
        self.by_name.insert(name, tool);
    }

    /// The tool with this name.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Tool>> {
        self.by_name.get(name)
    }

    /// The tool for the operation with this asset ID, when it is shown as one.
    pub(super) fn of_operation(&self, hex: &str) -> Option<&Arc<Tool>> {
        self.by_operation.get(hex)
    }

    /// The name of an operation as a tool, when it is shown as one.
    pub(super) fn name_of(&self, reference: &str) -> Option<&str> {
        let mut tools = self.by_name.values();
        tools.find(|tool| tool.operation.adapter() == reference).map(|tool| tool.name.as_str())
    }
}

/// A name of letters, digits, `_` and `-`, as short as the strictest clients want it.
fn plain(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    let letters = name.chars().map(|letter| if is_plain(letter) { letter } else { '_' });
    let plain: String = letters.take(MCP_TOOL_NAME_BYTES_MAX).collect();
    if plain.is_empty() { "_".to_owned() } else { plain }
}

/// A name that no other tool has.
fn free_name(wanted: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = |number: usize| {
        let end = format!("_{number}");
        let begin: String = wanted.chars().take(MCP_TOOL_NAME_BYTES_MAX - end.len()).collect();
        begin + &end
    };
    let mut names = std::iter::once(wanted.to_owned()).chain((2..).map(numbered));
    names.find(|name| !is_taken(name)).unwrap_or_default()
}

impl Shape {
    /// An input that may be an object is asked for as one: a call has nothing else to give.
    fn of_input(schema: Option<Value>) -> Shape {
        match schema {
            None | Some(Value::Nil | Value::Bool(true)) => Shape::Free,
            Some(Value::Map(schema)) if may_be_object(&schema) => {
                Shape::Bare(super::with(&schema, "type", "object".into()).into())
            }
            Some(schema) => Shape::Wrapped(wrapped(INPUT, schema)),
        }
    }

    /// An output that may be something else is always wrapped, so that the schema holds.
    fn of_output(schema: Option<Value>) -> Shape {
        match schema {
            None | Some(Value::Nil | Value::Bool(true)) => Shape::Free,
            Some(Value::Map(schema)) if schema.is_empty() => Shape::Free,
            Some(schema) if is_object(&schema) => Shape::Bare(schema),
            Some(schema) => Shape::Wrapped(wrapped(RESULT, schema)),
        }
    }

    fn schema(&self) -> Option<&Value> {
        match self {
            Shape::Free => None,
            Shape::Bare(schema) | Shape::Wrapped(schema) => Some(schema),
        }
    }
}

fn is_object(schema: &Value) -> bool {
    let kind = schema.as_map().and_then(|schema| schema.field("type"));
    kind.and_then(Value::as_str) == Some("object")
}

/// Whether a schema does not say that it is about something else than an object.
fn may_be_object(schema: &Map) -> bool {
    match schema.field("type") {
        None => true,
        Some(Value::Vector(kinds)) => {
            kinds.iter(&NoCells).flatten().any(|kind| kind.as_str() == Some("object"))
        }
        Some(kind) => kind.as_str() == Some("object"),
    }
}

/// The schema of an object whose one member has this schema.
fn wrapped(name: &str, schema: Value) -> Value {
    // What a schema refers to by a path begins at its own root, wherever it stands.
    let schema = match &schema {
        Value::Map(map) if map.field("$id").is_none() && mentions_reference(&schema) => {
            super::with(map, "$id", format!("urn:catena:{name}").into()).into()
        }
        _ => schema,
    };
    object([
        ("type", "object".into()),
        ("properties", object([(name, schema)])),
        ("required", list_of([name.into()])),
    ])
}

fn mentions_reference(schema: &Value) -> bool {
    match schema {
        Value::Map(map) => map.fields().into_iter().any(|(name, value)| {
            matches!(name.as_str(), Some("$ref" | "$dynamicRef")) || mentions_reference(value)
        }),
        Value::Vector(items) => {
            items.iter(&NoCells).flatten().any(|item| mentions_reference(&item))
        }
        _ => false,
    }
}

impl Tool {
    /// The input of the operation, and the delegations that came with it.
    pub(super) fn input(&self, arguments: &Map) -> (Value, Option<Value>) {
        let delegations = arguments.field(DELEGATIONS).filter(|_| !self.takes_delegations());
        let arguments = match delegations {
            Some(_) => arguments.remove(&DELEGATIONS.into(), &NoCells).ok(),
            None => None,
        }
        .unwrap_or_else(|| arguments.clone());
        let input = match &self.input {
            Shape::Free | Shape::Bare(_) => arguments.into(),
            Shape::Wrapped(_) => arguments.field(INPUT).cloned().unwrap_or_default(),
        };
        (input, delegations.cloned())
    }

    /// Whether the operation's own input has a member of that name.
    fn takes_delegations(&self) -> bool {
        let schema = self.input.schema().and_then(Value::as_map);
        let properties = schema.and_then(|schema| schema.field("properties"));
        properties.and_then(Value::as_map).is_some_and(|all| all.field(DELEGATIONS).is_some())
    }

    fn definition(&self, revision: Revision) -> Value {
        let metadata = self.operation.metadata().as_map();
        let text = |name: &str| metadata.and_then(|metadata| metadata.field(name)).cloned();
        let anything = || object([("type", "object".into())]);
        let mut members = vec![
            ("name", Value::from(self.name.as_str())),
            ("inputSchema", self.input.schema().cloned().unwrap_or_else(anything)),
            ("annotations", self.annotations(text("name"))),
        ];
        members.extend(text("name").map(|title| ("title", title)));
        members.extend(text("description").map(|about| ("description", about)));
        members.extend(self.output.schema().cloned().map(|schema| ("outputSchema", schema)));
        if revision.asks_for_tasks() {
            members.push(("execution", object([("taskSupport", "optional".into())])));
        }
        object(members)
    }

    /// What the operation promises, as hints. What it does not promise is left to the client.
    fn annotations(&self, title: Option<Value>) -> Value {
        let has = |mark: &str| self.operation.member(mark) == Some(true.into());
        let (is_pure, is_read_only) = (has("pure"), has("readOnly"));
        let mut members: Vec<(&str, Value)> = Vec::new();
        members.extend(title.map(|title| ("title", title)));
        members.push(("readOnlyHint", (is_pure || is_read_only).into()));
        if is_pure || is_read_only {
            members.push(("destructiveHint", false.into()));
        }
        if is_pure || is_read_only || has("idempotent") {
            members.push(("idempotentHint", true.into()));
        }
        if is_pure {
            members.push(("openWorldHint", false.into()));
        }
        object(members)
    }
}

/// The output of an operation as `structuredContent`, which is an object. Its first cell must be in
/// memory.
pub(super) fn structured(tool: Option<&Tool>, output: Value) -> Value {
    let is_wrapped = tool.is_some_and(|tool| matches!(tool.output, Shape::Wrapped(_)));
    match output {
        Value::Map(map) if !is_wrapped => map.into(),
        output => object([(RESULT, output)]),
    }
}

/// Lists tools, page by page, in the order of names.
pub(super) fn list(asked: &Asked, params: &Map) -> Answered {
    let tools = &asked.door.mcp_tools.by_name;
    let after = text(params, "cursor")?;
    if let Some(name) = after.filter(|name| !tools.contains_key(*name)) {
        return Err(Refusal::invalid_params(format!("there is no page after {name}")));
    }
    let mut rest =
        tools.values().skip_while(|tool| after.is_some_and(|after| tool.name.as_str() <= after));
    let page: Vec<&Arc<Tool>> = rest.by_ref().take(MCP_PAGE_MAX).collect();
    let revision = asked.client.revision;
    let mut members = vec![("tools", list_of(page.iter().map(|tool| tool.definition(revision))))];
    if let Some(last) = page.last().filter(|_| rest.next().is_some()) {
        members.push(("nextCursor", last.name.as_str().into()));
    }
    if revision.is_stateless() {
        members.extend(about::cache_hints(&asked.door));
    }
    Ok(Answer::from(object(members)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_value::json;

    fn value(text: &str) -> Value {
        json::read(text.as_bytes()).unwrap()
    }

    fn schema(shape: &Shape) -> String {
        shape.schema().map(|schema| json::to_string(schema).unwrap()).unwrap_or_default()
    }

    #[test]
    fn a_name_is_what_the_strictest_clients_take() {
        assert_eq!(plain("test:echo"), "test_echo");
        assert_eq!(plain("v/ops/grid/job-status"), "v_ops_grid_job-status");
        assert_eq!(plain("ä b.c"), "__b_c");
        assert_eq!(plain(""), "_");
        assert_eq!(plain(&"x".repeat(100)).len(), 64);
    }

    #[test]
    fn two_tools_never_have_one_name() {
        let taken = ["a_b".to_owned(), "a_b_2".to_owned(), "x".repeat(64)];
        let free = |name: &str| free_name(name, |name| taken.iter().any(|taken| taken == name));
        assert_eq!(free("a"), "a");
        assert_eq!(free("a_b"), "a_b_3");
        assert_eq!(free(&"x".repeat(64)), format!("{}_2", "x".repeat(62)));
    }

    #[test]
    fn an_input_is_asked_for_as_an_object_and_wrapped_only_if_it_cannot_be_one() {
        let of = |text: &str| Shape::of_input(Some(value(text)));
        assert_eq!(Shape::of_input(None), Shape::Free);
        for text in [r#"{"type":"object"}"#, "{}", r#"{"type":["object","null"]}"#] {
            assert_eq!(of(text), Shape::Bare(value(r#"{"type":"object"}"#)), "{text}");
        }
        let text = schema(&of(r#"{"type":"string"}"#));
        let expected = r#"{"type":"object","required":["input"],
            "properties":{"input":{"type":"string"}}}"#;
        assert_eq!(value(&text), value(expected));
        assert!(matches!(of(r#"{"type":["string","null"]}"#), Shape::Wrapped(_)));
    }

    #[test]
    fn an_output_is_wrapped_unless_it_is_surely_an_object() {
        let of = |text: &str| Shape::of_output(Some(value(text)));
        assert_eq!(of("{}"), Shape::Free);
        assert!(matches!(of(r#"{"type":"object"}"#), Shape::Bare(_)));
        for text in [r#"{"type":"array"}"#, r#"{"type":["object","null"]}"#, r#"{"anyOf":[{}]}"#] {
            assert!(matches!(of(text), Shape::Wrapped(_)), "{text}");
        }
        assert!(schema(&of(r#"{"type":"array"}"#)).contains("\"result\""));
    }

    #[test]
    fn references_in_a_wrapped_schema_still_begin_at_its_root() {
        let text = r##"{"type":"array","items":{"$ref":"#/$defs/a"},"$defs":{"a":{}}}"##;
        assert!(schema(&Shape::of_output(Some(value(text)))).contains("urn:catena:result"));
        let plain = schema(&Shape::of_output(Some(value(r#"{"type":"array"}"#))));
        assert!(!plain.contains("$id"));
    }

    #[test]
    fn what_is_no_object_is_wrapped_without_a_schema_too() {
        assert_eq!(structured(None, value("[1]")), value(r#"{"result":[1]}"#));
        assert_eq!(structured(None, Value::Nil), value(r#"{"result":null}"#));
        assert_eq!(structured(None, value(r#"{"a":1}"#)), value(r#"{"a":1}"#));
    }
}
