//! Two users with the same names, over every route and operation that takes an ID; and a search for planted
//! secrets in everything that the venue writes and sends.

use std::path::Path;

use catena_store::embedded::admin::request_backup;
use catena_tests::log::Log;
use catena_tests::service::{Service, response};
use catena_tests::site::{Client, Site, id_of};
use serde_json::{Value as Json, json};

async fn run(client: &Client, operation: &str, input: Json) -> Json {
    let body = json!({ "operation": operation, "input": input });
    client.post("/api/v1/run", &body).await.expect(200).json()
}

/// Gives a user one of everything, always under the same names. Returns the ID of a job and of a schedule.
async fn furnish(client: &Client, mark: &str) -> (String, String) {
    run(client, "covia:write", json!({ "path": "w/same/name", "value": mark })).await;
    run(client, "covia:write", json!({ "path": "o/same", "value": { "name": mark } })).await;
    run(client, "secret:set", json!({ "name": "SAME", "value": mark })).await;
    run(client, "agent:create", json!({ "agentId": "same", "config": { "mark": mark } })).await;
    run(client, "v/ops/memory", json!({ "command": "remember", "text": mark })).await;
    let job = id_of(&client.invoke("v/test/ops/echo", json!({ "mark": mark })).await);
    let input = json!({ "operation": "test:echo", "input": mark, "after": 86_400_000 });
    let schedule = run(client, "scheduler:schedule", input).await;
    (job, schedule["handle"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn two_users_with_the_same_names_never_see_each_others_data() {
    let site = Site::start().await;
    let (alice, bob) = (site.caller(1).await, site.caller(2).await);
    let (job, schedule) = furnish(&alice, "mark-of-alice").await;
    let (own, _) = furnish(&bob, "mark-of-bob").await;
    // What both have under the same name is each one's own.
    let paths = [
        "/api/v1/values/read?path=w/same/name",
        "/api/v1/values/read?path=o/same",
        "/api/v1/values/read?path=g/same",
        "/api/v1/values/slice?path=w/memory",
        "/api/v1/agents",
        "/api/v1/agents/same",
        "/api/v1/jobs?expand=true",
        "/api/v1/secrets",
        "/api/v1/values/list?path=j",
        "/canvas/v1/jobs",
    ];
    for path in paths {
        let seen = bob.get(path).await.expect(200).text().to_owned();
        assert!(!seen.contains("mark-of-alice") && !seen.contains(&job), "{path}: {seen}");
    }
    // What only the other user has answers as if it did not exist.
    let none = "0x00000000000000000000000000000000";
    let document = bob.get("/openapi.json").await.expect(200).json();
    let mut checked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let is_of_job = path.contains("/jobs/{id}") || path.contains("/jobs/{job_id}");
        if !is_of_job {
            continue;
        }
        for method in methods.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            let ask = async |id: &str| {
                let path = path.replace("{id}", id).replace("{job_id}", id);
                let path = path.replace("{action}", "cancel").replace("{record}", &"0".repeat(64));
                let path = path.replace("{artifact_id}", "a");
                let body =
                    if method == "POST" { "{\"fence\":1,\"action\":\"cancel\"}" } else { "" };
                bob.ask(bob.request(&method, &path).body(body)).await
            };
            let (foreign, absent) = (ask(&job).await, ask(none).await);
            assert_eq!(foreign.status(), absent.status(), "{method} {path}");
            assert!(foreign.status() >= 400, "{method} {path}");
            assert!(!foreign.text().contains("mark-of-alice"), "{method} {path}");
            let hide = |text: &str, id: &str| text.replace(id, "ID").replace(&id[2..], "ID");
            assert_eq!(hide(foreign.text(), &job), hide(absent.text(), none), "{method} {path}");
            checked += 1;
        }
    }
    assert!(checked >= 12, "{checked} routes were checked");
    // Operations that take an ID.
    for (operation, input) in [
        ("grid:job-status", json!({ "id": job })),
        ("grid:job-result", json!({ "id": job, "timeout": 1 })),
        ("scheduler:cancel", json!({ "handle": schedule })),
        ("scheduler:trigger", json!({ "handle": schedule })),
        ("covia:read", json!({ "path": format!("j/{job}") })),
        ("covia:read", json!({ "path": format!("h/{job}") })),
    ] {
        let body = json!({ "operation": operation, "input": input });
        let found = bob.post("/api/v1/run", &body).await;
        assert!(!found.text().contains("mark-of-alice"), "{operation}: {}", found.text());
    }
    // What one deletes, replaces or copies is their own.
    run(&bob, "covia:copy", json!({ "from": "w/same/name", "to": "w/same/copy" })).await;
    let copied = bob.get("/api/v1/values/read?path=w/same/copy").await.expect(200).json();
    assert_eq!(copied["value"], "mark-of-bob");
    let alices = alice.get("/api/v1/values/read?path=w/same/copy").await.expect(200).json();
    assert_eq!(alices["exists"], false);
    for path in ["w/same", "o/same"] {
        run(&bob, "covia:delete", json!({ "path": path })).await;
        let kept = alice.get(&format!("/api/v1/values/read?path={path}")).await.expect(200).json();
        assert!(kept["value"].to_string().contains("mark-of-alice"), "{path}: {kept}");
    }
    bob.ask(bob.request("DELETE", "/api/v1/secrets/SAME")).await.expect(200);
    assert_eq!(run(&alice, "secret:list", json!({})).await["items"], json!(["SAME"]));
    bob.control(&own, "delete").await.expect(200);
    bob.control(&job, "delete").await.expect(404);
    assert_eq!(alice.job(&job).await["status"], "COMPLETE", "nothing happened to it");
    let schedules = run(&alice, "scheduler:list", json!({})).await;
    assert!(schedules.to_string().contains(&schedule), "nor to the schedule: {schedules}");
}

/// The forms in which a value must not appear: as it is, percent-encoded, and in base64 at each alignment.
fn forms(value: &str) -> Vec<String> {
    let percent: String = value
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect();
    let mut forms = vec![value.to_owned(), percent];
    for skip in 0..3 {
        let whole = (value.len() - skip) / 3 * 3;
        let part = &value.as_bytes()[skip..skip + whole];
        let url = catena_auth::base::to_base64url(part);
        forms.push(url.replace('-', "+").replace('_', "/"));
        forms.push(url);
    }
    forms
}

/// Searches a text for forms, which are ASCII.
fn has_form(bytes: &[u8], forms: &[String]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    forms.iter().any(|form| text.contains(form.as_str()))
}

fn search_folder(folder: &Path, forms: &[String], found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            search_folder(&path, forms, found);
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).unwrap_or_default();
            if has_form(&bytes, forms) {
                found.push(path.display().to_string());
            }
        }
    }
}

