//! Job Pause, Resume, Cancellation, Deletion, Finality, Interactive Jobs.

use catena_auth::KeyPair;
use catena_tests::site::{Client, Site, id_of};
use catena_tests::target::Target;
use serde_json::{Value as Json, json};

/// A job in each status that is not terminal, on a venue that runs one job at a time.
async fn unfinished(site: &Client) -> Vec<(&'static str, String)> {
    let mut jobs = Vec::new();
    for (operation, input, status) in [
        ("test:chat", json!({}), "INPUT_REQUIRED"),
        ("test:auth", json!({}), "AUTH_REQUIRED"),
        ("test:pause", json!({}), "PAUSED"),
        ("test:never", json!({}), "STARTED"),
        ("test:delay", json!({"delay": 0}), "PENDING"),
    ] {
        jobs.push((status, site.invoked(operation, input, status).await));
    }
    jobs
}

async fn one_at_a_time() -> Site {
    Site::with(|flags| flags.running = Some("1".to_owned())).await
}

/// A job in each of the five terminal statuses.
async fn finished(site: &Client) -> Vec<(&'static str, String)> {
    let late = json!({"operation": "test:never", "timeoutMs": 10});
    let late = id_of(&site.post("/api/v1/invoke", &late).await.expect(201).json());
    let cancelled = site.invoked("test:never", json!({}), "STARTED").await;
    site.control(&cancelled, "cancel").await.expect(200);
    site.until(&late, "TIMEOUT").await;
    vec![
        ("COMPLETE", site.invoked("test:echo", json!({}), "COMPLETE").await),
        ("FAILED", site.invoked("test:error", json!({"message": "x"}), "FAILED").await),
        ("REJECTED", site.invoked("test:error", json!({}), "REJECTED").await),
        ("CANCELLED", cancelled),
        ("TIMEOUT", late),
    ]
}

/// "A venue MUST append a state record with status PAUSED if the job is in a non-terminal,
/// non-paused state (PENDING, STARTED, INPUT_REQUIRED, AUTH_REQUIRED)."
#[tokio::test]
async fn a_job_is_paused_from_all_four_states() {
    let site = one_at_a_time().await;
    // The pending one first: a paused job occupies no slot, so the others would let it start.
    for (status, id) in
        unfinished(&site).await.into_iter().rev().filter(|(from, _)| *from != "PAUSED")
    {
        let before = site.history(&id).await.len();
        let job = site.control(&id, "pause").await.expect(200).json();
        assert_eq!(job["status"], "PAUSED", "from {status}");
        let chain = site.history(&id).await;
        assert_eq!(chain.len(), before + 1);
        assert_eq!(chain.last()["status"], "PAUSED");
        assert!(chain.last()["by"].is_string(), "who did it: {}", chain.last());
        chain.verify();
    }
}

/// "A venue MUST return 409 Conflict if the job is already in a terminal state or already paused."
#[tokio::test]
async fn a_job_that_ended_or_is_paused_cannot_be_paused() {
    let site = Site::start().await;
    let mut jobs = finished(&site).await;
    jobs.push(("PAUSED", site.invoked("test:pause", json!({}), "PAUSED").await));
    for (status, id) in jobs {
        let before = site.history(&id).await.len();
        let error = site.control(&id, "pause").await.expect_error(409, "job_conflict");
        assert_eq!((&error["id"], &error["status"]), (&json!(id), &json!(status)));
        assert_eq!(site.history(&id).await.len(), before, "nothing was appended");
    }
}

/// "Pausing suspends execution. The adapter is not re-invoked until the job is resumed."
#[tokio::test]
async fn nothing_runs_while_a_job_is_paused() {
    let target = Target::start().await;
    let host = target.address.to_string();
    let site = Site::with(|flags| flags.allow_hosts = Some(host)).await;
    let input = json!({"delay": 50, "operation": "http:get", "input": {"url": target.url("/a")}});
    let id = site.invoked("test:delay", input, "STARTED").await;
    site.control(&id, "pause").await.expect(200);
    tokio::time::sleep(catena_tests::QUIET_PERIOD).await;
    assert_eq!(target.count("/a"), 0, "its clock stands still");
    assert_eq!(site.job(&id).await["status"], "PAUSED");
    site.control(&id, "resume").await.expect(200);
    assert_eq!(site.ended(&id).await["status"], "COMPLETE");
    assert_eq!(target.count("/a"), 1);
}

