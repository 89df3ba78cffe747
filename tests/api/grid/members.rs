//! Members that are not known: refused where they would be believed to work, otherwise kept and reported.

use catena_tests::http::Reply;
use catena_tests::site::{Client, Site, id_of};
use serde_json::{Value as Json, json};

async fn register(site: &Client, operation: Json) -> Reply {
    site.post("/api/v1/assets", &json!({"name": "Test", "operation": operation})).await
}

fn warnings(reply: &Reply) -> Vec<String> {
    reply.head.header("catena-warnings").map_or_else(Vec::new, |text| {
        assert!(text.is_ascii(), "{text}");
        serde_json::from_str(text).unwrap()
    })
}

fn orchestration(step: Json) -> Json {
    json!({"adapter": "orchestrator", "steps": [step], "result": {"a": [0]}})
}

#[tokio::test]
async fn an_unknown_member_of_a_step_is_refused_by_name() {
    let site = Site::start().await;
    let step = |name: &str| {
        let mut step = json!({"op": "test:echo", "input": {}, "name": "a", "x-note": 1});
        step[name] = json!(true);
        orchestration(step)
    };
    for (name, nearest) in [("when", None), ("retries", None), ("nmae", Some("name"))] {
        let error = register(&site, step(name)).await.expect_error(400, "unknown_member");
        let problem = &error["problems"][0];
        assert_eq!(problem["path"], format!("/operation/steps/0/{name}"), "{error}");
        let text = problem["problem"].as_str().unwrap();
        assert!(text.starts_with(&format!("unknown member `{name}`")), "{error}");
        assert_eq!(nearest.is_some(), text.contains("the nearest is `name`"), "{error}");
    }
    let both = json!({"input": {}, "operation": "test:echo"});
    let error = register(&site, orchestration(both)).await.expect_error(400, "asset_invalid");
    assert_eq!(error["problems"].as_array().unwrap().len(), 2, "{error}");
    register(&site, orchestration(json!({"op": "test:echo", "input": {}, "x-note": 1})))
        .await
        .expect(201);
}

#[tokio::test]
async fn an_unknown_member_of_retry_is_refused_by_name() {
    let site = Site::start().await;
    let retry = json!({"attempts": 3, "backof": 5, "x-note": 1});
    let definition = json!({"adapter": "test:echo", "retry": retry});
    let named = json!({"operation": definition});
    let request = site.request("PUT", "/api/v1/operations/named").json(&named);
    let error = site.ask(request).await.expect_error(400, "unknown_member");
    assert_eq!(error["problems"][0]["path"], "/operation/retry", "{error}");
    // An asset is kept as it is, and cannot be invoked.
    let asset = register(&site, definition).await.expect(201).json();
    let body = json!({"operation": asset, "input": 1});
    site.post("/api/v1/invoke", &body).await.expect_error(400, "operation_unusable");
    let text = error["error"].as_str().unwrap();
    assert!(text.contains("unknown member `backof`; the nearest is `backoffMs`"), "{error}");
}

/// A definition whose retries have no effect, or a name that is shared with nobody, must not look right.
#[tokio::test]
async fn a_name_refuses_misplaced_members_and_unknown_parameters() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let definition = json!({"name": "Test", "info": "i", "operation": {"adapter": "test:echo"}});
    let put = async |query: &str, definition: &Json| {
        let path = format!("/api/v1/operations/mine{query}");
        alice.ask(alice.request("PUT", &path).json(definition)).await
    };
    for misplaced in ["retry", "timeoutMs", "queue", "input", "retries"] {
        let mut wrong = definition.clone();
        wrong[misplaced] = json!({"attempts": 3});
        let error = put("", &wrong).await.expect_error(400, "unknown_member");
        assert_eq!(error["problems"][0]["path"], format!("/{misplaced}"), "{error}");
        assert!(error["error"].as_str().unwrap().contains("write it into `operation`"), "{error}");
    }
    let error = put("?shar=everyone", &definition).await.expect_error(400, "unknown_member");
    assert_eq!((&error["member"], &error["nearest"]), (&json!("shar"), &json!("share")));
    alice.get("/api/v1/operations/o/mine").await.expect_error(404, "operation_not_found");
    put("?share=everyone", &definition).await.expect(200);
}

