//! What applies to every request: unknown routes, methods, hosts, origins, tokens, IDs, limits.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use catena_auth::identity::Grant;
use catena_server::key;
use support::{Running, venue};

async fn start() -> Running {
    venue(|_| {}).await
}

#[tokio::test]
async fn an_unknown_route_is_named_in_the_error() {
    let venue = start().await;
    let reply = venue.get("/api/v1/nothing").await;
    reply.assert_error(404, "endpoint_not_found");
    assert_eq!(reply.field("error"), "Endpoint GET /api/v1/nothing not found".into());
}

#[tokio::test]
async fn another_method_is_405_and_names_those_that_work() {
    let venue = start().await;
    let reply = venue.post("/api/v1/jobs/0x00/cancel", "").await;
    reply.assert_error(405, "method_not_allowed");
    assert_eq!(reply.header("allow"), Some("PUT"));
    let reply = venue.request("PUT", "/api/v1/assets/ab", &[], "").await;
    reply.assert_error(405, "method_not_allowed");
}

#[tokio::test]
async fn every_response_has_a_request_id() {
    let venue = start().await;
    let reply = venue.request("GET", "/livez", &[("x-request-id", "mine")], "").await;
    assert_eq!(reply.header("x-request-id"), Some("mine"));
    let (a, b) = (venue.get("/livez").await, venue.get("/livez").await);
    assert_ne!(a.header("x-request-id"), b.header("x-request-id"));
}

#[tokio::test]
async fn a_foreign_host_or_origin_is_refused_while_anonymous_access_is_on() {
    let venue = start().await;
    let host = [("host", "evil.example")];
    venue.request("GET", "/api/v1/status", &host, "").await.assert_error(403, "foreign_host");
    let origin = [("origin", "https://evil.example")];
    let reply = venue.request("GET", "/api/v1/status", &origin, "").await;
    reply.assert_error(403, "foreign_origin");
    assert_eq!(reply.header("access-control-allow-origin"), None);
    assert_eq!(
        venue.request("GET", "/livez", &host, "").await.status,
        200,
        "monitoring can use any host name"
    );
}

#[tokio::test]
async fn configured_origins_get_their_preflight() {
    let venue = venue(|flags| flags.cors_origins = Some("https://app.example".to_owned())).await;
    let headers = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-private-network", "true"),
    ];
    let reply = venue.request("OPTIONS", "/api/v1/invoke", &headers, "").await;
    assert_eq!(reply.status, 204);
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
    assert!(reply.header("access-control-allow-methods").unwrap().contains("POST"));
    assert_eq!(reply.header("access-control-allow-private-network"), None);
}

#[tokio::test]
async fn without_public_access_a_token_is_needed() {
    let venue = venue(|flags| flags.public_access = Some("off".to_owned())).await;
    let reply = venue.get("/api/v1/jobs").await;
    reply.assert_error(401, "token_missing");
    assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    let document =
        venue.request("GET", "/.well-known/did.json", &[("authorization", "x")], "").await;
    assert_eq!(document.status, 200, "public, whatever the header");
    let key = key::load(venue.folder.path()).unwrap().unwrap();
    let issuer = catena_auth::Venue { did: key.did(), public: key.public() };
    let grant = Grant {
        subject: "did:key:me",
        id: "t",
        issued: 0,
        expires: None,
        is_admin: false,
        queues: None,
    };
    let token = format!("Bearer {}", issuer.issue(&key, &grant));
    let reply = venue.request("GET", "/api/v1/status", &[("authorization", &token)], "").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let metrics = venue.request("GET", "/metrics", &[("authorization", &token)], "").await;
    metrics.assert_error(403, "forbidden");
}

