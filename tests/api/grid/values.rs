//! The workspace: operations on values at paths, and reads without jobs.

use catena_tests::http::Reply;
use catena_tests::site::{Client, Site};
use serde_json::{Value as Json, json};

async fn run(client: &Client, operation: &str, input: Json) -> Reply {
    client.post("/api/v1/run", &json!({ "operation": operation, "input": input })).await
}

async fn write(client: &Client, path: &str, value: Json) -> Json {
    run(client, "covia:write", json!({ "path": path, "value": value })).await.expect(200).json()
}

async fn read(client: &Client, path: &str) -> Json {
    client.get(&format!("/api/v1/values/read?path={path}")).await.expect(200).json()
}

#[tokio::test]
async fn a_value_is_written_read_and_deleted() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let done = write(&alice, "w/notes/first", json!({ "text": "hello", "n": 1 })).await;
    assert_eq!(done, json!({ "existed": false, "pathCreated": true }));
    assert_eq!(write(&alice, "/w/notes/second", json!(null)).await, json!({ "existed": false }));
    assert_eq!(write(&alice, "w/notes/first/n", json!(2)).await, json!({ "existed": true }));
    let found = read(&alice, "w/notes/first").await;
    assert_eq!(found["exists"], true);
    assert_eq!(found["type"], "Map");
    assert_eq!(found["value"], json!({ "text": "hello", "n": 2 }));
    assert!(found["valueBytes"].as_i64().unwrap() > 10);
    let null = read(&alice, "w/notes/second").await;
    assert_eq!((&null["exists"], &null["value"]), (&json!(true), &json!(null)), "a null exists");
    let deleted = run(&alice, "covia:delete", json!({ "path": "w/notes/first" })).await;
    assert_eq!(deleted.expect(200).json(), json!({ "deleted": true }));
    let again = run(&alice, "covia:delete", json!({ "path": "w/notes/first" })).await;
    assert_eq!(again.expect(200).json(), json!({ "deleted": false }));
    assert_eq!(read(&alice, "w/notes/first").await, json!({ "exists": false, "type": "Nil" }));
}

#[tokio::test]
async fn a_write_is_a_job_whose_chain_verifies_and_a_read_is_none() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let job = alice.invoke("v/ops/covia/write", json!({ "path": "w/a", "value": 1 })).await;
    assert_eq!(job["status"], "COMPLETE");
    assert_eq!(job["output"], json!({ "existed": false }));
    let chain = alice.history(job["id"].as_str().unwrap()).await;
    assert_eq!(chain.statuses(), "PENDING STARTED COMPLETE");
    let jobs = alice.job_count().await;
    read(&alice, "w/a").await;
    run(&alice, "covia:read", json!({ "path": "w/a" })).await.expect(200);
    assert_eq!(alice.job_count().await, jobs, "reads create no jobs");
}

#[tokio::test]
async fn users_do_not_see_each_others_values() {
    let site = Site::start().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    write(&alice, "w/same", json!("alice")).await;
    assert_eq!(read(&bob, "w/same").await["exists"], false);
    write(&bob, "w/same", json!("bob")).await;
    assert_eq!(read(&alice, "w/same").await["value"], "alice");
    let whoami = run(&alice, "auth:whoami", json!({})).await.json();
    let did = whoami["caller"].as_str().unwrap();
    assert_eq!(read(&alice, &format!("{did}/w/same")).await["value"], "alice");
    let foreign = bob.get(&format!("/api/v1/values/read?path={did}/w/same")).await;
    let error = foreign.expect_error(403, "forbidden");
    assert!(error["error"].as_str().unwrap().starts_with("Capability denied"), "{error}");
    let foreign =
        run(&bob, "covia:write", json!({ "path": format!("{did}/w/x"), "value": 1 })).await;
    assert_eq!(foreign.status(), 403);
    assert_eq!(read(&alice, "w/x").await["exists"], false);
}

