//! The built-in adapters, which execute operations: one file per adapter, all of one shape.
//!
//! The module documentation of an adapter says what it does, what it costs, how it is cancelled and
//! whether repeating it is safe. The code has four sections in this order: Operations (with their
//! schemas), Input (parsing), Output (building) and Execution; tests come last. What an operation
//! computes is a pure function of values; only the thin part around it knows the engine.
//!
//! Modules, in reading order: `definition` (operations in source form), `fields` (reading input and
//! building output), `failures` (the engine's errors as failures), `options` (the operator's
//! decisions), `outbound` (the policy for every outbound request), `nested` (operations that another
//! one runs on this venue), `request` (questions to people), `venue_client` (a client of another venue), `federation` (steps on other
//! venues); then the adapters: `test`, `json`, `schema`, `http`, `grid`, `auth`, `scheduler`, `worker`,
//! `exec`, `contract`, `jobs`, `covia`, `secret`, `ucan`, `asset`, `memory`, `agent`, `llm`; then
//! `demo` (assets that every venue has) and [`limits`].
//!
//! Only `outbound` opens a socket, sleeping goes through [`catena_engine::RunControl`], and no adapter
//! keeps state between turns.

use std::sync::Arc;

use catena_engine::Adapter;

pub mod limits;

mod agent;
mod asset;
mod auth;
mod contract;
mod covia;
mod definition;
mod demo;
mod exec;
mod failures;
mod federation;
mod fields;
mod grid;
mod http;
mod jobs;
mod json;
mod llm;
mod memory;
mod nested;
mod options;
mod outbound;
mod request;
mod scheduler;
mod schema;
mod secret;
mod test;
mod ucan;
mod venue_client;
mod worker;

pub use demo::demo_assets;
pub use options::Options;
pub use outbound::{AllowedHost, AllowedVenue, ListEntryError};

