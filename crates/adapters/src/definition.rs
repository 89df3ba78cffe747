//! The definition of an operation in an adapter's source, and its registration.
//!
//! Schemas are JSON texts in the source, so that they look familiar. They are constants, and a test
//! builds every registration, so parsing them cannot fail in a running venue.

use catena_engine::{ExecutionMode, Registration};
use catena_value::{Map, Value, json};

/// An operation as its adapter defines it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Definition {
    /// The part of the reference after the colon.
    pub(crate) name: &'static str,
    /// The display name.
    pub(crate) title: &'static str,
    /// One or two sentences about what the operation does.
    pub(crate) description: &'static str,
    /// How it is executed.
    pub(crate) mode: ExecutionMode,
    /// Its guarantees.
    pub(crate) marks: &'static [Mark],
    /// JSON Schema of its input; `None` if any input is valid.
    pub(crate) input: Option<&'static str>,
    /// JSON Schema of its output; `None` if it can be anything.
    pub(crate) output: Option<&'static str>,
}

/// A guarantee of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It has no side effects and depends only on its input.
    Pure,
    /// It can be repeated safely.
    Idempotent,
    /// It changes nothing, so it can run without a job.
    ReadOnly,
}

impl Mark {
    fn member_name(self) -> &'static str {
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

/// The problems of a definition that a caller registers for an adapter, each with its JSON pointer:
/// it must name one of the adapter's operations.
pub(crate) fn check_reference(
    reference: &str,
    definitions: &[Definition],
) -> Vec<(String, String)> {
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
        operation.extend(self.input.map(|schema| ("input", parse_constant(schema))));
        operation.extend(self.output.map(|schema| ("output", parse_constant(schema))));
        operation.extend(self.marks.iter().map(|mark| (mark.member_name(), true.into())));
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

/// Parses a value that is written as JSON in the source.
pub(crate) fn parse_constant(text: &'static str) -> Value {
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
        assert_eq!(check_reference("test:echo", &[echo]), []);
        let (place, problem) = check_reference("test:ecko", &[echo]).remove(0);
        assert_eq!(place, "/operation/adapter");
        assert_eq!(problem, "there is no operation test:ecko; test has echo");
        assert_eq!(check_reference("test", &[echo]).len(), 1);
    }
}
