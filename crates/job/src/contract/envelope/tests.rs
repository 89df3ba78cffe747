use catena_value::json;

use super::*;
use crate::contract::Category;

const ID: &str = "018f4d2e-0000-7000-8000-000000000001";

/// The payload of section 7.1 of the source, with these replacements.
fn body(replacements: &[(&str, &str)]) -> Map {
    let mut text = format!(
        r#"{{
        "schema_version": "1.0", "job_type": "object_execute",
        "workspace_id": "{ID}", "project_id": "{ID}", "document_id": "{ID}",
        "document_revision_id": "{ID}", "target": {{ "object_id": "{ID}" }},
        "inputs": {{ "object": {{ "type": "code",
            "content": {{ "format": "python", "value": "print(1)" }},
            "dependencies": [{{ "kind": "object", "id": "{ID}" }}],
            "runtime": {{ "language": "python", "entrypoint": "main", "parameters": {{ "x": 10 }} }} }},
          "dependency_snapshots": [] }}
        }}"#
    );
    for (from, to) in replacements {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    json::read(text.as_bytes()).unwrap().as_map().unwrap().clone()
}

fn read(replacements: &[(&str, &str)]) -> Result<Envelope, ContractError> {
    Envelope::read(&body(replacements), &Plan::default())
}

#[test]
fn missing_members_take_the_values_of_the_source() {
    let envelope = read(&[]).unwrap();
    assert_eq!(envelope.limits, Limits::DEFAULT);
    assert_eq!(envelope.priority, Priority::Normal);
    let keyed = envelope.keyed("py-bare@1");
    let text = |path: [&str; 2]| {
        let map = keyed.members.field(path[0]).and_then(Value::as_map).unwrap();
        json::to_string(map.field(path[1]).unwrap()).unwrap()
    };
    assert_eq!(text(["environment", "network_access"]), "\"disabled\"");
    assert_eq!(text(["environment", "env_version"]), "\"py-bare@1\"");
    assert_eq!(text(["output_spec", "formats"]), r#"["json","png","svg"]"#);
    assert_eq!(text(["output_spec", "return_stdout"]), "true");
    assert_eq!(text(["limits", "timeout_ms"]), "30000");
    assert!(keyed.execution_key.starts_with("sha256:") && keyed.execution_key.len() == 71);
}

#[test]
fn an_invalid_member_is_named() {
    for (from, to, field) in [
        ("\"workspace_id\": \"018", "\"workspace_id\": \"018z", "workspace_id"),
        ("\"project_id\"", "\"project\"", "project_id"),
        ("\"object_id\": \"018", "\"object_id\": \"18", "target.object_id"),
        ("\"kind\": \"object\"", "\"kind\": \"file\"", "inputs.object.dependencies.0.kind"),
        ("\"kind\": \"object\"", "\"kind\": \"dataset\"", "inputs.object.dependencies.0.digest"),
        ("\"type\": \"code\"", "\"type\": \"table\"", "inputs.object.type"),
        ("\"python\", \"value\"", "\"r\", \"value\"", "inputs.object.content.format"),
        ("\"main\"", "\"a b\"", "inputs.object.runtime.entrypoint"),
        ("\"1.0\"", "\"1.0\", \"priority\": \"urgent\"", "priority"),
        ("\"1.0\"", "\"1.0\", \"limits\": {\"cpu_ms\": 0}", "limits.cpu_ms"),
        ("\"1.0\"", "\"1.0\", \"limits\": {\"memory_mb\": 4097}", "limits.memory_mb"),
        ("\"1.0\"", "\"1.0\", \"limits\": {\"timeout_ms\": 300001}", "limits.timeout_ms"),
        ("\"1.0\"", "\"1.0\", \"output_spec\": {\"formats\": [\"../x\"]}", "output_spec.formats"),
        ("\"1.0\"", "\"1.0\", \"environment\": {\"language\": \"r\"}", "environment.language"),
        (
            "\"1.0\"",
            "\"1.0\", \"environment\": {\"network_access\": \"enabled\"}",
            "environment.network_access",
        ),
        ("\"1.0\"", "\"2.0\"", "schema_version"),
        ("object_execute", "object_dance", "job_type"),
    ] {
        let error = read(&[(from, to)]).unwrap_err();
        assert_eq!(error.category, Category::ValidationError, "{field}");
        let named = error.details.iter().find(|(name, _)| *name == "field");
        assert_eq!(named.and_then(|(_, value)| value.as_str()), Some(field), "{}", error.message);
    }
}

#[test]
fn a_limit_of_the_plan_is_allowed_and_one_above_is_never_clamped() {
    let at = read(&[("\"1.0\"", "\"1.0\", \"limits\": {\"timeout_ms\": 300000}")]).unwrap();
    assert_eq!((at.limits.timeout_ms, at.limits.cpu_ms), (300_000, 30_000));
    let above = read(&[("\"1.0\"", "\"1.0\", \"limits\": {\"max_artifacts\": 201}")]).unwrap_err();
    assert_eq!(above.code, "LIMIT_ABOVE_PLAN");
    assert!(above.message.contains("at most 200"), "{}", above.message);
}

#[test]
fn members_of_a_newer_minor_version_are_kept() {
    let envelope = read(&[("\"1.0\"", "\"1.7\", \"colour\": \"red\"")]).unwrap();
    let members = envelope.keyed("e").members;
    assert_eq!(members.field("colour").and_then(Value::as_str), Some("red"));
    assert_eq!(members.field("schema_version").and_then(Value::as_str), Some("1.7"));
}

#[test]
fn options_and_what_the_platform_sets_are_not_part_of_the_key() {
    let key = |replacements: &[(&str, &str)]| read(replacements).unwrap().keyed("e").execution_key;
    let plain = key(&[]);
    let options =
        "\"1.0\", \"reuse_failed\": true, \"supersede\": true, \"requested_by\": {\"user_id\": 1}";
    assert_eq!(plain, key(&[("\"1.0\"", options)]));
    assert_eq!(plain, key(&[("\"1.0\"", "\"1.0\", \"priority\": \"high\"")]));
    assert_ne!(plain, key(&[("print(1)", "print(2)")]));
    assert_ne!(plain, key(&[("\"1.0\"", "\"1.0\", \"limits\": {\"cpu_ms\": 1}")]));
    assert_ne!(plain, read(&[]).unwrap().keyed("f").execution_key);
    let input = input_of_body(&body(&[("\"1.0\"", options)]));
    assert!(input.field("supersede").is_none() && input.field("inputs").is_some());
}

#[test]
fn the_platform_says_who_asked() {
    let keyed = read(&[]).unwrap().keyed("e");
    let payload = payload(&keyed.members, JobId::from_bytes([1; 16]), 0, "did:key:z1", Some("k"));
    let payload = payload.as_map().unwrap();
    let by = payload.field("requested_by").and_then(Value::as_map).unwrap();
    assert_eq!(by.field("did").and_then(Value::as_str), Some("did:key:z1"));
    assert!(is_uuid(by.field("user_id").and_then(Value::as_str).unwrap()));
    assert_eq!(payload.field("job_id").and_then(Value::as_str).unwrap().len(), 36);
    assert_eq!(payload.field("execution_key").and_then(Value::as_str), Some("k"));
}

#[test]
fn priorities_are_head_starts_of_two_minutes_one_minute_and_none() {
    let head_start = |priority: Priority| (priority.level() + 10) * 12;
    assert_eq!(Priority::ALL.map(head_start), [0, 60, 120]);
}