/// "A venue MUST append a state record with status STARTED if the job is in PAUSED state, and
/// re-engage the adapter to continue execution."
#[tokio::test]
async fn a_resumed_job_goes_on_to_its_end() {
    let site = Site::start().await;
    for (operation, input, from, end) in [
        ("test:delay", json!({"delay": 100, "input": 7}), "STARTED", "COMPLETE"),
        ("test:pause", json!({"kept": 1}), "PAUSED", "COMPLETE"),
        ("test:chat", json!({}), "INPUT_REQUIRED", "INPUT_REQUIRED"),
        ("test:auth", json!({}), "AUTH_REQUIRED", "AUTH_REQUIRED"),
    ] {
        let id = site.invoked(operation, input.clone(), from).await;
        if from != "PAUSED" {
            site.control(&id, "pause").await.expect(200);
        }
        let paused = site.history(&id).await.len();
        site.control(&id, "resume").await.expect(200);
        let job = site.until(&id, end).await;
        let chain = site.history(&id).await;
        assert_eq!(chain.record(paused)["status"], "STARTED", "{operation}");
        assert_eq!(chain.last()["status"], end, "{operation}");
        chain.verify();
        match operation {
            "test:delay" => assert_eq!(job["output"], 7),
            "test:pause" => assert_eq!(job["output"], input),
            _ => {}
        }
    }
}

/// A job that was paused while PENDING is started when it is resumed.
#[tokio::test]
async fn a_job_that_was_paused_before_it_began_begins() {
    let site = one_at_a_time().await;
    let first = site.invoked("test:never", json!({}), "STARTED").await;
    let second = site.invoked("test:delay", json!({"delay": 0, "input": 1}), "PENDING").await;
    site.control(&second, "pause").await.expect(200);
    site.control(&first, "cancel").await.expect(200);
    let third = site.invoked("test:delay", json!({"delay": 0}), "COMPLETE").await;
    assert_eq!(site.job(&second).await["status"], "PAUSED", "the place went to {third}");
    site.control(&second, "resume").await.expect(200);
    assert_eq!(site.ended(&second).await["output"], 1);
    assert_eq!(site.history(&second).await.statuses(), "PENDING PAUSED STARTED COMPLETE");
}

/// "A venue MUST return 409 Conflict if the job is not in PAUSED state." "INPUT_REQUIRED and
/// AUTH_REQUIRED jobs are resumed by delivering a message, not by calling the resume endpoint."
#[tokio::test]
async fn only_a_paused_job_is_resumed() {
    let site = one_at_a_time().await;
    let mut jobs = finished(&site).await;
    jobs.extend(unfinished(&site).await.into_iter().filter(|(status, _)| *status != "PAUSED"));
    assert_eq!(jobs.len(), 9);
    for (status, id) in jobs {
        let before = site.history(&id).await.len();
        let error = site.control(&id, "resume").await.expect_error(409, "job_conflict");
        assert_eq!(error["status"], status);
        let is_interactive = matches!(status, "INPUT_REQUIRED" | "AUTH_REQUIRED");
        assert_eq!(error["hint"].as_str().unwrap().contains("message"), is_interactive, "{error}");
        assert_eq!(site.history(&id).await.len(), before);
    }
}

/// Work that finished during the pause is not repeated: its outcome is held.
#[tokio::test]
async fn an_outcome_that_arrives_during_a_pause_is_kept_and_not_shown() {
    let target = Target::start().await;
    let host = target.address.to_string();
    let site = Site::with(|flags| flags.allow_hosts = Some(host)).await;
    let id = site.invoked("http:get", json!({"url": target.url("/hold/a")}), "STARTED").await;
    target.arrived("/hold/a").await;
    let mut events = site.follow(&id).await;
    site.control(&id, "pause").await.expect(200);
    target.open();
    // The record of the held outcome is an event like any other.
    while site.history(&id).await.last()["note"]["kind"] != "held" {
        events.next().await.unwrap();
    }
    let job = site.job(&id).await;
    assert_eq!((&job["status"], job.get("output")), (&json!("PAUSED"), None), "{job}");
    site.control(&id, "resume").await.expect(200);
    assert_eq!(site.ended(&id).await["output"]["status"], 200);
    assert_eq!(target.count("/hold/a"), 1, "sent once");
    site.history(&id).await.verify();
}

