//! The OpenAPI 3.1 document, generated from the table of routes.

use std::collections::BTreeMap;

use catena_value::{Value, json};

use crate::http::VERSION;
use crate::http::error::Code;
use crate::http::route::{JOB, ParameterLocation, Reply, Route};
use crate::values::{list, object};

/// The schemas that routes refer to by name.
const SCHEMAS: &[(&str, &str)] = &[
    (
        "Status",
        r#"{"enum":["PENDING","STARTED","COMPLETE","FAILED","CANCELLED","REJECTED","TIMEOUT","PAUSED","INPUT_REQUIRED","AUTH_REQUIRED"]}"#,
    ),
    (
        "Job",
        r##"{"type":"object","required":["id","status","op","operation","created","updated","caller","head"],
        "properties":{
          "id":{"type":"string","pattern":"^0x[0-9a-f]{32}$"},
          "status":{"$ref":"#/components/schemas/Status"},
          "op":{"type":"string","description":"The operation, as its caller named it."},
          "operation":{"type":"string","description":"The asset ID of the operation's definition."},
          "venue":{"type":"string"},
          "caller":{"type":"string","description":"The DID of the caller that created the job."},
          "created":{"type":"integer","description":"Unix time in milliseconds."},
          "updated":{"type":"integer","description":"Unix time in milliseconds."},
          "input":{},
          "output":{},
          "error":{"type":"string"},
          "message":{"type":"string"},
          "tags":{"type":"array","items":{"type":"string"}},
          "parent":{"type":"string","description":"The job of which this one is a step."},
          "parentStep":{"type":"integer"},
          "attempt":{"type":"integer"},
          "queueDepth":{"type":"integer","description":"The number of messages in the job's queue."},
          "progress":{"type":"object"},
          "ignored":{"type":"array","items":{"type":"string"},"description":"In the response to a request that creates the job: its members that are not known."},
          "head":{"type":"string","pattern":"^0x[0-9a-f]{64}$","description":"The ID of the last record."}}}"##,
    ),
    (
        "Invocation",
        r#"{"type":"object","required":["operation"],
        "properties":{
          "operation":{"type":"string","description":"A reference: `adapter:operation`, `v/ops/…`, `o/…`, an asset ID, or a DID URL."},
          "input":{"description":"The operation's input. Defaults to null."},
          "wait":{"anyOf":[{"type":"boolean"},{"type":"integer","minimum":0},{"type":"null"}],"description":"How long to wait for the job to end: true, or milliseconds. At most 120000."},
          "timeoutMs":{"type":["integer","null"],"minimum":1,"maximum":2592000000,"description":"The time limit of the job in milliseconds."},
          "tags":{"type":["array","null"],"items":{"type":"string","maxLength":128},"maxItems":16},
          "private":{"type":["boolean","null"],"description":"Keeps the job in memory only: it is not listed, and it is gone when it ends."},
          "ucans":{"type":["array","null"],"items":{"type":"string"},"maxItems":64,"description":"Delegations, as compact tokens."}}}"#,
    ),
    (
        "JobPage",
        r#"{"type":"object","required":["items","total","offset","limit"],
        "properties":{"items":{"type":"array","items":{"type":["string","object"]}},
          "total":{"type":["integer","object"]},"offset":{"type":"integer"},"limit":{"type":"integer"},
          "next":{"type":"string"}}}"#,
    ),
    (
        "AssetPage",
        r#"{"type":"object","required":["items","total","offset","limit"],
        "properties":{"items":{"type":"array","items":{"type":["string","object"]}},
          "total":{"type":"integer"},"offset":{"type":"integer"},"limit":{"type":"integer"}}}"#,
    ),
    (
        "CanvasStatus",
        r#"{"enum":["pending","processing","paused","completed","failed","cancelled"]}"#,
    ),
    (
        "CanvasJob",
        r##"{"type":"object","required":["id","type","status","progress","processedItems","totalItems","outputStats","errorLog","recovery","createdAt","startedAt","completedAt"],
        "properties":{
          "id":{"type":"string","pattern":"^0x[0-9a-f]{32}$"},
          "type":{"type":"string","description":"The operation, as its caller named it."},
          "status":{"$ref":"#/components/schemas/CanvasStatus"},
          "waitingFor":{"enum":["input","auth"],"description":"What a paused job is waiting for, if it is not waiting to be resumed."},
          "progress":{"type":"integer","minimum":0,"maximum":100},
          "processedItems":{"type":"integer"},
          "totalItems":{"type":"integer"},
          "outputStats":{"type":["object","null"],"properties":{"bytesProcessed":{"type":"integer"},"bytesTotal":{"type":"integer"}}},
          "data":{},
          "output":{},
          "errorLog":{"type":"array","maxItems":50,"items":{"type":"object","required":["at","attempt","kind","error"],
            "properties":{"at":{"type":"integer"},"attempt":{"type":"integer"},"code":{"type":"string"},"error":{"type":"string"},
              "kind":{"enum":["attempt","interrupted","failed","rejected","timeout","cancelled"]}}}},
          "recovery":{"type":["object","null"],"properties":{"attempt":{"type":"integer"},"reason":{"type":"string"},"at":{"type":"integer"}}},
          "createdAt":{"type":"integer","description":"Unix time in milliseconds."},
          "startedAt":{"type":["integer","null"]},
          "completedAt":{"type":["integer","null"]},
          "omitted":{"type":"array","items":{"type":"string"},"description":"In lists: the members that are omitted because they are too long."}}}"##,
    ),
    (
        "CanvasPage",
        r##"{"type":"object","required":["jobs","total","limit","offset"],
        "properties":{"jobs":{"type":"array","items":{"$ref":"#/components/schemas/CanvasJob"}},
          "total":{"type":"integer"},"limit":{"type":"integer"},"offset":{"type":"integer"}}}"##,
    ),
    (
        "CanvasProgress",
        r##"{"type":"object","required":["id","status","progress","processedItems","totalItems","outputStats","updatedAt"],
        "properties":{"id":{"type":"string"},"status":{"$ref":"#/components/schemas/CanvasStatus"},
          "progress":{"type":"integer","minimum":0,"maximum":100},
          "processedItems":{"type":"integer"},"totalItems":{"type":"integer"},"outputStats":{"type":["object","null"]},
          "ratePerSecond":{"type":"number","description":"Bytes or items per second, whichever `progress` is derived from."},
          "remainingMs":{"type":"integer"},"updatedAt":{"type":"integer"}}}"##,
    ),
    (
        "RpcMessage",
        r#"{"type":"object","required":["jsonrpc","method"],
        "properties":{"jsonrpc":{"const":"2.0"},"id":{"type":["string","integer"]},"method":{"type":"string"},
          "params":{"type":"object"}}}"#,
    ),
    (
        "ContractError",
        r#"{"type":"object","required":["error"],"properties":{"error":{"type":"object",
            "required":["category","code","message"],"properties":{"category":{"type":"string"},
            "code":{"type":"string"},"message":{"type":"string"},"hint":{"type":["string","null"]}}}}}"#,
    ),
    (
        "RpcError",
        r#"{"type":"object","required":["jsonrpc","error"],
        "properties":{"jsonrpc":{"const":"2.0"},"id":{"type":["string","integer","null"]},
          "error":{"type":"object","required":["code","message"],
            "properties":{"code":{"type":"integer"},"message":{"type":"string"},
              "data":{"type":"object","description":"The same error as in the grid API, with `code` and `hint`."}}}}}"#,
    ),
    (
        "Queued",
        r##"{"type":"object","required":["id","status","queued","queueDepth","messageId"],
        "properties":{"id":{"type":"string"},"status":{"$ref":"#/components/schemas/Status"},
          "queued":{"const":true},"queueDepth":{"type":"integer"},"messageId":{"type":"string"},
          "duplicate":{"type":"boolean"}}}"##,
    ),
    (
        "History",
        r#"{"type":"object","required":["records","total"],
        "properties":{"records":{"type":"array","items":{"type":"object","required":["id","record"],
            "properties":{"id":{"type":"string"},"record":{"type":"object"}}}},
          "total":{"type":"integer"},"next":{"type":"integer"}}}"#,
    ),
    (
        "Operation",
        r#"{"type":"object","required":["name","asset"],
        "properties":{"name":{"type":"string"},"asset":{"type":"string"},"adapter":{"type":"string"},
          "description":{"type":"string"},"readOnly":{"type":"boolean"},
          "input":{"type":"object"},"output":{"type":"object"}}}"#,
    ),
    (
        "VenueStatus",
        r#"{"type":"object","required":["status","did","url","version"],
        "properties":{"status":{"type":"string"},"ts":{"type":"integer"},"did":{"type":"string"},
          "name":{"type":"string"},"url":{"type":"string"},"version":{"type":"string"},
          "catena":{"type":"string"},"stats":{"type":"object"},"access":{"type":"object"}}}"#,
    ),
];

