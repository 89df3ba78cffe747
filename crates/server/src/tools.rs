//! Operations as MCP tools: their names, and the objects that carry their inputs and outputs.
//!
//! A tool takes an object and returns an object, and its name suits the strictest clients. An
//! operation need not be like that: an input or output that is not an object is wrapped in one, as
//! `input` or `result`. The table is made once, from the operation catalogue. The operations to which a
//! caller has given names are tools of that caller, and are looked up when they are asked for.
//!
//! This is below `mcp`, and not in it, because the table is part of the state that all requests
//! share, and `mcp` builds on that state.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use catena_engine::error::StoreError;
use catena_engine::{Caller, Engine, Operation};
use catena_value::{Map, NoCells, Value};

use crate::limits::MCP_TOOL_NAME_BYTES_MAX;
use crate::values::{list, object, with_member};

/// The member that carries an input which is not an object.
const INPUT: &str = "input";

/// The member that carries an output which is not an object.
const RESULT: &str = "result";

/// The member of a call's arguments that carries delegations.
pub(crate) const DELEGATIONS: &str = "ucans";

/// All tools.
pub(crate) struct Tools {
    by_name: BTreeMap<String, Arc<Tool>>,
    /// By the asset ID of the operation, in hex.
    by_operation: HashMap<String, Arc<Tool>>,
    /// Which named operations are tools.
    named: NamedTools,
}

/// Which of a caller's named operations are tools.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NamedTools {
    All,
    /// Those with these references, such as `o/mail`.
    Listed(Vec<String>),
}

/// How the references of named operations begin, and the word that selects all of them.
const NAMED: &str = "o";

/// An operation as a tool.
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) operation: Arc<Operation>,
    /// The reference by which a call invokes it.
    pub(crate) reference: String,
    input: Shape,
    output: Shape,
}

/// How a value is carried by an object.
#[derive(Debug, Clone, PartialEq)]
enum Shape {
    /// There is no schema: an object is passed as it is.
    Free,
    /// Passed as it is; the schema says that it is an object.
    Bare(Value),
    /// Passed as the one member of an object, which has this schema.
    Wrapped(Value),
}

impl Tools {
    /// The operations of an engine that the operator selected: by adapter (`json`), by operation
    /// (`json:merge`, `v/ops/json/merge`), by the name that a caller gave it (`o/mail`, or `o` for all of
    /// these), or `*` for all.
    pub(crate) fn from_catalogue(engine: &Engine, selected: &[String]) -> Tools {
        let named = NamedTools::select(selected);
        let mut tools = Tools { by_name: BTreeMap::new(), by_operation: HashMap::new(), named };
        let mut is_used = vec![false; selected.len()];
        for entry in engine.operations() {
            let operation = entry.operation;
            let adapter = operation.adapter_ref().split(':').next().unwrap_or_default().to_owned();
            let is_selected = |word: &String| {
                let names = ["*", &adapter, operation.adapter_ref(), &entry.path];
                names.contains(&word.as_str())
            };
            let matches: Vec<bool> = selected.iter().map(is_selected).collect();
            is_used.iter_mut().zip(&matches).for_each(|(is_used, matches)| *is_used |= matches);
            if matches.contains(&true) {
                tools.add(operation);
            }
        }
        let unused = selected.iter().zip(is_used).filter(|(_, is_used)| !is_used);
        for (word, _) in unused.filter(|(word, _)| !NamedTools::is_about(word)) {
            tracing::warn!(%word, "an entry of mcp.tools matches no operation");
        }
        tools
    }

    fn add(&mut self, operation: Arc<Operation>) {
        let tool_name = operation.member("toolName");
        let name = tool_name.as_ref().and_then(Value::as_str).unwrap_or(operation.adapter_ref());
        let name = unique_name(&sanitize_name(name), |name| self.by_name.contains_key(name));
        let tool = Arc::new(Tool {
            name: name.clone(),
            reference: operation.adapter_ref().to_owned(),
            input: Shape::for_input(operation.member("input")),
            output: Shape::for_output(operation.member("output")),
            operation: Arc::clone(&operation),
        });
        self.by_operation.insert(operation.id_text().to_owned(), Arc::clone(&tool));
        self.by_name.insert(name, tool);
    }

