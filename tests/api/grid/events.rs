//! The stream of events of all jobs, and the filter that it shares with the list.

use std::time::Duration;

use catena_auth::KeyPair;
use catena_tests::events::{Event, Events};
use catena_tests::site::{Client, Site, id_of};
use serde_json::{Value as Json, json};

/// Opens the stream and reads it up to the point from which on it is live.
async fn follow_all(client: &Client, query: &str, after: Option<u64>) -> (Vec<Event>, Events) {
    let mut request = client.request("GET", &format!("/api/v1/events?{query}"));
    if let Some(after) = after {
        request = request.header("last-event-id", &after.to_string());
    }
    let mut events = Events::open(client.address, &request).await;
    let mut replayed = Vec::new();
    loop {
        let event = events.next().await.unwrap();
        let is_ready = event.event == "ready";
        replayed.push(event);
        if is_ready {
            return (replayed, events);
        }
    }
}

/// Reads up to the event of this job with this status.
async fn until(events: &mut Events, id: &str, status: &str) -> Event {
    loop {
        let event = events.next().await.unwrap();
        if event.data["id"] == id && event.data["status"] == status {
            return event;
        }
    }
}

#[tokio::test]
async fn one_stream_shows_all_jobs_of_the_caller() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let (_, mut events) = follow_all(&alice, "", None).await;
    site.invoke("test:echo", json!({})).await;
    let quick = id_of(&alice.invoke("test:echo", json!({})).await);
    let first = events.next().await.unwrap();
    assert_eq!((first.event.as_str(), &first.data["id"]), ("job", &json!(quick)));
    assert_eq!(first.data["status"], "COMPLETE");
    assert_eq!(first.data["op"], "test:echo");
    let slow = alice.invoked("test:never", json!({}), "STARTED").await;
    let started = until(&mut events, &slow, "STARTED").await;
    alice.control(&slow, "cancel").await.expect(200);
    let cancelled = until(&mut events, &slow, "CANCELLED").await;
    assert!(first.id < started.id && started.id < cancelled.id);
    alice.control(&slow, "delete").await.expect(200);
    let deleted = events.next().await.unwrap();
    assert_eq!((deleted.event.as_str(), &deleted.data["id"]), ("deleted", &json!(slow)));
}

#[tokio::test]
async fn a_client_that_reconnects_gets_what_it_missed_also_after_a_restart() {
    let site = Site::start().await;
    let old = site.invoked("test:never", json!({}), "STARTED").await;
    let (replayed, events) = follow_all(&site, "", None).await;
    let seen = replayed.last().unwrap().id.unwrap();
    drop(events);
    let new = site.invoked("test:echo", json!({}), "COMPLETE").await;
    site.control(&old, "cancel").await.expect(200);
    let ids = |events: &[Event]| -> Vec<(Json, Json)> {
        let (_ready, changes) = events.split_last().unwrap();
        changes
            .iter()
            .map(|event| (event.data["id"].clone(), event.data["status"].clone()))
            .collect()
    };
    let missed = vec![(json!(new), json!("COMPLETE")), (json!(old), json!("CANCELLED"))];
    assert_eq!(ids(&follow_all(&site, "", Some(seen)).await.0), missed);
    let site = site.restarted().await;
    let (replayed, _events) = follow_all(&site, "", Some(seen)).await;
    assert_eq!(ids(&replayed), missed);
    let last = replayed.last().unwrap().id.unwrap();
    assert!(ids(&follow_all(&site, "", Some(last)).await.0).is_empty());
}

