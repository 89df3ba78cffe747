//! What carries operations out: one file per adapter, all of one shape.
//!
//! An adapter file says first what it does and costs, how it is cancelled and whether a repeat is
//! safe; then its operations with their schemas, how input is read, how output is made, how it
//! runs, and its tests. What an operation computes is a pure function of values; only the thin
//! part around it knows the engine.
//!
//! Modules, in reading order: `definition` (an operation as it is written down), `fields` (reading
//! input, making output), `failures` (the engine's errors as failures of a turn), `outbound`
//! (the one way out: every request that leaves the venue goes through it), `nested` (an operation
//! that another one runs here), `venue_client` (one that another venue runs); then the adapters:
//! `test`, `json`, `schema`, `http`, `grid`, `auth`, `scheduler`; then `demo` (assets that every
//! venue has) and [`limits`].
//!
//! Nothing here opens a socket except `outbound`, nothing sleeps except through
//! [`catena_engine::RunControl`], and no adapter keeps anything between turns.

use std::sync::Arc;

use catena_engine::Adapter;

pub mod limits;

mod auth;
mod definition;
mod demo;
mod failures;
mod federation;
mod fields;
mod grid;
mod http;
mod json;
mod nested;
mod outbound;
mod scheduler;
mod schema;
mod test;
mod venue_client;

pub use demo::demo_assets;
pub use outbound::{AllowedHost, AllowedVenue, ListEntryError};

/// What an operator decides about adapters.
#[derive(Debug, Clone)]
pub struct Options {
    /// Hosts that may be reached whatever their address is.
    pub allow_hosts: Vec<AllowedHost>,
    /// Venues that operations may be run on.
    pub allow_venues: Vec<AllowedVenue>,
    /// How requests that leave name their sender.
    pub user_agent: String,
}

impl Default for Options {
    /// Nothing private may be reached, and no other venue.
    fn default() -> Self {
        Options {
            allow_hosts: Vec::new(),
            allow_venues: Vec::new(),
            user_agent: concat!("catena/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

impl Options {
    /// Options from the texts that an operator gives, such as `127.0.0.1:8080` for a host and
    /// `https://venue.example` or `did:web:venue.example` for a venue.
    pub fn parse<'a>(
        hosts: impl IntoIterator<Item = &'a str>,
        venues: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, ListEntryError> {
        Ok(Options {
            allow_hosts: hosts.into_iter().map(str::parse).collect::<Result<_, _>>()?,
            allow_venues: venues.into_iter().map(str::parse).collect::<Result<_, _>>()?,
            ..Options::default()
        })
    }
}

/// Every adapter of this crate.
pub fn all(options: Options) -> Vec<Arc<dyn Adapter>> {
    let outbound = Arc::new(outbound::Outbound::new(options));
    vec![
        Arc::new(test::Test),
        Arc::new(json::Json),
        Arc::new(schema::SchemaAdapter),
        Arc::new(http::Http::new(outbound.clone())),
        Arc::new(grid::Grid::new(outbound)),
        Arc::new(auth::Auth),
        Arc::new(scheduler::Scheduler),
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
        assert_eq!(everything.len(), 9 + 4 + 5 + 7 + 4 + 1 + 4);
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
    fn every_schema_is_one() {
        let schemas = everything().into_iter().flat_map(|(_, registration)| {
            ["input", "output"].map(|side| schema(&registration, side))
        });
        assert!(schemas.flatten().count() > 50);
    }

    #[test]
    fn inputs_are_accepted_or_rejected_before_anything_runs() {
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
    fn what_is_instant_can_be_repeated() {
        for (adapter, registration) in everything() {
            let operation = member(&registration.metadata, "operation").unwrap();
            let is = |mark: &str| member(operation, mark) == Some(&true.into());
            let reference = format!("{}:{}", adapter.name(), registration.name);
            assert!(registration.mode == ExecutionMode::Task || is("idempotent"), "{reference}");
            assert!(adapter.name() != "test" || is("idempotent") && is("pure"), "{reference}");
        }
    }

    #[test]
    fn a_list_entry_that_means_nothing_is_refused() {
        assert!(Options::parse(["127.0.0.1:8080", "intranet"], ["https://venue.example"]).is_ok());
        let refused = Options::parse(["http://127.0.0.1/"], []).unwrap_err();
        assert!(refused.to_string().contains("HOST:PORT"), "{refused}");
    }
}
