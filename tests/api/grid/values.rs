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

/// Reads large values of a job and an asset with and without enough room.
async fn read_with_bounds(alice: &Client, id: &str, asset: &str) {
    for (path, max) in [
        (format!("j/{id}"), 1_000),
        (format!("j/{id}/input"), 1_000),
        (format!("j/{id}/input"), 1_000_000),
        (format!("j/{id}/output/text"), 1_000),
        (format!("h/{id}"), 1_000_000),
        (format!("h/{id}/0/record/input"), 1_000),
        (format!("a/{asset}"), 1_000),
        (format!("a/{asset}/text"), 1_000),
        ("v".to_owned(), 1_000),
    ] {
        let read = format!("/api/v1/values/read?path={path}&maxSize={max}");
        let reply = alice.get(&read).await.expect(200);
        assert!(reply.text().len() < 1_000, "{path}: {} bytes", reply.text().len());
        let cut = reply.json();
        assert_eq!((&cut["truncated"], &cut["value"]), (&json!(true), &json!(null)), "{path}");
        assert_eq!(reply.header("etag"), Some(&*cut["id"].to_string()), "{path}");
    }
    for (path, value) in [
        (format!("j/{id}/status"), json!("COMPLETE")),
        (format!("j/{id}/input/n"), json!(1)),
        (format!("h/{id}/2/record/status"), json!("COMPLETE")),
        (format!("a/{asset}/n"), json!(1)),
    ] {
        let read = format!("/api/v1/values/read?path={path}&maxSize=1000");
        let reply = alice.get(&read).await.expect(200).json();
        assert_eq!(reply["value"], value, "{path}: {reply}");
    }
    let slice = format!("/api/v1/values/slice?path=j/{id}/input&maxSize=1000");
    let slice = alice.get(&slice).await.expect(200);
    assert!(slice.text().len() < 1_000 && slice.json()["truncated"] == true, "{}", slice.text());
    let whole = format!("/api/v1/values/read?path=j/{id}/input/text&maxSize=4000000");
    let whole = alice.get(&whole).await.expect(200).json();
    assert_eq!(whole["value"].as_str().map(str::len), Some(3_000_004));
    assert!(whole["valueBytes"].as_u64().unwrap() > 3_000_000, "that of all its cells");
    assert_eq!(read(alice, &format!("h/{id}/7")).await["exists"], false);
}

/// `maxSize` limits what is loaded and returned, wherever the value is kept: a job is in memory at first,
/// and in the store after a restart.
#[tokio::test]
async fn reads_of_jobs_histories_and_assets_stop_at_max_size() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    // No part of it repeats: equal parts are stored once.
    let text: String = (1_000_000..).map(|n| n.to_string()).take(428_572).collect();
    let input = json!({ "text": text, "n": 1 });
    let job = alice.invoke("test:echo", input).await;
    let id = job["id"].as_str().unwrap();
    let asset = json!({ "name": "thing", "text": "y".repeat(5_000), "n": 1 });
    let asset = alice.post("/api/v1/assets", &asset).await.expect(201).json();
    let asset = asset.as_str().unwrap();
    alice.ended(id).await;
    read_with_bounds(&alice, id, asset).await;
    let site = site.restarted().await;
    read_with_bounds(&site.caller(1).await, id, asset).await;
}