/// "A venue MUST append a state record with status CANCELLED if the job is in a non-terminal
/// state." "`error` (present when … CANCELLED)".
#[tokio::test]
async fn a_job_is_cancelled_from_every_state_that_is_not_terminal() {
    let site = one_at_a_time().await;
    for (status, id) in unfinished(&site).await.into_iter().rev() {
        let job = site.control(&id, "cancel").await.expect(200).json();
        assert_eq!(job["status"], "CANCELLED", "from {status}");
        assert!(job["error"].as_str().unwrap().starts_with("Job cancelled"), "{job}");
        let chain = site.history(&id).await;
        assert_eq!(chain.last()["status"], "CANCELLED");
        chain.verify();
    }
    let id = site.invoked("test:never", json!({}), "STARTED").await;
    let request = site.request("PUT", &format!("/api/v1/jobs/{id}/cancel"));
    let job = site.ask(request.json(&json!({"reason": "late"}))).await.expect(200).json();
    assert!(job["error"].as_str().unwrap().contains("late"), "{job}");
}

/// "A venue MUST ignore cancel requests for jobs that are already in a terminal state."
#[tokio::test]
async fn cancelling_a_job_that_ended_changes_nothing() {
    let site = Site::start().await;
    for (status, id) in finished(&site).await {
        let before = site.job(&id).await;
        let after = site.control(&id, "cancel").await.expect(200).json();
        assert_eq!(after, before, "{status}");
    }
}

/// "Deletion removes the HEAD pointer from the venue's job index." "Deletion does not affect any
/// resources or outputs produced by the job."
#[tokio::test]
async fn a_deleted_job_is_gone_from_everywhere() {
    let site = Site::start().await;
    let kept = site.invoked("test:echo", json!({"kept": 1}), "COMPLETE").await;
    let mut jobs = finished(&site).await;
    jobs.push(("STARTED", site.invoked("test:never", json!({}), "STARTED").await));
    jobs.push(("PAUSED", site.invoked("test:pause", json!({}), "PAUSED").await));
    for (_, id) in jobs {
        site.control(&id, "delete").await.expect(200);
        for rest in ["", "/history"] {
            let reply = site.get(&format!("/api/v1/jobs/{id}{rest}")).await;
            reply.expect_error(410, "job_deleted");
        }
        assert!(site.get(&format!("/api/v1/jobs/{id}/sse")).await.status() >= 400);
        for action in ["pause", "resume", "cancel", "delete"] {
            site.control(&id, action).await.expect_error(404, "job_not_found");
        }
    }
    assert_eq!(site.job_count().await, 1);
    let site = site.restarted().await;
    assert_eq!(site.job_count().await, 1, "nothing comes back");
    assert_eq!(site.job(&kept).await["output"], json!({"kept": 1}));
}

/// What is left of a deleted job is its ID, its head, who deleted it and when.
#[tokio::test]
async fn a_deleted_job_leaves_a_tombstone_for_its_owner_and_admins() {
    let admin = KeyPair::from_seed(&[9; 32]);
    let site = Site::with(|flags| flags.admins = Some(admin.did())).await;
    let (alice, bob, admin) = (site.caller(1).await, site.caller(2).await, site.caller(9).await);
    let id = alice.invoked("test:echo", json!({"secret": 1}), "COMPLETE").await;
    let head = alice.job(&id).await["head"].clone();
    let owner = alice.job(&id).await["caller"].as_str().unwrap().to_owned();
    let listed = async |client: &Client, query: &str| {
        let reply = client.get(&format!("/api/v1/tombstones{query}")).await;
        reply.expect(200).json()["tombstones"].as_array().unwrap().clone()
    };
    assert!(listed(&alice, "").await.is_empty());
    alice.control(&id, "delete").await.expect(200);
    let path = format!("/api/v1/jobs/{id}");
    for client in [&alice, &admin] {
        let error = client.get(&path).await.expect_error(410, "job_deleted");
        assert_eq!((&error["head"], &error["by"]), (&head, &json!(owner)));
    }
    bob.get(&path).await.expect_error(404, "job_not_found");
    for (client, query) in
        [(&alice, String::new()), (&admin, format!("?owner={owner}")), (&admin, "?owner=*".into())]
    {
        let found = listed(client, &query).await;
        assert_eq!(found.len(), 1, "{query}");
        assert_eq!((&found[0]["head"], &found[0]["owner"]), (&head, &json!(owner)));
        assert!(!found[0].to_string().contains("secret"));
    }
    assert!(listed(&bob, "").await.is_empty());
    bob.get(&format!("/api/v1/tombstones?owner={owner}")).await.expect_error(403, "forbidden");
    alice.get("/api/v1/tombstones?after=x").await.expect_error(400, "bad_request");
    assert!(listed(&alice, &format!("?after={id}")).await.is_empty());
}

