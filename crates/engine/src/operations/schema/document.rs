//! The structure of a schema as a graph: which schemas apply to which part of a value, and what an
//! application costs.
//!
//! The graph is built before anything else is done with a schema, because schemas come from callers
//! that are not trusted: a reference chain that overflows the stack of a compiler, or a name of
//! 100 kB above a thousand subschemas, must be seen before the compiler sees it. Nothing here
//! recurses on references; the nesting of the JSON is bounded when it is read, and bounded again.
//!
//! Where a reference could mean several schemas (anchors of the same name, or pointers below
//! several `$id`s), the graph has an edge to each of them. It may therefore overestimate a cost or
//! find a secret too many, never the opposite.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::pattern::program_size;
use crate::limits::{
    SCHEMA_BYTES_MAX, SCHEMA_EDGES_MAX, SCHEMA_LOCATION_BYTES_MAX, SCHEMA_NAME_BYTES_MAX,
    SCHEMA_NESTING_MAX, SCHEMA_PATTERN_BYTES_MAX, SCHEMA_PATTERNS_MAX, SCHEMA_REFERENCE_DEPTH_MAX,
    SCHEMA_UNEVALUATED_MAX, SCHEMA_VALUES_MAX,
};

/// Keywords whose schema applies to the same value.
const SAME_VALUE: [&str; 5] = ["not", "if", "then", "else", "contentSchema"];

/// Keywords with a list of schemas that apply to the same value.
const SAME_VALUE_LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "extends"];

/// Keywords whose schema applies to every member of an object.
const EACH_MEMBER: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];

/// Keywords whose schema applies to every item of an array.
const EACH_ITEM: [&str; 4] = ["items", "additionalItems", "unevaluatedItems", "contains"];

/// Keywords that refer to another schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords that name the base of references: the current one and that of draft 4.
const IDS: [&str; 2] = ["$id", "id"];

/// Keywords that name a schema within its document.
const ANCHORS: [&str; 2] = ["$anchor", "$dynamicAnchor"];

/// Keywords that apply the other keywords once more, to learn what these leave.
const UNEVALUATED: [&str; 2] = ["unevaluatedProperties", "unevaluatedItems"];

/// Part of the URLs of the published metaschemas. They mark nothing as secret.
const METASCHEMAS: &str = "json-schema.org/";

/// Steps of the application of a metaschema to one part of a value: about 60 keywords in seven
/// vocabularies.
const METASCHEMA_STEPS: u64 = 500;

/// Bytes that the compiled form of a schema uses for each JSON value in it. Measured: 250 to 700.
const VALUE_BYTES: u64 = 1_024;

/// Bytes for each schema that the compiler visits for an `unevaluated…` keyword. Measured: 1,400.
const UNEVALUATED_BYTES: u64 = 2_048;

/// Bytes for one instruction of a compiled pattern, and for the pattern itself.
const INSTRUCTION_BYTES: u64 = 64;
const PATTERN_BYTES: u64 = 4_096;

/// The position of a schema in the graph.
pub(super) type Index = u32;

/// The part of a value that a subschema applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AppliesTo {
    /// The value itself.
    SameValue,
    /// The member with this name.
    Member(Box<str>),
    /// Every member.
    EachMember,
    /// The name of every member.
    EachName,
    /// The item at this index.
    Item(usize),
    /// Every item.
    EachItem,
}

/// The member of a schema that lists names of members which are never secret, although all others
/// are. JSON Schema cannot say this without regard to case.
const HARMLESS: &str = "x-harmless";

fn harmless_members(names: &Value) -> Vec<String> {
    let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

/// One schema of the graph.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// The schemas that it contains or refers to, each with what it applies to.
    pub(super) edges: Vec<(AppliesTo, Index)>,
    /// True if it is marked `writeOnly`.
    pub(super) is_secret: bool,
    /// Names of members that are never secret, although all others are (`x-harmless`).
    pub(super) harmless: Option<Vec<String>>,
    /// True if its subschemas are applied twice, because of an `unevaluated…` keyword.
    pub(super) repeats: bool,
    /// True if the whole part is hashed or compared (`uniqueItems`).
    pub(super) hashes_part: bool,
    /// Steps of one application, without the subschemas.
    pub(super) steps: u64,
    /// Instructions of its `pattern` and `format`, executed for the bytes of a text.
    pub(super) text_program: u64,
    /// Instructions of its `patternProperties`, executed for the bytes of every member name.
    pub(super) name_program: u64,
    /// The most violations that its own keywords can report of one part.
    pub(super) violations: u64,
}

