//! An operation as its adapter writes it down, and how that becomes a registration.
//!
//! Schemas are JSON texts in the source, so that they read as people know them. They are constants
//! and a test builds every registration, so reading them cannot fail in a running venue.

use catena_engine::{ExecutionMode, Registration};
use catena_value::{Map, Value, json};

/// An operation as its adapter writes it down.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Definition {
    /// The word after the colon.
    pub(crate) name: &'static str,
    /// What people call it.
    pub(crate) title: &'static str,
    /// What it does, in a sentence or two.
    pub(crate) description: &'static str,
    /// How it is carried out.
    pub(crate) mode: ExecutionMode,
    /// What is promised about it.
    pub(crate) marks: &'static [Mark],
    /// JSON Schema of its input; none when it takes anything.
    pub(crate) input: Option<&'static str>,
    /// JSON Schema of its output; none when it can be anything.
    pub(crate) output: Option<&'static str>,
}

/// Something that is promised about an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It has no effect outside and depends on nothing outside.
    Pure,
    /// To repeat it does no harm.
    Idempotent,
    /// It changes nothing, so running it needs no job.
    ReadOnly,
}

impl Mark {
    fn word(self) -> &'static str {
        match self {
            Mark::Pure => "pure",
            Mark::Idempotent => "idempotent",
            Mark::ReadOnly => "readOnly",
        }
    }
}

/// The registrations of an adapter's operations.
pub(crate) fn registrations(adapter: &str, definitions: &[Definition]) -> Vec<Registration> {
    definitions.iter().map(|definition| definition.registration(adapter)).collect()
}

/// What is wrong with a definition that somebody registers for an adapter: it must be one of the
/// operations that the adapter has.
pub(crate) fn check(reference: &str, definitions: &[Definition]) -> Vec<(String, String)> {
    let (adapter, name) = reference.split_once(':').unwrap_or((reference, ""));
    if definitions.iter().any(|definition| definition.name == name) {
        return Vec::new();
    }
    let names: Vec<_> = definitions.iter().map(|definition| definition.name).collect();
    let problem = format!("there is no operation {reference}; {adapter} has {}", names.join(", "));
    vec![("/operation/adapter".to_owned(), problem)]
}

impl Definition {
    fn registration(&self, adapter: &str) -> Registration {
        let reference = format!("{adapter}:{}", self.name);
        let mut operation = vec![("adapter", Value::from(reference))];
        operation.extend(self.input.map(|schema| ("input", constant(schema))));
        operation.extend(self.output.map(|schema| ("output", constant(schema))));
        operation.extend(self.marks.iter().map(|mark| (mark.word(), true.into())));
        let metadata: Map = [
            ("name", Value::from(self.title)),
            ("type", "operation".into()),
            ("description", self.description.into()),
            ("operation", operation.into_iter().collect::<Map>().into()),
        ]
        .into_iter()
        .collect();
        Registration { name: self.name, metadata: metadata.into(), mode: self.mode }
    }
}

/// A value that is written as JSON in the source.
pub(crate) fn constant(text: &'static str) -> Value {
    json::read(text.as_bytes()).expect("constants are JSON: a test reads each of them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_operations_that_an_adapter_has_can_be_registered() {
        let echo = Definition {
            name: "echo",
            title: "Echo",
            description: "Returns its input.",
            mode: ExecutionMode::Inline,
            marks: &[],
            input: None,
            output: None,
        };
        assert_eq!(check("test:echo", &[echo]), []);
        let (place, problem) = check("test:ecko", &[echo]).remove(0);
        assert_eq!(place, "/operation/adapter");
        assert_eq!(problem, "there is no operation test:ecko; test has echo");
        assert_eq!(check("test", &[echo]).len(), 1);
    }
}
