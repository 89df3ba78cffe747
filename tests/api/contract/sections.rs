//! What the source says about identity (4), keys (5.1), the envelope of a payload (6), and versions (12).
//!
//! Section 2, "Job Types": `object_execute`, `object_render`, `document_export`, `thumbnail_generate`.
//!
//! Section 4: "All jobs must include: `job_id` (platform-generated UUID), `workspace_id`, `project_id`,
//! `document_id`, `document_revision_id`. For object-scoped jobs: `object_id` (or `object_ids`)." "A result
//! must be attributable to: the exact object content + dependencies at that revision, parameters used,
//! execution environment version".
//!
//! Section 5.1: "execution_key = hash(job_type + document_revision_id + target_object_ids + input_hash +
//! env_version)", where "`input_hash` = hash of: object content state, semantic dependency IDs and their
//! pinned versions within the revision, runtime parameters, referenced datasets (by immutable digest, not
//! filename)".
//!
//! Section 6.1, "Envelope (common fields)". Section 6.2: "`low` | `normal` | `high`. Use for UX
//! responsiveness". Section 6.4: "`disabled` by default; if ever enabled, must be explicit and
//! policy-controlled".
//!
//! Section 7.1: "The executor should not need to call back to fetch object state in order to run.
//! `dependency_snapshots` prevents “moving target” bugs."
//!
//! Section 12.1: "Both payload and result include `schema_version`. Executor must reject unsupported major
//! versions. Platform must support graceful upgrade paths". Section 12.2: "Every result must include the
//! environment version used. Dedupe must include `env_version`".

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use crate::{Bench, ENVIRONMENT, changed, payload, text, uuid};

/// A digest of nothing in particular.
const DIGEST: &str = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

#[tokio::test]
async fn a_job_has_an_identity_and_is_refused_without_one() {
    let bench = Bench::ready().await;
    for name in ["workspace_id", "project_id", "document_id", "document_revision_id", "target"] {
        let mut body = payload("print(1)");
        body.as_object_mut().unwrap().remove(name);
        let error = bench.owner.post("/contract/v1/jobs", &body).await.expect(400).json();
        let error = &error["error"];
        assert_eq!(error["category"], "VALIDATION_ERROR", "{name}: {error}");
        assert!(text(error, "message").contains(name), "{name}: {error}");
    }
    let several = changed("x", &[("/target", json!({"object_ids": [uuid(6), uuid(5)]}))]);
    let created = bench.submit(&several).await;
    let id = text(&created, "job_id");
    assert_eq!(id.len(), 36, "the platform generates a UUID");
    let result = bench.read(&id).await;
    assert_eq!(result["object_ids"], json!([uuid(6), uuid(5)]));
    assert_eq!(bench.owner.job_count().await, 1, "what is refused creates nothing");
}

#[tokio::test]
async fn a_result_is_attributable_to_content_dependencies_parameters_and_environment() {
    let bench = Bench::ready().await;
    let dependencies =
        json!([{"kind": "object", "id": uuid(8)}, {"kind": "dataset", "digest": DIGEST}]);
    let snapshots = json!([{"kind": "object", "id": uuid(8), "content_digest": DIGEST,
                            "resolved_runtime": null}]);
    let body = changed(
        "print(x)",
        &[
            ("/inputs/object/dependencies", dependencies.clone()),
            ("/inputs/dependency_snapshots", snapshots.clone()),
            ("/inputs/object/runtime/parameters", json!({"x": 10})),
        ],
    );
    let (id, job) = bench.claimed(&body).await;
    // Everything that is needed to run is in what the executor got.
    assert_eq!(job["input"]["inputs"], body["inputs"]);
    bench.succeed(&job).await;
    let result = bench.read(&id).await;
    assert_eq!(result["document_revision_id"], body["document_revision_id"]);
    assert_eq!(result["parameters"], json!({"x": 10}));
    assert_eq!(result["dependencies"], dependencies);
    assert_eq!(result["environment"]["env_version"], ENVIRONMENT);
    assert!(text(&result, "input_hash").starts_with("0x"), "{result}");
    let first = bench.owner.history(&id).await.entries[0]["record"].clone();
    assert_eq!(first["input"], body, "the content is part of the proof");
    assert_eq!(first["inputHash"], result["input_hash"]);
}

/// The key of a request, which is cancelled again.
async fn key_of(bench: &Bench, body: &Json) -> String {
    let created = bench.submit(body).await;
    let id = text(&created, "job_id");
    bench.owner.post(&format!("/contract/v1/jobs/{id}/cancel"), &json!({})).await.expect(200);
    text(&created, "execution_key")
}