/// The document for these routes, as JSON. `name` is the venue's.
pub(crate) fn document<'a>(name: &str, routes: impl Iterator<Item = &'a Route>) -> String {
    let mut paths: BTreeMap<String, Vec<(String, Value)>> = BTreeMap::new();
    for route in routes {
        let operations = paths.entry(path_of(route)).or_default();
        operations.push((route.method.as_str().to_lowercase(), operation(route)));
    }
    let paths = paths.into_iter().map(|(path, operations)| (path, object(operations)));
    let info = [
        ("title", Value::from(name)),
        ("version", VERSION.into()),
        ("description", "A Catena venue, which runs durable, verifiable jobs.".into()),
    ];
    let document = object([
        ("openapi", Value::from("3.1.0")),
        ("info", object(info)),
        ("paths", object(paths)),
        ("components", components()),
        ("security", list([object([("bearer", list([]))]), object::<&str>([])])),
    ]);
    json::to_string(&document).unwrap_or_default()
}

/// The path of a route in the notation of OpenAPI.
pub(crate) fn path_of(route: &Route) -> String {
    route.path.replace("{*", "{")
}

/// The form of a path parameter, by its name.
fn path_schema(name: &str) -> Value {
    schema(match name {
        "id" | "job" | "job_id" => {
            r#"{"type":"string","pattern":"^(0[xX])?([0-9a-fA-F]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$","examples":["0x01a1e87ccb53728499e416f4ec00ec01"]}"#
        }
        "record" => {
            r#"{"type":"string","pattern":"^(0x)?[0-9a-fA-F]{64}$","examples":["0x9f2d3c1e5b7a8f60412d3c1e5b7a8f60412d3c1e5b7a8f60412d3c1e5b7a8f60"]}"#
        }
        "venue" => {
            r#"{"type":"string","pattern":"^did:[a-z0-9]+:.+$","examples":["did:key:z6MkjJMzKqGzjTZ9eN77VHD9gctXUUtJBdbdee4Q4xxctwp4"]}"#
        }
        "digest" => {
            r#"{"type":"string","pattern":"^sha256:[0-9a-f]{64}$","examples":["sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"]}"#
        }
        "ref" => r#"{"type":"string","pattern":"^[^?#]+$","examples":["v/test/ops/echo"]}"#,
        "name" => r#"{"type":"string","pattern":"^[^?#]+$","examples":["API_KEY"]}"#,
        "path" => r#"{"type":"string","pattern":"^[^?#]*$"}"#,
        _ => r#"{"type":"string","pattern":"^[^/?#]+$"}"#,
    })
}

