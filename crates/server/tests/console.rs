//! How the files of the web console are served.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use support::{Reply, Running, venue};

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

async fn page(venue: &Running) -> Reply {
    venue.request("GET", "/", &[BROWSER], "").await
}

/// The paths of the files that the page loads.
fn files(page: &Reply) -> Vec<String> {
    let quoted = page.text().split('"');
    quoted.filter(|part| part.starts_with("/ui/files/")).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_browser_gets_the_console_and_other_clients_the_plain_page() {
    let venue = venue(|_| {}).await;
    let page = page(&venue).await;
    assert_eq!(page.status, 200);
    assert!(page.text().contains("id=\"app\""), "{}", page.text());
    assert!(venue.get("/").await.text().contains("did:key:"));
    assert_eq!(venue.get("/").await.header("vary"), Some("accept, accept-encoding"));
}

#[tokio::test]
async fn every_page_of_the_console_is_the_same_document_and_is_revalidated() {
    let venue = venue(|_| {}).await;
    let first = page(&venue).await;
    for path in ["/ui/", "/ui/jobs", "/ui/jobs/0xab/chain", "/ui/assets/0xab", "/ui/nothing"] {
        let other = venue.get(path).await;
        assert_eq!((other.status, other.text()), (200, first.text()), "{path}");
        assert_eq!(other.header("cache-control"), Some("no-cache"), "{path}");
    }
    let etag = first.header("etag").unwrap();
    let again = venue.request("GET", "/ui/jobs", &[BROWSER, ("if-none-match", etag)], "").await;
    assert_eq!((again.status, again.text()), (304, ""));
}

#[tokio::test]
async fn files_are_immutable_and_compressed_for_clients_that_accept_it() {
    let venue = venue(|_| {}).await;
    let named = files(&page(&venue).await);
    assert!(named.len() >= 3, "{named:?}");
    for path in named {
        let plain = venue.get(&path).await;
        assert_eq!(plain.status, 200, "{path}");
        let caching = Some("public, max-age=31536000, immutable");
        assert_eq!(plain.header("cache-control"), caching, "{path}");
        assert_eq!(plain.header("content-encoding"), None, "{path}");
        let gzip = ("accept-encoding", "gzip, deflate");
        let packed = venue.request("GET", &path, &[gzip], "").await;
        assert_eq!(packed.header("content-encoding"), Some("gzip"), "{path}");
        assert_eq!(packed.header("content-type"), plain.header("content-type"), "{path}");
    }
}

#[tokio::test]
async fn the_first_load_is_less_than_200_kb_compressed() {
    let venue = venue(|_| {}).await;
    let gzip = ("accept-encoding", "gzip");
    let mut bytes = 0;
    for path in files(&page(&venue).await).iter().map(String::as_str).chain(["/ui/"]) {
        let reply = venue.request("GET", path, &[gzip], "").await;
        assert_eq!(reply.header("content-encoding"), Some("gzip"), "{path}");
        bytes += reply.header("content-length").unwrap().parse::<usize>().unwrap();
    }
    assert!((10_000..200_000).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn the_page_allows_its_own_scripts_and_nothing_else() {
    let venue = venue(|_| {}).await;
    let page = page(&venue).await;
    let policy = page.header("content-security-policy").unwrap();
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(part), "{part} in {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    let docs = venue.get("/docs").await;
    assert!(!docs.header("content-security-policy").unwrap().contains("script-src"));
}

#[tokio::test]
async fn unknown_paths_of_the_api_and_missing_files_keep_their_answer() {
    let venue = venue(|_| {}).await;
    for path in ["/api/v1/nothing", "/ui/files/nothing.js", "/uix"] {
        let reply = venue.request("GET", path, &[BROWSER], "").await;
        reply.assert_error(404, "endpoint_not_found");
        assert_eq!(reply.field("error"), format!("Endpoint GET {path} not found").into());
    }
    let reply = venue.post("/ui/jobs", "{}").await;
    reply.assert_error(405, "method_not_allowed");
}

#[tokio::test]
async fn the_console_is_served_without_a_token() {
    let venue = venue(|flags| flags.public_access = Some("off".to_owned())).await;
    assert_eq!(page(&venue).await.status, 200);
    venue.get("/api/v1/jobs").await.assert_error(401, "token_missing");
}
