//! COG-12 Orchestrations, sentence by sentence: what it asks of a venue, over HTTP.
//!
//! Each test quotes what it checks. That the examples of the specification run in order, once, and with
//! the greatest possible parallelism, whatever fails at any step, is checked with a paused clock in
//! `crates/engine/tests/graphs.rs`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::collections::BTreeSet;

use catena_tests::site::{Client, Site, id_of};
use catena_tests::target::Target;
use serde_json::{Value as Json, json};

/// The metadata of an orchestration.
fn orchestration(steps: Json, result: Json) -> Json {
    json!({"name": "Test", "type": "orchestration",
        "operation": {"adapter": "orchestrator", "steps": steps, "result": result}})
}

/// Registers metadata and returns the reference of the asset.
async fn register(site: &Client, metadata: &Json) -> String {
    let asset = site.post("/api/v1/assets", metadata).await.expect(201).json();
    asset.as_str().unwrap().to_owned()
}

/// Registers an orchestration, invokes it, and returns the job of the response.
async fn begin(site: &Client, steps: Json, result: Json, input: Json) -> Json {
    let operation = register(site, &orchestration(steps, result)).await;
    site.invoke(&operation, input).await
}

/// Registers and invokes an orchestration, and returns the job after its end.
async fn run(site: &Client, steps: Json, result: Json, input: Json) -> Json {
    let job = begin(site, steps, result, input).await;
    site.ended(&id_of(&job)).await
}

/// The JSON pointer and the message of every problem that the venue reports in metadata.
async fn refused(site: &Client, metadata: &Json) -> Vec<(String, String)> {
    let reply = site.post("/api/v1/assets", metadata).await;
    let error = reply.expect_error(400, "asset_invalid");
    let text = |problem: &Json, name: &str| problem[name].as_str().unwrap().to_owned();
    let problems = error["problems"].as_array().unwrap().iter();
    problems.map(|problem| (text(problem, "path"), text(problem, "problem"))).collect()
}

async fn places(site: &Client, steps: Json, result: Json) -> BTreeSet<String> {
    let problems = refused(site, &orchestration(steps, result)).await;
    problems.into_iter().map(|(place, _)| place).collect()
}

fn set(places: &[&str]) -> BTreeSet<String> {
    places.iter().map(|place| (*place).to_owned()).collect()
}

/// A member of every step of a job.
fn of_steps(job: &Json, name: &str) -> Vec<Json> {
    job["steps"].as_array().unwrap().iter().map(|step| step[name].clone()).collect()
}

/// A step that returns its input.
fn echo(input: Json) -> Json {
    json!({"op": "test:echo", "input": input})
}

/// Required Fields: `operation.adapter` "MUST be "orchestrator"", `operation.steps` is an "array",
/// `operation.result` "object or array".
#[tokio::test]
async fn the_required_fields_are_required() {
    let site = Site::start().await;
    let bare = json!({"operation": {"adapter": "orchestrator"}});
    let found = refused(&site, &bare).await.into_iter().map(|(place, _)| place).collect();
    assert_eq!(set(&["/operation/steps", "/operation/result"]), found);
    let steps = json!([echo(json!(["const", 1]))]);
    for result in [json!("text"), json!(1), json!(null), json!(true)] {
        assert_eq!(places(&site, steps.clone(), result).await, set(&["/operation/result"]));
    }
    for result in [json!({}), json!({"a": [0]}), json!([0]), json!(["const", 1])] {
        assert_eq!(run(&site, steps.clone(), result, json!({})).await["status"], "COMPLETE");
    }
    // With another adapter it is another operation, which ignores the steps.
    let other = json!({"operation": {"adapter": "test:echo", "steps": [], "result": {}}});
    let id = id_of(&site.invoke(&register(&site, &other).await, json!(7)).await);
    let job = site.ended(&id).await;
    assert_eq!((&job["output"], job.get("steps")), (&json!(7), None));
}

/// Recommended Fields: `type` "SHOULD be "orchestration" for discoverability"; `name` and
/// `description` are kept. They are optional.
#[tokio::test]
async fn recommended_fields_are_kept_and_not_asked_for() {
    let site = Site::start().await;
    let mut metadata = orchestration(json!([echo(json!(["const", 1]))]), json!([0]));
    metadata["description"] = json!("One step.");
    let operation = register(&site, &metadata).await;
    let kept = site.get(&format!("/api/v1/assets/{operation}")).await.expect(200).json();
    for name in ["name", "description", "type"] {
        assert_eq!(kept[name], metadata[name]);
    }
    let bare = json!({"operation": metadata["operation"].clone()});
    let id = id_of(&site.invoke(&register(&site, &bare).await, json!({})).await);
    assert_eq!(site.ended(&id).await["output"], 1);
}

/// Immutable Definitions: "The Asset ID is the Value ID (SHA3-256) of the metadata." "Invoking an
/// orchestration by Asset ID guarantees the same workflow definition."
#[tokio::test]
async fn a_definition_is_named_by_its_hash() {
    let site = Site::start().await;
    let metadata = orchestration(json!([echo(json!(["input"]))]), json!([0]));
    let operation = register(&site, &metadata).await;
    let value = catena_value::json::read(metadata.to_string().as_bytes()).unwrap();
    let hash = value.id().to_string();
    assert_eq!(operation.trim_start_matches("0x"), hash.trim_start_matches("0x"));
    let id = id_of(&site.invoke(&operation, json!(1)).await);
    let job = site.ended(&id).await;
    assert_eq!(job["operation"].as_str().unwrap(), operation.trim_start_matches("0x"));
}

/// Step Definition: "Each element in the steps array MUST be an object with the following fields":
/// `op` and `input` required, `name` and `venue` text.
#[tokio::test]
async fn every_step_is_an_object_with_op_and_input() {
    let site = Site::start().await;
    let steps = json!([
        "step", 7, null, [],
        {"input": ["input"]},
        {"op": "test:echo"},
        {"op": 1, "input": ["input"]},
        {"op": "", "input": ["input"]},
        {"op": "test:echo", "input": ["input"], "name": 1, "venue": ["x"]}
    ]);
    let expected = [
        "/operation/steps/0",
        "/operation/steps/1",
        "/operation/steps/2",
        "/operation/steps/3",
        "/operation/steps/4/op",
        "/operation/steps/5/input",
        "/operation/steps/6/op",
        "/operation/steps/7/op",
        "/operation/steps/8/name",
        "/operation/steps/8/venue",
    ];
    assert_eq!(places(&site, steps, json!({})).await, set(&expected));
}