#[tokio::test]
async fn the_stream_has_the_filter_of_the_list() {
    let site = Site::start().await;
    let (_, mut echoes) = follow_all(&site, "op=test:echo&status=COMPLETE", None).await;
    let (_, mut tagged) = follow_all(&site, "tag=nightly", None).await;
    site.invoke("test:random", json!({"length": 1})).await;
    let body = json!({"operation": "test:error", "input": {"message": "no"}, "tags": ["nightly"]});
    let failed = id_of(&site.post("/api/v1/invoke", &body).await.expect(201).json());
    let echo = id_of(&site.invoke("test:echo", json!({})).await);
    assert_eq!(echoes.next().await.unwrap().data["id"], json!(echo));
    assert_eq!(tagged.next().await.unwrap().data["id"], json!(failed));
    for bad in ["status=complete", "since=x", "parent=1", "after=x"] {
        site.get(&format!("/api/v1/events?{bad}")).await.expect_error(400, "bad_request");
    }
    site.get("/api/v1/events?owner=*").await.expect_error(403, "forbidden");
}

/// "At most 20 frames a second; faster changes are aggregated into counts by status."
#[tokio::test]
async fn many_changes_are_counted_by_status() {
    const JOBS: u64 = 400;
    let site = Site::start().await;
    let (_, mut events) = follow_all(&site, "", None).await;
    let begun = tokio::time::Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let client = Client::clone(&site);
        clients.spawn(async move {
            for _ in 0..JOBS / 8 {
                client.invoke("test:echo", json!({})).await;
            }
        });
    }
    let (mut seen, mut frames) = (0, 0);
    while seen < JOBS {
        let event = events.next().await.unwrap();
        frames += 1;
        seen += match event.event.as_str() {
            "job" => 1,
            "counts" => event.data["counts"]["COMPLETE"].as_u64().unwrap_or(0),
            other => panic!("{other}"),
        };
    }
    clients.join_all().await;
    assert_eq!(seen, JOBS, "each job is counted once");
    let seconds = begun.elapsed().as_secs() + 1;
    assert!(frames <= 20 * (seconds + 1), "{frames} frames in {seconds} s");
}

#[tokio::test]
async fn an_admin_follows_and_lists_the_jobs_of_all_owners() {
    let admin = KeyPair::from_seed(&[9; 32]).did();
    let site = Site::with(|flags| flags.admins = Some(admin)).await;
    let (alice, bob, admin) = (site.caller(1).await, site.caller(2).await, site.caller(9).await);
    let (_, mut events) = follow_all(&admin, "owner=*", None).await;
    let mut ids = Vec::new();
    for caller in [&alice, &bob] {
        ids.push(id_of(&caller.invoke("test:echo", json!({})).await));
        let event = events.next().await.unwrap();
        assert_eq!(event.data["id"], json!(ids.last()));
        assert_eq!(event.data["owner"], caller.job(ids.last().unwrap()).await["caller"]);
    }
    let list = admin.get("/api/v1/jobs?owner=*&expand").await.expect(200).json();
    let listed: Vec<_> = list["items"].as_array().unwrap().iter().map(id_of).collect();
    assert_eq!((listed, &list["total"]), (ids, &json!(2)));
    assert_ne!(list["items"][0]["owner"], list["items"][1]["owner"]);
    let none = admin.get("/api/v1/jobs?owner=*&status=FAILED").await.expect(200).json();
    assert_eq!(none["total"], 0);
    alice.get("/api/v1/jobs?owner=*").await.expect_error(403, "forbidden");
}