/// The bound of a value holds for copies as it does for writes; a container grows by entries.
#[tokio::test]
async fn a_value_has_at_most_16_mib() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let half = "x".repeat(8_000_000);
    write(&alice, "w/big/a", json!(half)).await;
    write(&alice, "w/big/b", json!(half)).await;
    let copy = json!({ "from": "w/big", "to": "w/copy" });
    run(&alice, "covia:copy", copy.clone()).await.expect(200);
    write(&alice, "w/big/c", json!("x".repeat(800_000))).await;
    let failed = run(&alice, "covia:copy", copy).await.expect_error(422, "job_failed");
    assert_eq!(failed["errorCode"], "value_too_large", "{failed}");
    assert_eq!(read(&alice, "w/copy/c").await["exists"], false);
    let failed = run(&alice, "asset:pin", json!({ "path": "w/big" })).await;
    assert_eq!(failed.expect_error(422, "job_failed")["errorCode"], "value_too_large");
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
    for kind in ["list", "slice", "inspect", "count", "aggregate"] {
        let path = format!("/api/v1/values/{kind}?path=w/a");
        let reply = alice.get(&path).await.expect(200);
        assert_eq!(reply.header("etag"), Some(&*etag), "{kind}");
        let again = alice.ask(alice.request("GET", &path).header("if-none-match", &etag)).await;
        assert_eq!(again.status(), 304, "{kind}");
    }
    let absent = alice.get("/api/v1/values/inspect?path=w/none").await.expect(200);
    assert_eq!(absent.header("etag"), None);
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
async fn a_memory_is_a_numbered_list_of_facts() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let memory = async |input: Json| run(&alice, "v/ops/memory", input).await;
    let recall = async || memory(json!({ "command": "recall" })).await.expect(200).json();
    assert_eq!(recall().await, json!(null));
    for (n, fact) in ["the sky is blue", "water is wet", "fire is hot"].into_iter().enumerate() {
        let done = memory(json!({ "command": "remember", "text": fact })).await.expect(200).json();
        assert_eq!(done, json!({ "n": n + 1, "count": n + 1 }));
    }
    let update = json!({ "command": "update", "n": 2, "text": "water is H2O" });
    assert_eq!(memory(update).await.expect(200).json(), json!({ "n": 2, "count": 3 }));
    let forget = json!({ "command": "forget", "n": 1 });
    assert_eq!(memory(forget).await.expect(200).json(), json!({ "n": 1, "count": 2 }));
    assert_eq!(recall().await, "1. water is H2O\n2. fire is hot");
    let kept = read(&alice, "w/memory").await["value"].clone();
    assert_eq!(kept[0]["text"], "water is H2O", "it is a part of the workspace");
    assert!(kept[0]["updated"].is_i64() && kept[1].get("updated").is_none(), "{kept}");
    for wrong in [
        json!({ "command": "forget", "n": 9 }),
        json!({ "command": "update", "n": 1 }),
        json!({ "command": "remember", "text": " " }),
        json!({ "command": "recall", "path": "s/KEY" }),
    ] {
        let refused = memory(wrong.clone()).await;
        assert_eq!(refused.status(), 422, "{wrong}: {}", refused.text());
    }
    let other = json!({ "command": "remember", "text": "elsewhere", "path": "w/notes/facts" });
    memory(other).await.expect(200);
    assert_eq!(recall().await, "1. water is H2O\n2. fire is hot", "lists are separate");
}

#[tokio::test]
async fn schemas_report_one_violation_or_all() {
    let site = Site::start().await;
    let schema = json!({ "type": "object", "required": ["n", "t"], "properties": {
        "n": { "type": "integer" }, "t": { "type": "string" } } });
    let check = async |operation: &str, value: Json| {
        let input = json!({ "schema": schema, "value": value });
        run(&site, operation, input).await.expect(200).json()
    };
    let valid = json!({ "n": 1, "t": "x" });
    let fine = check("schema:validate", valid.clone()).await;
    assert_eq!(fine, json!({ "valid": true, "errors": [] }));
    let fine = check("schema:validate-all", valid.clone()).await;
    assert_eq!((&fine["valid"], &fine["errors"]), (&json!(true), &json!([])), "{fine}");
    let wrong = json!({ "n": "one" });
    let one = check("schema:validate", wrong.clone()).await;
    assert_eq!(one["valid"], false);
    assert!(one["error"].is_string() && one["errors"][0]["message"].is_string(), "{one}");
    let all = check("schema:validate-all", wrong).await;
    assert_eq!(all["valid"], false);
    let texts = all["errors"].as_array().unwrap();
    assert_eq!((texts.len(), all["violations"].as_array().unwrap().len()), (2, 2), "{all}");
    assert!(texts.iter().all(Json::is_string), "as other venues report them: {all}");
    let input = json!({ "schema": schema, "values": [valid, 5] });
    let many = run(&site, "schema:validate-all", input).await.expect(200).json();
    let results = (&many["results"][0]["valid"], &many["results"][1]["valid"]);
    assert_eq!((&many["valid"], results), (&json!(false), (&json!(true), &json!(false))));
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