/// The example step of the specification: constants, a field of the input, a name.
#[tokio::test]
async fn a_step_may_be_written_as_in_the_text() {
    let site = Site::start().await;
    let text = include_str!("../../crates/engine/tests/cog12/step_definition.json");
    let mut step: Json = serde_json::from_str(text).unwrap();
    step["op"] = json!("test:echo");
    let job = run(&site, json!([step]), json!([0]), json!({"invoice_text": "3 chairs"})).await;
    assert_eq!(job["output"], json!({"agentId": "Alice", "input": "3 chairs", "wait": true}));
    assert_eq!(of_steps(&job, "name"), ["Extract Invoice"]);
}

/// Source Types: every row of the three tables, as the input of a step and in a result.
#[tokio::test]
async fn every_row_of_the_source_tables_resolves_as_it_says() {
    let site = Site::start().await;
    let input = json!({"field": 1, "config": {"model": "m"}});
    let (zero, one) = (json!({"output": "o"}), json!({"result": {"name": "n"}}));
    let rows = [
        (json!(["input"]), input.clone()),
        (json!(["input", "field"]), json!(1)),
        (json!(["input", "config", "model"]), json!("m")),
        (json!(["const", "Alice"]), json!("Alice")),
        (json!(["const", true]), json!(true)),
        (json!(["const", {"key": "val"}]), json!({"key": "val"})),
        (json!([0]), zero.clone()),
        (json!([0, "output"]), json!("o")),
        (json!([1, "result", "name"]), json!("n")),
    ];
    let mut steps = vec![echo(json!(["const", zero])), echo(json!(["const", one]))];
    let mut result = serde_json::Map::new();
    for (at, (source, _)) in rows.iter().enumerate() {
        steps.push(echo(source.clone()));
        result.insert(format!("in{at}"), json!([at + 2]));
        result.insert(format!("out{at}"), source.clone());
    }
    let job = run(&site, json!(steps), json!(result), input).await;
    for (at, (source, expected)) in rows.iter().enumerate() {
        assert_eq!(&job["output"][format!("in{at}")], expected, "{source} as an input");
        assert_eq!(&job["output"][format!("out{at}")], expected, "{source} in a result");
    }
}

/// Composition: "Input specs can be nested in maps to build structured inputs." "Each leaf value in
/// the map is resolved independently. The resulting map is passed as the step's input."
#[tokio::test]
async fn maps_of_sources_are_maps_of_values() {
    let site = Site::start().await;
    let text = include_str!("../../crates/engine/tests/cog12/composition.json");
    let source: Json = serde_json::from_str(text).unwrap();
    let steps = json!([echo(json!(["const", {"output": 5}])), echo(source)]);
    let job = run(&site, steps, json!([1]), json!({"metadata": {"of": "x"}})).await;
    let expected = json!({"agentId": "Bob", "input": {"extraction": 5, "metadata": {"of": "x"}}, "wait": true});
    assert_eq!(job["output"], expected);
}

/// Result Specification: "It MAY reference any step's output or the orchestration input."
#[tokio::test]
async fn the_result_is_put_together_as_it_says() {
    let site = Site::start().await;
    let text = include_str!("../../crates/engine/tests/cog12/result_specification.json");
    let specification: Json = serde_json::from_str(text).unwrap();
    let steps: Vec<Json> = (0..3).map(|n| echo(json!({"output": ["const", n]}))).collect();
    let input = json!({"invoice_text": "3 chairs"});
    let job = run(&site, json!(steps), specification["result"].clone(), input).await;
    let expected =
        json!({"extraction": 0, "enrichment": 1, "decision": 2, "original_input": "3 chairs"});
    assert_eq!(job["output"], expected);
}

/// Not specified by COG-12: a path to a missing member fails the step, naming step and path; a
/// member that is null is null.
#[tokio::test]
async fn what_is_absent_fails_the_step_and_what_is_null_is_null() {
    let site = Site::start().await;
    let steps =
        json!([echo(json!(["const", {"none": null, "list": [1]}])), echo(json!([0, "none"]))]);
    let job = run(&site, steps, json!([1]), json!({})).await;
    assert_eq!((&job["status"], &job["output"]), (&json!("COMPLETE"), &Json::Null));
    for (path, named) in [
        (json!([0, "nothing"]), "nothing"),
        (json!([0, "list", 1]), "list/1"),
        (json!([0, "none", "deeper"]), "none/deeper"),
    ] {
        let first = echo(json!(["const", {"none": null, "list": [1]}]));
        let steps = json!([first, echo(path), echo(json!([1]))]);
        let job = run(&site, steps, json!({}), json!({})).await;
        let expected =
            format!("step 1 cannot start: the output of step 0 has nothing at `{named}`");
        assert_eq!((&job["status"], &job["error"]), (&json!("FAILED"), &json!(expected)));
        assert_eq!(of_steps(&job, "status"), ["COMPLETE", "FAILED", "SKIPPED"]);
        let error = format!("the output of step 0 has nothing at `{named}`");
        assert_eq!(job["steps"][1]["error"], error, "{job}");
        assert_eq!(job["steps"][1].get("id"), None, "there is no sub-job");
    }
}

/// Constraints: "Step output references MUST refer to steps with a lower index (no forward
/// references, no self-references)." "Implementations MUST reject orchestrations with invalid step
/// references at construction time." All are reported at once, each with its JSON pointer.
#[tokio::test]
async fn every_invalid_reference_is_reported_with_its_place() {
    let site = Site::start().await;
    let before = site.job_count().await;
    let steps = json!([
        echo(json!({"itself": [0], "forward": [1, "x"], "beyond": [9]})),
        echo(json!({"deep": {"er": ["array", ["const", 1], ["concat", [1]]]}, "negative": [-1]})),
        echo(json!([1.5])),
    ]);
    let result = json!({"beyond": [3], "negative": [-2], "fraction": [0.5], "well": [2]});
    let expected = [
        "/operation/steps/0/input/itself/0",
        "/operation/steps/0/input/forward/0",
        "/operation/steps/0/input/beyond/0",
        "/operation/steps/1/input/deep/er/2/1/0",
        "/operation/steps/1/input/negative/0",
        "/operation/steps/2/input/0",
        "/operation/result/beyond/0",
        "/operation/result/negative/0",
        "/operation/result/fraction/0",
    ];
    assert_eq!(places(&site, steps, result).await, set(&expected));
    assert_eq!(site.job_count().await, before, "nothing ran");
}

