//! Imported histories, records by their IDs, lists of namespaces, and copies between users.

use catena_tests::site::{Client, Site, id_of};
use serde_json::{Value as Json, json};

async fn run(client: &Client, operation: &str, input: Json) -> Json {
    let body = json!({ "operation": operation, "input": input });
    client.post("/api/v1/run", &body).await.expect(200).json()
}

async fn did(client: &Client) -> String {
    run(client, "auth:whoami", json!({})).await["caller"].as_str().unwrap().to_owned()
}

async fn history_of(client: &Client, id: &str) -> Json {
    client.get(&format!("/api/v1/jobs/{id}/history")).await.expect(200).json()
}

fn first(document: &Json, count: usize) -> Json {
    let mut document = document.clone();
    document["records"].as_array_mut().unwrap().truncate(count);
    document["next"] = json!(count);
    document
}

/// Returns the document with another output in its last record, and the ID that this record then has.
fn altered(document: &Json) -> Json {
    let mut document = document.clone();
    let last = document["records"].as_array_mut().unwrap().last_mut().unwrap();
    last["record"]["output"] = json!("another output");
    let value = catena_value::json::read(last["record"].to_string().as_bytes()).unwrap();
    last["id"] = json!(value.id().to_string());
    document
}

#[tokio::test]
async fn a_history_of_another_venue_is_imported_and_read() {
    let (here, there) = (Site::start().await, Site::start().await);
    let (alice, bob) = (here.caller(1).await, here.caller(2).await);
    let remote = there.caller(1).await;
    let job = id_of(&remote.invoke("v/test/ops/echo", json!({ "text": "hello" })).await);
    let document = history_of(&remote, &job).await;
    let venue = document["records"][0]["record"]["venue"].as_str().unwrap().to_owned();

    let part = alice.post("/api/v1/histories", &first(&document, 2)).await.expect(200).json();
    assert_eq!(part["imported"][0]["added"], 2);
    assert_eq!(part["imported"][0]["status"], "STARTED");
    let rest = alice.post("/api/v1/histories", &document).await.expect(200).json();
    let rest = &rest["imported"][0];
    assert_eq!((&rest["added"], &rest["records"]), (&json!(1), &json!(3)), "a union");
    let again = alice.post("/api/v1/histories", &first(&document, 1)).await.expect(200).json();
    assert_eq!(
        (&again["imported"][0]["added"], &again["imported"][0]["records"]),
        (&json!(0), &json!(3))
    );
    // A later page continues what is known.
    let mut tail = document.clone();
    tail["records"].as_array_mut().unwrap().remove(0);
    tail.as_object_mut().unwrap().remove("total");
    alice.post("/api/v1/histories", &tail).await.expect_error(400, "history_invalid");
    tail["venue"] = json!(venue);
    tail["job"] = json!(job);
    let same = alice.post("/api/v1/histories", &tail).await.expect(200).json();
    assert_eq!(same["imported"][0]["added"], 0);
    bob.post("/api/v1/histories", &tail).await.expect_error(400, "history_invalid");

    let read = alice.get(&format!("/api/v1/histories/{venue}/{job}")).await.expect(200).json();
    assert_eq!(read["records"], document["records"], "exactly what the venue has");
    let page = alice.get(&format!("/api/v1/histories/{venue}/{job}?from=1&limit=1")).await.json();
    assert_eq!((&page["records"][0], &page["next"]), (&document["records"][1], &json!(2)));
    let path = format!("/api/v1/values/read?path=h/{venue}/{job}/2/record/status");
    assert_eq!(alice.get(&path).await.expect(200).json()["value"], "COMPLETE");
    let listed = alice.get("/api/v1/histories").await.expect(200).json();
    assert_eq!((&listed["total"], &listed["items"][0]["job"]), (&json!(1), &json!(job)));
    assert!(listed["bytes"].as_u64().unwrap() > 300);

    // It is not a job of this venue, and nobody else sees it.
    assert_eq!(alice.job_count().await, 0);
    assert_eq!(alice.get(&format!("/api/v1/jobs/{job}")).await.status(), 404);
    let other = bob.get(&format!("/api/v1/histories/{venue}/{job}")).await;
    other.expect_error(404, "history_not_found");
    assert_eq!(bob.get(&path).await.expect(200).json()["exists"], false);
    assert_eq!(bob.get("/api/v1/histories").await.json()["total"], 0);

    let here = here.restarted().await;
    let alice = here.caller(1).await;
    let path = format!("/api/v1/histories/{venue}/{job}");
    assert_eq!(alice.get(&path).await.expect(200).json()["total"], 3);
    alice.ask(alice.request("DELETE", &path)).await.expect(200);
    alice.get(&path).await.expect_error(404, "history_not_found");
    let listed = alice.get("/api/v1/histories").await.json();
    assert_eq!((&listed["total"], &listed["bytes"]), (&json!(0), &json!(0)));
}

