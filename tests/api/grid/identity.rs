//! Identities: delegations, the access list, blocked identities, and the end of their streams.

use catena_auth::KeyPair;
use catena_server::lists::{self, List};
use catena_tests::log::Log;
use catena_tests::site::{Client, Site, delegation, token};
use catena_value::Value;
use serde_json::{Value as Json, json};

fn key(seed: u8) -> KeyPair {
    KeyPair::from_seed(&[seed; 32])
}

async fn did_of(site: &Site) -> String {
    site.get("/.well-known/did.json").await.json()["id"].as_str().unwrap().to_owned()
}

fn echo(delegations: &[String]) -> Json {
    json!({"operation": "test:echo", "input": {"a": 1}, "ucans": delegations})
}

/// A delegation whose signature was replaced by this many zero bytes.
fn with_zero_signature(delegation: &str) -> String {
    format!("{}.{}", delegation.rsplit_once('.').unwrap().0, "A".repeat(86))
}

#[tokio::test]
async fn an_invalid_delegation_is_refused_before_anything_happens() {
    let site = Site::start().await;
    let venue = did_of(&site).await;
    let alice = site.caller(1).await;
    let (own, other) = (key(1), key(2));
    let good = delegation(&own, &venue, &[]);
    let no_att = delegation(&own, &venue, &[("att", Value::Nil)]);
    for (what, bad) in [
        ("signed with zero bytes", with_zero_signature(&good)),
        ("not a token", "a-delegation".to_owned()),
        ("an identity token", token(&own, &[("aud", venue.as_str().into())])),
        ("not a delegation", no_att),
        ("expired", delegation(&own, &venue, &[("exp", 1_700_000_000.into())])),
        ("malformed expiry", delegation(&own, &venue, &[("exp", "never".into())])),
        ("not valid yet", delegation(&own, &venue, &[("nbf", 4_000_000_000_i64.into())])),
        ("for another venue", delegation(&own, "did:web:other.example", &[])),
        ("issued by somebody else", delegation(&other, &venue, &[])),
        ("of another version", delegation(&own, &venue, &[("ucv", "1.0.0".into())])),
    ] {
        for path in ["/api/v1/invoke", "/api/v1/run"] {
            let reply = alice.post(path, &echo(&[good.clone(), bad.clone()])).await;
            assert_eq!(reply.status(), 403, "{what}: {}", reply.text());
            reply.expect_error(403, "delegation_invalid");
        }
    }
    assert_eq!(alice.job_count().await, 0);
    alice.post("/api/v1/invoke", &echo(std::slice::from_ref(&good))).await.expect(201);
    // Whoever has seen it cannot use it.
    for stranger in [site.caller(3).await, (*site).clone()] {
        stranger
            .post("/api/v1/invoke", &echo(std::slice::from_ref(&good)))
            .await
            .expect_error(403, "delegation_invalid");
    }
}

#[tokio::test]
async fn requests_under_a_delegation_are_scoped_to_the_delegating_user() {
    let site = Site::start().await;
    assert_eq!(site.get("/api/v1/status").await.json()["delegation"], "scoped");
    let venue = key(9);
    let other_venue = site.caller(9).await;
    let mut jobs = Vec::new();
    for seed in [1, 2] {
        let ucan = delegation(&key(seed), &venue.did(), &[]);
        let body = json!({"operation": "test:never", "ucans": [ucan]});
        let job = other_venue.post("/api/v1/invoke", &body).await.expect(201).json();
        assert_eq!(job["caller"], format!("{}:for:{}", venue.did(), key(seed).did()));
        jobs.push(job["id"].as_str().unwrap().to_owned());
        // The user has another account here, and so has every other user.
        for stranger in [1, 2, 3] {
            let path = format!("/api/v1/jobs/{}", jobs[0]);
            site.caller(stranger).await.get(&path).await.expect_error(404, "job_not_found");
        }
    }
    // Under the delegation of one user, a job of the other does not exist.
    let ucan = delegation(&key(2), &venue.did(), &[]);
    let look = json!({"operation": "grid:job-status", "input": {"id": jobs[0]},
                      "ucans": [ucan], "wait": true});
    assert_eq!(other_venue.post("/api/v1/invoke", &look).await.json()["status"], "FAILED");
    let both = [1, 2].map(|seed| delegation(&key(seed), &venue.did(), &[]));
    other_venue.post("/api/v1/invoke", &echo(&both)).await.expect_error(403, "delegation_invalid");
    // The venue that acts for them watches and controls the jobs with its own key.
    for job in &jobs {
        assert_eq!(other_venue.control(job, "cancel").await.expect(200).json()["id"], **job);
    }
}