/// A schema whose references can all be resolved and whose compilation is bounded.
#[derive(Debug)]
pub(super) struct Document {
    nodes: Vec<Node>,
    /// Upper bound of the bytes that its compiled form uses.
    bytes: u64,
    /// Steps of one application of each schema to one part of one byte, if no schema refers back to
    /// itself. Multiplied by the size of a value, it bounds the steps of a check.
    steps_per_byte: Option<u64>,
    /// The most schemas that apply within each other, if no schema refers back to itself.
    depth: Option<usize>,
}

impl Document {
    /// Reads a schema. Fails if it has a reference that cannot be resolved, or if its compilation
    /// would exceed a bound.
    pub(super) fn new(root: &Value) -> Result<Document, String> {
        let survey = Survey::new(root)?;
        let mut graph = Graph { survey: &survey, nodes: Vec::new(), known: HashMap::new() };
        let patterns = graph.build(root)?;
        let nodes = graph.nodes;
        let unevaluated = check_in_place(&nodes)?;
        let bytes = survey.values * VALUE_BYTES
            + survey.location_bytes * 2
            + survey.bytes
            + unevaluated * UNEVALUATED_BYTES
            + patterns;
        let mut document = Document { nodes, bytes, steps_per_byte: None, depth: None };
        if let Some(order) = postorder(&document.nodes, |_| true) {
            let (steps, depth) = unfolded(&document.nodes, &order);
            document.steps_per_byte = Some(steps);
            document.depth = Some(depth);
        }
        Ok(document)
    }

    /// Returns the number of schemas.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns a schema. The schema itself is the first.
    pub(super) fn node(&self, index: Index) -> &Node {
        &self.nodes[index as usize]
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn steps_per_byte(&self) -> Option<u64> {
        self.steps_per_byte
    }

    pub(super) fn depth(&self) -> Option<usize> {
        self.depth
    }
}

/// What a first walk over the JSON of a schema finds, whether or not it is part of a schema.
struct Survey<'a> {
    root: &'a Value,
    values: u64,
    bytes: u64,
    /// Sum of the lengths of the locations of all values, which a compiled schema contains.
    location_bytes: u64,
    /// Schemas with an ID of their own, under the last segment of the ID.
    by_id: HashMap<&'a str, Vec<&'a Value>>,
    by_anchor: HashMap<&'a str, Vec<&'a Value>>,
    /// The schema with an ID that contains an object, by the object's address.
    base_of: HashMap<usize, &'a Value>,
}

/// A value that the survey has still to visit.
struct Visit<'a> {
    value: &'a Value,
    base: &'a Value,
    location_bytes: usize,
    depth: usize,
}

impl<'a> Survey<'a> {
    fn new(root: &'a Value) -> Result<Self, String> {
        let mut survey = Survey {
            root,
            values: 0,
            bytes: 0,
            location_bytes: 0,
            by_id: HashMap::new(),
            by_anchor: HashMap::new(),
            base_of: HashMap::new(),
        };
        let mut open = vec![Visit { value: root, base: root, location_bytes: 0, depth: 0 }];
        while let Some(visit) = open.pop() {
            survey.count(&visit)?;
            match visit.value {
                Value::Object(members) => survey.visit_object(members, visit, &mut open)?,
                Value::Array(items) => open.extend(items.iter().map(|value| Visit {
                    value,
                    base: visit.base,
                    location_bytes: visit.location_bytes + 8,
                    depth: visit.depth + 1,
                })),
                Value::String(text) => survey.bytes += text.len() as u64,
                _ => {}
            }
        }
        Ok(survey)
    }