#[tokio::test]
async fn a_fork_and_a_tampered_history_are_refused() {
    let (here, there) = (Site::start().await, Site::start().await);
    let (alice, remote) = (here.caller(1).await, there.caller(1).await);
    let job = id_of(&remote.invoke("v/test/ops/echo", json!(1)).await);
    let document = history_of(&remote, &job).await;
    let mut tampered = document.clone();
    tampered["records"][2]["record"]["output"] = json!(2);
    let refused = alice.post("/api/v1/histories", &tampered).await;
    let refused = refused.expect_error(400, "history_invalid");
    assert_eq!(
        (&refused["fault"]["code"], &refused["fault"]["record"]),
        (&json!("hash_mismatch"), &json!(2))
    );
    alice
        .post("/api/v1/histories", &json!({ "records": [] }))
        .await
        .expect_error(400, "history_invalid");
    alice.post("/api/v1/histories", &document).await.expect(200);
    let fork = alice.post("/api/v1/histories", &altered(&document)).await;
    let fork = fork.expect_error(409, "history_fork");
    assert_eq!((&fork["record"], &fork["known"]), (&json!(2), &document["records"][2]["id"]));
    let venue = document["records"][0]["record"]["venue"].as_str().unwrap();
    let kept = alice.get(&format!("/api/v1/histories/{venue}/{job}")).await.expect(200).json();
    assert_eq!(kept["records"], document["records"]);
}

#[tokio::test]
async fn an_import_never_replaces_a_local_job() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let job = id_of(&alice.invoke("v/test/ops/echo", json!(1)).await);
    let document = history_of(&alice, &job).await;
    let known = alice.post("/api/v1/histories", &document).await.expect(200).json();
    assert_eq!(known["imported"][0]["local"], true);
    alice.post("/api/v1/histories", &altered(&document)).await.expect_error(409, "history_fork");
    assert_eq!(alice.get("/api/v1/histories").await.json()["total"], 0, "nothing was stored");
    assert_eq!(alice.job(&job).await["output"], 1);
    let large = vec![b' '; 10_000_001];
    let request = alice.request("POST", "/api/v1/histories").body(large);
    alice
        .ask(request.header("content-type", "application/json"))
        .await
        .expect_error(413, "body_too_large");
}

#[tokio::test]
async fn a_record_is_read_by_its_id() {
    let site = Site::start().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    let job = id_of(&alice.invoke("v/test/ops/echo", json!({ "a": 1 })).await);
    let document = history_of(&alice, &job).await;
    for entry in document["records"].as_array().unwrap() {
        let id = entry["id"].as_str().unwrap();
        let path = format!("/api/v1/jobs/{job}/records/{id}");
        let reply = alice.get(&path).await.expect(200);
        assert_eq!(reply.json(), entry["record"]);
        assert_eq!(reply.header("etag"), Some(format!("\"{id}\"").as_str()));
        bob.get(&path).await.expect_error(404, "job_not_found");
    }
    let none = format!("/api/v1/jobs/{job}/records/{}", "0".repeat(64));
    alice.get(&none).await.expect_error(404, "record_not_found");
}

#[tokio::test]
async fn a_record_is_found_by_its_id_alone() {
    let site = Site::start().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    let steps = json!({ "name": "two", "operation": { "adapter": "orchestrator", "steps": [
        { "op": "v/test/ops/echo", "input": { "n": ["const", 1] } } ], "result": ["const", 2] } });
    let asset = alice.post("/api/v1/assets", &steps).await.json();
    let parent = id_of(&alice.invoke(asset.as_str().unwrap(), json!({})).await);
    alice.until(&parent, "COMPLETE").await;
    let step = alice.job(&parent).await["steps"][0]["id"].as_str().unwrap().to_owned();
    for _ in 0..3 {
        alice.invoke("v/test/ops/echo", json!(1)).await;
    }
    for job in [&parent, &step] {
        for entry in history_of(&alice, job).await["records"].as_array().unwrap() {
            let id = entry["id"].as_str().unwrap();
            let reply = alice.get(&format!("/api/v1/records/{id}")).await.expect(200);
            assert_eq!(reply.json(), entry["record"]);
            assert_eq!(reply.header("etag"), Some(format!("\"{id}\"").as_str()));
            assert_eq!(reply.header("catena-job"), Some(job.as_str()));
            let known = alice.request("GET", &format!("/api/v1/records/{}", &id[2..]));
            let known = alice.ask(known.header("if-none-match", &format!("\"{id}\""))).await;
            assert_eq!(known.status(), 304);
            let foreign = bob.get(&format!("/api/v1/records/{id}")).await;
            let none = bob.get(&format!("/api/v1/records/0x{}", "0".repeat(64))).await;
            let text = |reply: &catena_tests::http::Reply| {
                let error = reply.json();
                (reply.status(), error["code"].clone(), error["next"].clone())
            };
            assert_eq!(text(&foreign), text(&none), "as if it did not exist");
            foreign.expect_error(404, "record_not_found");
        }
    }
    alice.get("/api/v1/records/0x12").await.expect_error(400, "bad_request");
}