/// A value that is not a source is refused, and the hint shows the form that was probably intended.
#[tokio::test]
async fn the_hint_for_a_bare_literal_shows_how_to_write_it() {
    let site = Site::start().await;
    let literals =
        [json!("text"), json!(1), json!(true), json!(null), json!(["a", "b"]), json!([])];
    for literal in literals {
        let metadata = orchestration(json!([echo(json!({"x": literal}))]), json!({}));
        let problems = refused(&site, &metadata).await;
        let shown = format!("[\"const\", {literal}]");
        let [(place, message)] = problems.as_slice() else { panic!("{problems:?}") };
        assert_eq!(place, "/operation/steps/0/input/x");
        assert!(message.contains(&shown), "{message}");
    }
}

/// Invalid Definitions: "Have an empty steps array". Resource Limits: "Venues SHOULD impose limits
/// on: Maximum number of steps per orchestration".
#[tokio::test]
async fn too_few_and_too_many_steps_are_refused() {
    let site = Site::start().await;
    assert_eq!(places(&site, json!([]), json!({})).await, set(&["/operation/steps"]));
    let step = echo(json!(["const", 1]));
    let many = json!(vec![step.clone(); 1_001]);
    assert_eq!(places(&site, many, json!({})).await, set(&["/operation/steps"]));
    let most = run(&site, json!(vec![step; 1_000]), json!([999]), json!({})).await;
    assert_eq!((&most["status"], &most["output"]), (&json!("COMPLETE"), &json!(1)));
}

/// Invalid Definitions: "Reference non-existent operations in op fields." "Rejection SHOULD occur at
/// construction time (when the orchestration job starts), not during step execution." Constant
/// inputs that a target's schema refuses are known then, too.
#[tokio::test]
async fn what_this_venue_cannot_run_is_rejected_before_anything_runs() {
    let target = Target::start().await;
    target.open();
    let host = target.address.to_string();
    let site = Site::with(|flags| flags.allow_hosts = Some(host)).await;
    let steps = json!([
        {"op": "http:get", "input": {"url": ["const", target.url("/first")]}},
        {"op": "test:nothing", "input": ["const", 1]},
        {"op": "test:delay", "input": {"delay": ["const", "soon"]}},
        {"op": "0x1234", "input": [0]}
    ]);
    let job = run(&site, steps, json!([0]), json!({})).await;
    assert_eq!(job["status"], "REJECTED");
    let error = job["error"].as_str().unwrap();
    for place in ["/operation/steps/1/op", "/operation/steps/2/input", "/operation/steps/3/op"] {
        assert!(error.contains(place), "{error}");
    }
    assert_eq!(of_steps(&job, "status"), ["SKIPPED"; 4]);
    assert_eq!(target.count("/first"), 0, "no step ran");
    site.history(&id_of(&job)).await.verify();
    // Every problem is reported, up to a limit.
    let many = vec![json!({"op": "test:nothing", "input": ["const", 1]}); 103];
    let job = run(&site, json!(many), json!({}), json!({})).await;
    let error = job["error"].as_str().unwrap();
    assert_eq!(error.matches("/operation/steps/").count(), 100);
    assert!(error.ends_with("; and 3 more"), "{error}");
}

/// Automatic Dependency Resolution and Scheduling: "A step with no step references has no
/// dependencies and is immediately eligible for execution." "Dependencies are transitive." "Start
/// those steps concurrently."
#[tokio::test]
async fn steps_wait_for_what_they_need_and_for_nothing_else() {
    let target = Target::start().await;
    let host = target.address.to_string();
    let site = Site::with(|flags| flags.allow_hosts = Some(host)).await;
    let fetch =
        |path: &str| json!({"op": "http:get", "input": {"url": ["const", target.url(path)]}});
    let steps = json!([
        fetch("/hold/a"),
        fetch("/hold/b"),
        echo(json!([0, "status"])),
        echo(json!([2])),
        echo(json!(["const", "free"]))
    ]);
    let id = id_of(&begin(&site, steps, json!({"last": [3], "free": [4]}), json!({})).await);
    // Neither has a response yet, so both were sent without waiting for the other.
    target.arrived("/hold/a").await;
    target.arrived("/hold/b").await;
    let expected = ["STARTED", "STARTED", "PENDING", "PENDING", "COMPLETE"];
    assert_eq!(of_steps(&site.job(&id).await, "status"), expected);
    target.open();
    let job = site.ended(&id).await;
    assert_eq!(job["output"], json!({"last": 200, "free": "free"}));
    assert_eq!((target.count("/hold/a"), target.count("/hold/b")), (1, 1), "each ran once");
}

/// Execution Model: "A new job is created for the orchestration with status STARTED." "Each step
/// invokes its operation as a sub-job." Step Status Tracking: "The orchestration job record includes
/// a steps field — a vector of per-step job data".
#[tokio::test]
async fn an_orchestration_is_one_job_whose_steps_are_jobs() {
    let site = Site::start().await;
    let steps = json!([echo(json!(["const", {"n": 1}])), {"op": "test:never", "input": [0]}]);
    let job = begin(&site, steps, json!([1]), json!({})).await;
    let id = id_of(&job);
    let job = site.until_that(&id, |job| job["steps"][1]["status"] == "STARTED").await;
    assert_eq!(job["status"], "STARTED");
    assert_eq!(of_steps(&job, "index"), [0, 1]);
    assert_eq!(of_steps(&job, "op"), ["test:echo", "test:never"]);
    assert_eq!(of_steps(&job, "output"), [json!({"n": 1}), Json::Null]);
    for step in job["steps"].as_array().unwrap() {
        assert!(step["started"].is_i64(), "{step}");
        let child = site.job(step["id"].as_str().unwrap()).await;
        assert_eq!((&child["op"], &child["status"]), (&step["op"], &step["status"]));
        assert_eq!((&child["parent"], &child["head"]), (&json!(id), &step["head"]));
    }
    site.control(&id, "cancel").await.expect(200);
    let job = site.ended(&id).await;
    assert_eq!(of_steps(&job, "status"), ["COMPLETE", "CANCELLED"]);
    // The chain of the parent commits to the last record of a step that ended before it did.
    let chain = site.history(&id).await;
    chain.verify();
    let head = job["steps"][0]["head"].as_str().unwrap();
    let said = (0..chain.len()).any(|at| chain.record(at).to_string().contains(head));
    assert!(said, "{head} is in no record");
    for step in job["steps"].as_array().unwrap() {
        site.history(step["id"].as_str().unwrap()).await.verify();
    }
}

