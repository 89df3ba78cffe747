//! The HTML pages of the venue. They run no scripts and load nothing from other sites.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

use crate::describe::openapi::path_of;
use crate::http::response;
use crate::http::route::{ParameterLocation, Route};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}\
h1,h2,h3{line-height:1.2}h3{margin:2rem 0 .3rem;font-size:1.05rem}code,.path{font:0.95em ui-monospace,monospace}\
.method{display:inline-block;min-width:4rem;font-weight:700;color:#0a5}table{border-collapse:collapse;width:100%}\
td,th{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;border-top:1px solid #ddd}\
a{color:#05a}nav a{margin-right:1rem}\
@media(prefers-color-scheme:dark){body{color:#dde;background:#14171a}a{color:#6af}td,th{border-color:#333}.method{color:#5d9}}";

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// Pages load nothing from other sites and run no scripts.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
);

/// The form of errors, at the end of the `/docs` page.
const ERRORS: &str = "<h2>Errors</h2><p>Every error is \
    <code>{\"error\", \"code\", \"retry\", \"detail\"?, \"hint\"}</code>: <code>error</code> is a short text, \
    <code>code</code> identifies the error for programs, and <code>retry</code> says whether the same request may be \
    sent again: <code>never</code>, <code>same_request</code>, <code>after_read</code> or <code>later</code>.</p>";

/// The response with one of these pages.
pub(crate) fn response(body: impl Into<Body>) -> Response {
    let mut response = response::with_type(StatusCode::OK, HTML, body);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, POLICY);
    response
}

/// The front page.
pub(crate) fn front(name: &str, did: &str, url: &str) -> String {
    let name = escape(name);
    let did = escape(did);
    let url = escape(url);
    let body = format!(
        "<h1>{name}</h1><p>A Catena venue, which runs jobs and keeps a proof of what happened.</p>\
         <table><tr><th>DID</th><td><code>{did}</code></td></tr>\
         <tr><th>API</th><td><code>{url}/api/v1</code></td></tr>\
         <tr><th>MCP</th><td><code>{url}/mcp</code></td></tr></table>\
         <nav><p><a href=\"/docs\">HTTP API</a> <a href=\"/openapi.json\">OpenAPI</a> \
         <a href=\"/api/v1/status\">Status</a> <a href=\"/api/v1/operations\">Operations</a> \
         <a href=\"/.well-known/did.json\">DID document</a> <a href=\"/readyz?verbose\">Health</a></p></nav>\
         <p>Try it:</p><pre><code>curl -s {url}/api/v1/invoke -H 'content-type: application/json' \\\n  \
         -d '{{\"operation\":\"test:echo\",\"input\":{{\"text\":\"hello\"}}}}'</code></pre>"
    );
    page(&name, &body)
}

/// The `/docs` page, which describes these routes.
pub(crate) fn docs<'a>(routes: impl Iterator<Item = &'a Route>) -> String {
    let mut body = String::from(
        "<h1>HTTP API</h1><p>Every route of this venue. \
         <a href=\"/openapi.json\">The OpenAPI document</a> describes the same routes for programs.</p>",
    );
    let mut tag = "";
    for route in routes {
        if route.tag != tag {
            tag = route.tag;
            body.push_str(&format!("<h2>{tag}</h2>"));
        }
        write_route(route, &mut body);
    }
    body.push_str(ERRORS);
    page("HTTP API", &body)
}

fn write_route(route: &Route, body: &mut String) {
    let path = escape(&path_of(route));
    let method = route.method.as_str();
    let summary = to_html(route.summary);
    let about = to_html(route.about);
    body.push_str(&format!(
        "<h3><span class=\"method\">{method}</span> <span class=\"path\">{path}</span></h3>\
         <p>{summary}. {about}</p>"
    ));
    body.push_str("<table>");
    if !route.path_parameter.is_empty() {
        write_row("in the path", route.path_parameter, body);
    }
    if !route.second_parameter.is_empty() {
        write_row("in the path, second", route.second_parameter, body);
    }
    for parameter in route.parameters {
        let prefix = match parameter.location {
            ParameterLocation::Query => "?",
            ParameterLocation::Header => "header ",
        };
        write_row(&format!("{prefix}{}", parameter.name), parameter.about, body);
    }
    if let Some(request_body) = &route.body {
        write_row("body", request_body.about, body);
    }
    for reply in route.replies {
        write_row(&reply.status.to_string(), reply.about, body);
    }
    for code in route.errors {
        let status = route.status_of(*code).as_u16();
        write_row(&format!("{status} {}", code.as_str()), code.about(), body);
    }
    body.push_str("</table>");
}

fn write_row(name: &str, about: &str, body: &mut String) {
    let name = escape(name);
    let about = to_html(about);
    body.push_str(&format!("<tr><td><code>{name}</code></td><td>{about}</td></tr>"));
}

fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <style>{STYLE}</style></head><body>{body}</body></html>\n"
    )
}

/// A description as HTML: escaped, with the text in backticks as code.
fn to_html(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    let mut parts = text.split('`').peekable();
    let mut is_code = false;
    while let Some(part) = parts.next() {
        match (is_code, parts.peek().is_some()) {
            (true, true) => html.push_str(&format!("<code>{}</code>", escape(part))),
            // A backtick without a second one is shown as it is.
            (true, false) => html.push_str(&format!("`{}", escape(part))),
            (false, _) => html.push_str(&escape(part)),
        }
        is_code = !is_code;
    }
    html
}

/// Escapes the characters that have a meaning in HTML.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_escaped() {
        let text = front("<script>alert(1)</script>", "did:key:x", "http://a\"b");
        assert!(!text.contains("<script"), "{text}");
        assert!(text.contains("&lt;script&gt;") && text.contains("a&quot;b"));
    }

    #[test]
    fn backticks_become_code() {
        for (text, expected) in [
            ("plain", "plain"),
            ("`a<b` and `c`.", "<code>a&lt;b</code> and <code>c</code>."),
            ("a ` alone", "a ` alone"),
            ("", ""),
        ] {
            assert_eq!(to_html(text), expected, "{text}");
        }
    }
}