#[tokio::test]
async fn a_list_is_searched_by_time_text_and_parent() {
    let site = Site::start().await;
    let echo = id_of(&site.invoke("test:echo", json!({})).await);
    let body = json!({"operation": "test:error", "input": {"message": "Disk is FULL"},
        "tags": ["nightly-run"]});
    let failed = id_of(&site.post("/api/v1/invoke", &body).await.expect(201).json());
    let parent = id_of(
        &site.invoke("grid:run", json!({"operation": "test:random", "input": {"length": 1}})).await,
    );
    site.ended(&parent).await;
    let list = async |query: &str| {
        let page = site.get(&format!("/api/v1/jobs?expand&{query}")).await.expect(200).json();
        page["items"].as_array().unwrap().iter().map(id_of).collect::<Vec<_>>()
    };
    for (text, expected) in [
        ("disk+is+full", &failed),
        ("NIGHTLY", &failed),
        ("st:ech", &echo),
        (&echo[..34], &echo),
        (&echo[2..], &echo),
    ] {
        assert_eq!(list(&format!("text={text}")).await, std::slice::from_ref(expected), "{text}");
    }
    assert!(list("text=nothing").await.is_empty());
    let created = site.job(&failed).await["created"].as_i64().unwrap();
    let all = [echo.clone(), failed.clone(), parent.clone()];
    assert_eq!(list(&format!("since={}&until={}", created - 60_000, created + 60_000)).await, all);
    assert_eq!(list("since=2020-01-01T00:00Z&order=newest").await.len(), 3);
    assert!(list("until=2020-01-01T00:00Z").await.is_empty());
    assert!(list("since=2100-01-01T00:00:00Z&order=newest").await.is_empty());
    let children = list(&format!("parent={parent}")).await;
    assert_eq!(children.len(), 1);
    assert!(site.job(&children[0]).await["parent"].to_string().contains(&parent));
    let nobody = site.caller(5).await;
    let hidden = nobody.get(&format!("/api/v1/jobs?parent={parent}")).await.expect(200).json();
    assert_eq!(hidden["total"], 0);
}

#[tokio::test]
async fn a_cursor_continues_a_list_where_it_ended() {
    let site = Site::start().await;
    let mut made = Vec::new();
    for n in 0..5 {
        let op = if n == 2 { "test:random" } else { "test:echo" };
        made.push(id_of(&site.invoke(op, json!({"length": 1})).await));
    }
    for query in ["order=oldest", "order=oldest&status=COMPLETE", "order=oldest&text=test"] {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/api/v1/jobs?expand&limit=2&{query}{cursor}");
            let page = site.get(&path).await.expect(200).json();
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= 2);
            found.extend(items.iter().map(id_of));
            // A job that is created meanwhile does not shift the next page.
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(found, made, "{query}");
    }
    site.get("/api/v1/jobs?cursor=x").await.expect_error(400, "bad_request");
}

#[tokio::test]
async fn a_total_that_was_not_counted_says_what_it_is_at_least() {
    let site = Site::start().await;
    for _ in 0..5 {
        site.invoke("test:echo", json!({})).await;
    }
    let first = site.get("/api/v1/jobs?text=echo&limit=2").await.expect(200).json();
    assert_eq!((&first["total"], first["items"].as_array().unwrap().len()), (&json!(5), 2));
    let next = first["next"].as_str().unwrap();
    let path = format!("/api/v1/jobs?text=echo&limit=2&cursor={next}");
    let second = site.get(&path).await.expect(200).json();
    let at_least = second["total"]["atLeast"].as_u64().unwrap();
    assert!((2..=5).contains(&at_least), "{second}");
}

#[tokio::test]
async fn the_stream_of_an_ended_job_whose_last_event_was_seen_is_empty() {
    let site = Site::start().await;
    let id = site.invoked("test:echo", json!({}), "COMPLETE").await;
    let path = format!("/api/v1/jobs/{id}/sse");
    let last = site.follow(&id).await.rest().await.last().unwrap().id.unwrap();
    let ask = async |after: u64| {
        site.ask(site.request("GET", &path).header("last-event-id", &after.to_string())).await
    };
    ask(last).await.expect(204);
    ask(last - 1).await.expect(200);
    tokio::time::timeout(Duration::from_secs(5), ask(last)).await.unwrap().expect(204);
}

