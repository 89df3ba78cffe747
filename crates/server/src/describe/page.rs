//! The pages that the venue makes itself: no scripts, nothing from elsewhere.

use crate::describe::openapi::ERRORS_PAGE;
use crate::routes::{Place, Route};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}\
h1,h2,h3{line-height:1.2}h3{margin:2rem 0 .3rem;font-size:1.05rem}code,.path{font:0.95em ui-monospace,monospace}\
.method{display:inline-block;min-width:4rem;font-weight:700;color:#0a5}table{border-collapse:collapse;width:100%}\
td,th{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;border-top:1px solid #ddd}\
a{color:#05a}nav a{margin-right:1rem}\
@media(prefers-color-scheme:dark){body{color:#dde;background:#14171a}a{color:#6af}td,th{border-color:#333}.method{color:#5d9}}";

/// The front page.
pub(crate) fn front(name: &str, did: &str, url: &str) -> String {
    let (name, did, url) = (escaped(name), escaped(did), escaped(url));
    let body = format!(
        "<h1>{name}</h1><p>A Catena venue: it runs jobs and keeps a proof of what happened.</p>\
         <table><tr><th>DID</th><td><code>{did}</code></td></tr>\
         <tr><th>API</th><td><code>{url}/api/v1</code></td></tr>\
         <tr><th>MCP</th><td><code>{url}/mcp</code></td></tr></table>\
         <nav><p><a href=\"/docs\">Interface</a> <a href=\"/openapi.json\">OpenAPI</a> \
         <a href=\"/api/v1/status\">Status</a> <a href=\"/api/v1/operations\">Operations</a> \
         <a href=\"/.well-known/did.json\">DID document</a> <a href=\"/readyz?verbose\">Health</a></p></nav>\
         <p>Try it:</p><pre><code>curl -s {url}/api/v1/invoke -H 'content-type: application/json' \\\n  \
         -d '{{\"operation\":\"test:echo\",\"input\":{{\"text\":\"hello\"}}}}'</code></pre>"
    );
    page(&name, &body)
}

/// Every route, for people.
pub(crate) fn docs<'a>(routes: impl Iterator<Item = &'a Route>) -> String {
    let mut body = String::from(
        "<h1>Interface</h1><p>Every route of this venue. Programs read \
         <a href=\"/openapi.json\">the OpenAPI document</a>, which is made from the same table.</p>",
    );
    let mut tag = "";
    for route in routes {
        if route.tag != tag {
            tag = route.tag;
            body.push_str(&format!("<h2>{tag}</h2>"));
        }
        describe(route, &mut body);
    }
    body.push_str(ERRORS_PAGE);
    page("Interface", &body)
}

fn describe(route: &Route, body: &mut String) {
    let path = escaped(&route.path.replace("{*", "{"));
    let (method, summary) = (route.method.as_str(), escaped(route.summary));
    body.push_str(&format!(
        "<h3><span class=\"method\">{method}</span> <span class=\"path\">{path}</span></h3>\
         <p>{summary}. {}</p>",
        escaped(route.about)
    ));
    body.push_str("<table>");
    if !route.argument.is_empty() {
        row("in the path", route.argument, body);
    }
    for parameter in route.parameters {
        let place = match parameter.place {
            Place::Query => "?",
            Place::Header => "header ",
        };
        row(&format!("{place}{}", parameter.name), parameter.about, body);
    }
    if let Some(taken) = &route.body {
        row("body", taken.about, body);
    }
    for reply in route.replies {
        row(&reply.status.to_string(), reply.about, body);
    }
    for code in route.errors {
        let status = route.status_of(*code).as_u16();
        row(&format!("{status} {}", code.as_str()), code.about(), body);
    }
    body.push_str("</table>");
}

fn row(name: &str, about: &str, body: &mut String) {
    let (name, about) = (escaped(name), escaped(about));
    body.push_str(&format!("<tr><td><code>{name}</code></td><td>{about}</td></tr>"));
}

fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <style>{STYLE}</style></head><body>{body}</body></html>\n"
    )
}

/// A text that is shown as it is.
fn escaped(text: &str) -> String {
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
    fn what_others_wrote_is_shown_and_not_run() {
        let text = front("<script>alert(1)</script>", "did:key:x", "http://a\"b");
        assert!(!text.contains("<script"), "{text}");
        assert!(text.contains("&lt;script&gt;") && text.contains("a&quot;b"));
    }

    #[test]
    fn the_page_shows_every_route_and_loads_nothing() {
        let text = docs(crate::routes::all());
        for route in crate::routes::all() {
            let path = escaped(&route.path.replace("{*", "{"));
            assert!(text.contains(&format!("<span class=\"path\">{path}</span>")), "{path}");
        }
        assert!(!text.contains("<script") && !text.contains("src=") && !text.contains("@import"));
    }
}
