//! Schemas and values that are small and expensive.

use serde_json::{Map, Value as Json, json};

use super::Victim;

/// Definitions `d0` to `dn`, each made of a reference to the next, and a reference to the first.
fn chain(len: usize, each: impl Fn(&Json) -> Json, last: Json) -> Json {
    let reference = |n: usize| json!({"$ref": format!("#/$defs/d{n}")});
    let mut defs: Map<String, Json> =
        (0..len).map(|n| (format!("d{n}"), each(&reference(n + 1)))).collect();
    defs.insert(format!("d{len}"), last);
    json!({"$defs": defs, "$ref": "#/$defs/d0"})
}

fn members(count: usize, member: impl Fn(usize) -> (String, Json)) -> Json {
    Json::Object((0..count).map(member).collect())
}

fn list(count: usize, item: impl Fn(usize) -> Json) -> Json {
    Json::Array((0..count).map(item).collect())
}

fn nested(depth: usize, inner: Json, around: impl Fn(Json) -> Json) -> Json {
    (0..depth).fold(inner, |inner, _| around(inner))
}

fn text(bytes: usize) -> Json {
    Json::String("x".repeat(bytes))
}

/// The attacks that were seen.
fn known_attacks() -> Vec<(&'static str, Json, Json)> {
    let anchors = members(2_000, |n| (format!("d{n}"), json!({"$anchor": format!("a{n}")})));
    let to_anchors = list(2_000, |n| json!({"$ref": format!("#a{n}")}));
    vec![
        (
            "a chain of 500 under unevaluatedProperties",
            chain(
                500,
                |next| json!({"allOf": [next], "unevaluatedProperties": false}),
                json!({"type": "object"}),
            ),
            json!({}),
        ),
        (
            "a chain of references that ends in writeOnly",
            chain(5_000, |next| json!({"allOf": [next]}), json!({"writeOnly": true})),
            json!({}),
        ),
        (
            "a chain of plain references that ends in writeOnly",
            chain(5_000, Json::clone, json!({"writeOnly": true})),
            json!({}),
        ),
        (
            "9,000 alternatives for a text of 400 kB",
            json!({"oneOf": list(9_000, |n| json!({"const": n}))}),
            text(400_000),
        ),
        ("2,000 anchors", json!({"$defs": anchors, "allOf": to_anchors}), json!({})),
        (
            "500 properties of 5,000 items",
            json!({"items": {"properties": members(500, |n| (format!("p{n}"), json!({"type": "object"})))}}),
            list(5_000, |_| json!({"p1": 1})),
        ),
        ("a pattern on a text of 4 MB", json!({"pattern": "(x|xx|y){1,30}z$"}), text(4_000_000)),
        ("15,000 secret items", json!({"items": {"writeOnly": true}}), list(15_000, |_| json!(1))),
    ]
}