/// "input and output …, large ones loaded on demand"
#[tokio::test]
async fn large_values_of_a_job_are_left_out_on_request() {
    let site = Site::start().await;
    let input = json!({"text": "x".repeat(100_000)});
    let id = site.invoked("test:echo", input.clone(), "COMPLETE").await;
    let get = async |path: &str| site.get(path).await.expect(200).json();
    let brief = get(&format!("/api/v1/jobs/{id}?values=brief")).await;
    let mut omitted: Vec<_> = brief["omittedMembers"].as_array().unwrap().clone();
    omitted.sort_by_key(Json::to_string);
    assert_eq!(omitted, [json!("input"), json!("output")]);
    assert!(brief["input"].is_null() && brief["output"].is_null(), "{brief}");
    let full = get(&format!("/api/v1/jobs/{id}")).await;
    assert_eq!((&full["input"], &full["output"]), (&input, &input));
    assert!(full["omittedMembers"].is_null());
    assert_eq!(brief["head"], full["head"]);
    let history = get(&format!("/api/v1/jobs/{id}/history?values=brief")).await;
    let records = history["records"].as_array().unwrap();
    assert_eq!(records[0]["omittedMembers"], json!(["input"]));
    assert_eq!(records[0]["record"]["op"], "test:echo");
    assert!(records[1]["omittedMembers"].is_null());
    assert_eq!(records.last().unwrap()["omittedMembers"], json!(["output"]));
    let request = site.request("GET", &format!("/api/v1/jobs/{id}/sse?values=brief"));
    let last = Events::open(site.address, &request).await.rest().await.pop().unwrap();
    assert_eq!(last.data["omittedMembers"].as_array().unwrap().len(), 2);
    for path in ["", "/history", "/sse"] {
        let path = format!("/api/v1/jobs/{id}{path}?values=some");
        site.get(&path).await.expect_error(400, "bad_request");
    }
}

#[tokio::test]
async fn the_last_hour_is_counted_by_minute() {
    let admin = KeyPair::from_seed(&[9; 32]).did();
    let site = Site::with(|flags| flags.admins = Some(admin)).await;
    let (alice, bob, admin) = (site.caller(1).await, site.caller(2).await, site.caller(9).await);
    alice.invoke("test:echo", json!({})).await;
    alice.invoke("test:error", json!({"message": "no"})).await;
    let slow = alice.invoked("test:delay", json!({"delay": 30}), "COMPLETE").await;
    bob.invoke("test:echo", json!({})).await;
    let stats = async |client: &Client| client.get("/api/v1/stats").await.expect(200).json();
    let sum = |stats: &Json, of: &dyn Fn(&Json) -> u64| -> u64 {
        stats["minutes"].as_array().unwrap().iter().map(of).sum()
    };
    let own = stats(&alice).await;
    assert_eq!(
        (own["scope"].as_str(), own["minutes"].as_array().unwrap().len()),
        (Some("own"), 60)
    );
    assert_eq!(sum(&own, &|minute| minute["created"].as_u64().unwrap()), 3, "{own}");
    assert_eq!(sum(&own, &|minute| minute["started"].as_u64().unwrap()), 3, "{own}");
    assert_eq!(sum(&own, &|minute| minute["ended"]["COMPLETE"].as_u64().unwrap_or(0)), 2, "{own}");
    assert_eq!(sum(&own, &|minute| minute["ended"]["FAILED"].as_u64().unwrap_or(0)), 1, "{own}");
    let longest = own["minutes"].as_array().unwrap().iter();
    let longest = longest.filter_map(|minute| minute["runningMs"]["p99"].as_u64()).max();
    assert!(longest.unwrap() >= 30, "{slow}: {own}");
    assert!(own["store"].is_null() && own["running"].is_null(), "only admins see the venue");
    let all = stats(&admin).await;
    assert_eq!((&all["scope"], &all["executors"]), (&json!("all"), &json!([])));
    assert_eq!(sum(&all, &|minute| minute["created"].as_u64().unwrap()), 4, "{all}");
    assert!(all["store"]["syncs"].as_u64().unwrap() > 0 && all["running"] == 0, "{all}");
    for member in ["diskBytes", "journalBytes", "syncMeanUs", "syncMaxUs"] {
        assert!(all["store"][member].as_u64().unwrap() > 0, "{member}: {all}");
    }
    let minutes = all["minutes"].as_array().unwrap();
    let waited = minutes.iter().filter(|minute| minute["waitingMs"]["p99"].is_u64()).count();
    assert!(waited > 0 && minutes.iter().any(|minute| minute["queueDepth"].is_u64()), "{all}");
    assert_eq!(sum(&stats(&site).await, &|minute| minute["created"].as_u64().unwrap()), 0);
}