#[tokio::test]
async fn a_planted_secret_is_found_nowhere() {
    const PLANTED: &str = "pl4nted/S3cret+Value=of-alice";
    let forms = forms(PLANTED);
    // One service may receive the secret and echoes it in several forms; another one may not.
    let echo = Service::start(|request| {
        let text = format!("{request:?}");
        let encoded = catena_auth::base::to_base64url(text.as_bytes());
        response(200, "x-echo: none\r\n", &format!("{text} {encoded}"))
    })
    .await;
    let other = Service::start(|_| response(200, "", "ok")).await;
    let hosts = [echo.host(), other.host()];
    let log = Log::start();
    tracing::info!("the log begins");
    let site = Site::with(|flags| flags.allow_hosts = Some(hosts.join(","))).await;
    let alice = site.caller(1).await;
    let mut seen: Vec<(String, Vec<u8>)> = Vec::new();
    let input = json!({ "name": "KEY", "value": PLANTED, "hosts": [echo.host()] });
    seen.push(("secret:set".into(), alice.invoke("secret:set", input).await.to_string().into()));
    let mut jobs = Vec::new();
    for (service, path) in [(&echo, "/echo"), (&other, "/other")] {
        let input = json!({ "url": service.url(path), "bearerSecret": "KEY" });
        let body = json!({ "operation": "http:get", "input": input, "wait": true });
        let reply = alice.post("/api/v1/invoke", &body).await;
        seen.push((format!("invoke {path}"), reply.body.clone()));
        jobs.push(id_of(&reply.json()));
    }
    assert_eq!(echo.received("/echo").len(), 1, "the bound host received the request");
    let sent = format!("{:?}", echo.received("/echo"));
    assert!(sent.contains(PLANTED), "with the secret");
    for request in other.received("/other") {
        seen.push(("bytes to another host".into(), format!("{request:?}").into_bytes()));
    }
    for job in &jobs {
        for path in ["", "/history", "/log", "/sse"] {
            let path = format!("/api/v1/jobs/{job}{path}");
            let reply = alice.ask(alice.request("GET", &path)).await;
            seen.push((path, reply.body));
        }
    }
    for path in [
        "/api/v1/secrets",
        "/api/v1/values/read?path=s",
        "/api/v1/jobs",
        "/metrics",
        "/api/v1/tombstones",
    ] {
        seen.push((path.into(), alice.get(path).await.body));
    }
    let events = alice.request("GET", "/api/v1/events").header("accept", "application/json");
    seen.push(("events".into(), alice.ask(events).await.body));
    let text = log.text();
    assert!(text.contains("the log begins"), "the log is captured");
    seen.push(("the log".into(), text.into_bytes()));
    let mut found: Vec<String> = Vec::new();
    for (place, bytes) in &seen {
        if has_form(bytes, &forms) {
            found.push(place.clone());
        }
    }
    // A backup, and the data folder while the venue runs and after a restart has rewritten what it rewrites.
    let backup = tempfile::tempdir().unwrap();
    let (data, destination) = (site.data().to_owned(), backup.path().join("backup"));
    let made = tokio::task::spawn_blocking(move || request_backup(&data, &destination)).await;
    assert!(made.unwrap().unwrap().is_some(), "a backup was made");
    search_folder(backup.path(), &forms, &mut found);
    search_folder(site.data(), &forms, &mut found);
    let site = site.restarted().await;
    search_folder(site.data(), &forms, &mut found);
    assert_eq!(found, Vec::<String>::new(), "0 found");
}
