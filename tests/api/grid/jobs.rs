//! Reading jobs: shapes, entity tags, IDs, lists, sub-jobs.

use catena_tests::site::{Site, id_of};
use serde_json::{Value as Json, json};

#[tokio::test]
async fn an_unchanged_job_is_not_sent_again() {
    let site = Site::start().await;
    let id = site.invoked("test:never", json!({}), "STARTED").await;
    let path = format!("/api/v1/jobs/{id}");
    let read =
        async |tag: &str| site.ask(site.request("GET", &path).header("if-none-match", tag)).await;
    let first = site.get(&path).await.expect(200);
    let tag = first.header("etag").unwrap().to_owned();
    let head = first.json()["head"].as_str().unwrap().to_owned();
    assert!(tag.starts_with(&format!("\"{head}-")) && tag.ends_with('"'), "{tag}");
    let same = read(&tag).await.expect(304);
    assert_eq!((same.body.len(), same.header("etag")), (0, Some(tag.as_str())));
    read(&format!("\"x\", W/{tag}")).await.expect(304);
    read("*").await.expect(304);
    read("\"x\"").await.expect(200);
    site.send(&id, &json!({})).await.expect(202);
    let queued = read(&tag).await.expect(200);
    assert_ne!(queued.header("etag"), Some(tag.as_str()), "an off-chain change counts");
    assert_eq!(queued.json()["head"], head.as_str());
    site.control(&id, "cancel").await.expect(200);
    let ended = read(queued.header("etag").unwrap()).await.expect(200);
    assert_ne!(ended.json()["head"], head.as_str());
}

#[tokio::test]
async fn a_read_may_wait_for_the_end() {
    let site = Site::start().await;
    let id = id_of(&site.invoke("test:delay", json!({"delay": 100, "input": 1})).await);
    let request = site.request("GET", &format!("/api/v1/jobs/{id}")).header("prefer", "wait=20");
    let reply = site.ask(request).await.expect(200);
    assert_eq!(reply.header("preference-applied"), Some("wait=20"));
    assert_eq!(reply.json()["output"], 1);
}

/// "answers when the job differs from what `If-None-Match` names, when it has ended, or after N
/// seconds" (docs/reference/http.md).
#[tokio::test]
async fn a_read_may_wait_for_a_change() {
    let site = Site::start().await;
    let id = site.invoked("test:chat", json!({}), "INPUT_REQUIRED").await;
    let path = format!("/api/v1/jobs/{id}");
    let tag = site.get(&path).await.header("etag").unwrap().to_owned();
    let waiting = async {
        let begun = tokio::time::Instant::now();
        let request = site.request("GET", &path).header("if-none-match", &tag);
        (site.ask(request.header("prefer", "wait=10")).await, begun.elapsed().as_secs())
    };
    let message = json!({"content": "hi"});
    let ((reply, seconds), sent) = tokio::join!(waiting, site.send(&id, &message));
    sent.expect(202);
    reply.expect(200);
    assert!(seconds < 8, "the change was there, but the answer took {seconds} s");
    let mut known = tag;
    // The message is queued, delivered and answered: a client that follows the tags sees the answer.
    for _ in 0..4 {
        let begun = tokio::time::Instant::now();
        let request = site.request("GET", &path).header("if-none-match", &known);
        let reply = site.ask(request.header("prefer", "wait=10")).await.expect(200);
        assert!(
            begun.elapsed().as_secs() < 8,
            "a change that has already happened is reported at once"
        );
        if reply.json()["output"]["message"] == "hi" {
            return;
        }
        known = reply.header("etag").unwrap().to_owned();
    }
    panic!("the answer was never reported");
}

#[tokio::test]
async fn ids_are_taken_in_every_form() {
    let site = Site::start().await;
    let id = site.invoked("test:echo", json!({}), "COMPLETE").await;
    let hex = id.trim_start_matches("0x").to_owned();
    let uuid = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    let loud = hex.to_uppercase();
    for form in [&id, &hex, &loud, &format!("0x{loud}"), &uuid, &uuid.to_uppercase()] {
        assert_eq!(site.job(form).await["id"], id.as_str(), "{form}");
    }
    for bad in ["x", "0x", "12", "42322", &"zz".repeat(16), &"0".repeat(33)] {
        site.get(&format!("/api/v1/jobs/{bad}")).await.expect_error(400, "invalid_job_id");
    }
    site.get(&format!("/api/v1/jobs/{}", "0".repeat(32))).await.expect_error(404, "job_not_found");
}

#[tokio::test]
async fn a_job_has_the_shape_that_sdks_read() {
    let site = Site::start().await;
    for (operation, input) in [
        ("test:echo", json!({"a": 1})),
        ("test:error", json!({"message": "x"})),
        ("test:error", json!({})),
        ("test:never", json!({})),
        ("test:chat", json!({})),
    ] {
        let job = site.invoke(operation, input.clone()).await;
        let text = |name: &str| job[name].as_str().unwrap_or_else(|| panic!("{name} in {job}"));
        assert!(text("id").starts_with("0x") && text("head").starts_with("0x"));
        assert_eq!(text("op"), operation);
        assert_eq!(text("operation").len(), 64);
        assert!(text("caller").starts_with("did:key:") && text("venue").starts_with("did:key:"));
        assert!(job["created"].is_i64() && job["updated"].is_i64());
        assert_eq!(job["input"], input);
        for name in ["error", "errorCode", "message", "parent"] {
            assert!(job.get(name).is_none_or(Json::is_string), "{name} in {job}");
        }
    }
}