#[tokio::test]
async fn a_record_of_an_imported_history_is_found_by_its_id() {
    let (site, other) = (Site::start().await, Site::start().await);
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    let author = other.caller(1).await;
    let job = id_of(&author.invoke("v/test/ops/echo", json!({ "a": 1 })).await);
    let document = history_of(&author, &job).await;
    alice.post("/api/v1/histories", &document).await.expect(200);
    let entry = &document["records"][1];
    let path = format!("/api/v1/records/{}", entry["id"].as_str().unwrap());
    let reply = alice.get(&path).await.expect(200);
    assert_eq!(reply.json(), entry["record"]);
    assert_eq!(reply.header("catena-job"), Some(job.as_str()));
    bob.get(&path).await.expect_error(404, "record_not_found");
}

#[tokio::test]
async fn namespaces_are_listed() {
    let site = Site::start().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    let mut jobs = Vec::new();
    for n in 0..3 {
        jobs.push(id_of(&alice.invoke("v/test/ops/echo", json!(n)).await));
    }
    let list = async |client: &Client, path: &str| {
        client.get(&format!("/api/v1/values/list?path={path}")).await.expect(200).json()
    };
    let listed = list(&alice, "j").await;
    assert_eq!((&listed["keys"], &listed["count"]), (&json!(jobs), &json!(3)));
    assert_eq!(list(&alice, "j&offset=1&limit=1").await["keys"], json!([jobs[1]]));
    assert_eq!(list(&alice, "/h").await["keys"], json!(jobs));
    assert_eq!(list(&bob, "j").await["count"], 0);
    let asset = alice.post("/api/v1/assets", &json!({ "name": "mine" })).await.json();
    let assets = list(&alice, "a").await;
    assert_eq!(assets["count"], 1);
    assert!(
        assets["keys"][0]
            .as_str()
            .unwrap()
            .ends_with(asset.as_str().unwrap().trim_start_matches("0x"))
    );
    run(&alice, "agent:create", json!({ "agentId": "helper" })).await;
    assert_eq!(list(&alice, "g").await["keys"], json!(["helper"]));
    assert_eq!(list(&bob, "g").await["keys"], json!([]));
    run(&alice, "secret:set", json!({ "name": "KEY", "value": "v" })).await;
    assert_eq!(list(&alice, "s").await["keys"], json!(["KEY"]));
    let count = alice.get("/api/v1/values/count?path=j").await.expect(200).json();
    assert!(count["count"].as_u64().unwrap() >= 3, "{count}");
    alice.get("/api/v1/values/read?path=j").await.expect_error(400, "bad_request");
    let slice = async |client: &Client, query: &str| {
        client.get(&format!("/api/v1/values/slice?path={query}")).await.expect(200).json()
    };
    let sliced = slice(&alice, "j&offset=1&limit=1").await;
    assert_eq!(
        (&sliced["values"][0]["key"], &sliced["values"][1]),
        (&json!(jobs[1]), &json!(null))
    );
    assert_eq!(sliced["values"][0]["value"]["input"], 1);
    assert_eq!(slice(&alice, "a").await["values"][0]["value"]["name"], "mine");
    assert_eq!(slice(&bob, "j").await["values"], json!([]));
    let short = slice(&alice, "j&maxSize=10").await;
    assert_eq!((&short["values"], &short["truncated"]), (&json!([]), &json!(true)));
    alice.get("/api/v1/values/slice?path=h").await.expect_error(400, "bad_request");
    let whole = format!("{}/j", did(&alice).await);
    assert_eq!(bob.get(&format!("/api/v1/values/list?path={whole}")).await.status(), 403);
}

#[tokio::test]
async fn a_value_is_copied_from_another_user_who_permits_it() {
    let site = Site::start().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    run(&alice, "covia:write", json!({ "path": "w/shared/list", "value": [1, { "a": 2 }] })).await;
    let (owner, audience) = (did(&alice).await, did(&bob).await);
    let input = json!({ "from": format!("{owner}/w/shared/list"), "to": "w/copy" });
    let denied =
        bob.post("/api/v1/run", &json!({ "operation": "covia:copy", "input": input })).await;
    assert_eq!(denied.status(), 403);
    let att = json!([{ "with": format!("{owner}/w/shared"), "can": "crud/read" }]);
    let issue = json!({ "aud": audience, "att": att, "exp": 4_000_000_000u64 });
    let token = run(&alice, "ucan:issue", issue).await["token"].as_str().unwrap().to_owned();
    let body = json!({ "operation": "covia:copy", "input": input, "ucans": [token] });
    let copied = bob.post("/api/v1/run", &body).await.expect(200).json();
    assert_eq!(copied["existed"], false);
    // A request under a delegation belongs to an account of its own, named after both users.
    let body =
        json!({ "operation": "covia:read", "input": { "path": "w/copy" }, "ucans": [token] });
    let read = bob.post("/api/v1/run", &body).await.expect(200).json();
    assert_eq!(read["value"], json!([1, { "a": 2 }]), "{read}");
    let back = json!({ "from": "w/copy", "to": format!("{owner}/w/shared/list") });
    let body = json!({ "operation": "covia:copy", "input": back, "ucans": [token] });
    assert_eq!(
        bob.post("/api/v1/run", &body).await.status(),
        403,
        "the delegation permits reading"
    );
}