    /// All tools, in the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Tool> {
        self.by_name.values().map(|tool| &**tool)
    }

    /// The tool with this name.
    pub(crate) fn by_name(&self, name: &str) -> Option<&Arc<Tool>> {
        self.by_name.get(name)
    }

    /// The tool for the operation with this asset ID. `None` if it is not exposed as a tool.
    pub(crate) fn by_operation(&self, hex: &str) -> Option<&Arc<Tool>> {
        self.by_operation.get(hex)
    }

    /// The references of those of a caller's named operations that are tools, by the names of the tools.
    /// A tool of the catalogue hides one with the same name, and so does an earlier name.
    pub(crate) async fn named(
        &self,
        engine: &Engine,
        caller: &Caller,
    ) -> Result<BTreeMap<String, String>, StoreError> {
        let mut tools = BTreeMap::new();
        if self.named == NamedTools::Listed(Vec::new()) {
            return Ok(tools);
        }
        for (name, _) in engine.names(caller).await? {
            let reference = format!("{NAMED}/{}", name.trim_start_matches("o/"));
            let tool = sanitize_name(&reference);
            if self.named.contains(&reference) && !self.by_name.contains_key(&tool) {
                tools.entry(tool).or_insert(reference);
            }
        }
        Ok(tools)
    }

    /// The name of the tool for an operation. `None` if it is not exposed as a tool.
    pub(crate) fn name_of(&self, reference: &str) -> Option<&str> {
        let mut tools = self.by_name.values();
        tools.find(|tool| tool.operation.adapter_ref() == reference).map(|tool| tool.name.as_str())
    }
}

impl NamedTools {
    fn select(selected: &[String]) -> NamedTools {
        if selected.iter().any(|word| word == "*" || word == NAMED) {
            return NamedTools::All;
        }
        NamedTools::Listed(selected.iter().filter(|word| Self::is_about(word)).cloned().collect())
    }

    /// Returns true if a word selects named operations.
    fn is_about(word: &str) -> bool {
        word == NAMED || word.starts_with("o/")
    }

    fn contains(&self, reference: &str) -> bool {
        match self {
            NamedTools::All => true,
            NamedTools::Listed(listed) => listed.iter().any(|word| word == reference),
        }
    }
}

/// A name of letters, digits, `_` and `-` within the length that the strictest clients accept.
pub(crate) fn sanitize_name(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    let letters = name.chars().map(|letter| if is_plain(letter) { letter } else { '_' });
    let plain: String = letters.take(MCP_TOOL_NAME_BYTES_MAX).collect();
    if plain.is_empty() { "_".to_owned() } else { plain }
}

/// The wanted name, numbered if another tool has it already.
pub(crate) fn unique_name(wanted: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = |number: usize| {
        let suffix = format!("_{number}");
        let start: String = wanted.chars().take(MCP_TOOL_NAME_BYTES_MAX - suffix.len()).collect();
        start + &suffix
    };
    let mut names = std::iter::once(wanted.to_owned()).chain((2..).map(numbered));
    names.find(|name| !is_taken(name)).unwrap_or_default()
}

impl Shape {
    /// An input that may be an object must be one, because a call can pass nothing else.
    fn for_input(schema: Option<Value>) -> Shape {
        match schema {
            None | Some(Value::Nil | Value::Bool(true)) => Shape::Free,
            Some(Value::Map(schema)) if allows_object(&schema) => {
                Shape::Bare(with_member(&schema, "type", "object".into()).into())
            }
            Some(schema) => Shape::Wrapped(wrap_schema(INPUT, schema)),
        }
    }

    /// An output that may be something other than an object is always wrapped, so that the schema
    /// holds for every output.
    fn for_output(schema: Option<Value>) -> Shape {
        match schema {
            None | Some(Value::Nil | Value::Bool(true)) => Shape::Free,
            Some(Value::Map(schema)) if schema.is_empty() => Shape::Free,
            Some(schema) if requires_object(&schema) => Shape::Bare(schema),
            Some(schema) => Shape::Wrapped(wrap_schema(RESULT, schema)),
        }
    }

    fn schema(&self) -> Option<&Value> {
        match self {
            Shape::Free => None,
            Shape::Bare(schema) | Shape::Wrapped(schema) => Some(schema),
        }
    }
}

fn requires_object(schema: &Value) -> bool {
    let kind = schema.as_map().and_then(|schema| schema.field("type"));
    kind.and_then(Value::as_str) == Some("object")
}

/// Whether the `type` of a schema allows an object.
fn allows_object(schema: &Map) -> bool {
    match schema.field("type") {
        None => true,
        Some(Value::Vector(kinds)) => {
            kinds.iter(&NoCells).flatten().any(|kind| kind.as_str() == Some("object"))
        }
        Some(kind) => kind.as_str() == Some("object"),
    }
}

/// The schema of an object whose one member has this schema.
fn wrap_schema(name: &str, schema: Value) -> Value {
    // An `$id` makes references by path resolve from the wrapped schema's own root.
    let schema = match &schema {
        Value::Map(map) if map.field("$id").is_none() && contains_reference(&schema) => {
            with_member(map, "$id", format!("urn:catena:{name}").into()).into()
        }
        _ => schema,
    };
    object([
        ("type", "object".into()),
        ("properties", object([(name, schema)])),
        ("required", list([name.into()])),
    ])
}

fn contains_reference(schema: &Value) -> bool {
    match schema {
        Value::Map(map) => map.fields().into_iter().any(|(name, value)| {
            matches!(name.as_str(), Some("$ref" | "$dynamicRef")) || contains_reference(value)
        }),
        Value::Vector(items) => {
            items.iter(&NoCells).flatten().any(|item| contains_reference(&item))
        }
        _ => false,
    }
}