#[tokio::test]
async fn a_bad_token_is_refused_even_where_none_is_needed() {
    let venue = start().await;
    let reply =
        venue.request("GET", "/api/v1/status", &[("authorization", "Bearer a.b.c")], "").await;
    reply.assert_error(401, "token_invalid");
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() {
    let venue = venue(|flags| flags.body_bytes = Some("1kB".to_owned())).await;
    let body = format!(r#"{{"operation":"try:echo","input":"{}"}}"#, "a".repeat(1_000));
    venue.post("/api/v1/invoke", &body).await.assert_error(413, "body_too_large");
}

#[tokio::test]
async fn invalid_json_names_the_line_and_column() {
    let venue = start().await;
    let reply = venue.post("/api/v1/invoke", "{\"operation\":}").await;
    reply.assert_error(400, "invalid_json");
    assert!(reply.field("error").as_str().unwrap().contains("line 1 column 14"));
    let deep = format!("{}{}", "[".repeat(129), "]".repeat(129));
    venue.post("/api/v1/invoke", &deep).await.assert_error(400, "invalid_json");
}

#[tokio::test]
async fn health_documents_and_metrics_are_there() {
    let venue = start().await;
    assert_eq!(venue.get("/livez").await.status, 200);
    let ready = venue.get("/readyz?verbose").await;
    assert_eq!((ready.status, ready.field("status")), (200, "ready".into()));
    assert!(venue.get("/docs").await.text().contains("/api/v1/invoke"));
    assert_eq!(venue.get("/openapi.json").await.field("openapi"), "3.1.0".into());
    assert!(venue.get("/").await.text().contains("did:key:"));
    venue.invoke("try:echo").await;
    let metrics = venue.get("/metrics").await;
    for part in [
        r#"catena_http_requests_total{method="POST",route="/api/v1/invoke",status="201"} 1"#,
        "catena_jobs_invoked_total 1",
        "catena_store_syncs_total",
    ] {
        assert!(metrics.text().contains(part), "{part} in {}", metrics.text());
    }
}

#[tokio::test]
async fn the_status_is_what_sdks_expect() {
    let venue = start().await;
    let host = venue.venue.as_ref().unwrap().address().to_string();
    let status = venue.get("/api/v1/status").await;
    assert_eq!(status.field("status"), "OK".into());
    assert_eq!(status.field("version"), "0.9.11".into());
    assert_eq!(status.field("url"), format!("http://{host}").into());
    let did = venue.get("/.well-known/did.json").await;
    assert_eq!(did.field("id"), status.field("did"));
    assert_eq!(did.header("content-type"), Some("application/did+json"));
}

#[tokio::test]
async fn the_did_stays_over_a_restart() {
    let first = start().await;
    let did = first.get("/api/v1/status").await.field("did");
    let folder = first.stop().await;
    let second = support::venue_in(folder, |_| {}).await;
    assert_eq!(second.get("/api/v1/status").await.field("did"), did);
}

#[tokio::test]
async fn every_documented_route_is_mounted() {
    let venue = start().await;
    let document = venue.get("/openapi.json").await.field("paths");
    let paths = document.as_map().unwrap();
    for (path, _) in paths.fields() {
        let path = path.as_str().unwrap().replace(['{', '}'], "");
        let reply = venue.request("PATCH", &path, &[], "").await;
        assert_eq!(reply.status, 405, "{path} is documented but not mounted");
    }
}

/// A text of so many bytes as the input of an operation.
fn invocation(operation: &str, bytes: usize, wait_ms: u64) -> String {
    let input = "x".repeat(bytes);
    format!(r#"{{"operation":"{operation}","input":"{input}","wait":{wait_ms}}}"#)
}

#[tokio::test]
async fn what_a_request_contains_is_counted_until_its_response_and_not_only_until_it_is_parsed() {
    let venue = venue(|flags| {
        flags.memory = Some("8MiB".to_owned());
        flags.memory_per_caller = Some("8MiB".to_owned());
    })
    .await;
    let first =
        async { venue.post("/api/v1/invoke", &invocation("try:never", 2_500_000, 5_000)).await };
    let second = async {
        while venue.get("/api/v1/jobs").await.field("total") == 0.into() {
            tokio::task::yield_now().await;
        }
        let refused = venue.post("/api/v1/invoke", &invocation("try:echo", 1_200_000, 0)).await;
        refused.assert_error(429, "too_much_memory");
    };
    let (first, ()) = tokio::join!(first, second);
    assert_eq!(first.status, 201);
    let accepted = venue.post("/api/v1/invoke", &invocation("try:echo", 1_200_000, 0)).await;
    assert_eq!(accepted.status, 201, "the first request has its response");
}
