//! The table as a whole.

use super::*;

fn find(path: &str) -> &'static Route {
    all().find(|route| route.path == path).unwrap()
}

#[test]
fn a_path_gives_its_argument() {
    let job = find("/api/v1/jobs/{id}");
    assert_eq!(job.argument("/api/v1/jobs/0xab"), Some("0xab"));
    assert!(!job.matches("/api/v1/jobs/"));
    let sse = find("/api/v1/jobs/{id}/sse");
    assert_eq!(sse.argument("/api/v1/jobs/0xab/sse"), Some("0xab"));
    assert!(!sse.matches("/api/v1/jobs/0xab"));
    let asset = find("/api/v1/assets/{*ref}/content");
    assert_eq!(asset.argument("/api/v1/assets/v/ops/x/content"), Some("v/ops/x"));
    assert!(!asset.matches("/api/v1/assets/content"));
    assert!(find("/api/v1/status").matches("/api/v1/status"));
}

#[test]
fn routes_that_share_a_mount_are_told_apart_by_their_ends() {
    let mounts = mounts(all());
    let is_read =
        |mount: &&Mount| mount.path == "/api/v1/assets/{*ref}" && mount.method == Method::GET;
    let mount = mounts.iter().find(is_read).unwrap();
    let find = |path: &str| {
        let found = mount.routes.iter().find(|mounted| mounted.route.matches(path));
        found.map(|mounted| mounted.route.path)
    };
    assert_eq!(find("/api/v1/assets/a/0xab/content"), Some("/api/v1/assets/{*ref}/content"));
    assert_eq!(find("/api/v1/assets/a/0xab"), Some("/api/v1/assets/{*ref}"));
    assert_eq!(find("/api/v1/assets/content"), Some("/api/v1/assets/{*ref}"));
}

#[test]
fn no_two_routes_are_the_same_and_each_has_its_number() {
    let mut seen = std::collections::BTreeSet::new();
    for route in all().chain(for_benchmarks()) {
        assert!(seen.insert((route.method.as_str(), route.path)), "{}", route.path);
    }
    let mut numbers: Vec<usize> = mounts(all().chain(for_benchmarks()))
        .iter()
        .flat_map(|mount| mount.routes.iter().map(|mounted| mounted.number))
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..seen.len()).collect::<Vec<_>>());
}

#[test]
fn every_documented_row_of_the_covia_api_is_there() {
    for (method, path) in [
        ("GET", "/api/v1/status"),
        ("POST", "/api/v1/invoke"),
        ("POST", "/api/v1/run"),
        ("GET", "/api/v1/jobs"),
        ("GET", "/api/v1/jobs/{id}"),
        ("POST", "/api/v1/jobs/{id}"),
        ("PUT", "/api/v1/jobs/{id}/cancel"),
        ("PUT", "/api/v1/jobs/{id}/pause"),
        ("PUT", "/api/v1/jobs/{id}/resume"),
        ("PUT", "/api/v1/jobs/{id}/delete"),
        ("GET", "/api/v1/jobs/{id}/sse"),
        ("GET", "/api/v1/jobs/{id}/history"),
        ("GET", "/api/v1/assets"),
        ("POST", "/api/v1/assets"),
        ("GET", "/api/v1/assets/{*ref}"),
        ("GET", "/api/v1/assets/{*ref}/content"),
        ("PUT", "/api/v1/assets/{*ref}/content"),
        ("GET", "/api/v1/assets/content/{*ref}"),
        ("GET", "/api/v1/operations"),
        ("GET", "/api/v1/operations/{*name}"),
        ("GET", "/api/v1/adapters/{name}/operations"),
        ("GET", "/.well-known/did.json"),
        ("GET", "/a/{id}/did.json"),
        ("GET", "/u/{id}/did.json"),
        ("GET", "/.well-known/mcp"),
        ("POST", "/mcp"),
        ("GET", "/openapi"),
    ] {
        let found = all().any(|route| route.method.as_str() == method && route.path == path);
        assert!(found, "{method} {path}");
    }
}