/// Examples of request bodies, by method and path.
const EXAMPLES: &[(&str, &str, &str)] = &[
    (
        "POST",
        "/api/v1/invoke",
        r#"{"operation":"v/test/ops/echo","input":{"text":"hello"},"wait":true}"#,
    ),
    (
        "POST",
        "/api/v1/run",
        r#"{"operation":"covia:write","input":{"path":"w/notes/first","value":"hello"}}"#,
    ),
    ("POST", "/api/v1/jobs/{id}", r#"{"content":"yes"}"#),
    ("POST", "/api/v1/assets", r#"{"name":"Measurements","content":{"contentType":"text/csv"}}"#),
    ("PUT", "/api/v1/secrets/{name}", r#"{"value":"the value","hosts":["api.example.com"]}"#),
    ("PUT", "/api/v1/jobs/{id}/cancel", r#"{"reason":"no longer needed"}"#),
    ("POST", "/api/v1/jobs/{id}/rerun", r#"{"from":1}"#),
    ("POST", "/api/v1/requests/{id}", r#"{"answer":"yes"}"#),
    (
        "POST",
        "/api/v1/histories",
        r#"{"records":[{"id":"0x9f2d3c1e5b7a8f60412d3c1e5b7a8f60412d3c1e5b7a8f60412d3c1e5b7a8f60","record":{"status":"PENDING","prev":null}}],"total":3}"#,
    ),
    ("PUT", "/api/v1/assets/{*ref}/content", r#""hello""#),
    (
        "PUT",
        "/api/v1/operations/{*name}",
        r#"{"name":"Mail","operation":{"adapter":"worker","queue":"mail","retry":{"attempts":3}}}"#,
    ),
    ("POST", "/worker/v1/claim", r#"{"worker":"host-1","queues":["mail"],"max":10,"waitMs":1000}"#),
    (
        "POST",
        "/worker/v1/beat",
        r#"{"worker":"host-1","waitMs":1000,"jobs":[{"id":"0x01a1e87ccb53728499e416f4ec00ec01","fence":1}]}"#,
    ),
    ("POST", "/worker/v1/jobs/{id}/end", r#"{"fence":1,"output":{"sent":true}}"#),
    ("POST", "/worker/v1/jobs/{id}/step", r#"{"fence":1,"key":"render","output":"done"}"#),
    (
        "POST",
        "/worker/v1/jobs/{id}/call",
        r#"{"fence":1,"key":"notify","operation":"v/test/ops/echo","input":{"text":"hello"}}"#,
    ),
    ("PUT", "/worker/v1/blobs/{digest}", r#""hello""#),
    ("PUT", "/contract/v1/datasets/{digest}", r#""hello""#),
    ("PUT", "/contract/v1/executor/jobs/{job_id}/artifacts/{digest}", r#""hello""#),
    (
        "POST",
        "/contract/v1/executor/announce",
        r#"{"worker":"e1","slots":4,"environments":[{"version":"py-bare@0123456789ab","profile":"bare","job_types":["object_execute"]}]}"#,
    ),
    (
        "POST",
        "/contract/v1/jobs",
        r#"{"schema_version":"1.0","job_type":"object_execute","workspace_id":"00000000-0000-4000-8000-000000000001","project_id":"00000000-0000-4000-8000-000000000002","document_id":"00000000-0000-4000-8000-000000000003","document_revision_id":"00000000-0000-4000-8000-000000000004","target":{"object_id":"00000000-0000-4000-8000-000000000005"},"inputs":{"object":{"type":"code","content":{"format":"python","value":"print(1)"},"dependencies":[],"runtime":{"language":"python","parameters":{}}}}}"#,
    ),
    ("POST", "/canvas/v1/jobs/{id}/control", r#"{"action":"pause"}"#),
    (
        "POST",
        "/canvas/v1/jobs",
        r#"{"type":"v/test/ops/progress","data":{"totalItems":3,"itemMs":10}}"#,
    ),
    ("POST", "/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#),
];

fn example(route: &Route) -> Option<Value> {
    let is_of_route =
        |(method, path, _): &&(&str, &str, &str)| route.method == *method && route.path == *path;
    EXAMPLES.iter().find(is_of_route).map(|(_, _, text)| schema(text))
}

/// What a client can do with a job that a response has, by name: the ID of an operation of this document.
const JOB_LINKS: [(&str, &str, &str); 4] = [
    ("job", "getJobsId", "Read the job."),
    ("history", "getJobsIdHistory", "Read the records of the job."),
    ("events", "getJobsIdSse", "Follow the job."),
    ("cancel", "putJobsIdCancel", "Cancel the job."),
];

/// The links of a response whose body is a job of the grid API.
fn job_links() -> Value {
    let link = |(name, operation, about): (&'static str, &str, &str)| {
        let parameters = object([("id", Value::from("$response.body#/id"))]);
        let link = object([
            ("operationId", Value::from(operation)),
            ("parameters", parameters),
            ("description", about.into()),
        ]);
        (name, link)
    };
    object(JOB_LINKS.map(link))
}

fn components() -> Value {
    let mut schemas: Vec<(&str, Value)> =
        SCHEMAS.iter().map(|(name, text)| (*name, schema(text))).collect();
    schemas.push(("Error", error_schema()));
    let bearer = [
        ("type", Value::from("http")),
        ("scheme", "bearer".into()),
        ("bearerFormat", "JWT".into()),
        (
            "description",
            "A token that a did:key issued for itself (EdDSA), or a token issued by this venue."
                .into(),
        ),
    ];
    object([
        ("schemas", object(schemas)),
        ("securitySchemes", object([("bearer", object(bearer))])),
    ])
}

fn error_schema() -> Value {
    let codes = Code::ALL.iter().map(|code| Value::from(code.as_str()));
    let text = || schema(r#"{"type":"string"}"#);
    let properties = object([
        ("error", text()),
        ("code", object([("enum", list(codes))])),
        ("retry", schema(r#"{"enum":["never","same_request","after_read","later"]}"#)),
        ("detail", text()),
        ("hint", text()),
    ]);
    let required = ["error", "code", "retry", "hint"].map(Value::from);
    object([
        ("type", Value::from("object")),
        ("required", list(required)),
        ("properties", properties),
    ])
}

fn operation(route: &Route) -> Value {
    let mut members = vec![
        ("operationId", Value::from(operation_id(route))),
        ("tags", list([route.tag.into()])),
        ("summary", route.summary.into()),
        ("parameters", list(parameters(route))),
        ("responses", responses(route)),
    ];
    if !route.about.is_empty() {
        members.push(("description", route.about.into()));
    }
    if let Some(body) = &route.body {
        let mut media = vec![("schema", schema(body.schema))];
        media.extend(example(route).map(|example| ("example", example)));
        let body = [
            ("description", Value::from(body.about)),
            ("required", body.is_required.into()),
            ("content", object([(body.media, object(media))])),
        ];
        members.push(("requestBody", object(body)));
    }
    object(members)
}

/// The unique name of a route: its method, and the words of its path.
fn operation_id(route: &Route) -> String {
    let path = path_of(route);
    let words = path.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty() && !matches!(*word, "api" | "v1"));
    let mut id = route.method.as_str().to_lowercase();
    for word in words {
        let mut letters = word.chars();
        id.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        id.push_str(letters.as_str());
    }
    id + if path.ends_with(".json") { "Json" } else { "" }
}

fn parameters(route: &Route) -> Vec<Value> {
    let mut parameters = Vec::new();
    let descriptions = [route.path_parameter, route.second_parameter];
    for (rest, about) in route.path.split('{').skip(1).zip(descriptions) {
        let name = rest.split('}').next().unwrap_or_default().trim_start_matches('*');
        parameters.push(object([
            ("name", Value::from(name)),
            ("in", "path".into()),
            ("required", true.into()),
            ("description", about.into()),
            (
                "schema",
                if route.path.contains("/jobs/") || name != "id" {
                    path_schema(name)
                } else {
                    path_schema("")
                },
            ),
        ]));
    }
    parameters.extend(route.parameters.iter().map(|parameter| {
        let location = match parameter.location {
            ParameterLocation::Query => "query",
            ParameterLocation::Header => "header",
        };
        object([
            ("name", Value::from(parameter.name)),
            ("in", location.into()),
            ("required", false.into()),
            ("description", parameter.about.into()),
            ("schema", schema(parameter.schema)),
        ])
    }));
    parameters
}

fn responses(route: &Route) -> Value {
    let mut by_status: BTreeMap<String, Value> = BTreeMap::new();
    let mut errors: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for code in route.errors {
        let status = route.status_of(*code).as_u16().to_string();
        errors.entry(status).or_default().push(code.as_str());
    }
    for (status, codes) in errors {
        by_status.insert(status, error_response(route, &format!("`{}`", codes.join("`, `"))));
    }
    by_status.insert("default".to_owned(), error_response(route, "Any other error."));
    for reply in route.replies {
        let of_status = route.replies.iter().filter(|other| other.status == reply.status);
        by_status.insert(reply.status.to_string(), response(reply, of_status));
    }
    object(by_status)
}

/// A response, with the bodies of all replies of its status, which differ in their media types.
fn response<'a>(reply: &Reply, of_status: impl Iterator<Item = &'a Reply>) -> Value {
    let bodies = of_status.filter_map(|reply| reply.body);
    let bodies: Vec<(&str, Value)> =
        bodies.map(|(media, text)| (media, object([("schema", schema(text))]))).collect();
    let mut members = vec![("description", Value::from(reply.about))];
    if !bodies.is_empty() {
        members.push(("content", object(bodies)));
    }
    if reply.body.is_some_and(|(_, text)| text == JOB) {
        members.push(("links", job_links()));
    }
    object(members)
}

fn error_response(route: &Route, about: &str) -> Value {
    let form = if route.path.starts_with("/contract/v1/") {
        schema(r##"{"$ref":"#/components/schemas/ContractError"}"##)
    } else {
        schema(r##"{"$ref":"#/components/schemas/Error"}"##)
    };
    let body = content("application/json", form);
    object([("description", Value::from(about)), ("content", body)])
}

fn content(media: &str, schema: Value) -> Value {
    object([(media, object([("schema", schema)]))])
}

/// Parses a schema of this file or of the table. Tests parse all of them.
fn schema(text: &str) -> Value {
    json::read(text.as_bytes()).unwrap_or(Value::Nil)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shared_schema_can_be_parsed() {
        for (name, text) in SCHEMAS {
            assert!(json::read(text.as_bytes()).is_ok(), "{name}");
        }
    }

    #[test]
    fn examples_belong_to_routes_and_links_lead_to_them() {
        for (method, path, text) in EXAMPLES {
            let found =
                crate::routes::all().find(|route| route.method == *method && route.path == *path);
            assert!(found.is_some_and(|route| route.body.is_some()), "{method} {path}");
            assert!(json::read(text.as_bytes()).is_ok(), "{text}");
        }
        let ids: Vec<String> = crate::routes::all().map(operation_id).collect();
        for (_, id, _) in JOB_LINKS {
            assert!(ids.iter().any(|known| known == id), "{id}");
        }
        for name in ["id", "record", "venue", "ref", "name", "other"] {
            assert!(path_schema(name).as_map().is_some(), "{name}");
        }
    }
}
