//! The key by which equal work is recognised.
//!
//! `execution_key` is the SHA-256 of a canonical JSON text (RFC 8785) of job type, document revision,
//! target objects, `input_hash` and environment version. `input_hash` is a Value ID, which distinguishes
//! `1` from `1.0` and keeps integers exactly; it covers the inputs, the output that is asked for, the
//! limits and the rules of the environment.

use catena_value::{Map, Value, json};

use super::read::{digest_of, object, present};

/// Returns the hash of what a completed payload gives to the executor.
pub fn input_hash(payload: &Map) -> String {
    let member = |name: &str| payload.field(name).cloned().unwrap_or_default();
    let environment = payload.field("environment").and_then(Value::as_map);
    let rule = |name: &str| {
        let found = environment.and_then(|environment| present(environment, name));
        found.cloned().unwrap_or_default()
    };
    let environment = object(["language", "network_access"].map(|name| (name, rule(name))));
    let hashed = object([
        ("inputs", member("inputs")),
        ("output_spec", member("output_spec")),
        ("limits", member("limits")),
        ("environment", environment),
    ]);
    hashed.id().to_string()
}

/// What an execution key is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyParts<'a> {
    /// The job type.
    pub job_type: &'a str,
    /// The document revision.
    pub document_revision_id: &'a str,
    /// The target objects, in any order.
    pub target_object_ids: &'a [String],
    /// What [`input_hash`] returned.
    pub input_hash: &'a str,
    /// The version of the environment.
    pub env_version: &'a str,
}

/// Returns the key of these parts.
pub fn execution_key(parts: &KeyParts<'_>) -> String {
    let mut targets: Vec<&str> = parts.target_object_ids.iter().map(String::as_str).collect();
    targets.sort_unstable();
    let targets: Vec<String> = targets.into_iter().map(quoted).collect();
    // The members of a canonical text are sorted by name.
    let text = format!(
        "{{\"document_revision_id\":{},\"env_version\":{},\"input_hash\":{},\"job_type\":{},\"target_object_ids\":[{}]}}",
        quoted(parts.document_revision_id),
        quoted(parts.env_version),
        quoted(parts.input_hash),
        quoted(parts.job_type),
        targets.join(","),
    );
    digest_of(text.as_bytes())
}

fn quoted(text: &str) -> String {
    json::to_string(&text.into()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(text: &str) -> Map {
        json::read(text.as_bytes()).unwrap().as_map().unwrap().clone()
    }

    const PAYLOAD: &str = r#"{"inputs":{"n":1},"output_spec":{},"limits":{"cpu_ms":1},
        "environment":{"language":"python","network_access":"disabled","env_version":"a"}}"#;

    #[test]
    fn the_hash_covers_what_the_executor_gets() {
        let hash = |text: &str| input_hash(&payload(text));
        let one = hash(PAYLOAD);
        assert_eq!(one, hash(&PAYLOAD.replace("\"a\"", "\"b\"")), "the version is not an input");
        for (from, to) in [
            ("\"n\":1", "\"n\":1.0"),
            ("\"n\":1", "\"n\":9007199254740993"),
            ("\"cpu_ms\":1", "\"cpu_ms\":2"),
            ("disabled", "enabled"),
            ("\"output_spec\":{}", "\"output_spec\":{\"formats\":[]}"),
        ] {
            assert_ne!(one, hash(&PAYLOAD.replace(from, to)), "{from} and {to}");
        }
    }

    #[test]
    fn a_key_is_the_digest_of_a_canonical_text() {
        let targets = ["b".to_owned(), "a".to_owned()];
        let parts = KeyParts {
            job_type: "object_execute",
            document_revision_id: "r",
            target_object_ids: &targets,
            input_hash: "0x00",
            env_version: "py-bare@0",
        };
        let text = r#"{"document_revision_id":"r","env_version":"py-bare@0","input_hash":"0x00","job_type":"object_execute","target_object_ids":["a","b"]}"#;
        assert_eq!(execution_key(&parts), digest_of(text.as_bytes()));
        let reversed = ["a".to_owned(), "b".to_owned()];
        assert_eq!(
            execution_key(&KeyParts { target_object_ids: &reversed, ..parts.clone() }),
            execution_key(&parts)
        );
        assert_ne!(
            execution_key(&KeyParts { env_version: "py-bare@1", ..parts.clone() }),
            execution_key(&parts),
            "dedupe must include `env_version`"
        );
    }
}