    fn count(&mut self, visit: &Visit<'_>) -> Result<(), String> {
        self.values += 1;
        self.location_bytes += visit.location_bytes as u64;
        if self.values > SCHEMA_VALUES_MAX {
            return Err(format!("the schema has more than {SCHEMA_VALUES_MAX} values"));
        }
        if self.bytes > SCHEMA_BYTES_MAX {
            return Err(format!("the schema has more than {SCHEMA_BYTES_MAX} bytes"));
        }
        if self.location_bytes > SCHEMA_LOCATION_BYTES_MAX {
            let text = "the names in the schema are too long for the number of its subschemas";
            return Err(text.to_owned());
        }
        if visit.depth > SCHEMA_NESTING_MAX {
            return Err(format!("the schema nests deeper than {SCHEMA_NESTING_MAX} levels"));
        }
        Ok(())
    }

    fn visit_object(
        &mut self,
        members: &'a Map<String, Value>,
        visit: Visit<'a>,
        open: &mut Vec<Visit<'a>>,
    ) -> Result<(), String> {
        let mut base = visit.base;
        let mut location_bytes = visit.location_bytes;
        for keyword in IDS {
            let Some(Value::String(id)) = members.get(keyword) else { continue };
            check_name(id)?;
            match id.strip_prefix('#') {
                Some(anchor) => self.by_anchor.entry(anchor).or_default().push(visit.value),
                None => {
                    self.by_id.entry(last_segment(id)).or_default().push(visit.value);
                    base = visit.value;
                    location_bytes += id.len();
                }
            }
        }
        for keyword in ANCHORS {
            let Some(Value::String(anchor)) = members.get(keyword) else { continue };
            check_name(anchor)?;
            self.by_anchor.entry(anchor).or_default().push(visit.value);
        }
        if !std::ptr::eq(base, self.root) {
            self.base_of.insert(address(visit.value), base);
        }
        for (name, value) in members {
            self.bytes += name.len() as u64;
            let location_bytes = location_bytes + name.len() + 1;
            open.push(Visit { value, base, location_bytes, depth: visit.depth + 1 });
        }
        Ok(())
    }

    /// Returns the schemas that a reference in a schema may name: by a pointer, an anchor or an
    /// ID, or within a schema with that ID.
    fn resolve(&self, from: &'a Value, reference: &str) -> Vec<&'a Value> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let bases = if base.is_empty() {
            let own = self.base_of.get(&address(from)).copied();
            own.into_iter().chain([self.root]).collect()
        } else {
            self.by_id.get(last_segment(base)).cloned().unwrap_or_default()
        };
        let fragment = percent_decode(fragment);
        if fragment.is_empty() || fragment.starts_with('/') {
            return bases.iter().filter_map(|base| base.pointer(&fragment)).collect();
        }
        if bases.is_empty() {
            return Vec::new();
        }
        self.by_anchor.get(fragment.as_str()).cloned().unwrap_or_default()
    }
}

/// Builds the graph.
struct Graph<'s, 'a> {
    survey: &'s Survey<'a>,
    nodes: Vec<Node>,
    /// The position of each schema by its address.
    known: HashMap<usize, Index>,
}