/// Step Failure: "The orchestration job MUST fail." "The error message SHOULD identify the failed
/// step by index." "Steps that have not yet started SHOULD be skipped." For FAILED, CANCELLED,
/// REJECTED and TIMEOUT alike.
#[tokio::test]
async fn a_step_that_ends_badly_fails_the_orchestration() {
    let site = Site::start().await;
    let slow = json!({"name": "Slow", "operation": {"adapter": "test:never", "timeoutMs": 30}});
    let slow = register(&site, &slow).await;
    for (op, input, status) in [
        ("test:error", json!({"message": ["const", "no"]}), "FAILED"),
        ("test:delay", json!({"delay": ["input", "text"]}), "REJECTED"),
        (slow.as_str(), json!(["const", {}]), "TIMEOUT"),
        ("test:never", json!(["const", {}]), "CANCELLED"),
    ] {
        let steps =
            json!([echo(json!(["const", 1])), {"op": op, "input": input}, echo(json!([1]))]);
        let job = begin(&site, steps, json!([2]), json!({"text": "soon"})).await;
        let id = id_of(&job);
        if status == "CANCELLED" {
            let job = site.until_that(&id, |job| job["steps"][1]["status"] == "STARTED").await;
            site.control(job["steps"][1]["id"].as_str().unwrap(), "cancel").await.expect(200);
        }
        let job = site.ended(&id).await;
        assert_eq!(job["status"], "FAILED", "{op}");
        let error = job["error"].as_str().unwrap();
        assert!(error.starts_with(&format!("step 1 ended as {status}")), "{error}");
        assert_eq!(of_steps(&job, "status"), ["COMPLETE", status, "SKIPPED"]);
        site.history(&id).await.verify();
    }
}

/// Step Failure: "Steps that are already running MAY continue to completion but their results are
/// not used." Here they are cancelled, unless the definition says `"onFailure": "leave"`.
#[tokio::test]
async fn what_runs_when_a_step_fails_is_cancelled_or_left() {
    let site = Site::start().await;
    for (policy, expected) in
        [(None, "CANCELLED"), (Some("cancel"), "CANCELLED"), (Some("leave"), "STARTED")]
    {
        let steps = json!([
            {"op": "test:never", "input": ["const", {}]},
            {"op": "test:delay", "input": {"delay": ["const", 20]}},
            {"op": "test:error", "input": {"message": ["const", "no"], "after": [1]}}
        ]);
        let mut metadata = orchestration(steps, json!([0]));
        if let Some(policy) = policy {
            metadata["operation"]["onFailure"] = json!(policy);
        }
        let operation = register(&site, &metadata).await;
        let id = id_of(&site.invoke(&operation, json!({})).await);
        site.until(&id, "FAILED").await;
        let job = site.until_that(&id, |job| job["steps"][0]["status"] == expected).await;
        assert_eq!(of_steps(&job, "status"), [expected, "COMPLETE", "FAILED"], "{policy:?}");
        let running = job["steps"][0]["id"].as_str().unwrap();
        site.control(running, "cancel").await.expect(200);
        assert_eq!(site.job(&id).await["head"], job["head"], "its end is not used");
    }
    let mut metadata = orchestration(json!([echo(json!(["const", 1]))]), json!([0]));
    metadata["operation"]["onFailure"] = json!("shrug");
    assert_eq!(refused(&site, &metadata).await[0].0, "/operation/onFailure");
}

/// Timeout Behaviour: "Orchestrations inherit the timeout behaviour of the enclosing job." "The
/// orchestrator does not impose additional timeout constraints".
#[tokio::test]
async fn the_timeout_of_the_job_reaches_its_steps() {
    let site = Site::start().await;
    let inner = orchestration(json!([{"op": "test:never", "input": ["const", {}]}]), json!([0]));
    let inner = register(&site, &inner).await;
    let outer = orchestration(json!([{"op": inner, "input": ["const", {}]}]), json!([0]));
    let outer = register(&site, &outer).await;
    let body = json!({"operation": outer, "timeoutMs": 1_500});
    let id = id_of(&site.post("/api/v1/invoke", &body).await.expect(201).json());
    let job = site.until(&id, "TIMEOUT").await;
    let child = job["steps"][0]["id"].as_str().unwrap();
    let child = site.until(child, "CANCELLED").await;
    site.until(child["steps"][0]["id"].as_str().unwrap(), "CANCELLED").await;
}

/// Resource Limits: "Venues SHOULD impose limits on: … Maximum orchestration nesting depth".
#[tokio::test]
async fn orchestrations_nest_eight_deep_and_no_deeper() {
    let site = Site::start().await;
    let mut operation = "test:echo".to_owned();
    for depth in 1..=9 {
        let step = json!({"op": operation, "input": {"of": ["input"]}});
        operation = register(&site, &orchestration(json!([step]), json!([0]))).await;
        if depth >= 8 {
            let id = id_of(&site.invoke(&operation, json!(depth)).await);
            let job = site.ended(&id).await;
            let expected = if depth == 8 { "COMPLETE" } else { "REJECTED" };
            assert_eq!(job["status"], expected, "{depth} deep");
            let expected = "/operation/steps/0/op: orchestrations are nested deeper than 8";
            let error = job["error"].as_str().unwrap_or_default();
            assert_eq!(error.contains(expected), depth > 8, "{error}");
        }
    }
}

