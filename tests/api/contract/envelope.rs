//! Sections 6 and 11: what a payload must have, what an executor gets, and how a request is refused.
//!
//! Section 6.3: "executor must enforce limits; platform must not allow user overrides beyond plan/quota".
//!
//! Section 11: "No platform secrets in payloads".

use serde_json::{Value as Json, json};

use crate::{Bench, ENVIRONMENT, changed, payload, text, uuid};

fn error(reply: &catena_tests::http::Reply) -> Json {
    let error = reply.json()["error"].clone();
    for member in ["category", "code", "message", "details", "hint"] {
        assert!(!error[member].is_null(), "no {member} in {error}");
    }
    error
}

#[tokio::test]
async fn every_refusal_has_the_error_envelope_whoever_refuses() {
    let bench = Bench::start().await;
    let owner = &bench.owner;
    let reply = owner.post("/contract/v1/jobs", &payload("print(1)")).await;
    assert_eq!(reply.status(), 503, "no environment was ever announced");
    assert!(reply.header("retry-after").is_some());
    assert_eq!(error(&reply)["category"], "INTERNAL_ERROR");
    bench.announce().await;
    for (reply, status, code) in [
        (owner.get("/contract/v1/jobs/0x00").await, 400, "invalid_job_id"),
        (owner.get(&format!("/contract/v1/jobs/{}", uuid(9))).await, 404, "job_not_found"),
        (owner.get("/contract/v1/nothing").await, 404, "endpoint_not_found"),
        (owner.ask(owner.request("DELETE", "/contract/v1/jobs")).await, 405, "method_not_allowed"),
        (
            owner.ask(owner.request("POST", "/contract/v1/jobs").body("{")).await,
            400,
            "invalid_json",
        ),
        (
            owner.ask(owner.request("POST", "/contract/v1/jobs").body(vec![b' '; 11 << 20])).await,
            413,
            "body_too_large",
        ),
        (
            owner
                .ask(
                    catena_tests::http::Request::new("GET", "/contract/v1/jobs")
                        .header("authorization", "Bearer wrong"),
                )
                .await,
            401,
            "token_invalid",
        ),
    ] {
        assert_eq!(reply.status(), status, "{code}");
        let error = error(&reply);
        assert_eq!(
            (&error["category"], &error["code"]),
            (&json!("VALIDATION_ERROR"), &json!(code))
        );
    }
}

