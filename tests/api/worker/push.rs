//! Jobs that the venue sends to a URL.

use catena_api::webhook;
use catena_tests::service::{ReceivedRequest, Service, json_response, response};
use catena_tests::site::{Client, Site, id_of};
use catena_tests::target::Target;
use serde_json::{Value as Json, json};

/// A venue that may send requests to this host.
async fn site_with(host: String) -> Site {
    Site::with(|flags| flags.allow_hosts = Some(host)).await
}

/// Gives an operation whose jobs are sent to this URL a name. Returns its reference.
async fn define(client: &Client, url: &str, more: Json) -> String {
    let mut operation = json!({"adapter": "worker", "url": url});
    for (name, value) in more.as_object().unwrap() {
        operation[name] = value.clone();
    }
    let body = json!({"name": "Mail", "operation": operation}).to_string();
    let request = client.request("PUT", "/api/v1/operations/mail").body(body.as_bytes());
    client.ask(request).await.expect(200);
    "o/mail".to_owned()
}

fn document(request: &ReceivedRequest) -> Json {
    serde_json::from_str(&request.body).unwrap()
}

/// Waits until this many requests for a path have arrived.
async fn arrived(service: &Service, path: &str, count: usize) -> Vec<ReceivedRequest> {
    let waiting = async {
        loop {
            let received = service.received(path);
            if received.len() >= count {
                return received;
            }
            tokio::time::sleep(std::time::Duration::from_millis(3)).await;
        }
    };
    tokio::time::timeout(catena_tests::TIMEOUT, waiting).await.expect("a request was expected")
}

/// A client with the token in a document.
fn receiver(site: &Site, document: &Json) -> Client {
    Client::with_token(site.address, document["token"].as_str().unwrap())
}

fn path(document: &Json, verb: &str) -> String {
    format!("/worker/v1/jobs/{}/{verb}", document["id"].as_str().unwrap())
}