impl<'a> Graph<'_, 'a> {
    /// Adds all schemas that can be reached from the root. Returns the bytes of their compiled
    /// patterns.
    fn build(&mut self, root: &'a Value) -> Result<u64, String> {
        let mut open = Vec::new();
        self.index_of(root, &mut open);
        let mut edges = 0;
        let mut patterns = Patterns::default();
        while let Some((index, schema)) = open.pop() {
            let node = self.read(schema, &mut open, &mut patterns)?;
            edges += node.edges.len();
            if edges > SCHEMA_EDGES_MAX {
                return Err(format!("the schema has more than {SCHEMA_EDGES_MAX} references"));
            }
            self.nodes[index as usize] = node;
        }
        Ok(patterns.bytes)
    }

    /// Returns the position of a schema. It is read later if it is new.
    fn index_of(&mut self, schema: &'a Value, open: &mut Vec<(Index, &'a Value)>) -> Index {
        if let Some(known) = self.known.get(&address(schema)) {
            return *known;
        }
        let index = Index::try_from(self.nodes.len()).unwrap_or(Index::MAX);
        self.nodes.push(Node::default());
        self.known.insert(address(schema), index);
        open.push((index, schema));
        index
    }

    fn read(
        &mut self,
        schema: &'a Value,
        open: &mut Vec<(Index, &'a Value)>,
        patterns: &mut Patterns,
    ) -> Result<Node, String> {
        let mut node = Node { steps: 1, violations: 1, ..Node::default() };
        let Value::Object(keywords) = schema else { return Ok(node) };
        node.is_secret = keywords.get("writeOnly") == Some(&Value::Bool(true));
        node.harmless = keywords.get(HARMLESS).map(harmless_members);
        node.repeats = UNEVALUATED.iter().any(|name| keywords.contains_key(*name));
        node.steps += keywords.len() as u64;
        node.violations += keywords.len() as u64;
        for (keyword, value) in keywords {
            let name = keyword.as_str();
            if REFERENCES.contains(&name) {
                self.read_reference(schema, value, &mut node, open)?;
                continue;
            }
            patterns.read(name, value, &mut node)?;
            measure_lists(name, value, &mut node);
            for (target, subschema) in subschemas(name, value) {
                let index = self.index_of(subschema, open);
                node.edges.push((target, index));
            }
        }
        node.steps += node.edges.len() as u64;
        Ok(node)
    }

    fn read_reference(
        &mut self,
        schema: &'a Value,
        reference: &'a Value,
        node: &mut Node,
        open: &mut Vec<(Index, &'a Value)>,
    ) -> Result<(), String> {
        // The compiler reports what is not a text.
        let Value::String(reference) = reference else { return Ok(()) };
        check_name(reference)?;
        let targets = self.survey.resolve(schema, reference);
        if targets.is_empty() && !reference.contains(METASCHEMAS) {
            return Err(format!("`{reference}` refers to nothing in the schema"));
        }
        if targets.is_empty() {
            let metaschema = self.metaschema();
            node.edges.push((AppliesTo::SameValue, metaschema));
        }
        for target in targets {
            let index = self.index_of(target, open);
            node.edges.push((AppliesTo::SameValue, index));
        }
        Ok(())
    }

    /// Returns the position of a schema that stands for a published metaschema: it applies to every
    /// part of a value.
    fn metaschema(&mut self) -> Index {
        // No schema has the address 0.
        if let Some(known) = self.known.get(&0) {
            return *known;
        }
        let index = Index::try_from(self.nodes.len()).unwrap_or(Index::MAX);
        self.known.insert(0, index);
        self.nodes.push(Node {
            steps: METASCHEMA_STEPS,
            violations: METASCHEMA_STEPS,
            edges: vec![(AppliesTo::EachMember, index), (AppliesTo::EachItem, index)],
            ..Node::default()
        });
        index
    }
}

/// The patterns of a schema.
#[derive(Default)]
struct Patterns {
    count: usize,
    bytes: u64,
}

impl Patterns {
    fn read(&mut self, keyword: &str, value: &Value, node: &mut Node) -> Result<(), String> {
        match (keyword, value) {
            ("pattern", Value::String(pattern)) => node.text_program += self.add(pattern)?,
            ("patternProperties", Value::Object(all)) => {
                for pattern in all.keys() {
                    node.name_program += self.add(pattern)?;
                }
            }
            // A check of a format reads the text at most a few times.
            ("format" | "contentMediaType" | "contentEncoding", Value::String(_)) => {
                node.text_program += 64;
            }
            ("minLength" | "maxLength", _) => node.text_program += 1,
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, pattern: &str) -> Result<u64, String> {
        if pattern.len() > SCHEMA_PATTERN_BYTES_MAX {
            return Err(format!("a pattern has more than {SCHEMA_PATTERN_BYTES_MAX} bytes"));
        }
        self.count += 1;
        if self.count > SCHEMA_PATTERNS_MAX {
            return Err(format!("the schema has more than {SCHEMA_PATTERNS_MAX} patterns"));
        }
        let size = program_size(pattern);
        self.bytes += PATTERN_BYTES + size.saturating_mul(INSTRUCTION_BYTES).min(1 << 20);
        Ok(size)
    }
}

/// Adds the steps of keywords that compare a part with a list or read all of it.
fn measure_lists(keyword: &str, value: &Value, node: &mut Node) {
    match (keyword, value) {
        ("required", Value::Array(names)) => {
            node.steps += names.len() as u64;
            node.violations += names.len() as u64;
        }
        ("enum" | "const", value) => node.steps += weight(value),
        ("dependentRequired" | "dependencies", Value::Object(all)) => {
            let names = all.values().map(|names| names.as_array().map_or(1, Vec::len) as u64);
            let names: u64 = names.sum();
            node.steps += names;
            node.violations += names;
        }
        ("uniqueItems", Value::Bool(true)) => node.hashes_part = true,
        _ => {}
    }
}

/// Returns the steps of a comparison with a value: its parts, and its bytes by the word.
pub(super) fn weight(value: &Value) -> u64 {
    let mut steps = 0;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        steps += 1;
        match value {
            Value::String(text) => steps += text.len() as u64 / 16,
            Value::Array(items) => open.extend(items),
            Value::Object(members) => {
                steps += members.keys().map(|name| name.len() as u64 / 16).sum::<u64>();
                open.extend(members.values());
            }
            _ => {}
        }
    }
    steps
}

/// Returns the schemas in the value of a keyword that contains some, each with what it applies to.
fn subschemas<'a>(keyword: &str, value: &'a Value) -> Vec<(AppliesTo, &'a Value)> {
    let in_place = |each: &'a Value| (AppliesTo::SameValue, each);
    match (keyword, value) {
        (name, Value::Array(all)) if SAME_VALUE_LISTS.contains(&name) => {
            all.iter().map(in_place).collect()
        }
        ("dependentSchemas" | "dependencies", Value::Object(all)) => {
            all.values().map(in_place).collect()
        }
        ("properties", Value::Object(all)) => {
            all.iter().map(|(name, each)| (AppliesTo::Member(name.as_str().into()), each)).collect()
        }
        ("patternProperties", Value::Object(all)) => {
            all.values().map(|each| (AppliesTo::EachMember, each)).collect()
        }
        ("prefixItems" | "items", Value::Array(all)) => {
            let items = all.iter().enumerate();
            items.map(|(index, each)| (AppliesTo::Item(index), each)).collect()
        }
        ("propertyNames", each) => vec![(AppliesTo::EachName, each)],
        (name, each) if SAME_VALUE.contains(&name) => vec![in_place(each)],
        (name, each) if EACH_MEMBER.contains(&name) => vec![(AppliesTo::EachMember, each)],
        (name, each) if EACH_ITEM.contains(&name) => vec![(AppliesTo::EachItem, each)],
        _ => Vec::new(),
    }
}