/// Resource Limits: "Venues SHOULD impose limits on: … Total concurrent sub-jobs per
/// orchestration": 256, and the others start as those end.
#[tokio::test]
async fn at_most_256_steps_run_at_a_time() {
    let site = Site::with(|flags| flags.running = Some("400".to_owned())).await;
    let step = json!({"op": "test:never", "input": ["const", {}]});
    let id = id_of(&begin(&site, json!(vec![step; 300]), json!({}), json!({})).await);
    let started =
        |job: &Json| of_steps(job, "status").iter().filter(|status| **status == "STARTED").count();
    let job = site.until_that(&id, |job| started(job) >= 256).await;
    assert_eq!(started(&job), 256);
    let first = job["steps"][0]["id"].as_str().unwrap();
    assert_eq!(of_steps(&job, "status").iter().filter(|word| **word == "PENDING").count(), 44);
    site.control(first, "cancel").await.expect(200);
    let job = site.until(&id, "FAILED").await;
    assert!(job["error"].as_str().unwrap().starts_with("step 0 ended as CANCELLED"));
}

/// Input Injection: "Implementations SHOULD validate assembled inputs against the target operation's
/// schema before invocation".
#[tokio::test]
async fn assembled_inputs_are_checked_before_a_step_begins() {
    let target = Target::start().await;
    target.open();
    let host = target.address.to_string();
    let site = Site::with(|flags| flags.allow_hosts = Some(host)).await;
    let steps = json!([{"op": "http:get", "input": ["input"]}]);
    let crafted = json!({"url": target.url("/crafted"), "headers": 7});
    let job = run(&site, steps.clone(), json!([0, "status"]), crafted).await;
    assert_eq!(
        (&job["status"], &job["steps"][0]["status"]),
        (&json!("FAILED"), &json!("REJECTED"))
    );
    assert_eq!(target.count("/crafted"), 0);
    let job = run(&site, steps, json!([0, "status"]), json!({"url": target.url("/fine")})).await;
    assert_eq!(job["output"], 200);
}

/// Recommended Fields: "JSON Schema for orchestration input" and "JSON Schema for orchestration
/// output" are enforced.
#[tokio::test]
async fn declared_schemas_of_an_orchestration_are_enforced() {
    let site = Site::start().await;
    let mut metadata = orchestration(json!([echo(json!(["input", "x"]))]), json!({"y": [0]}));
    metadata["operation"]["input"] = json!({"type": "object", "required": ["x"]});
    metadata["operation"]["output"] = json!({"properties": {"y": {"type": "integer"}}});
    let operation = register(&site, &metadata).await;
    for (input, status) in
        [(json!({"x": 1}), "COMPLETE"), (json!({}), "REJECTED"), (json!({"x": "1"}), "FAILED")]
    {
        let id = id_of(&site.invoke(&operation, input.clone()).await);
        let job = site.ended(&id).await;
        assert_eq!(job["status"], status, "{input}");
        if status == "FAILED" {
            assert_eq!(of_steps(&job, "status"), ["COMPLETE"], "only the result is wrong");
        }
    }
}

/// COG-8, Interactive Jobs, for a step: the parent job asks, and a message to it reaches the step.
#[tokio::test]
async fn a_step_that_asks_is_answered_through_its_parent() {
    let site = Site::start().await;
    let steps = json!([
        {"op": "test:never", "input": ["const", {}]},
        {"op": "test:chat", "name": "talk", "input": ["const", {}]}
    ]);
    let id = id_of(&begin(&site, steps, json!([1]), json!({})).await);
    let job = site.until(&id, "INPUT_REQUIRED").await;
    assert!(job["message"].as_str().unwrap().starts_with("step 1 (talk) waits"), "{job}");
    site.send(&id, &json!({"content": "done"})).await.expect(202);
    let job = site.until_that(&id, |job| job["steps"][1]["status"] == "COMPLETE").await;
    assert_eq!(job["status"], "STARTED", "the other step runs on");
    site.control(&id, "cancel").await.expect(200);
}

/// Pause and resume reach the running steps.
#[tokio::test]
async fn a_paused_orchestration_has_paused_steps() {
    let site = Site::start().await;
    let steps = json!([{"op": "test:delay", "input": {"delay": ["const", 100], "input": ["const", 5]}},
        echo(json!([0]))]);
    let id = id_of(&begin(&site, steps, json!([1]), json!({})).await);
    let job = site.control(&id, "pause").await.expect(200).json();
    assert_eq!(of_steps(&job, "status"), ["PAUSED", "PENDING"]);
    site.control(&id, "resume").await.expect(200);
    let job = site.ended(&id).await;
    assert_eq!((&job["status"], &job["output"]), (&json!("COMPLETE"), &json!(5)));
}

#[tokio::test]
async fn a_step_that_is_paused_on_its_own_is_shown_and_resumed_through_its_parent() {
    let site = Site::start().await;
    let never = json!({"op": "test:never", "input": {}});
    let job = begin(&site, json!([never, never]), json!([0]), json!({})).await;
    let id = id_of(&job);
    let started = |job: &Json| of_steps(job, "status") == [json!("STARTED"), json!("STARTED")];
    let job = site.until_that(&id, started).await;
    let steps: Vec<String> =
        of_steps(&job, "id").iter().map(|id| id.as_str().unwrap().to_owned()).collect();
    site.control(&steps[0], "pause").await.expect(200);
    let says_so = |job: &Json| job["message"].as_str().is_some_and(|text| text.contains(&steps[0]));
    let job = site.until_that(&id, says_so).await;
    assert_eq!(of_steps(&job, "status"), ["PAUSED", "STARTED"], "{job}");
    assert_eq!(job["status"], "STARTED", "the other step runs: {job}");
    // Resuming the parent is no way to resume one step while another one runs; the answer says which step it is.
    let refused = site.control(&id, "resume").await.expect_error(409, "job_conflict");
    assert!(refused["error"].as_str().unwrap().contains(&steps[0]), "{refused}");
    site.control(&steps[1], "pause").await.expect(200);
    site.until(&id, "PAUSED").await;
    site.control(&id, "resume").await.expect(200);
    site.until_that(&id, |job| job["status"] == "STARTED" && started(job)).await;
    site.control(&id, "cancel").await.expect(200);
}

