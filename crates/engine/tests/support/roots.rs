//! The adapter `r`, whose operations read and change the roots of their caller.

use catena_engine::{
    Adapter, Call, ExecutionMode, Failure, Registration, RootId, Roots, Turn, TurnFuture,
};
use catena_value::path::Path;
use catena_value::{Map, Value, Vector};

use super::value;

/// The adapter.
pub struct RootAdapter;

/// The operations: name, and further members of the `operation` object.
const OPERATIONS: [(&str, &str); 5] = [
    ("append", r#""input":{"type":"object"}"#),
    ("count", r#""readOnly":true"#),
    ("lie", r#""readOnly":true"#),
    ("put", r#""input":{"type":"object"}"#),
    ("fail", r#""input":{"type":"object"}"#),
];

fn field<'a>(call: &'a Call, name: &str) -> Option<&'a Value> {
    call.input.as_map().and_then(|map| map.field(name))
}

/// Returns the path of the list that an operation uses.
fn list(call: &Call) -> Path {
    Path::parse(field(call, "list").and_then(Value::as_str).unwrap_or("list")).unwrap()
}

fn wrong(error: impl std::fmt::Display) -> Failure {
    Failure::new("wrong", error.to_string())
}

impl Adapter for RootAdapter {
    fn name(&self) -> &'static str {
        "r"
    }

    fn description(&self) -> &'static str {
        "Changes the roots of its caller."
    }

    fn operations(&self) -> Vec<Registration> {
        let registration = |(name, more): (&'static str, &str)| Registration {
            name,
            mode: ExecutionMode::Roots,
            metadata: value(&format!(
                r#"{{"name":"{name}","operation":{{"adapter":"r:{name}",{more}}}}}"#
            )),
        };
        OPERATIONS.into_iter().map(registration).collect()
    }

    fn roots(&self, call: &Call) -> Result<Vec<RootId>, Failure> {
        let mut roots = vec![RootId::workspace()];
        if call.operation.name() == "put" {
            roots.push(RootId::operations());
        }
        Ok(roots)
    }

    fn run_on_roots(&self, call: &Call, roots: &mut Roots) -> Result<Value, Failure> {
        let workspace = RootId::workspace();
        let current = roots.get(&workspace)?.cloned().unwrap_or_else(|| Map::new().into());
        let found = list(call).get(&current, roots.cells()).map_err(wrong)?;
        let len = found.as_ref().and_then(Value::as_vector).map_or(0, Vector::len);
        let len = i64::try_from(len).map_err(wrong)?;
        if call.operation.name() == "count" {
            return Ok(len.into());
        }
        if call.operation.name() == "put" {
            let path = Path::parse(field(call, "path").and_then(Value::as_str).unwrap()).unwrap();
            let operations = RootId::operations();
            let current = roots.get(&operations)?.cloned().unwrap_or_else(|| Map::new().into());
            let definition = field(call, "definition").cloned().unwrap_or_default();
            let changed = path.set(&current, &definition, roots.cells()).map_err(wrong)?;
            roots.set(&operations, Some(changed))?;
            return Ok(true.into());
        }
        let item = field(call, "value").cloned().unwrap_or_default();
        let changed = list(call).append(&current, &item, roots.cells()).map_err(wrong)?;
        roots.set(&workspace, Some(changed))?;
        if call.operation.name() == "fail" {
            return Err(Failure::transient("asked_for", "it changed its mind"));
        }
        Ok(len.into())
    }

    fn run(&self, _call: Call) -> TurnFuture {
        Box::pin(async { Turn::Failed(Failure::new("unreachable", "only on roots")) })
    }
}