#[tokio::test]
async fn with_a_list_only_those_on_it_may_use_the_venue() {
    let configured = key(4).did();
    let site = Site::with(|flags| {
        flags.access = Some("listed".to_owned());
        flags.members = Some(configured);
    })
    .await;
    let venue = key(9);
    site.get("/api/v1/jobs").await.expect_error(401, "token_missing");
    site.get("/metrics").await.expect_error(401, "token_missing");
    site.get("/api/v1/status").await.expect(200);
    site.get("/livez").await.expect(200);
    let stranger = site.caller(1).await;
    for path in ["/api/v1/jobs", "/api/v1/operations", "/api/v1/assets", "/canvas/v1/jobs"] {
        stranger.get(path).await.expect_error(403, "not_listed");
    }
    stranger.post("/api/v1/invoke", &echo(&[])).await.expect_error(403, "not_listed");
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let error = stranger.post("/mcp", &ping).await.json()["error"].clone();
    assert_eq!(error["data"]["code"], "not_listed", "{error}");
    assert!(stranger.get("/api/v1/status").await.expect(200).json()["stats"].is_null());
    site.caller(4).await.post("/api/v1/invoke", &echo(&[])).await.expect(201);
    // A venue that is not on the list acts for users who are.
    let other_venue = site.caller(9).await;
    let body = |seed: u8| {
        let ucan = delegation(&key(seed), &venue.did(), &[]);
        json!({"operation": "test:never", "ucans": [ucan]})
    };
    other_venue.post("/api/v1/invoke", &body(1)).await.expect_error(403, "not_listed");
    let job = other_venue.post("/api/v1/invoke", &body(4)).await.expect(201).json();
    let id = job["id"].as_str().unwrap();
    other_venue.job(id).await;
    other_venue.control(id, "cancel").await.expect(200);
    other_venue.get("/api/v1/jobs").await.expect_error(403, "not_listed");
    // The list can change while the venue runs.
    lists::add(site.data(), List::Members, &key(1).did()).unwrap();
    let admitted = async {
        while stranger.get("/api/v1/jobs").await.status() != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(catena_tests::TIMEOUT, admitted).await.unwrap();
}

#[tokio::test]
async fn a_stream_ends_when_its_subject_is_blocked_and_so_do_its_schedules() {
    let site = Site::start().await;
    let alice = site.caller(1).await;
    let id = alice.invoked("test:never", json!({}), "STARTED").await;
    let schedule = json!({"operation": "test:echo", "input": {}, "cron": "0 0 1 1 *"});
    let scheduled = json!({"operation": "scheduler:schedule", "input": schedule, "wait": true});
    let scheduled = alice.post("/api/v1/invoke", &scheduled).await.json();
    assert_eq!(scheduled["status"], "COMPLETE", "{scheduled}");
    let mut events = alice.follow(&id).await;
    events.next().await.unwrap();
    let bob = site.caller(2).await;
    let his = bob.invoked("test:never", json!({}), "STARTED").await;
    let mut others = bob.follow(&his).await;
    others.next().await.unwrap();
    lists::add(site.data(), List::Blocked, &key(1).did()).unwrap();
    assert!(events.next().await.is_none(), "the stream ends");
    alice.get("/api/v1/jobs").await.expect_error(403, "identity_blocked");
    // Another identity is not disturbed.
    bob.control(&his, "cancel").await.expect(200);
    assert!(others.next().await.is_some());
    lists::remove(site.data(), List::Blocked, &key(1).did()).unwrap();
    let list = json!({"operation": "scheduler:list", "input": {}});
    let unblocked = async {
        loop {
            let reply = alice.post("/api/v1/run", &list).await;
            if reply.status() == 200 {
                return reply.json();
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let schedules = tokio::time::timeout(catena_tests::TIMEOUT, unblocked).await.unwrap();
    assert!(!schedules.to_string().contains("0 0 1 1"), "{schedules}");
}

#[tokio::test]
async fn a_request_that_a_proxy_forwards_is_anonymous_only_if_the_operator_says_so() {
    for (access, status) in [(None, 401), (Some("anyone"), 200)] {
        let site = Site::with(|flags| flags.access = access.map(str::to_owned)).await;
        site.get("/api/v1/jobs").await.expect(200);
        let forwarded = site.request("GET", "/api/v1/jobs").header("x-forwarded-for", "1.2.3.4");
        assert_eq!(site.ask(forwarded).await.status(), status, "{access:?}");
    }
}

#[tokio::test]
async fn a_foreign_host_name_is_shown_nowhere() {
    let site = Site::with(|flags| flags.access = Some("keys".to_owned())).await;
    for path in ["/api/v1/status", "/.well-known/did.json", "/.well-known/mcp", "/"] {
        let request = site.request("GET", path).header("host", "evil.example");
        let reply = site.ask(request).await.expect(200);
        let text = reply.text();
        assert!(!text.contains("evil.example"), "{path}: {text}");
        assert!(text.contains(&site.address.to_string()), "{path}: {text}");
    }
}

/// The handles of a caller's schedules, as an admin sees them.
async fn schedules_of(admin: &Client, owner: &str) -> usize {
    let list = json!({"operation": "scheduler:list", "input": {"owner": owner}});
    let reply = admin.post("/api/v1/run", &list).await.expect(200).json();
    reply["events"].as_array().unwrap().len()
}

#[tokio::test]
async fn who_is_removed_from_the_list_or_loses_the_last_token_has_no_streams_and_schedules() {
    let site = Site::with(|flags| {
        flags.access = Some("listed".to_owned());
        flags.admins = Some(key(9).did());
    })
    .await;
    let admin = site.caller(9).await;
    let config = {
        let data = Some(site.data().to_str().unwrap().to_owned());
        let flags = catena_server::config::Flags { data, ..Default::default() };
        catena_server::config::Config::layered(&flags, &|_| None, None).unwrap()
    };
    let request = catena_server::tokens::TokenRequest {
        subject: "ann",
        is_admin: false,
        lifetime: None,
        now: 100,
    };
    let issued = catena_server::tokens::issue(&config, request).unwrap();
    let line = format!("{{\"id\":\"{}\",\"subject\":\"{}\"}}\n", issued.id, issued.subject);
    std::fs::write(site.data().join("issued-tokens"), line).unwrap();
    lists::add(site.data(), List::Members, &key(1).did()).unwrap();
    let ann = Client::with_token(site.address, &issued.token);
    let alice = site.caller(1).await;
    let mut streams = Vec::new();
    for (client, did) in [(&ann, issued.subject.clone()), (&alice, key(1).did())] {
        let admitted = async {
            while client.get("/api/v1/jobs").await.status() != 200 {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(catena_tests::TIMEOUT, admitted).await.unwrap();
        let job = client.invoked("test:never", json!({}), "STARTED").await;
        let mut events = client.follow(&job).await;
        events.next().await.unwrap();
        streams.push(events);
        let schedule = json!({"operation": "test:echo", "input": {}, "cron": "0 0 1 1 *"});
        assert_eq!(client.invoke("scheduler:schedule", schedule).await["status"], "COMPLETE");
        assert_eq!(schedules_of(&admin, &did).await, 1);
    }
    catena_server::tokens::revoke(site.data(), &issued.id).unwrap();
    lists::remove(site.data(), List::Members, &key(1).did()).unwrap();
    for events in &mut streams {
        assert!(events.next().await.is_none(), "the stream ends");
    }
    let removed = async {
        while schedules_of(&admin, "*").await > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(catena_tests::TIMEOUT, removed).await.unwrap();
}

#[tokio::test]
async fn what_concerns_security_is_logged_in_one_line_without_contents() {
    const CONTENT: &str = "C0ntent-of-a-caller";
    let log = Log::start();
    let site = Site::with(|flags| flags.admins = Some(key(9).did())).await;
    let alice = site.caller(1).await;
    let admin = site.caller(9).await;
    let bad = site.request("GET", "/api/v1/jobs").header("authorization", "Bearer a.b.c");
    site.ask(bad).await.expect_error(401, "token_invalid");
    let ucans = json!({"operation": "test:echo", "input": CONTENT, "ucans": ["a.b.c"]});
    alice.post("/api/v1/invoke", &ucans).await;
    alice.invoked("test:error", json!({"message": CONTENT}), "FAILED").await;
    let slow =
        json!({"operation": "test:never", "input": {"a": CONTENT}, "timeoutMs": 1, "wait": true});
    alice.post("/api/v1/invoke", &slow).await;
    let job = alice.invoked("test:never", json!({"a": CONTENT}), "STARTED").await;
    admin.control(&job, "cancel").await.expect(200);
    let text = log.text();
    let audit: Vec<&str> = text.lines().filter(|line| line.contains("catena::audit")).collect();
    for event in ["refused an identity", "refused a delegation", "an admin's request"] {
        let count = audit.iter().filter(|line| line.contains(event)).count();
        assert_eq!(count, 1, "{event}: {audit:#?}");
    }
    for status in ["FAILED", "TIMEOUT"] {
        let is_failure = |line: &&&str| line.contains("a job failed") && line.contains(status);
        assert_eq!(audit.iter().filter(is_failure).count(), 1, "{status}: {audit:#?}");
    }
    assert!(!text.contains(CONTENT), "{text}");
}