/// Checks the schemas that apply to the same value: they must not lead back to themselves, and how
/// deep they lead is bounded. Returns the number of schemas that the compiler visits for
/// `unevaluated…` keywords: all that apply to the same value, once for each way to them.
fn check_in_place(nodes: &[Node]) -> Result<u64, String> {
    let is_in_place = |target: &AppliesTo| *target == AppliesTo::SameValue;
    let Some(order) = postorder(nodes, is_in_place) else {
        return Err(
            "its references lead back to themselves without descending into the value".to_owned()
        );
    };
    let mut depths = vec![1_usize; nodes.len()];
    let mut sizes = vec![1_u64; nodes.len()];
    let mut unevaluated = 0_u64;
    for index in order {
        let node = &nodes[index as usize];
        for (_, target) in node.edges.iter().filter(|(target, _)| is_in_place(target)) {
            let depth = depths[*target as usize] + 1;
            depths[index as usize] = depths[index as usize].max(depth);
            let size = sizes[*target as usize];
            sizes[index as usize] = sizes[index as usize].saturating_add(size);
        }
        if depths[index as usize] > SCHEMA_REFERENCE_DEPTH_MAX {
            return Err(format!(
                "its references and combinations nest deeper than {SCHEMA_REFERENCE_DEPTH_MAX} schemas"
            ));
        }
        if node.repeats {
            unevaluated = unevaluated.saturating_add(sizes[index as usize]);
        }
    }
    if unevaluated > SCHEMA_UNEVALUATED_MAX {
        return Err(format!(
            "its `unevaluated…` keywords lead to more than {SCHEMA_UNEVALUATED_MAX} schemas"
        ));
    }
    Ok(unevaluated)
}

