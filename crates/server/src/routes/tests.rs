//! The table of routes and its descriptions.

use std::collections::BTreeSet;

use axum::http::Method;
use catena_value::{NoCells, Value, json};

use super::*;
use crate::describe::openapi::{document, path_of};
use crate::describe::page;
use crate::http::router::Router;

fn find(path: &str) -> &'static Route {
    all().find(|route| route.path == path).unwrap()
}

#[test]
fn the_path_argument_is_found_in_a_path() {
    let job = find("/api/v1/jobs/{id}");
    assert_eq!(job.raw_path_argument("/api/v1/jobs/0xab"), Some("0xab"));
    assert!(!job.matches("/api/v1/jobs/"));
    let sse = find("/api/v1/jobs/{id}/sse");
    assert_eq!(sse.raw_path_argument("/api/v1/jobs/0xab/sse"), Some("0xab"));
    assert!(!sse.matches("/api/v1/jobs/0xab"));
    let asset = find("/api/v1/assets/{*ref}/content");
    assert_eq!(asset.raw_path_argument("/api/v1/assets/v/ops/x/content"), Some("v/ops/x"));
    assert!(!asset.matches("/api/v1/assets/content"));
    assert!(find("/api/v1/status").matches("/api/v1/status"));
}

#[test]
fn the_end_of_the_path_decides_between_routes_with_a_parameter_that_may_contain_slashes() {
    let router = Router::new(all());
    let find = |path: &str| router.find(&Method::GET, path).map(|mounted| mounted.route.path);
    assert_eq!(find("/api/v1/assets/a/0xab/content"), Ok("/api/v1/assets/{*ref}/content"));
    assert_eq!(find("/api/v1/assets/a/0xab"), Ok("/api/v1/assets/{*ref}"));
    assert_eq!(find("/api/v1/assets/content"), Ok("/api/v1/assets/{*ref}"));
}

#[test]
fn every_route_can_be_reached_under_its_number() {
    let routes = || all().chain(benchmarks());
    let router = Router::new(routes());
    for (number, route) in routes().enumerate() {
        let parts = route.path.split('/');
        let parts = parts.map(|part| if part.starts_with('{') { "x" } else { part });
        let path = parts.collect::<Vec<_>>().join("/");
        let found = router.find(&route.method, &path);
        let found = found.map(|mounted| (mounted.route.path, mounted.number));
        assert_eq!(found, Ok((route.path, number)), "{} {path}", route.method);
    }
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

fn openapi() -> Value {
    json::read(document("venue", all()).as_bytes()).unwrap()
}

fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, name| value.as_map()?.field(name))
}

#[test]
fn every_route_that_is_mounted_is_in_the_openapi_document() {
    let document = openapi();
    let mut count = 0;
    for route in all() {
        let path = path_of(route);
        let method = route.method.as_str().to_lowercase();
        let found = at(&document, &["paths", &path, &method, "summary"]);
        assert_eq!(found, Some(&route.summary.into()), "{method} {path}");
        count += 1;
    }
    assert_eq!(count, all().count());
}

#[test]
fn every_schema_can_be_parsed_and_every_reference_resolves() {
    for route in all().chain(benchmarks()) {
        let of_replies = route.replies.iter().filter_map(|reply| reply.body).map(|body| body.1);
        let of_parameters = route.parameters.iter().map(|parameter| parameter.schema);
        let of_body = route.body.iter().map(|body| body.schema);
        for text in of_replies.chain(of_parameters).chain(of_body) {
            assert!(json::read(text.as_bytes()).is_ok(), "{} {text}", route.path);
        }
    }
    let document = openapi();
    let text = json::to_string(&document).unwrap();
    for reference in text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(at(&document, &["components", "schemas", name]).is_some(), "{name}");
    }
}

#[test]
fn operation_ids_are_unique_and_every_route_has_a_success_response() {
    let document = openapi();
    let mut ids = BTreeSet::new();
    for route in all() {
        let method = route.method.as_str().to_lowercase();
        let id = at(&document, &["paths", &path_of(route), &method, "operationId"]).unwrap();
        assert!(ids.insert(id.as_str().unwrap().to_owned()), "{id:?}");
        assert!(route.replies.iter().any(|reply| reply.status < 300), "{}", route.path);
        assert!(!route.summary.is_empty() && !route.tag.is_empty(), "{}", route.path);
        assert_eq!(route.path.contains('{'), !route.path_parameter.is_empty(), "{}", route.path);
    }
}

#[test]
fn anonymous_and_bearer_access_are_both_described() {
    let document = openapi();
    let security = at(&document, &["security"]).unwrap().as_vector().unwrap();
    assert_eq!(security.iter(&NoCells).count(), 2);
}

#[test]
fn the_docs_page_has_every_route_and_loads_nothing() {
    let text = page::docs(all());
    for route in all() {
        let path = path_of(route);
        assert!(text.contains(&format!("<span class=\"path\">{path}</span>")), "{path}");
    }
    assert!(!text.contains("<script") && !text.contains("src=") && !text.contains("@import"));
    assert!(text.contains("<h1>HTTP API</h1>") && !text.contains('`'));
}
