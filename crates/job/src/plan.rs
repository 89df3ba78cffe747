//! Orchestrations as data: a definition, checked before anything runs.
//!
//! A plan is a pure value. Parsing an operation's metadata reports all problems at once, each with
//! its JSON pointer. The dependency graph follows from the data flow alone, so a plan can be drawn,
//! explained and tested without a venue. What depends on a venue (whether an operation exists, what
//! its schema requires) is not decided here.
//!
//! Modules: `source` (where a value comes from), `parse`, `graph` (dependencies between steps).

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
    /// The steps, in the order of the definition.
    pub steps: Vec<Step>,
    /// Source of the output.
    pub result: Source,
    /// What happens to running steps when another step fails.
    pub on_failure: OnFailure,
}

/// One step of an orchestration.
#[derive(Debug, Clone)]
pub struct Step {
    /// Operation reference as written in the definition.
    pub op: String,
    /// Source of the input.
    pub input: Source,
    /// Display name.
    pub name: Option<String>,
    /// Venue that runs the step. `None` if it is the venue of the parent job.
    pub venue: Option<String>,
}

/// What happens to running steps when another step fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// Running steps are cancelled.
    Cancel,
    /// Running steps continue, but the parent job does not wait for them.
    Leave,
}

impl Plan {
    /// Parses an orchestration's metadata. On failure, returns all problems of the definition.
    pub fn parse(metadata: &Value) -> Result<Plan, Vec<Problem>> {
        parse::parse(metadata)
    }

    /// The dependencies between the steps.
    pub fn graph(&self) -> Graph {
        Graph::from_plan(self)
    }
}

#[cfg(test)]
mod tests;