/// Returns the schemas in an order in which each comes after those that it leads to over the
/// selected edges. `None` if there is no such order, because there is a cycle.
fn postorder(nodes: &[Node], is_selected: impl Fn(&AppliesTo) -> bool) -> Option<Vec<Index>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; nodes.len()];
    let mut order = Vec::with_capacity(nodes.len());
    let mut path: Vec<(Index, usize)> = Vec::new();
    for first in 0..nodes.len() {
        if marks[first] != Mark::New {
            continue;
        }
        marks[first] = Mark::Open;
        path.push((Index::try_from(first).ok()?, 0));
        while let Some((index, edge)) = path.last_mut() {
            let Some((target, next)) = nodes[*index as usize].edges.get(*edge) else {
                marks[*index as usize] = Mark::Done;
                order.push(*index);
                path.pop();
                continue;
            };
            *edge += 1;
            if !is_selected(target) {
                continue;
            }
            match marks[*next as usize] {
                Mark::Done => {}
                Mark::Open => return None,
                Mark::New => {
                    marks[*next as usize] = Mark::Open;
                    path.push((*next, 0));
                }
            }
        }
    }
    Some(order)
}

/// Returns the steps of all schemas that the first leads to, once for each way to them and each time
/// they are applied there, and how deep it leads. It follows the rules of [`super::cost`]: the steps
/// below a schema are a linear function of how often it is validated and how often it is marked.
fn unfolded(nodes: &[Node], order: &[Index]) -> (u64, usize) {
    let mut of_validation = vec![0_u64; nodes.len()];
    let mut of_mark = vec![0_u64; nodes.len()];
    let mut depths = vec![1_usize; nodes.len()];
    for index in order {
        let node = &nodes[*index as usize];
        let mut each = node.steps + node.text_program + node.name_program + 1;
        let mut marked = 0_u64;
        for (target, below) in &node.edges {
            each = each.saturating_add(of_validation[*below as usize]);
            if *target == AppliesTo::SameValue {
                marked = marked.saturating_add(of_mark[*below as usize]);
            }
            let depth = depths[*below as usize] + 1;
            depths[*index as usize] = depths[*index as usize].max(depth);
        }
        let mark = each.saturating_add(marked);
        of_mark[*index as usize] = mark;
        of_validation[*index as usize] =
            if node.repeats { each.saturating_add(mark) } else { each };
    }
    (of_validation.first().copied().unwrap_or(0), depths.first().copied().unwrap_or(0))
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value) as usize
}

/// Returns the part of an ID after its last slash.
fn last_segment(id: &str) -> &str {
    let id = id.split_once('#').map_or(id, |(id, _)| id);
    let id = id.strip_suffix('/').unwrap_or(id);
    id.rsplit_once(['/', ':']).map_or(id, |(_, last)| last)
}

fn check_name(name: &str) -> Result<(), String> {
    if name.len() > SCHEMA_NAME_BYTES_MAX {
        return Err(format!(
            "a reference, an anchor or an ID has more than {SCHEMA_NAME_BYTES_MAX} bytes"
        ));
    }
    Ok(())
}

/// Decodes the percent-encoding of a URI fragment.
fn percent_decode(fragment: &str) -> String {
    let mut parts = fragment.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(&part.as_bytes()[2..]);
            }
            None => {
                bytes.push(b'%');
                bytes.extend(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