/// Federated Execution: "The step's operation is invoked on the remote venue with the resolved
/// input." "The result is returned to the local orchestrator and made available to dependent
/// steps." "Federated steps participate in the same dependency graph as local steps."
#[tokio::test]
async fn a_step_with_a_venue_runs_on_that_venue() {
    let remote = Site::start().await;
    let host = remote.address.to_string();
    let local = Site::with(|flags| flags.allow_hosts = Some(host)).await;
    let venue = format!("http://{}", remote.address);
    let steps = json!([
        echo(json!(["input", "x"])),
        {"op": "test:echo", "input": {"v": [0]}, "venue": venue},
        echo(json!([1, "v"]))
    ]);
    let job = run(&local, steps, json!([2]), json!({"x": 4})).await;
    assert_eq!((&job["status"], &job["output"]), (&json!("COMPLETE"), &json!(4)), "{job}");
    let step = &job["steps"][1];
    assert_eq!((&step["venue"], &step["status"]), (&json!(venue), &json!("COMPLETE")));
    let remote_job = remote.job(step["id"].as_str().unwrap()).await;
    assert_eq!((&remote_job["input"], &remote_job["head"]), (&json!({"v": 4}), &step["head"]));
}

/// A step that ends after its job changes what the job shows, so the entity tag changes as well.
#[tokio::test]
async fn the_entity_tag_follows_steps_that_outlive_their_job() {
    let site = Site::start().await;
    let steps = json!([
        {"op": "test:chat", "input": ["const", {}]},
        {"op": "test:error", "input": {"message": ["const", "no"]}},
    ]);
    let mut metadata = orchestration(steps, json!([0]));
    metadata["operation"]["onFailure"] = json!("leave");
    let operation = register(&site, &metadata).await;
    let id = id_of(&site.invoke(&operation, json!({})).await);
    let left = site.ended(&id).await["steps"][0]["id"].as_str().unwrap().to_owned();
    site.until(&left, "INPUT_REQUIRED").await;
    let path = format!("/api/v1/jobs/{id}");
    let tag = site.settled_tag(&path).await;
    let asked = async || site.ask(site.request("GET", &path).header("if-none-match", &tag)).await;
    site.send(&left, &json!({"content": "done"})).await.expect(202);
    site.ended(&left).await;
    let changed = async {
        while asked().await.status() == 304 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), changed).await.unwrap();
    assert_eq!(site.job(&id).await["steps"][0]["status"], "COMPLETE");
}

/// Resource Limits: "Orchestrations can amplify resource consumption". What steps put together is
/// bounded like the body of a request, so that everything that is stored can also be read.
#[tokio::test]
async fn what_steps_put_together_is_bounded() {
    let site = Site::start().await;
    let text = "x".repeat(3_000_000);
    let six_times =
        json!(["concat", ["input"], ["input"], ["input"], ["input"], ["input"], ["input"]]);
    let job = run(&site, json!([echo(six_times)]), json!([0]), json!(text)).await;
    assert_eq!((&job["status"], &job["errorCode"]), (&json!("FAILED"), &json!("step_input")));
    let expected = "step 0 cannot start: the assembled value has more than 16777216 bytes";
    assert_eq!(job["error"], expected);

    // Steps that each double their input reach the limit quickly.
    let mut steps = vec![echo(json!(["input"]))];
    steps.extend((0..60).map(|step| echo(json!(["concat", [step], [step]]))));
    let job = run(&site, json!(steps), json!(["const", 1]), json!("x".repeat(100_000))).await;
    assert_eq!(job["status"], "FAILED");

    let deep = |source: Json| (0..110).fold(source, |inner, _| json!({ "a": inner }));
    let steps = json!([echo(deep(json!(["input"]))), echo(deep(json!([0])))]);
    let operation = register(&site, &orchestration(steps, json!([1]))).await;
    let invocation = json!({"operation": operation, "input": 1});
    let reply = site.post("/api/v1/invoke", &invocation).await.expect(201);
    let expected =
        "step 1 cannot start: the assembled value nests deeper than 136 arrays and objects";
    assert!(reply.text().contains(expected), "{}", reply.text());
    let location = reply.header("location").unwrap();
    site.get(location).await.expect(200);
    site.get(&format!("{location}/history")).await.expect(200);
}

/// Composition: "Each leaf value in the map is resolved independently." However long its name is.
#[tokio::test]
async fn large_outputs_of_steps_are_omitted_from_the_job_and_say_where_they_are() {
    let site = Site::start().await;
    let small = json!({"op": "test:echo", "input": ["input", "small"]});
    let large = json!({"op": "test:echo", "input": ["input", "large"]});
    // The nineteenth text exceeds the total.
    let mut steps = vec![small; 19];
    steps.insert(0, large);
    let input = json!({"small": "s".repeat(60_000), "large": "l".repeat(3_000_000)});
    let job = run(&site, json!(steps), json!(["const", 1]), input).await;
    assert_eq!(job["status"], "COMPLETE", "{}", job["error"]);
    let bytes = of_steps(&job, "outputBytes");
    assert_eq!(bytes[0], json!(3_000_002));
    assert!(job["steps"][0].get("output").is_none());
    let shown = job["steps"].as_array().unwrap().iter().filter(|step| step["output"].is_string());
    assert_eq!(shown.count(), 17, "17 × 60 kB fit 1 MiB");
    assert_eq!(bytes[18..], [json!(60_002), json!(60_002)]);
    let link = job["steps"][0]["outputLink"].as_str().unwrap();
    let step = site.get(link).await.expect(200).json();
    assert_eq!(step["output"].as_str().unwrap().len(), 3_000_000);
    // All of them are omitted on request.
    let path = format!("/api/v1/jobs/{}", id_of(&job));
    let brief = site.get(&format!("{path}?steps=brief")).await.expect(200).json();
    assert_eq!(of_steps(&brief, "outputBytes")[1..], vec![json!(60_002); 19]);
    assert!(of_steps(&brief, "output").iter().all(Json::is_null));
    site.get(&format!("{path}?steps=all")).await.expect_error(400, "bad_request");
}

#[tokio::test]
async fn a_member_keeps_its_name_however_long_it_is() {
    let site = Site::start().await;
    let (one, two) = ("k".repeat(5_000), "j".repeat(5_000));
    let input = json!({one.clone(): ["const", 1], two.clone(): ["const", 2]});
    let job = run(&site, json!([echo(input)]), json!([0]), json!({})).await;
    assert_eq!(job["output"], json!({one: 1, two: 2}));
}