/// Every adapter of this crate.
pub fn all(options: Options) -> Vec<Arc<dyn Adapter>> {
    let agents = agent::Agents::new(options.agents);
    let code = contract::CodePolicy {
        plan: options.plan,
        default_environment: options.default_environment.clone().into(),
    };
    let outbound = Arc::new(outbound::Outbound::new(options));
    vec![
        Arc::new(test::Test),
        Arc::new(json::Json),
        Arc::new(schema::SchemaAdapter),
        Arc::new(http::Http::new(outbound.clone())),
        Arc::new(grid::Grid::new(outbound.clone())),
        Arc::new(auth::Auth),
        Arc::new(scheduler::Scheduler),
        Arc::new(llm::Llm::new(outbound.clone())),
        Arc::new(llm::Langchain::new(outbound.clone())),
        Arc::new(worker::Worker::new(outbound)),
        Arc::new(exec::Exec::new(code.clone())),
        Arc::new(contract::Contract::new(code)),
        Arc::new(jobs::Jobs),
        Arc::new(covia::Covia),
        Arc::new(secret::Secret),
        Arc::new(ucan::Ucan),
        Arc::new(agents),
        Arc::new(asset::Asset),
        Arc::new(memory::Memory),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use catena_engine::{ExecutionMode, Registration};
    use catena_value::Value;

    use super::*;

    fn everything() -> Vec<(Arc<dyn Adapter>, Registration)> {
        let registered = |adapter: Arc<dyn Adapter>| {
            adapter.operations().into_iter().map(move |operation| (adapter.clone(), operation))
        };
        all(Options::default()).into_iter().flat_map(registered).collect()
    }

    fn member<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
        value.as_map().and_then(|map| map.field(name))
    }

    #[test]
    fn every_operation_has_complete_metadata() {
        let everything = everything();
        let venue = 13 + 7 + 5 + 7 + 4 + 1 + 6 + 2 + 4;
        let users = 1 + 4 + 4 + 3 + 10 + 5 + 3 + 1 + 1 + 29;
        assert_eq!(everything.len(), venue + users);
        for (adapter, registration) in everything {
            let reference = format!("{}:{}", adapter.name(), registration.name);
            let metadata = &registration.metadata;
            assert!(member(metadata, "name").and_then(Value::as_str).is_some(), "{reference}");
            let description = member(metadata, "description").and_then(Value::as_str).unwrap();
            assert!(description.ends_with('.'), "{reference}: {description}");
            let operation = member(metadata, "operation").unwrap();
            assert_eq!(member(operation, "adapter"), Some(&reference.as_str().into()));
            for side in ["input", "output"] {
                let schema = member(operation, side);
                assert!(
                    schema.is_none_or(|schema| schema.as_map().is_some()),
                    "{reference} {side}"
                );
                assert!(schema.is_some() || adapter.name() == "test", "{reference} {side}");
            }
        }
    }

    #[test]
    fn extra_members_are_accepted_everywhere() {
        for (_, registration) in everything() {
            let text = catena_value::json::to_string(&registration.metadata).unwrap();
            assert!(!text.contains("\"additionalProperties\":false"), "{text}");
        }
    }

    /// The compiled schema of one side of an operation.
    fn schema(registration: &Registration, side: &str) -> Option<jsonschema::Validator> {
        let schema = member(member(&registration.metadata, "operation")?, side)?;
        let text = catena_value::json::to_string(schema).unwrap();
        let schema = serde_json::from_str(&text).unwrap();
        jsonschema::meta::validate(&schema).unwrap_or_else(|error| panic!("{text}: {error}"));
        Some(jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("{text}: {error}")))
    }

    #[test]
    fn every_schema_is_valid() {
        let schemas = everything().into_iter().flat_map(|(_, registration)| {
            ["input", "output"].map(|side| schema(&registration, side))
        });
        assert!(schemas.flatten().count() > 50);
    }

    #[test]
    fn schemas_accept_and_reject_inputs_before_execution() {
        let schemas: std::collections::BTreeMap<_, _> = everything()
            .iter()
            .filter_map(|(adapter, registration)| {
                let reference = format!("{}:{}", adapter.name(), registration.name);
                schema(registration, "input").map(|schema| (reference, schema))
            })
            .collect();
        let check = |reference: &str, input: &str, accepted: bool| {
            let input = serde_json::from_str(input).unwrap();
            assert_eq!(schemas[reference].is_valid(&input), accepted, "{reference} {input}");
        };
        check("test:random", r#"{"length":16}"#, true);
        check("test:random", r#"{"length":"16"}"#, true);
        check("test:random", r#"{"length":0}"#, false);
        check("test:random", r#"{"length":1025}"#, false);
        check("test:random", r#"{"length":"many"}"#, false);
        check("test:error", r#"{"message":1}"#, false);
        check("test:error", "{}", false);
        check("test:delay", r#"{"delay":0,"operation":null,"extra":1}"#, true);
        check("test:delay", r#"{"delay":-1}"#, false);
        check(
            "test:progress",
            r#"{"totalItems":3,"itemMs":1,"outputStats":{"bytesTotal":9}}"#,
            true,
        );
        check("http:get", r#"{"url":"https://x.example","method":null,"timeoutMs":120000}"#, true);
        check("http:get", r#"{"url":"https://x.example","timeoutMs":120001}"#, false);
        check("http:request", r#"{"url":"https://x.example","method":"TRACE"}"#, false);
        check("grid:run", r#"{"operation":"test:echo","venue":null}"#, true);
        check("grid:run", r#"{"input":1}"#, false);
        check("json:assoc", r#"{"path":["a",0]}"#, true);
        check("json:assoc", r#"{"path":[{}]}"#, false);
        check("schema:validate", r#"{"value":1,"schema":true}"#, true);
        check("schema:infer", r#"{"value":null}"#, true);
        check("scheduler:schedule", r#"{"operation":"x","time":"2026-01-31T09:00:00Z"}"#, true);
        check("auth:whoami", "null", true);
        check("covia:list", "null", true);
        check("covia:write", r#"{"path":"w/a","value":null}"#, true);
        check("covia:write", r#"{"path":"w/a"}"#, false);
        check("covia:slice", r#"{"path":"w/a","offset":-1}"#, false);
        check("covia:slice", r#"{"path":"w/a","limit":10001}"#, false);
    }

    #[test]
    fn names_are_used_once() {
        let everything = everything();
        let paths: BTreeSet<_> = everything
            .iter()
            .map(|(adapter, registration)| format!("{}/{}", adapter.folder(), registration.name))
            .collect();
        assert_eq!(paths.len(), everything.len());
        for path in ["v/test/ops/echo", "v/ops/http/get", "v/ops/schema/infer", "v/ops/json/merge"]
        {
            assert!(paths.contains(path), "{path}");
        }
    }

    #[test]
    fn inline_operations_can_be_repeated() {
        for (adapter, registration) in everything() {
            let operation = member(&registration.metadata, "operation").unwrap();
            let is = |mark: &str| member(operation, mark) == Some(&true.into());
            let reference = format!("{}:{}", adapter.name(), registration.name);
            assert!(registration.mode != ExecutionMode::Inline || is("idempotent"), "{reference}");
            assert!(adapter.name() != "test" || is("idempotent") && is("pure"), "{reference}");
        }
    }

    #[test]
    fn every_adapter_file_has_the_same_sections_in_the_same_order() {
        for (name, source) in [
            ("agent", include_str!("agent.rs")),
            ("auth", include_str!("auth.rs")),
            ("contract", include_str!("contract.rs")),
            ("covia", include_str!("covia.rs")),
            ("exec", include_str!("exec.rs")),
            ("grid", include_str!("grid.rs")),
            ("http", include_str!("http.rs")),
            ("json", include_str!("json.rs")),
            ("llm", include_str!("llm.rs")),
            ("scheduler", include_str!("scheduler.rs")),
            ("schema", include_str!("schema.rs")),
            ("test", include_str!("test.rs")),
        ] {
            let sections = [
                "//! **What it does:** ",
                "//! **Cost:** ",
                "//! **Cancellation:** ",
                "//! **Repetition:** ",
                "\n// Operations.\n",
                "\n// Input",
                "\n// Output.\n",
                "\n// Execution.\n",
                "\nimpl Adapter for ",
                "\n#[cfg(test)]\nmod tests {\n",
            ];
            let positions = sections.map(|section| {
                source.find(section).unwrap_or_else(|| panic!("{name}.rs has no {section:?}"))
            });
            assert!(positions.is_sorted(), "the sections of {name}.rs are out of order");
        }
    }
}