#[tokio::test]
async fn arrays_grow_by_appending_and_are_read_in_pages() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let append = async |value: Json| {
        let input = json!({ "path": "w/log/lines", "value": value });
        run(&alice, "covia:append", input).await.expect(200).json()
    };
    let first = append(json!("a")).await;
    assert_eq!(first, json!({ "existed": false, "pathCreated": true, "index": 0, "newSize": 1 }));
    assert_eq!(append(json!("b")).await, json!({ "existed": true, "index": 1, "newSize": 2 }));
    append(json!({ "c": 3 })).await;
    let page = alice.get("/api/v1/values/slice?path=w/log/lines&offset=1&limit=5").await;
    let page = page.expect(200).json();
    assert_eq!(page["values"], json!(["b", { "c": 3 }]));
    assert_eq!((&page["count"], &page["offset"]), (&json!(3), &json!(1)));
    assert_eq!(page["type"], "Vector");
    let map = alice.get("/api/v1/values/slice?path=w/log").await.expect(200).json();
    assert_eq!(map["values"][0]["key"], "lines", "entries of an object are key and value");
    assert_eq!(read(&alice, "w/log/lines/2/c").await["value"], 3, "a path may mix both");
    let list = alice.get("/api/v1/values/list?path=w/log").await.expect(200).json();
    assert_eq!((&list["keys"], &list["count"]), (&json!(["lines"]), &json!(1)));
    let list = alice.get("/api/v1/values/list?path=w/none").await.expect(200).json();
    assert_eq!(list, json!({ "exists": false, "type": "Nil" }));
    let top = run(&alice, "covia:list", json!(null)).await.expect(200).json();
    assert!(top["keys"].as_array().unwrap().contains(&json!("w")), "{top}");
}

#[tokio::test]
async fn large_values_are_truncated_counted_and_grouped() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let record = |n: usize| {
        let kind = if n.is_multiple_of(3) { "fizz" } else { "other" };
        (format!("r{n}"), json!({ "kind": kind, "text": "x".repeat(100) }))
    };
    let records: serde_json::Map<String, Json> = (0..1_000).map(record).collect();
    write(&alice, "w/records", json!(records)).await;
    let cut = alice.get("/api/v1/values/read?path=w/records&maxSize=1000").await.expect(200).json();
    assert_eq!((&cut["truncated"], &cut["value"]), (&json!(true), &json!(null)));
    assert_eq!(cut["count"], 1_000);
    let count = alice.get("/api/v1/values/count?path=w/records").await.expect(200).json();
    assert_eq!(count["count"], 1_000);
    let deep = alice.get("/api/v1/values/count?path=w/records&depth=2").await.expect(200).json();
    assert_eq!(deep["count"], 2_000);
    let path = "/api/v1/values/aggregate?path=w/records&groupBy=kind";
    let groups = alice.get(path).await.expect(200).json();
    assert_eq!(groups["count"], 1_000);
    assert_eq!(groups["groups"], json!({ "fizz": { "count": 334 }, "other": { "count": 666 } }));
    let mut keys = std::collections::BTreeSet::new();
    for offset in (0..1_000).step_by(300) {
        let path = format!("/api/v1/values/list?path=w/records&limit=300&offset={offset}");
        let page = alice.get(&path).await.expect(200).json();
        keys.extend(page["keys"].as_array().unwrap().iter().map(|key| key.to_string()));
    }
    assert_eq!(keys.len(), 1_000, "pages have every key once");
    let path = "/api/v1/values/inspect?path=w/records&budget=200&compact=true";
    let text = alice.get(path).await.expect(200).json();
    let text = text["result"].as_str().unwrap();
    assert!(text.contains("more */") && text.len() < 600, "{text}");
    let scalar = alice.get("/api/v1/values/count?path=w/records/r1/kind").await.expect(200).json();
    assert_eq!(scalar["exists"], false);
}

#[tokio::test]
async fn values_are_copied_from_wherever_they_can_be_read() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    write(&alice, "w/a", json!([1, 2])).await;
    let copied = run(&alice, "covia:copy", json!({ "from": "w/a", "to": "w/b/c" })).await;
    assert_eq!(copied.expect(200).json(), json!({ "existed": false, "pathCreated": true }));
    assert_eq!(read(&alice, "w/b/c/1").await["value"], 2);
    let echo = json!({ "from": "v/test/ops/echo", "to": "o/mine" });
    run(&alice, "covia:copy", echo).await.expect(200);
    let job = alice.invoke("o/mine", json!({ "x": 1 })).await;
    assert_eq!(job["output"], json!({ "x": 1 }), "an operation under a name of one's own");
    let none = run(&alice, "covia:copy", json!({ "from": "w/none", "to": "w/c" })).await;
    assert_eq!(none.status(), 422);
}

