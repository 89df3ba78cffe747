//! The members of definitions: which are known, and what a definition is told about the others.

use catena_job::members::{Members, UnknownMember};
use catena_value::{NoCells, Value};

/// The members of `operation` in a definition, for all adapters.
pub const OPERATION: Members = Members {
    known: &[
        "adapter",
        "idempotent",
        "input",
        "output",
        "pure",
        "readOnly",
        "recovery",
        "retry",
        "secrets",
        "timeoutMs",
        // Orchestrations.
        "onFailure",
        "result",
        "steps",
        // Operations that workers run.
        "limit",
        "priority",
        "queue",
        "rate",
        "url",
        // HTTP requests.
        "failOn",
        "jobHeaders",
        // The reference implementation.
        "activityLabel",
        "info",
        "internal",
        "secretFields",
        "secretKey",
        "strict",
        "toolName",
    ],
    mistaken: &[
        ("attempts", Some("retry")),
        ("backoff", Some("retry")),
        ("backoffMs", Some("retry")),
        ("concurrency", Some("limit")),
        ("condition", None),
        ("cron", None),
        ("if", None),
        ("inputSchema", Some("input")),
        ("maxAttempts", Some("retry")),
        ("maxRetries", Some("retry")),
        ("onError", Some("onFailure")),
        ("outputSchema", Some("output")),
        ("rateLimit", Some("rate")),
        ("retries", Some("retry")),
        ("retryPolicy", Some("retry")),
        ("schedule", None),
        ("timeout", Some("timeoutMs")),
        ("when", None),
    ],
};

/// The members of `operation.retry`.
pub const RETRY: Members = Members {
    known: &["attempts", "backoffMs", "factor", "jitter", "on", "timeoutMs"],
    mistaken: &[
        ("delay", Some("backoffMs")),
        ("max", Some("attempts")),
        ("maxAttempts", Some("attempts")),
        ("maxRetries", Some("attempts")),
        ("multiplier", Some("factor")),
        ("retries", Some("attempts")),
    ],
};

/// Returns the members of the `operation` object of an asset's metadata that are not known.
pub fn unknown_members(metadata: &Value) -> Vec<UnknownMember> {
    let operation =
        metadata.as_map().and_then(|map| map.get(&"operation".into(), &NoCells).ok()?);
    let operation = operation.as_ref().and_then(Value::as_map);
    operation.map(|operation| OPERATION.unknown(operation)).unwrap_or_default()
}

/// Members of `operation` that the metadata of an asset may have for purposes of its own.
const METADATA: &[&str] = &["info", "url"];

/// Returns the members of an asset's metadata that only have an effect within `operation`, or would be
/// taken to have one there.
pub(super) fn misplaced_members(metadata: &Value) -> Vec<String> {
    let mut misplaced = Vec::new();
    let Some(metadata) = metadata.as_map() else { return misplaced };
    metadata.for_each_field(|name, _| {
        let name = name.to_text().unwrap_or_default();
        let mistaken = OPERATION.mistaken.iter().map(|(mistaken, _)| mistaken);
        let is_of_operation = OPERATION.known.iter().chain(mistaken).any(|known| **known == *name);
        if is_of_operation && !METADATA.contains(&&*name) {
            misplaced.push(name.to_string());
        }
    });
    misplaced.sort();
    misplaced
}

/// Returns what to tell the author of a definition about members that are not known, one sentence each.
pub fn warnings(metadata: &Value) -> Vec<String> {
    unknown_members(metadata).iter().map(warning).collect()
}

fn warning(member: &UnknownMember) -> String {
    let effect = if member.is_near_miss {
        "the operation cannot be invoked with it"
    } else {
        "it has no effect"
    };
    format!("/operation: {member}; {effect}")
}

/// Returns why a definition cannot be invoked: it has a member by which its author probably meant
/// another one. `None` if it has none.
pub(super) fn near_miss(metadata: &Value) -> Option<String> {
    let unknown = unknown_members(metadata);
    let near: Vec<String> = unknown
        .iter()
        .filter(|member| member.is_near_miss)
        .map(|member| format!("/operation: {member}"))
        .collect();
    (!near.is_empty()).then(|| near.join("; "))
}

#[cfg(test)]
mod tests {
    use catena_value::json;

    use super::*;

    fn value(text: &str) -> Value {
        json::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn members_of_operation_are_misplaced_next_to_it() {
        let metadata = r#"{"name":"n","info":"i","url":"u","x-a":1,"retry":{},"when":1,
            "operation":{"adapter":"a:b"}}"#;
        assert_eq!(misplaced_members(&value(metadata)), ["retry", "when"]);
    }

    #[test]
    fn only_near_misses_prevent_an_invocation() {
        let fine = r#"{"operation":{"adapter":"a:b","model":"m","toolName":"t","x-team":"blue"}}"#;
        assert_eq!(near_miss(&value(fine)), None);
        let warned = warnings(&value(fine));
        assert_eq!(warned.len(), 1, "{warned:?}");
        assert!(warned[0].starts_with("/operation: unknown member `model`"), "{warned:?}");
        let wrong = r#"{"operation":{"adapter":"a:b","retries":3,"when":true}}"#;
        let reason = near_miss(&value(wrong)).unwrap();
        let expected = "/operation: unknown member `retries`; the nearest is `retry`; \
                        /operation: unknown member `when`";
        assert_eq!(reason, expected);
        assert_eq!(warnings(&value(wrong)).len(), 2);
        assert!(
            warnings(&value(r#"{"retries":3}"#)).is_empty(),
            "the rest of the metadata is free"
        );
        assert!(warnings(&value(r#"{"operation":[]}"#)).is_empty());
    }

    #[test]
    fn no_known_member_is_a_near_miss_of_another() {
        for members in [OPERATION, RETRY] {
            for (name, nearest) in members.mistaken {
                assert!(!members.known.contains(name), "{name}");
                assert!(nearest.is_none_or(|nearest| members.known.contains(&nearest)), "{name}");
            }
        }
    }
}