impl Tool {
    /// A named operation of a caller. Its output is not wrapped according to its schema: a job of it that
    /// is read later does not say by which name it was called.
    pub(crate) fn named(name: &str, reference: &str, operation: Arc<Operation>) -> Tool {
        let output = match Shape::for_output(operation.member("output")) {
            Shape::Wrapped(_) => Shape::Free,
            shape => shape,
        };
        Tool {
            name: name.to_owned(),
            reference: reference.to_owned(),
            input: Shape::for_input(operation.member("input")),
            output,
            operation,
        }
    }

    /// The schema of the arguments. `None` if any object is accepted.
    pub(crate) fn input_schema(&self) -> Option<&Value> {
        self.input.schema()
    }

    /// The schema of the structured content. `None` if it can be any object.
    pub(crate) fn output_schema(&self) -> Option<&Value> {
        self.output.schema()
    }

    /// Splits the arguments of a call into the operation's input and the delegations.
    pub(crate) fn split_arguments(&self, arguments: &Map) -> (Value, Option<Value>) {
        let delegations = arguments.field(DELEGATIONS).filter(|_| !self.declares_delegations());
        let rest = delegations.and_then(|_| arguments.remove(&DELEGATIONS.into(), &NoCells).ok());
        let arguments = rest.unwrap_or_else(|| arguments.clone());
        let input = match &self.input {
            Shape::Free | Shape::Bare(_) => arguments.into(),
            Shape::Wrapped(_) => arguments.field(INPUT).cloned().unwrap_or_default(),
        };
        (input, delegations.cloned())
    }

    /// Whether the operation's own input has a member of that name.
    fn declares_delegations(&self) -> bool {
        let schema = self.input.schema().and_then(Value::as_map);
        let properties = schema.and_then(|schema| schema.field("properties"));
        properties.and_then(Value::as_map).is_some_and(|all| all.field(DELEGATIONS).is_some())
    }
}

/// The output of an operation as `structuredContent`, which must be an object. The output's root cell
/// must be in memory.
pub(crate) fn structured_content(tool: Option<&Tool>, output: Value) -> Value {
    let is_wrapped = tool.is_some_and(|tool| matches!(tool.output, Shape::Wrapped(_)));
    match output {
        Value::Map(map) if !is_wrapped => map.into(),
        output => object([(RESULT, output)]),
    }
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
    fn a_name_suits_the_strictest_clients() {
        assert_eq!(sanitize_name("test:echo"), "test_echo");
        assert_eq!(sanitize_name("v/ops/grid/job-status"), "v_ops_grid_job-status");
        assert_eq!(sanitize_name("ä b.c"), "__b_c");
        assert_eq!(sanitize_name(""), "_");
        assert_eq!(sanitize_name(&"x".repeat(100)).len(), 64);
    }

    #[test]
    fn no_two_tools_share_a_name() {
        let taken = ["a_b".to_owned(), "a_b_2".to_owned(), "x".repeat(64)];
        let free = |name: &str| unique_name(name, |name| taken.iter().any(|taken| taken == name));
        assert_eq!(free("a"), "a");
        assert_eq!(free("a_b"), "a_b_3");
        assert_eq!(free(&"x".repeat(64)), format!("{}_2", "x".repeat(62)));
    }

    #[test]
    fn an_input_is_an_object_and_wrapped_only_if_it_cannot_be_one() {
        let of = |text: &str| Shape::for_input(Some(value(text)));
        assert_eq!(Shape::for_input(None), Shape::Free);
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
    fn an_output_is_wrapped_unless_it_must_be_an_object() {
        let of = |text: &str| Shape::for_output(Some(value(text)));
        assert_eq!(of("{}"), Shape::Free);
        assert!(matches!(of(r#"{"type":"object"}"#), Shape::Bare(_)));
        for text in [r#"{"type":"array"}"#, r#"{"type":["object","null"]}"#, r#"{"anyOf":[{}]}"#] {
            assert!(matches!(of(text), Shape::Wrapped(_)), "{text}");
        }
        assert!(schema(&of(r#"{"type":"array"}"#)).contains("\"result\""));
    }

    #[test]
    fn references_in_a_wrapped_schema_still_resolve_from_its_root() {
        let text = r##"{"type":"array","items":{"$ref":"#/$defs/a"},"$defs":{"a":{}}}"##;
        assert!(schema(&Shape::for_output(Some(value(text)))).contains("urn:catena:result"));
        let plain = schema(&Shape::for_output(Some(value(r#"{"type":"array"}"#))));
        assert!(!plain.contains("$id"));
    }

    #[test]
    fn a_value_that_is_not_an_object_is_wrapped_without_a_schema_too() {
        assert_eq!(structured_content(None, value("[1]")), value(r#"{"result":[1]}"#));
        assert_eq!(structured_content(None, Value::Nil), value(r#"{"result":null}"#));
        assert_eq!(structured_content(None, value(r#"{"a":1}"#)), value(r#"{"a":1}"#));
    }
}