#[tokio::test]
async fn a_job_is_sent_to_its_url_signed_and_ended_by_the_answer() {
    let service = Service::start(|_| json_response(200, r#"{"sent":true}"#)).await;
    let site = site_with(service.host()).await;
    let schema = json!({"properties": {"key": {"type": "string", "writeOnly": true}}});
    let operation = define(&site, &service.url("/mail"), json!({"input": schema})).await;
    let id = id_of(&site.invoke(&operation, json!({"to": "ann", "key": "s3cret"})).await);
    let job = site.until(&id, "COMPLETE").await;
    assert_eq!(job["output"], json!({"sent": true}));
    let request = service.received("/mail").remove(0);
    let document = document(&request);
    assert_eq!((&document["id"], &document["attempt"]), (&json!(id), &json!(1)));
    assert_eq!(document["input"], json!({"to": "ann", "key": "s3cret"}));
    assert_eq!(request.headers["idempotency-key"], format!("{id}-1"));
    assert_eq!(request.headers["webhook-id"], format!("{id}-1"));
    let trace: Vec<&str> = request.headers["traceparent"].split('-').collect();
    assert_eq!((trace[0], format!("0x{}", trace[1])), ("00", id.clone()));
    assert_eq!((trace[2].len(), trace[3]), (16, "01"));
    // Whoever knows the venue's DID can check who sent it.
    let headers = webhook::SignedHeaders {
        id: &request.headers["webhook-id"],
        timestamp: &request.headers["webhook-timestamp"],
        signature: &request.headers["webhook-signature"],
    };
    let now = headers.timestamp.parse().unwrap();
    let venue = document["venue"].as_str().unwrap();
    assert_eq!(webhook::check(venue, headers, request.body.as_bytes(), now), Ok(()));
    assert!(webhook::check(venue, headers, b"{}", now).is_err());
    assert_eq!(document["venue"], site.get("/.well-known/did.json").await.json()["id"]);
    let chain = site.history(&id).await;
    chain.verify();
    let by: Vec<_> = chain.entries.iter().map(|entry| entry["record"]["by"].clone()).collect();
    assert_eq!(by, [Json::Null, job["caller"].clone(), job["caller"].clone()]);
    let history = site.get(&format!("/api/v1/jobs/{id}/history")).await;
    assert!(!history.text().contains("s3cret"));
}

#[tokio::test]
async fn a_receiver_that_accepts_a_job_ends_it_later_and_can_do_nothing_else() {
    let service = Service::start(|_| response(202, "", "")).await;
    let site = site_with(service.host()).await;
    let operation = define(&site, &service.url("/mail"), json!({})).await;
    let first = id_of(&site.invoke(&operation, json!(1)).await);
    let second = id_of(&site.invoke(&operation, json!(2)).await);
    let received = arrived(&service, "/mail", 2).await;
    let of = |id: &str| received.iter().map(document).find(|doc| doc["id"] == id).unwrap();
    let (document, other) = (of(&first), of(&second));
    let client = receiver(&site, &document);
    let fence = document["fence"].clone();
    let step = json!({"fence": fence, "key": "charge", "output": 7});
    client.post(&path(&document, "step"), &step).await.expect(200);
    let call = json!({"fence": fence, "key": "echo", "operation": "test:echo", "input": 1});
    client.post(&path(&document, "call"), &call).await.expect(200);
    let report = json!([{"id": first, "fence": fence, "progress": {"processedItems": 1}}]);
    let beat = json!({"worker": "receiver", "jobs": report});
    let reply = client.post("/worker/v1/beat", &beat).await.expect(200).json();
    assert_eq!(reply["signals"], json!([]));
    // The token is for one job and one fence.
    let end = json!({"fence": other["fence"], "output": 1});
    client.post(&path(&other, "end"), &end).await.expect(404);
    let wrong = json!({"fence": 99, "output": 1});
    let refused = client.post(&path(&document, "end"), &wrong).await.expect(409).json();
    assert_eq!(refused["code"], "fenced");
    let claim = json!({"worker": "w", "queues": ["mail"]});
    client.post("/worker/v1/claim", &claim).await.expect(404);
    client.get("/api/v1/jobs").await.expect(403);
    client.post("/api/v1/invoke", &json!({"operation": "test:echo"})).await.expect(403);
    let end = json!({"fence": fence, "output": "done"});
    client.post(&path(&document, "end"), &end).await.expect(200);
    let again = client.post(&path(&document, "end"), &end).await.expect(200).json();
    assert_eq!(again["repeated"], true);
    assert_eq!(site.job(&first).await["output"], "done");
    site.history(&first).await.verify();
    // A cancel reaches the receiver, and its late result is refused.
    let client = receiver(&site, &other);
    let beat = json!({"worker": "receiver", "waitMs": 4_000,
        "jobs": [{"id": second, "fence": other["fence"]}]});
    let (reply, _) = tokio::join!(client.post("/worker/v1/beat", &beat), async {
        site.control(&second, "cancel").await.expect(200)
    });
    assert_eq!(reply.expect(200).json()["signals"], json!([{"id": second, "signal": "stop"}]));
    let late = json!({"fence": other["fence"], "output": 1});
    client.post(&path(&other, "end"), &late).await.expect(409);
}

#[tokio::test]
async fn a_transient_answer_is_retried_and_others_are_final() {
    let service = Service::start(|request| match (request.path.as_str(), request.number) {
        ("/busy", 1) => response(503, "retry-after: 0\r\n", "busy"),
        ("/busy", 2) => response(429, "", ""),
        ("/moved", _) => response(307, "location: /busy\r\n", ""),
        ("/gone", _) => response(410, "", "no such list"),
        _ => json_response(200, "1"),
    })
    .await;
    let site = site_with(service.host()).await;
    let retry = json!({"retry": {"attempts": 3, "backoffMs": 1}});
    let operation = define(&site, &service.url("/busy"), retry.clone()).await;
    let id = site.invoked(&operation, json!(1), "COMPLETE").await;
    let received = service.received("/busy");
    let keys: Vec<_> =
        received.iter().map(|request| request.headers["idempotency-key"].clone()).collect();
    assert_eq!(keys, [format!("{id}-1"), format!("{id}-2"), format!("{id}-3")]);
    site.history(&id).await.verify();
    for (place, error) in [("/moved", "status 307"), ("/gone", "status 410: no such list")] {
        let operation = define(&site, &service.url(place), retry.clone()).await;
        let id = site.invoked(&operation, json!(1), "FAILED").await;
        let job = site.job(&id).await;
        assert!(job["error"].as_str().unwrap().ends_with(error), "{job}");
        assert_eq!(service.received(place).len(), 1, "{place}");
    }
    assert_eq!(service.received("/busy").len(), 3, "no redirect is followed");
}

/// A receiver that is not ready says so, and when it will be.
#[tokio::test]
async fn timeouts_and_early_requests_are_retried_and_retry_after_is_honoured() {
    let service = Service::start(|request| match (request.path.as_str(), request.number) {
        ("/slow", 1) => response(408, "", ""),
        ("/slow", 2) => response(425, "", ""),
        ("/later", 1) => response(503, "retry-after: 1\r\n", ""),
        _ => json_response(200, "1"),
    })
    .await;
    let site = site_with(service.host()).await;
    let retry = json!({"retry": {"attempts": 3, "backoffMs": 1}});
    let operation = define(&site, &service.url("/slow"), retry.clone()).await;
    site.invoked(&operation, json!(1), "COMPLETE").await;
    assert_eq!(service.received("/slow").len(), 3);
    let operation = define(&site, &service.url("/later"), retry).await;
    let begun = tokio::time::Instant::now();
    site.invoked(&operation, json!(1), "COMPLETE").await;
    assert_eq!(service.received("/later").len(), 2);
    assert!(begun.elapsed() >= std::time::Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn private_addresses_and_malformed_definitions_are_refused() {
    let service = Service::start(|_| json_response(200, "1")).await;
    let site = Site::start().await;
    let operation = define(&site, &service.url("/mail"), json!({})).await;
    let id = site.invoked(&operation, json!(1), "FAILED").await;
    let job = site.job(&id).await;
    assert!(job["error"].as_str().unwrap().contains("--allow-host"), "{job}");
    assert!(service.received("/mail").is_empty());
    for operation in [
        json!({"adapter": "worker", "url": "ftp://x.example/"}),
        json!({"adapter": "worker", "url": "https://user:secret@x.example/"}),
        json!({"adapter": "worker", "url": 7}),
        json!({"adapter": "worker", "url": "https://x.example/", "queue": "mail"}),
        json!({"adapter": "worker", "queue": "mail", "secrets": "KEY"}),
    ] {
        let body = json!({"name": "Mail", "operation": operation}).to_string();
        let request = site.request("PUT", "/api/v1/operations/mail").body(body.as_bytes());
        site.ask(request).await.expect(400);
    }
}

#[tokio::test]
async fn time_cancel_and_pause_stop_a_delivery() {
    let target = Target::start().await;
    let site = site_with(target.address.to_string()).await;
    let operation = define(&site, &target.url("/hold/slow"), json!({"timeoutMs": 200})).await;
    let id = site.invoked(&operation, json!(1), "TIMEOUT").await;
    site.history(&id).await.verify();
    let one = json!({"limit": {"running": 1}});
    let operation = define(&site, &target.url("/hold/one"), one).await;
    let first = id_of(&site.invoke(&operation, json!(1)).await);
    target.arrived("/hold/one").await;
    let second = id_of(&site.invoke(&operation, json!(2)).await);
    site.control(&second, "pause").await.expect(200);
    site.control(&first, "cancel").await.expect(200);
    // The third is sent although the second, which is paused, was queued before it.
    let third = id_of(&site.invoke(&operation, json!(3)).await);
    target.open();
    site.until(&third, "COMPLETE").await;
    assert_eq!(site.job(&second).await["status"], "PAUSED");
    assert_eq!(target.count("/hold/one"), 2);
    site.control(&second, "resume").await.expect(200);
    assert_eq!(site.until(&second, "COMPLETE").await["output"], "ok");
    assert_eq!(site.job(&first).await["status"], "CANCELLED");
}

#[tokio::test]
async fn a_restart_disturbs_no_receiver_and_sends_what_was_not_answered_again() {
    let service = Service::start(|_| response(202, "", "")).await;
    let target = Target::start().await;
    let site = site_with(format!("{},{}", service.host(), target.address)).await;
    let operation = define(&site, &service.url("/mail"), json!({})).await;
    let accepted = id_of(&site.invoke(&operation, json!(1)).await);
    let document = document(&arrived(&service, "/mail", 1).await[0]);
    let operation = define(&site, &target.url("/hold/one"), json!({})).await;
    let unanswered = id_of(&site.invoke(&operation, json!(2)).await);
    target.arrived("/hold/one").await;
    // The venue waits for what runs before it stops, which is long enough to record the acceptance.
    let site = site.restarted().await;
    target.open();
    site.until(&unanswered, "COMPLETE").await;
    assert_eq!(target.count("/hold/one"), 2);
    let job = site.job(&accepted).await;
    assert_eq!((&job["status"], job["head"].is_string()), (&json!("STARTED"), true));
    let end = json!({"fence": document["fence"], "output": "done"});
    receiver(&site, &document).post(&path(&document, "end"), &end).await.expect(200);
    assert_eq!(site.job(&accepted).await["output"], "done");
    let chain = site.history(&accepted).await;
    chain.verify();
    assert_eq!(chain.entries.len(), 3, "the restart is not in the chain");
}