/// "INTERNAL_ERROR for 429 and 5xx": the request may succeed later.
#[tokio::test]
async fn too_many_jobs_are_an_internal_error_with_the_time_to_retry() {
    let bench = Bench::with(|flags| flags.live_jobs = Some("1".to_owned())).await;
    bench.announce().await;
    bench.submit(&payload("1")).await;
    let reply = bench.owner.post("/contract/v1/jobs", &payload("2")).await;
    assert_eq!(reply.status(), 429, "{}", reply.text());
    assert!(reply.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    let error = error(&reply);
    assert_eq!(
        (&error["category"], &error["code"]),
        (&json!("INTERNAL_ERROR"), &json!("too_many_jobs"))
    );
    assert_eq!(bench.owner.job_count().await, 1, "nothing happened");
}

#[tokio::test]
async fn an_invalid_envelope_is_refused_without_a_job() {
    let bench = Bench::ready().await;
    for (pointer, value, code) in [
        ("/workspace_id", json!("x"), "INVALID_PAYLOAD"),
        ("/target", json!({}), "INVALID_PAYLOAD"),
        ("/priority", json!("urgent"), "INVALID_PAYLOAD"),
        ("/schema_version", json!("2.0"), "UNSUPPORTED_SCHEMA_VERSION"),
        ("/job_type", json!("object_render"), "UNSUPPORTED_FORMAT"),
        ("/job_type", json!("object_dance"), "UNSUPPORTED_JOB_TYPE"),
        ("/limits", json!({"timeout_ms": 300_001}), "LIMIT_ABOVE_PLAN"),
        ("/environment", json!({"network_access": "enabled"}), "NETWORK_NOT_ALLOWED"),
        ("/environment", json!({"env_version": "py-old@1"}), "UNKNOWN_ENV_VERSION"),
        ("/inputs/object/type", json!("equation"), "UNSUPPORTED_OBJECT_TYPE"),
        ("/output_spec", json!({"formats": "png"}), "INVALID_PAYLOAD"),
        ("/output_spec", json!({"formats": ["PNG"]}), "INVALID_PAYLOAD"),
        ("/output_spec", json!({"formats": ["../x"]}), "INVALID_PAYLOAD"),
        ("/inputs/object/dependencies", json!([{"kind": "table"}]), "INVALID_PAYLOAD"),
        (
            "/inputs/object/dependencies",
            json!([{"kind": "dataset", "digest": "sha256:12"}]),
            "INVALID_PAYLOAD",
        ),
        (
            "/inputs/object/dependencies",
            json!([{"kind": "dataset", "digest": format!("sha256:{}", "A".repeat(64))}]),
            "INVALID_PAYLOAD",
        ),
        (
            "/inputs/object/dependencies",
            json!([{"kind": "dataset", "digest": format!("sha256:{}", "a".repeat(64)),
                    "name": "../x"}]),
            "INVALID_PAYLOAD",
        ),
        (
            "/inputs/dependency_snapshots",
            json!([{"kind": "object", "id": uuid(8), "content_digest": "md5:1"}]),
            "INVALID_PAYLOAD",
        ),
        ("/inputs/object/runtime/entrypoint", json!("a b"), "INVALID_PAYLOAD"),
        ("/inputs/object/runtime/entrypoint", json!("1x"), "INVALID_PAYLOAD"),
        ("/inputs/object/runtime/entrypoint", json!(5), "INVALID_PAYLOAD"),
        ("/inputs/object/runtime/parameters", json!([1]), "INVALID_PAYLOAD"),
    ] {
        let reply = bench.owner.post("/contract/v1/jobs", &changed("", &[(pointer, value)])).await;
        assert_eq!(reply.status(), 400, "{pointer}");
        let error = error(&reply);
        assert_eq!(error["category"], "VALIDATION_ERROR");
        assert_eq!(error["code"], code, "{error}");
        if code == "UNKNOWN_ENV_VERSION" {
            assert_eq!(error["details"]["available"], json!([ENVIRONMENT]));
        }
    }
    // Each file below `inputs` has one name, and each name stands for one file.
    let (one, two) = ("1".repeat(64), "2".repeat(64));
    let dataset = |digits: &str, name: Option<&str>| {
        let mut entry = json!({"kind": "dataset", "digest": format!("sha256:{digits}")});
        if let Some(name) = name {
            entry["name"] = json!(name);
        }
        entry
    };
    for (dependencies, at) in [
        (vec![dataset(&one, Some("a")), dataset(&two, Some("a"))], 1),
        (vec![dataset(&one, Some("a")), dataset(&one, Some("a"))], 1),
        (vec![dataset(&one, None), dataset(&two, Some(&one))], 1),
        (vec![dataset(&two, Some(&one)), dataset(&one, Some("a"))], 0),
    ] {
        let body = changed("", &[("/inputs/object/dependencies", json!(dependencies))]);
        let reply = bench.owner.post("/contract/v1/jobs", &body).await;
        assert_eq!(reply.status(), 400, "{dependencies:?}");
        let error = error(&reply);
        assert_eq!(
            (&error["category"], &error["code"]),
            (&json!("VALIDATION_ERROR"), &json!("INVALID_PAYLOAD")),
            "{error}"
        );
        let field = format!("inputs.object.dependencies.{at}.name");
        assert_eq!(error["details"]["field"], field, "{error}");
        let datasets: Vec<Json> = dependencies.clone();
        let job =
            bench.owner.invoke("exec:python", json!({"code": "", "datasets": datasets})).await;
        assert_eq!(job["status"], "REJECTED", "{job}");
        assert!(text(&job, "error").contains(&format!("datasets.{at}.name")), "{job}");
        bench.owner.put(&format!("/api/v1/jobs/{}/delete", text(&job, "id"))).await.expect(200);
    }
    // A formula is valid, and nobody here can render it.
    let formula = json!({"object": {"content": {"format": "latex", "value": "x"}}});
    let body = changed("", &[("/job_type", json!("object_render")), ("/inputs", formula)]);
    let reply = bench.owner.post("/contract/v1/jobs", &body).await;
    assert_eq!(error(&reply)["code"], "UNSUPPORTED_JOB_TYPE");
    assert_eq!(bench.owner.job_count().await, 0);
}

#[tokio::test]
async fn the_executor_gets_the_completed_payload_and_no_secret_of_the_venue() {
    let bench = Bench::ready().await;
    let body =
        changed("print(1)", &[("/colour", json!("red")), ("/requested_by", json!({"user_id": 1}))]);
    let (id, job) = bench.claimed(&body).await;
    let shown =
        bench.owner.get(&format!("/contract/v1/jobs/{id}/payload")).await.expect(200).json();
    assert_eq!(job["input"], shown, "what is shown is what the executor got");
    assert_eq!(
        shown["limits"],
        json!({"timeout_ms": 30_000, "cpu_ms": 30_000, "memory_mb": 512,
        "max_output_kb": 256, "max_artifacts": 50})
    );
    assert_eq!(
        shown["environment"],
        json!({"language": "python", "env_version": ENVIRONMENT,
        "network_access": "disabled"})
    );
    assert_eq!((&shown["job_id"], &shown["colour"]), (&json!(id), &json!("red")));
    assert_eq!(text(&shown["requested_by"], "user_id").len(), 36);
    assert!(text(&shown, "execution_key").starts_with("sha256:"));
    let document = job.to_string();
    for file in std::fs::read_dir(bench.site.data()).unwrap().flatten() {
        let content = std::fs::read(file.path()).unwrap_or_default();
        if content.len() == 32 {
            let hex: String = content.iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(!document.contains(&hex), "a key is in the payload");
        }
    }
    assert!(!document.to_lowercase().contains("bearer") && !document.contains("eyJ"));
}

#[tokio::test]
async fn a_token_for_executors_grants_nothing_else() {
    let bench = Bench::ready().await;
    let executor = &bench.executor;
    assert_eq!(executor.get("/contract/v1/jobs").await.status(), 403);
    assert_eq!(executor.get("/api/v1/jobs").await.status(), 403);
    let body = json!({"worker": "w", "environments": []});
    let refused = bench.owner.post("/contract/v1/executor/announce", &body).await;
    assert_eq!(refused.status(), 403, "a user is no executor");
    let about = json!({"worker": "w", "queues": ["exec.default"], "about": {"tier": "T1"}});
    assert_eq!(bench.owner.post("/worker/v1/claim", &about).await.status(), 400);
}