#[tokio::test]
async fn venue_jobs_histories_and_assets_can_be_read_by_path() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let level = site.get("/api/v1/status").await.json()["version"].clone();
    assert_eq!(read(&alice, "v/info/version").await["value"], level);
    let adapter = read(&alice, "v/info/adapters/covia").await;
    assert_eq!(adapter["value"]["name"], "covia");
    assert!(
        adapter["value"]["operations"].as_array().unwrap().contains(&json!("v/ops/covia/read"))
    );
    let echo = read(&alice, "v/test/ops/echo/operation/adapter").await;
    assert_eq!(echo["value"], "test:echo");
    let job = alice.invoke("test:echo", json!({ "x": 1 })).await;
    let id = job["id"].as_str().unwrap();
    assert_eq!(read(&alice, &format!("j/{id}/output/x")).await["value"], 1);
    assert_eq!(read(&alice, &format!("h/{id}/2/record/status")).await["value"], "COMPLETE");
    let bob = site.caller(2).await;
    for namespace in ["j", "h"] {
        assert_eq!(read(&bob, &format!("{namespace}/{id}")).await["exists"], false);
    }
    let asset = alice.post("/api/v1/assets", &json!({ "name": "thing" })).await.expect(201).json();
    let asset = asset.as_str().unwrap();
    assert_eq!(read(&alice, &format!("a/{asset}/name")).await["value"], "thing");
    assert_eq!(read(&alice, &format!("{asset}/name")).await["value"], "thing");
}

#[tokio::test]
async fn the_entity_tag_is_the_value_id() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    write(&alice, "w/a", json!({ "x": 1 })).await;
    let path = "/api/v1/values/read?path=w/a";
    let reply = alice.get(path).await.expect(200);
    let id = reply.json()["id"].as_str().unwrap().to_owned();
    let etag = reply.header("etag").unwrap().to_owned();
    assert_eq!(etag, format!("\"{id}\""));
    let value = catena_value::json::read(br#"{"x":1}"#).unwrap();
    assert_eq!(id, value.id().to_string(), "anyone can compute it");
    let again = alice.ask(alice.request("GET", path).header("if-none-match", &etag)).await;
    assert_eq!(again.status(), 304);
    write(&alice, "w/a/x", json!(2)).await;
    let changed = alice.ask(alice.request("GET", path).header("if-none-match", &etag)).await;
    assert_eq!(changed.status(), 200);
}

#[tokio::test]
async fn bad_paths_and_foreign_namespaces_are_refused_and_change_nothing() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    write(&alice, "w/scalar", json!("text")).await;
    write(&alice, "w/list", json!([1, 2])).await;
    let before = read(&alice, "w").await["id"].clone();
    let id = "0x0123456789abcdef0123456789abcdef";
    for path in [
        "w",
        "/",
        "o",
        "",
        "w/",
        "w//a",
        "x/a",
        "s/KEY",
        "g/bob",
        "v/info/version",
        "w/scalar/below",
        "w/list/4",
        "w/list/x",
        &format!("j/{id}"),
        &format!("h/{id}"),
        &format!("a/{id}"),
        &format!("w/{}", "a/".repeat(130)),
        &format!("w/{}", "a".repeat(2_100)),
    ] {
        for (operation, input) in [
            ("covia:write", json!({ "path": path, "value": 1 })),
            ("covia:append", json!({ "path": path, "value": 1 })),
        ] {
            let reply = run(&alice, operation, input).await;
            assert_eq!(reply.status(), 422, "{operation} {path}: {}", reply.text());
        }
    }
    assert_eq!(read(&alice, "w").await["id"], before);
    for query in [
        "read",
        "slice?path=w/list&offset=-1",
        "slice?path=w/list&limit=10001",
        "read?path=x/y",
        "read?path=w//a",
        "count?path=w&depth=0",
        "read?path=w&maxSize=many",
    ] {
        let reply = alice.get(&format!("/api/v1/values/{query}")).await;
        assert_eq!(reply.status(), 400, "{query}: {}", reply.text());
    }
    assert_eq!(alice.get("/api/v1/values/nothing?path=w").await.status(), 404);
}

#[tokio::test]
async fn values_survive_a_restart() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    write(&alice, "w/kept", json!({ "a": [1, { "b": 2 }] })).await;
    let before = read(&alice, "w").await["id"].clone();
    let site = site.restarted().await;
    let alice = site.caller(1).await;
    assert_eq!(read(&alice, "w").await["id"], before);
    assert_eq!(read(&alice, "w/kept/a/1/b").await["value"], 2);
}