/// Federated Trust and COG-8, Job Data Sensitivity: "Redact or encrypt sensitive fields in stored
/// job records." What is secret in the input of the orchestration is secret in those of its steps.
#[tokio::test]
async fn a_secret_that_is_passed_on_to_a_step_stays_one() {
    let site = Site::start().await;
    let key = json!({"type": "string", "writeOnly": true});
    let inner = orchestration(
        json!([{"op": "test:never", "input": {"deep": ["input", "login", "key"]}}]),
        json!(["const", 1]),
    );
    let inner = register(&site, &inner).await;
    let steps = json!([
        {"op": "test:never", "input": {
            "x": {"y": ["input", "key"]},
            "header": ["concat", ["const", "Bearer "], ["input", "key"]],
            "open": ["input", "name"],
            "list": ["array", ["input", "name"], ["input", "key"]]
        }},
        {"op": "test:never", "input": ["input"]},
        {"op": inner, "input": {"login": ["input"]}}
    ]);
    let mut metadata = orchestration(steps, json!(["const", 1]));
    metadata["operation"]["input"] = json!({"properties": {"key": key}});
    let operation = register(&site, &metadata).await;
    let id = id_of(&site.invoke(&operation, json!({"key": "s3cret", "name": "Ada"})).await);
    let job = site.until_that(&id, |job| job["steps"][2]["id"].is_string()).await;
    let of_step = |number: usize| job["steps"][number]["id"].as_str().unwrap().to_owned();
    let inner = site.until_that(&of_step(2), |job| job["steps"][0]["id"].is_string()).await;
    let innermost = inner["steps"][0]["id"].as_str().unwrap().to_owned();
    for job in [id.clone(), of_step(0), of_step(1), of_step(2), innermost.clone()] {
        let history = site.get(&format!("/api/v1/jobs/{job}/history")).await.expect(200);
        assert!(!history.text().contains("s3cret"), "{}", history.text());
    }
    let gone = json!({"redacted": true});
    let shown = json!({"x": {"y": gone}, "header": gone, "open": "Ada", "list": ["Ada", gone]});
    assert_eq!(site.job(&of_step(0)).await["input"], shown);
    assert_eq!(site.job(&innermost).await["input"], json!({"deep": gone}));
    site.control(&id, "cancel").await.expect(200);
}

/// COG-9: "Messages left at the end are discarded", also when it is an orchestration that nobody
/// asked anything.
#[tokio::test]
async fn an_orchestration_ends_although_messages_wait_for_it() {
    let site = Site::start().await;
    let steps = json!([{"op": "test:pause", "input": ["const", 5]}, echo(json!([0]))]);
    let id = id_of(&begin(&site, steps, json!([1]), json!({})).await);
    let step = site.until_that(&id, |job| job["steps"][0]["status"] == "PAUSED").await;
    for content in ["one", "two"] {
        site.send(&id, &json!({ "content": content })).await.expect(202);
    }
    site.control(step["steps"][0]["id"].as_str().unwrap(), "resume").await.expect(200);
    let job = site.ended(&id).await;
    assert_eq!((&job["status"], &job["output"]), (&json!("COMPLETE"), &json!(5)), "{job}");
    assert_eq!(job["discarded"], 2, "{job}");
    site.history(&id).await.verify();
}

/// Step Failure: "The error message SHOULD identify the failed step by index", and says why,
/// however long that is.
#[tokio::test]
async fn a_failure_states_its_cause_however_long() {
    let site = Site::start().await;
    let long = "x".repeat(5_000);
    let slow = json!({"delay": ["const", 1], "operation": ["const", "test:error"],
        "input": {"message": ["input"]}});
    for step in [
        json!({"op": "test:error", "input": {"message": ["input"]}}),
        json!({"op": "test:delay", "input": slow}),
    ] {
        let job = run(&site, json!([step]), json!([0]), json!(long)).await;
        let error = job["error"].as_str().unwrap();
        assert!(error.starts_with("step 0 ended as FAILED: x") && error.contains(&long), "{error}");
    }
}

/// The same for a remote step; secrets are not sent to its venue.
#[tokio::test]
async fn a_remote_step_that_asks_is_answered_through_its_parent() {
    let remote = Site::start().await;
    let host = remote.address.to_string();
    let local = Site::with(|flags| flags.allow_hosts = Some(host)).await;
    let venue = format!("http://{}", remote.address);
    let begun = async |op: &str, status: &str| {
        let steps = json!([{"op": op, "name": "talk", "input": ["const", {}], "venue": venue}]);
        let id = id_of(&begin(&local, steps, json!([0]), json!({})).await);
        let job = local.until(&id, status).await;
        assert!(job["message"].as_str().unwrap().starts_with("step 0 (talk) waits: "), "{job}");
        assert_eq!(job["steps"][0]["status"], status);
        assert!(
            job["steps"][0]["message"].is_string() && job["steps"][0]["asOf"].is_i64(),
            "{job}"
        );
        (id, job["steps"][0]["id"].as_str().unwrap().to_owned())
    };
    let (id, _) = begun("test:chat", "INPUT_REQUIRED").await;
    local.send(&id, &json!({"content": "done"})).await.expect(202);
    assert_eq!(local.ended(&id).await["status"], "COMPLETE");
    let (id, far) = begun("test:auth", "AUTH_REQUIRED").await;
    let complete = json!({"type": "auth/complete", "credentials": {"token": "hush"}});
    let refused = local.send(&id, &complete).await.expect_error(409, "credentials_stay");
    let did = remote.get("/api/v1/status").await.json()["did"].clone();
    assert_eq!((&refused["asking"], &refused["venue"]), (&json!(far), &did), "{refused}");
    // As the hint says, the credentials are sent to the remote venue directly.
    remote.send(&far, &complete).await.expect(202);
    assert_eq!(local.ended(&id).await["status"], "COMPLETE");
}

/// The nesting limit applies across venues that send `Catena-Depth`.
#[tokio::test]
async fn what_comes_from_orchestrations_of_other_venues_counts_as_nested_in_them() {
    let site = Site::start().await;
    let inner =
        register(&site, &orchestration(json!([echo(json!(["const", 1]))]), json!([0]))).await;
    let outer = json!([{"op": inner, "input": ["const", 1]}]);
    let outer = register(&site, &orchestration(outer, json!([0]))).await;
    let nested_in = async |operation: &str, depth: &str| {
        let body = json!({"operation": operation, "input": {}, "wait": true});
        let request = site.request("POST", "/api/v1/invoke").header("catena-depth", depth);
        site.ask(request.json(&body)).await
    };
    for (operation, depth, status) in [
        (&inner, "7", "COMPLETE"),
        (&inner, "8", "REJECTED"),
        (&outer, "6", "COMPLETE"),
        (&outer, "7", "REJECTED"),
    ] {
        let job = nested_in(operation, depth).await.json();
        assert_eq!(job["status"], status, "{operation} in {depth}: {job}");
        if status == "REJECTED" {
            assert!(job["error"].as_str().unwrap().contains("nested deeper than 8"), "{job}");
        }
    }
    // Operations that can make calls count, too; instant ones cannot.
    assert_eq!(nested_in("test:echo", "9").await.json()["status"], "COMPLETE");
    assert_eq!(nested_in("test:delay", "9").await.json()["status"], "REJECTED");
    nested_in(&inner, "deep").await.expect_error(400, "bad_request");
}