#[tokio::test]
async fn a_list_has_bare_hex_in_the_order_of_commits() {
    let site = Site::start().await;
    let mut made = Vec::new();
    for n in 0..7 {
        let id = id_of(&site.invoke("test:echo", json!(n)).await);
        made.push(json!(id.trim_start_matches("0x")));
    }
    let list =
        async |query: &str| site.get(&format!("/api/v1/jobs{query}")).await.expect(200).json();
    let whole = list("").await;
    assert_eq!(whole, json!({"items": made, "total": 7, "offset": 0, "limit": 1000}));
    let page = list("?offset=5&limit=5").await;
    assert_eq!(page, json!({"items": made[5..], "total": 7, "offset": 5, "limit": 5}));
    assert_eq!(list("?offset=9").await["items"], json!([]));
    made.reverse();
    assert_eq!(list("?order=newest&limit=2").await["items"], json!(made[..2]));
    assert_eq!(list("?status=COMPLETE").await["total"], 7);
    assert_eq!(list("?status=FAILED").await["total"], 0);
    assert_eq!(list("?op=test%3Aecho").await["total"], 7);
    let line = &list("?expand=true&limit=1").await["items"][0];
    assert_eq!((&line["status"], &line["op"]), (&json!("COMPLETE"), &json!("test:echo")));
    for bad in ["limit=1001", "limit=x", "offset=-1", "status=complete", "order=up", "expand=2"] {
        site.get(&format!("/api/v1/jobs?{bad}")).await.expect_error(400, "bad_request");
    }
    site.get("/api/v1/jobs?owner=did:key:z6Mk").await.expect_error(403, "forbidden");
}

/// Two filters are combined.
#[tokio::test]
async fn filters_of_a_list_are_all_applied() {
    let site = Site::start().await;
    site.invoke("test:echo", json!({})).await;
    site.invoke("test:random", json!({"length": 1})).await;
    site.invoke("test:error", json!({"message": "x"})).await;
    let count = async |query: &str| {
        site.get(&format!("/api/v1/jobs?{query}")).await.expect(200).json()["total"].clone()
    };
    assert_eq!(count("status=COMPLETE").await, 2);
    assert_eq!(count("status=COMPLETE&op=test%3Aecho").await, 1);
    assert_eq!(count("status=FAILED&op=test%3Aecho").await, 0);
}

/// `parent` is a string; a sub-job is deleted with its root only.
#[tokio::test]
async fn a_sub_job_names_its_parent_and_goes_with_it() {
    let site = Site::start().await;
    let metadata = json!({"name": "Two steps", "operation": {"adapter": "orchestrator",
        "steps": [
            {"op": "test:echo", "input": {"a": ["input", "x"]}},
            {"op": "test:delay", "input": {"delay": ["const", 1], "input": [0, "a"]}}],
        "result": {"out": [1]}}});
    let asset = site.post("/api/v1/assets", &metadata).await.expect(201).json();
    let root = id_of(&site.invoke(asset.as_str().unwrap(), json!({"x": 5})).await);
    let job = site.ended(&root).await;
    assert_eq!(job["output"], json!({"out": 5}), "{job}");
    let steps = job["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 2);
    for (index, step) in steps.iter().enumerate() {
        let child = step["id"].as_str().unwrap();
        let child_job = site.job(child).await;
        assert_eq!(child_job["parent"], root.as_str());
        assert_eq!(child_job["parentStep"], index);
        site.control(child, "delete").await.expect_error(409, "sub_job");
        site.history(child).await.verify();
    }
    let report = site.history(&root).await.verify();
    assert_eq!(report.subjobs_unavailable, 2, "its children are committed to");
    site.control(&root, "delete").await.expect(200);
    for step in steps {
        let path = format!("/api/v1/jobs/{}", step["id"].as_str().unwrap());
        site.get(&path).await.expect_error(404, "job_not_found");
    }
}

/// A page far from both ends of a list is the same as when the list is walked, also after deletions.
#[tokio::test]
async fn an_offset_far_into_a_list_leads_to_the_same_page_as_a_walk() {
    const JOBS: usize = 2_300;
    let site = Site::start().await;
    let mut created = Vec::new();
    for _ in 0..JOBS {
        let id = id_of(&site.invoke("test:echo", json!({})).await);
        created.push(id.trim_start_matches("0x").to_owned());
    }
    let check = async |created: &[String]| {
        for order in ["oldest", "newest"] {
            let mut expected = created.to_vec();
            if order == "newest" {
                expected.reverse();
            }
            for offset in [0, 500, 999, 1_000, 1_001, 1_650, 2_000, 2_200, 2_290, 5_000] {
                let path = format!("/api/v1/jobs?order={order}&offset={offset}&limit=20");
                let page = site.get(&path).await.expect(200).json();
                let found: Vec<&str> = page["items"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|id| id.as_str().unwrap())
                    .collect();
                let wanted: Vec<&str> =
                    expected.iter().skip(offset).take(20).map(String::as_str).collect();
                assert_eq!(found, wanted, "{path}");
                assert_eq!(page["total"], created.len(), "{path}");
            }
        }
    };
    check(&created).await;
    for at in [2_100, 1_400, 3] {
        let id = created.remove(at);
        site.control(&id, "delete").await.expect(200);
    }
    check(&created).await;
}
