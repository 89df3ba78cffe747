//! What operations can define: retries, secrets, and schemas that need not be trusted.

use catena_tests::site::{Client, Site, id_of};
use serde_json::{Value as Json, json};

/// Registers an operation and returns its reference.
async fn register(site: &Client, operation: Json) -> String {
    let metadata = json!({"name": "Test", "operation": operation});
    let asset = site.post("/api/v1/assets", &metadata).await.expect(201).json();
    asset.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_operation_is_tried_as_often_as_it_says() {
    let site = Site::start().await;
    let input = json!({"message": "not today"});
    for (retry, tries) in [
        (json!({"attempts": 3, "backoffMs": 1}), 3),
        (json!({"attempts": 2, "backoffMs": 1, "on": ["test_error"]}), 2),
        (json!({"attempts": 3, "backoffMs": 1, "on": ["other"]}), 1),
    ] {
        let operation = json!({"adapter": "test:error", "retry": retry});
        let operation = register(&site, operation).await;
        let id = id_of(&site.invoke(&operation, input.clone()).await);
        let job = site.ended(&id).await;
        assert_eq!((&job["status"], &job["error"]), (&json!("FAILED"), &json!("not today")));
        let notes = site.history(&id).await.entries.into_iter();
        let tried = notes.filter(|entry| entry["record"]["note"]["kind"] == "attempt").count();
        assert_eq!(tried + 1, tries, "{retry}");
    }
}

#[tokio::test]
async fn secret_fields_are_secret_like_write_only_ones() {
    let site = Site::start().await;
    let definition = json!({"adapter": "test:delay", "secretFields": ["key", "a/b"]});
    let operation = register(&site, definition).await;
    let input = json!({"key": "s3cret", "a/b": ["s3cret"], "delay": 0, "input": 1});
    let id = site.invoked(&operation, input, "COMPLETE").await;
    let gone = json!({"redacted": true});
    let job = site.job(&id).await;
    assert_eq!(job["input"], json!({"key": gone, "a/b": gone, "delay": 0, "input": 1}), "{job}");
    let chain = site.history(&id).await;
    assert!(!chain.entries.iter().any(|entry| entry.to_string().contains("s3cret")));
    let schema =
        json!({"$ref": "#/$defs/i", "$defs": {"i": {"properties": {"key": {"type": "integer"}}}}});
    let definition = json!({"adapter": "test:echo", "secretFields": ["key"], "input": schema});
    let operation = register(&site, definition).await;
    let job = site.invoke(&operation, json!({"key": "s3cret"})).await;
    assert_eq!(job["status"], "REJECTED", "{job}");
    assert!(!job.to_string().contains("s3cret"), "{job}");
    for wrong in [json!("key"), json!([1]), json!({"key": true})] {
        let definition = json!({"operation": {"adapter": "test:echo", "secretFields": wrong}});
        let request = site.request("PUT", "/api/v1/operations/wrong").json(&definition);
        let error = site.ask(request).await.expect_error(400, "asset_invalid");
        assert_eq!(error["problems"][0]["path"], "/operation/secretFields", "{error}");
    }
}

#[tokio::test]
async fn a_secret_enters_no_record_wherever_a_schema_marks_it() {
    let site = Site::start().await;
    let secret = json!({"type": "string", "writeOnly": true});
    let gone = json!({"redacted": true});
    for (schema, input, shown) in [
        (json!({"properties": {"k": secret}}), json!({"k": "s3cret"}), json!({"k": gone})),
        (
            json!({"properties": {"k": {"$ref": "#/$defs/s"}}, "$defs": {"s": secret}}),
            json!({"k": "s3cret"}),
            json!({"k": gone}),
        ),
        (
            json!({"allOf": [{"properties": {"k": secret}}]}),
            json!({"k": "s3cret", "n": 1}),
            json!({"k": gone, "n": 1}),
        ),
        (
            json!({"properties": {"l": {"items": {"properties": {"k": secret}}}}}),
            json!({"l": [{"k": "s3cret"}, {"n": 1}]}),
            json!({"l": [{"k": gone}, {"n": 1}]}),
        ),
        (json!({"additionalProperties": secret}), json!({"a/b": "s3cret"}), json!({"a/b": gone})),
        (secret.clone(), json!("s3cret"), gone.clone()),
    ] {
        let operation = json!({"adapter": "test:never", "input": schema});
        let operation = register(&site, operation).await;
        let job = site.invoke(&operation, input).await;
        assert_eq!((&job["status"], &job["input"]), (&json!("STARTED"), &shown), "{schema}");
        let id = id_of(&job);
        let history = site.get(&format!("/api/v1/jobs/{id}/history")).await.expect(200);
        assert!(!history.text().contains("s3cret"), "{schema}");
        site.control(&id, "cancel").await.expect(200);
    }
}

#[tokio::test]
async fn a_refusal_does_not_repeat_what_may_be_secret() {
    let site = Site::start().await;
    let secret = json!({"type": "string", "writeOnly": true});
    for schema in [
        json!({"type": "array", "properties": {"k": secret}}),
        json!({"properties": {"k": secret}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        json!({"properties": {"k": {"type": "integer", "writeOnly": true}}}),
    ] {
        let operation = json!({"adapter": "test:echo", "input": schema});
        let job = site.invoke(&register(&site, operation).await, json!({"k": "s3cret"})).await;
        assert_eq!(job["status"], "REJECTED", "{schema}");
        assert!(!job.to_string().contains("s3cret"), "{job}");
    }
}

#[tokio::test]
async fn secrets_survive_a_restart_wherever_they_are_and_however_many() {
    let site = Site::start().await;
    let schema = json!({"properties": {"input": {"items": {"writeOnly": true}}}});
    let operation = json!({"adapter": "test:delay", "pure": true, "input": schema});
    let operation = register(&site, operation).await;
    let secrets: Vec<_> = (0..40).map(|number| format!("s3cret-{number}")).collect();
    let input = json!({"delay": 0, "input": secrets});
    // It was paused before it ran, and continues after the restart with the sealed secrets.
    let waiting = json!({"delay": 60_000, "input": secrets});
    let id = id_of(&site.invoke(&operation, waiting).await);
    let site = site.restarted().await;
    let job = site.until(&id, "STARTED").await;
    assert_eq!(job["input"]["input"][39], json!({"redacted": true}));
    site.control(&id, "cancel").await.expect(200);
    let done = id_of(&site.invoke(&operation, input).await);
    assert_eq!(site.ended(&done).await["output"], json!(secrets));
}

/// A schema of a few kilobytes that would take practically forever to apply.
fn endless() -> Json {
    let mut definitions: serde_json::Map<String, Json> = (0..60)
        .map(|number| {
            let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
            (format!("d{number}"), json!({"allOf": [next, next]}))
        })
        .collect();
    definitions.insert("d60".to_owned(), json!({"type": "integer"}));
    json!({"$defs": definitions, "$ref": "#/$defs/d0"})
}

#[tokio::test]
async fn a_schema_that_takes_for_ever_is_not_applied() {
    let site = Site::start().await;
    let expected = "checking it against the schema takes more than 2000000 steps";
    let input = json!({"schema": endless(), "value": "x"});
    let job = site.ended(&id_of(&site.invoke("schema:validate", input).await)).await;
    assert_eq!(job["output"]["errors"], json!([{"path": "", "message": expected}]), "{job}");
    let operation = json!({"adapter": "test:echo", "input": endless()});
    let job = site.invoke(&register(&site, operation).await, json!(1)).await;
    assert_eq!(
        (&job["status"], &job["error"]),
        (&json!("REJECTED"), &json!(format!("invalid input: {expected}")))
    );
}

#[tokio::test]
async fn an_output_is_bounded() {
    let site = Site::start().await;
    let deep = (0..120).fold(json!(1), |inner, _| json!({ "a": inner }));
    let path = vec!["a"; 100].join("/");
    let input = json!({"target": deep, "path": path.clone() + "/b", "value": deep});
    let body = json!({"operation": "json:assoc", "input": input});
    let reply = site.post("/api/v1/invoke", &body).await.expect(201);
    assert!(reply.text().contains(r#""errorCode":"output_too_large""#), "{}", reply.text());
    site.get(reply.header("location").unwrap()).await.expect(200);
}

#[tokio::test]
async fn definitions_that_the_venue_cannot_run_are_kept_and_refused_when_invoked() {
    let site = Site::start().await;
    for operation in [
        json!({"adapter": "dlfs:read"}),
        json!({"adapter": "dlfs"}),
        json!({"adapter": 7}),
        json!({"adapter": "test:echo", "input": {"type": "no such type"}}),
        json!({"adapter": "test:echo", "timeoutMs": -1}),
    ] {
        let metadata = json!({"name": "Elsewhere", "operation": operation});
        let asset = site.post("/api/v1/assets", &metadata).await.expect(201).json();
        let asset = asset.as_str().unwrap();
        let stored = site.get(&format!("/api/v1/assets/{asset}")).await.expect(200).json();
        assert_eq!(stored, metadata);
        let jobs = site.job_count().await;
        let reply = site.post("/api/v1/invoke", &json!({"operation": asset})).await;
        reply.expect_error(400, "operation_unusable");
        assert_eq!(site.job_count().await, jobs, "no job is created");
    }
    let metadata = json!({"name": "Data", "operation": "a note about operations"});
    let asset = site.post("/api/v1/assets", &metadata).await.expect(201).json();
    let reply = site.post("/api/v1/invoke", &json!({"operation": asset})).await;
    assert_eq!(reply.status(), 400, "{}", reply.text());
    let orchestration = json!({"operation": {"adapter": "orchestrator", "steps": []}});
    site.post("/api/v1/assets", &orchestration).await.expect_error(400, "asset_invalid");
}