#[tokio::test]
async fn the_key_depends_on_what_is_computed_and_on_nothing_else() {
    let bench = Bench::ready().await;
    let other = "py-other@0123456789ab";
    let environment =
        json!({"version": other, "profile": "other", "job_types": ["object_execute"]});
    let body = json!({"worker": "e2", "slots": 1, "environments": [environment]});
    bench.executor.post("/contract/v1/executor/announce", &body).await.expect(200);
    let dataset =
        |digest: &str, name: &str| json!([{"kind": "dataset", "digest": digest, "name": name}]);
    let object = json!([{"kind": "object", "id": uuid(8)}]);
    let snapshot =
        |digest: &str| json!([{"kind": "object", "id": uuid(8), "content_digest": digest}]);
    let zeros = format!("sha256:{}", "0".repeat(64));
    let different: Vec<Json> = vec![
        payload("print(1)"),
        payload("print(2)"),
        changed("print(1)", &[("/document_revision_id", json!(uuid(40)))]),
        changed("print(1)", &[("/target", json!({"object_id": uuid(50)}))]),
        changed("print(1)", &[("/inputs/object/runtime/parameters", json!({"x": 1}))]),
        changed("print(1)", &[("/inputs/object/runtime/parameters", json!({"x": 1.0}))]),
        changed("print(1)", &[("/inputs/object/dependencies", dataset(DIGEST, "a"))]),
        changed("print(1)", &[("/inputs/object/dependencies", dataset(&zeros, "a"))]),
        changed(
            "print(1)",
            &[
                ("/inputs/object/dependencies", object.clone()),
                ("/inputs/dependency_snapshots", snapshot(DIGEST)),
            ],
        ),
        changed(
            "print(1)",
            &[
                ("/inputs/object/dependencies", object),
                ("/inputs/dependency_snapshots", snapshot(&zeros)),
            ],
        ),
        changed("print(1)", &[("/environment", json!({"env_version": other}))]),
        changed("print(1)", &[("/limits", json!({"memory_mb": 64}))]),
        changed("print(1)", &[("/output_spec", json!({"formats": ["png"]}))]),
    ];
    let mut keys = BTreeSet::new();
    for body in &different {
        keys.insert(key_of(&bench, body).await);
    }
    assert_eq!(keys.len(), different.len(), "each of them is other work");
    let first = key_of(&bench, &payload("print(1)")).await;
    for (pointer, value) in [
        ("/priority", json!("high")),
        ("/requested_by", json!({"user_id": uuid(99)})),
        ("/workspace_id", json!(uuid(10))),
        ("/environment", json!({"env_version": ENVIRONMENT})),
        ("/limits", json!({"timeout_ms": 30_000})),
    ] {
        let key = key_of(&bench, &changed("print(1)", &[(pointer, value)])).await;
        assert_eq!(key, first, "{pointer} does not change the work");
    }
    let pair =
        |one, two| changed("1", &[("/target", json!({"object_ids": [uuid(one), uuid(two)]}))]);
    assert_eq!(key_of(&bench, &pair(5, 6)).await, key_of(&bench, &pair(6, 5)).await);
}

#[tokio::test]
async fn a_payload_has_the_fields_of_the_envelope() {
    let bench = Bench::ready().await;
    let (id, job) = bench.claimed(&changed("x", &[("/priority", json!("low"))])).await;
    let sent = &job["input"];
    for name in [
        "schema_version",
        "job_id",
        "job_type",
        "created_at",
        "workspace_id",
        "project_id",
        "document_id",
        "document_revision_id",
        "execution_key",
        "priority",
    ] {
        assert!(sent[name].is_string(), "{name}: {sent}");
    }
    assert_eq!((&sent["schema_version"], &sent["job_id"]), (&json!("1.0"), &json!(id)));
    assert!(text(sent, "created_at").ends_with('Z'), "{sent}");
    assert_eq!(sent["environment"]["network_access"], "disabled");
    assert_eq!(
        sent["output_spec"],
        json!({"return_stdout": true, "return_stderr": true, "formats": ["json", "png", "svg"]})
    );
    assert!(text(&sent["requested_by"], "did").starts_with("did:key:"), "{sent}");
}

#[tokio::test]
async fn priority_is_a_head_start() {
    let bench = Bench::ready().await;
    let mut ids = Vec::new();
    for (number, priority) in ["low", "normal", "high", "low", "high"].into_iter().enumerate() {
        let body = changed(&number.to_string(), &[("/priority", json!(priority))]);
        ids.push(text(&bench.submit(&body).await, "job_id").replace('-', ""));
    }
    let mut order = Vec::new();
    for _ in &ids {
        let job = bench.claim("e1").await;
        let id = text(&job, "id").trim_start_matches("0x").replace('-', "");
        order.push(ids.iter().position(|known| *known == id).unwrap());
        bench.succeed(&job).await;
    }
    assert_eq!(order, [2, 4, 1, 0, 3], "of one priority, the oldest first");
}

#[tokio::test]
async fn a_newer_minor_version_is_kept_and_another_major_version_is_refused() {
    let bench = Bench::ready().await;
    let newer =
        changed("x", &[("/schema_version", json!("1.7")), ("/hints", json!({"gpu": true}))]);
    let (id, job) = bench.claimed(&newer).await;
    assert_eq!(job["input"]["hints"], json!({"gpu": true}), "unknown members are kept");
    bench.succeed(&job).await;
    let result = bench.read(&id).await;
    assert_eq!(result["schema_version"], "1.0");
    for version in [json!("2.0"), json!("0.9"), json!("x"), json!(1)] {
        let body = changed("x", &[("/schema_version", version.clone())]);
        let error = bench.owner.post("/contract/v1/jobs", &body).await.expect(400).json();
        assert_eq!(error["error"]["category"], "VALIDATION_ERROR", "{version}");
    }
}

#[tokio::test]
async fn a_job_type_is_accepted_if_an_executor_supports_it() {
    let bench = Bench::ready().await;
    let formula = json!({"type": "equation", "content": {"format": "latex", "value": "x"}});
    let document = json!({"blocks": [{"type": "text", "text": "x"}]});
    let rendered = [
        ("object_render", json!({"object": formula}), "svg"),
        ("document_export", json!({"document": document, "export_format": "pdf"}), "pdf"),
        ("thumbnail_generate", json!({"object": formula, "width": 64, "height": 64}), "png"),
    ];
    for (job_type, inputs, format) in rendered {
        let body = changed(
            "x",
            &[
                ("/job_type", json!(job_type)),
                ("/inputs", inputs),
                ("/output_spec", json!({"formats": [format]})),
            ],
        );
        let error = bench.owner.post("/contract/v1/jobs", &body).await.expect(400).json();
        assert_eq!(error["error"]["code"], "UNSUPPORTED_JOB_TYPE", "{job_type}");
    }
    bench.submit(&payload("x")).await;
}