/// A stream of a job that is deleted ends; one that ran is cancelled first.
#[tokio::test]
async fn deleting_a_running_job_ends_what_follows_it() {
    let site = Site::start().await;
    let id = site.invoked("test:never", json!({}), "STARTED").await;
    let mut events = site.follow(&id).await;
    assert_eq!(events.next().await.unwrap().data["status"], "STARTED");
    site.control(&id, "delete").await.expect(200);
    let rest = events.rest().await;
    assert!(rest.iter().all(|event| event.data["status"] == "CANCELLED"), "{rest:?}");
}

/// "The HEAD pointer MUST NOT advance beyond a terminal state record." "The terminal state record's
/// output or error fields MUST NOT be modified." "The job record MUST remain available for querying
/// until explicitly deleted."
#[tokio::test]
async fn nothing_moves_a_job_that_has_ended() {
    let site = Site::start().await;
    let jobs = finished(&site).await;
    let mut known: Vec<(String, Json, usize)> = Vec::new();
    for (status, id) in jobs {
        let before = site.job(&id).await;
        assert_eq!(before["status"], status);
        for action in ["pause", "resume", "cancel"] {
            site.control(&id, action).await;
        }
        site.send(&id, &json!({"content": "late"})).await.expect_error(409, "job_ended");
        assert_eq!(site.job(&id).await, before);
        let chain = site.history(&id).await;
        assert_eq!((chain.endings(), chain.last()["status"].as_str()), (1, Some(status)));
        known.push((id, before, chain.len()));
    }
    let site = site.restarted().await;
    for (id, before, records) in known {
        assert_eq!(site.job(&id).await, before, "after a restart");
        assert_eq!(site.history(&id).await.len(), records);
    }
}

/// Finality of late results: the result of a cancelled job is dropped.
#[tokio::test]
async fn a_late_result_is_refused() {
    let target = Target::start().await;
    let host = target.address.to_string();
    let site = Site::with(|flags| flags.allow_hosts = Some(host)).await;
    let id = site.invoked("http:get", json!({"url": target.url("/hold/a")}), "STARTED").await;
    target.arrived("/hold/a").await;
    let cancelled = site.control(&id, "cancel").await.expect(200).json();
    target.open();
    let other = json!({"url": target.url("/b")});
    site.invoked("http:get", other, "COMPLETE").await;
    assert_eq!(site.job(&id).await, cancelled);
    assert_eq!(site.history(&id).await.endings(), 1);
}

/// "PENDING → CANCELLED: client cancels before execution begins."
#[tokio::test]
async fn a_job_that_never_began_never_runs_once_it_is_cancelled() {
    let target = Target::start().await;
    let host = target.address.to_string();
    let site = Site::with(|flags| {
        flags.allow_hosts = Some(host);
        flags.running = Some("1".to_owned());
    })
    .await;
    let first = site.invoked("test:never", json!({}), "STARTED").await;
    let id = site.invoked("http:get", json!({"url": target.url("/a")}), "PENDING").await;
    site.control(&id, "cancel").await.expect(200);
    site.control(&first, "cancel").await.expect(200);
    site.invoked("http:get", json!({"url": target.url("/b")}), "COMPLETE").await;
    assert_eq!((target.count("/a"), target.count("/b")), (0, 1));
    assert_eq!(site.history(&id).await.statuses(), "PENDING CANCELLED");
}

/// "When a job enters an interactive state, the client SHOULD: read the message field …; deliver
/// the requested input via POST /api/v1/jobs/{id}; monitor for resumption to STARTED".
#[tokio::test]
async fn an_interactive_job_says_what_it_needs_and_goes_on_when_it_has_it() {
    let site = Site::start().await;
    let id = site.invoked("test:auth", json!({}), "AUTH_REQUIRED").await;
    assert!(site.job(&id).await["message"].as_str().unwrap().contains("auth/complete"));
    let mut events = site.follow(&id).await;
    assert_eq!(events.next().await.unwrap().data["status"], "AUTH_REQUIRED");
    site.send(&id, &json!({"type": "auth/complete"})).await.expect(202);
    let statuses: Vec<_> = events.rest().await.into_iter().map(|event| event.data).collect();
    assert_eq!(statuses[0]["status"], "STARTED");
    assert_eq!(statuses[1]["status"], "COMPLETE");
}