/// A workflow shows the state of its steps, so its entity tag changes with them, also if its own chain
/// does not change.
#[tokio::test]
async fn the_entity_tag_changes_with_the_steps() {
    let site = Site::start().await;
    let steps = json!([
        {"op": "test:delay", "input": ["const", {"delay": 60000}]},
        {"op": "test:delay", "input": ["const", {"delay": 60000}]},
    ]);
    let job = begin(&site, steps, json!([0]), json!({})).await;
    let id = id_of(&job);
    let step = job["steps"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/jobs/{id}");
    let before = site.settled_tag(&path).await;
    let head = site.job(&id).await["head"].clone();
    site.control(&step, "pause").await.expect(200);
    let changed = site.request("GET", &path).header("if-none-match", &before);
    assert_eq!(site.ask(changed.header("prefer", "wait=20")).await.status(), 200);
    let after = site.settled_tag(&path).await;
    let job = site.job(&id).await;
    assert_eq!(job["steps"][0]["status"], "PAUSED");
    if job["head"] == head {
        // A client that waits for a change of what it knows is answered when the step changes.
        let request = site.request("GET", &path).header("if-none-match", &after);
        let waiting = site.ask(request.header("prefer", "wait=20"));
        let resuming = async {
            site.control(&step, "resume").await.expect(200);
        };
        let (reply, ()) = tokio::join!(waiting, resuming);
        assert_eq!(reply.status(), 200);
    }
    site.control(&id, "cancel").await.expect(200);
}

/// Replayed events show the steps as of each record.
#[tokio::test]
async fn replayed_events_show_the_steps_as_of_each_record() {
    let site = Site::start().await;
    let steps = json!([
        {"op": "test:delay", "input": ["const", {"delay": 30, "input": 1}]},
        {"op": "test:delay", "input": {"delay": ["const", 30], "input": [0]}},
    ]);
    let job = begin(&site, steps, json!([1]), json!({})).await;
    let id = id_of(&job);
    assert_eq!(site.ended(&id).await["status"], "COMPLETE");
    let history = site.history(&id).await;
    let replayed = site.follow_after(&id, 0).await.rest().await;
    assert_eq!(replayed.len() + 1, history.entries.len());
    let mut ended: Vec<u64> = Vec::new();
    let mut started: Vec<u64> = Vec::new();
    for event in &replayed {
        let record = &history.entries[event.id.unwrap() as usize]["record"];
        let indices = |name: &str| -> Vec<u64> {
            let list = record["note"][name].as_array().cloned().unwrap_or_default();
            list.iter().map(|step| step["step"].as_u64().unwrap()).collect()
        };
        started.extend(indices("started"));
        ended.extend(indices("ended"));
        for step in event.data["steps"].as_array().unwrap() {
            let index = step["index"].as_u64().unwrap();
            let expected: &[&str] = match (started.contains(&index), ended.contains(&index)) {
                (false, _) => &["PENDING"],
                // A sub-job that ended in the same millisecond as the record may be shown as such.
                (true, false) => &["STARTED", "PENDING"],
                (true, true) => &["COMPLETE"],
            };
            let status = step["status"].as_str().unwrap();
            assert!(expected.contains(&status), "record {record}: step {step}");
            assert_eq!(step.get("output").is_some(), status == "COMPLETE", "{step}");
        }
    }
    assert_eq!((started, ended), (vec![0, 1], vec![0, 1]));
}

/// A rerun runs what failed and what depends on it, and keeps what it reused.
#[tokio::test]
async fn a_rerun_runs_what_failed_and_what_depends_on_it() {
    let target = Target::start().await;
    target.open();
    let host = target.address.to_string();
    let site = Site::with(|flags| flags.allow_hosts = Some(host)).await;
    let steps = json!([
        {"op": "test:delay", "input": ["const", {"delay": 50}]},
        {"op": "test:error", "input": {"message": ["input", "message"], "after": [0]}},
        {"op": "http:post", "input": {"url": ["const", target.url("/one")]}},
        {"op": "http:post", "input": {"url": ["const", target.url("/two")], "body": [1]}},
    ]);
    let mut metadata = orchestration(steps, json!([2, "status"]));
    metadata["operation"]["onFailure"] = json!("leave");
    let operation = register(&site, &metadata).await;
    let id = id_of(&site.invoke(&operation, json!({"message": "no"})).await);
    site.ended(&id).await;
    let job = site.until_that(&id, |job| job["steps"][2]["status"] == "COMPLETE").await;
    assert_eq!(of_steps(&job, "status"), ["COMPLETE", "FAILED", "COMPLETE", "SKIPPED"]);
    let path = format!("/api/v1/jobs/{id}/rerun");
    site.post(&path, &json!({"all": true, "from": 1})).await.expect_error(400, "bad_request");
    site.post(&path, &json!({"from": 9})).await.expect_error(400, "bad_request");
    let again = site.post(&path, &json!({})).await.expect(201).json();
    let again = site.ended(&id_of(&again)).await;
    assert_eq!(of_steps(&again, "reused"), [json!(true), Json::Null, json!(true), Json::Null]);
    assert_eq!(target.count("/one"), 1, "the step that completed did not run again");
    assert!(again.get("reusedOutputs").is_none(), "outputs are shown with the steps");
    let chain = site.history(&id_of(&again)).await;
    assert_eq!(chain.entries[0]["record"]["reusedOutputs"][1]["status"], 200);
    chain.verify();
    site.control(&id, "delete").await.expect(200);
    let kept = site.job(&id_of(&again)).await;
    assert_eq!(kept["steps"][2]["output"]["status"], 200, "{kept}");
}
