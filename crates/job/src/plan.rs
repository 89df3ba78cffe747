//! Orchestrations as data: what a definition says, checked before anything runs.
//!
//! A plan is a pure value. It is parsed from an operation's metadata with every problem told at
//! once, each by its JSON pointer; its graph follows from the data flow alone, so it can be drawn,
//! explained and tested without a venue. What depends on a venue (whether an operation exists, what
//! its schema asks for) is not decided here.
//!
//! Modules: `source` (where a value comes from), `parse`, `graph` (what may run when).

mod graph;
mod parse;
mod source;

pub use graph::Graph;
pub use parse::Problem;
pub use source::{EvaluateError, Evaluated, Outputs, Source};

use catena_value::Value;

/// A parsed orchestration.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Its steps, in the order in which they are written.
    pub steps: Vec<Step>,
    /// How the output is put together.
    pub result: Source,
    /// What happens to running steps when another fails.
    pub on_failure: OnFailure,
}

/// One step.
#[derive(Debug, Clone)]
pub struct Step {
    /// The operation as it is written.
    pub op: String,
    /// Where its input comes from.
    pub input: Source,
    /// What people call it.
    pub name: Option<String>,
    /// Where it runs, when it is not here.
    pub venue: Option<String>,
}

/// What happens to running steps when another fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// They are cancelled.
    Cancel,
    /// They run on, and nobody waits for them.
    Leave,
}

impl Plan {
    /// Parses an orchestration's metadata, or tells everything that is wrong with it.
    pub fn parse(metadata: &Value) -> Result<Plan, Vec<Problem>> {
        parse::parse(metadata)
    }

    /// What depends on what.
    pub fn graph(&self) -> Graph {
        Graph::of(self)
    }
}

#[cfg(test)]
mod tests;