/// More of the same kind.
fn other_attacks() -> Vec<(&'static str, Json, Json)> {
    let twice = |next: &Json| json!({"allOf": [next, next]});
    let draft_7 = "http://json-schema.org/draft-07/schema#";
    let mut doubled_unevaluated = chain(14, twice, json!({}));
    doubled_unevaluated["unevaluatedProperties"] = json!(false);
    let dynamic = members(40, |n| {
        let next = json!({"$dynamicRef": format!("#d{}", n + 1)});
        (format!("d{n}"), json!({"$dynamicAnchor": format!("d{n}"), "allOf": [next, next]}))
    });
    let resources = members(300, |n| {
        let next = json!({"$ref": format!("r{}", (n + 1) % 300)});
        (
            format!("r{n}"),
            json!({"$id": format!("http://x/r{n}"), "properties": {"a": next, "b": next}}),
        )
    });
    vec![
        ("40 definitions that refer twice", chain(40, twice, json!({})), json!({})),
        ("unevaluated above doubled references", doubled_unevaluated, json!({"a": 1})),
        (
            "unevaluated in doubled references",
            chain(
                12,
                |next| json!({"anyOf": [next, next], "unevaluatedProperties": false}),
                json!({"type": "object"}),
            ),
            json!({"a": 1}),
        ),
        (
            "30 nested unevaluated items",
            nested(
                30,
                json!({}),
                |inner| json!({"allOf": [inner], "unevaluatedItems": {"const": 1}}),
            ),
            list(500, |n| json!(n)),
        ),
        (
            "a name of 100 kB above 1,000 subschemas",
            json!({"properties": {"n".repeat(100_000): {"properties": members(1_000, |n| (format!("p{n}"), json!({"type": "object"})))}}}),
            json!({}),
        ),
        (
            "200 patterns of repetitions",
            json!({"allOf": list(200, |n| json!({"pattern": format!("^(\\w{{1,50}}|{n}){{1,20}}$")}))}),
            json!("abc"),
        ),
        (
            "120 patterns of repetitions on a text of 100 kB",
            json!({"allOf": list(120, |n| json!({"pattern": format!("(x{{1,9}}|{n}){{1,9}}y")}))}),
            text(100_000),
        ),
        ("a repetition of repetitions", json!({"pattern": "((a{100}){100}){100}"}), json!("a")),
        ("a pattern that backtracks", json!({"pattern": "(x+x+)+\\1y"}), text(50_000)),
        ("a look-ahead that backtracks", json!({"pattern": "^(?=(x+)+y)(x+)+$"}), text(300_000)),
        (
            "a value that is a huge pattern",
            json!({"$schema": draft_7, "format": "regex"}),
            Json::String("((\\w{1000}){1000}|".repeat(10_000)),
        ),
        (
            "500 required members missing in 5,000 items",
            json!({"items": {"required": list(500, |n| json!(format!("p{n}")))}}),
            list(5_000, |_| json!({"a": 1})),
        ),
        (
            "an enumeration of 10,000 arrays for 10,000 items",
            json!({"items": {"enum": list(10_000, |n| json!([n]))}}),
            list(10_000, |_| json!(["a"])),
        ),
        (
            "100 name patterns for 20,000 names",
            json!({"patternProperties": members(100, |n| (format!("^a{n}.*b$"), json!({"type": "object"})))}),
            members(20_000, |n| (format!("k{n}"), json!(1))),
        ),
        (
            "100,000 items that must differ",
            json!({"uniqueItems": true}),
            list(100_000, |n| json!([n])),
        ),
        (
            "40 dynamic references that refer twice",
            json!({"$defs": dynamic, "$dynamicRef": "#d0"}),
            json!({}),
        ),
        (
            "300 resources in a ring",
            json!({"$id": "http://x/", "$defs": resources, "$ref": "r0"}),
            nested(60, json!(1), |inner| json!({"a": inner, "b": 1})),
        ),
        (
            "alternatives that recurse twice",
            json!({"anyOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}], "not": {"const": 5}}),
            nested(100, json!(5), |inner| json!([inner])),
        ),
        ("a reference to itself", json!({"$ref": "#"}), json!(1)),
        (
            "a ring of 1,000 references",
            chain(1_000, Json::clone, json!({"$ref": "#/$defs/d0"})),
            json!(1),
        ),
        ("a chain of 500 negations", chain(500, |next| json!({"not": next}), json!({})), json!(1)),
        (
            "a chain of 500 conditions",
            chain(500, |next| json!({"if": next, "then": next, "else": next}), json!({})),
            json!(1),
        ),
        (
            "1,000 dependent schemas",
            json!({"dependentSchemas": members(1_000, |n| (format!("k{n}"), json!({"required": ["none"]})))}),
            members(5_000, |n| (format!("k{n}"), json!(1))),
        ),
        (
            "a pattern for 5,000 long names",
            json!({"propertyNames": {"pattern": "(k|kk|kkk){1,20}z$"}}),
            members(5_000, |n| (format!("{}{n}", "k".repeat(500)), json!(1))),
        ),
        (
            "containment in containment",
            json!({"contains": {"contains": {"contains": {"const": 1}}}}),
            list(60, |_| list(60, |_| list(60, |_| json!(2)))),
        ),
        (
            "the metaschema as a schema for a large value",
            json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}),
            json!({"properties": members(20_000, |n| (format!("p{n}"), json!({"type": "object"})))}),
        ),
        (
            "a schema with 60,000 values",
            json!({"properties": members(30_000, |n| (format!("p{n}"), json!({"type": "object"})))}),
            json!({}),
        ),
        (
            "values nested as deep as a request may be",
            json!({"properties": {"a": {"$ref": "#"}}, "unevaluatedProperties": {"$ref": "#"}}),
            nested(100, json!(1), |inner| json!({"a": inner})),
        ),
        (
            "secrets in every combination of ten names",
            json!({"properties": members(10, |n| (format!("p{n}"), json!({"$ref": "#"}))), "allOf": [{"properties": {"key": {"writeOnly": true}}}]}),
            json!({"p1": {"key": 1}}),
        ),
        (
            "5,000 secret members",
            json!({"properties": members(5_000, |n| (format!("p{n}"), json!({"writeOnly": true})))}),
            members(5_000, |n| (format!("p{n}"), json!(1))),
        ),
        (
            "an ID of 100 kB",
            json!({"$id": format!("http://x/{}", "i".repeat(100_000)), "properties": members(1_000, |n| (format!("p{n}"), json!({})))}),
            json!({}),
        ),
        (
            "a constant of 400 kB for many items",
            json!({"items": {"const": "x".repeat(400_000)}}),
            list(10, |_| text(400_000)),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_schema_harms_the_venue() {
    let mut victim = Victim::start().await;
    let attacks: Vec<_> = known_attacks().into_iter().chain(other_attacks()).collect();
    let mut last = String::new();
    for (name, schema, value) in &attacks {
        let attack = async {
            let input = json!({"schema": schema, "value": value});
            let reply = victim.attack("schema:validate", &input).await;
            assert!(reply.status() < 500, "{name}: {}", reply.text());
            if let Some(id) = victim.register(schema).await {
                let reply = victim.attack(&id, value).await;
                assert!(reply.status() < 500, "{name}: {}", reply.text());
                last = reply.json()["id"].as_str().map_or(last.clone(), str::to_owned);
            }
        };
        victim.under(name, attack).await;
    }
    victim.restart().await;
    victim.echo().await;
    victim.attacker.job(&last).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_operation_on_schemas_or_large_inputs_harms_the_venue() {
    let mut victim = Victim::start().await;
    let filled = json!({"items": {"properties": {"a": {"default": "x".repeat(200_000)}}}});
    let attacks = [
        ("schema:coerce", json!({"schema": filled, "value": list(7_000, |_| json!({}))})),
        (
            "schema:coerce",
            json!({"schema": {"items": {"type": "array"}}, "value": list(200_000, |_| json!(1))}),
        ),
        (
            "schema:validate-all",
            json!({"schema": {"required": list(500, |n| json!(format!("p{n}")))}, "values": list(100_000, |_| json!({}))}),
        ),
        (
            "schema:infer",
            json!({"value": list(30_000, |n| json!({format!("k{n}"): {format!("l{n}"): n}}))}),
        ),
        (
            "json:merge",
            json!({"values": list(2_000, |n| members(100, |m| (format!("k{}", n * m), json!(m))))}),
        ),
        ("schema:check", json!({"schema": chain(5_000, Json::clone, json!({}))})),
    ];
    for (operation, input) in &attacks {
        let reply = victim.under(operation, victim.attack(operation, input)).await;
        assert!(reply.status() < 500, "{operation}: {}", reply.text());
    }
    victim.restart().await;
    victim.echo().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_costly_checks_at_once_do_not_delay_others_or_the_end() {
    let mut victim = Victim::start().await;
    let schema = json!({"items": {"properties": members(100, |n| (format!("p{n}"), json!({"type": "object"})))}});
    let value = list(15_000, |_| json!({"a": 1}));
    let input = json!({"schema": schema, "value": value});
    let body = json!({"operation": "schema:validate", "input": input, "wait": 0});
    let request = victim.attacker.request("POST", "/api/v1/invoke").json(&body);
    let attack = async {
        let mut requests = Vec::new();
        for _ in 0..64 {
            let client = victim.attacker.clone();
            let request = request.clone();
            requests.push(tokio::spawn(async move { client.ask(request).await.status() }));
        }
        for request in requests {
            let status = request.await.unwrap();
            assert!(matches!(status, 200 | 201 | 429 | 503), "{status}");
        }
    };
    victim.under("64 checks at once", attack).await;
    assert_eq!(victim.other.get("/livez").await.status(), 200);
    // The checks are still running when the venue is told to stop.
    victim.restart().await;
    victim.echo().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduled_attack_does_not_prevent_the_next_start() {
    let mut victim = Victim::start().await;
    for (name, schema, value) in known_attacks() {
        let operation = victim.register(&schema).await;
        let check = json!({"operation": "schema:validate", "input": {"schema": schema, "value": value}, "after": 300});
        let registered = operation
            .map(|operation| json!({"operation": operation, "input": value, "after": 300}));
        for scheduled in [Some(check), registered].into_iter().flatten() {
            let attack = victim.attack("scheduler:schedule", &scheduled);
            let reply = victim.under(name, attack).await;
            assert!(reply.status() < 500, "{name}: {}", reply.text());
        }
    }
    for _ in 0..2 {
        victim.restart().await;
        victim.echo().await;
    }
}