#[tokio::test]
async fn an_asset_keeps_unknown_members_and_the_response_warns() {
    let site = Site::start().await;
    let usable = json!({"adapter": "test:echo", "modèle": "m", "x-team": "blue"});
    let reply = register(&site, usable.clone()).await.expect(201);
    let warned = warnings(&reply);
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(
        warned[0].contains("`modèle`") && warned[0].ends_with("it has no effect"),
        "{warned:?}"
    );
    let id = reply.json().as_str().unwrap().to_owned();
    let stored = site.get(&format!("/api/v1/assets/{id}")).await.expect(200).json();
    assert_eq!(stored["operation"], usable);
    site.invoked(&id, json!(1), "COMPLETE").await;

    for (member, nearest) in [("retries", "; the nearest is `retry`"), ("when", "")] {
        let mut definition = json!({"adapter": "test:echo"});
        definition[member] = json!(3);
        let reply = register(&site, definition).await.expect(201);
        let warned = warnings(&reply);
        let expected = format!("/operation: unknown member `{member}`{nearest}");
        assert!(warned[0].starts_with(&expected), "{warned:?}");
        let id = reply.json().as_str().unwrap().to_owned();
        for body in [json!({"operation": id}), json!({"operation": id, "private": true})] {
            for path in ["/api/v1/invoke", "/api/v1/run"] {
                let error = site.post(path, &body).await.expect_error(400, "operation_unusable");
                assert!(error["error"].as_str().unwrap().contains(&expected), "{error}");
            }
        }
    }
    assert_eq!(site.job_count().await, 1);
}

/// What the reference implementation and the adapters of this venue define.
#[tokio::test]
async fn known_members_cause_no_warning() {
    let site = Site::start().await;
    let definition = json!({
        "adapter": "http:get", "input": {}, "output": {}, "timeoutMs": 1000, "recovery": "fail",
        "idempotent": true, "pure": false, "readOnly": false, "secrets": [],
        "retry": {"attempts": 2, "backoffMs": 1, "factor": 2, "jitter": 0, "timeoutMs": 5, "on": []},
        "failOn": ["5xx"], "jobHeaders": true, "toolName": "t", "secretFields": [], "secretKey": "k",
        "info": "i", "strict": true, "internal": false, "activityLabel": "l",
        "queue": "q", "url": "https://x.example", "priority": 1, "limit": {"running": 1},
        "rate": {"perSecond": 1},
    });
    let reply = register(&site, definition).await.expect(201);
    assert_eq!(reply.head.header("catena-warnings"), None);
    let data = json!({"name": "Data", "retries": 3, "when": 1});
    let reply = site.post("/api/v1/assets", &data).await.expect(201);
    assert_eq!(reply.head.header("catena-warnings"), None, "only `operation` is a definition");
}

#[tokio::test]
async fn a_near_miss_in_a_request_is_refused_and_other_members_are_listed() {
    let site = Site::start().await;
    for path in ["/api/v1/invoke", "/api/v1/run"] {
        let body = json!({"operation": "test:echo", "input": 1, "timeout": 1000});
        let error = site.post(path, &body).await.expect_error(400, "unknown_member");
        assert_eq!((&error["member"], &error["nearest"]), (&json!("timeout"), &json!("timeoutMs")));
        let body = json!({"operatoin": "test:echo"});
        let error = site.post(path, &body).await.expect_error(400, "unknown_member");
        assert_eq!(error["nearest"], "operation");
    }
    assert_eq!(site.job_count().await, 0);
    let body = json!({"operation": "test:echo", "input": 1, "retries": 3, "colour": "é", "x-a": 1});
    let job = site.post("/api/v1/invoke", &body).await.expect(201).json();
    assert_eq!(job["ignored"], json!(["colour", "retries"]), "{job}");
    let read = site.job(&id_of(&job)).await;
    assert_eq!(read.get("ignored"), None, "it belongs to the request, not to the job");
    let reply = site.post("/api/v1/run", &body).await.expect(200);
    assert_eq!(reply.json(), json!(1));
    let expected = ["unknown member `colour` was ignored", "unknown member `retries` was ignored"];
    assert_eq!(warnings(&reply), expected);
    let plain = site.invoke("test:echo", json!(1)).await;
    assert_eq!(plain.get("ignored"), None);
}
