//! The examples of COG-12 with their expected behaviour. The JSON files next to this one are exact
//! copies from the specification; the dependencies and inputs of the steps are written by hand.

use super::support::harness::{Case, Step};
use super::support::value;

/// Returns the four complete examples, and the four steps of "Parallel by Default".
pub(crate) fn all() -> Vec<Case> {
    vec![two_steps(), fan_out(), invoice(), federated(), parallel_by_default()]
}

fn step(duration_ms: u64, dependencies: &[usize], input: &str) -> Step {
    let dependencies = dependencies.to_vec();
    Step { duration_ms, dependencies, expected_input: value(input) }
}

/// Simple Two-Step Pipeline: "Steps 0 and 1 have no mutual dependency — they run in parallel."
pub(crate) fn two_steps() -> Case {
    Case {
        name: "Fetch and Process".to_owned(),
        definition: include_str!("two_step_pipeline.json").to_owned(),
        input: r#"{"url":"https://example.com/data"}"#.to_owned(),
        steps: vec![
            step(120, &[], r#"{"url":"https://example.com/data"}"#),
            step(
                200,
                &[],
                r#"{"messages":[{"role":"user","content":"Summarise this data"}],"model":"gpt-4o"}"#,
            ),
        ],
        output: value(r#"{"raw":"from https://example.com/data","summary":"from gpt-4o"}"#),
    }
}

/// Parallel Fan-Out: "Steps 0-2 run in parallel. Step 3 waits for all three."
pub(crate) fn fan_out() -> Case {
    Case {
        name: "Multi-Source Aggregation".to_owned(),
        definition: include_str!("parallel_fan_out.json").to_owned(),
        input: "{}".to_owned(),
        steps: vec![
            step(100, &[], r#"{"path":"w/vendors"}"#),
            step(160, &[], r#"{"path":"w/orders"}"#),
            step(220, &[], r#"{"path":"w/invoices"}"#),
            step(
                100,
                &[0, 1, 2],
                r#"{"agentId":"Analyser","wait":true,"input":{"vendors":"from w/vendors",
                    "orders":"from w/orders","invoices":"from w/invoices"}}"#,
            ),
        ],
        output: value(r#"{"analysis":"from Analyser"}"#),
    }
}

/// Agent Pipeline: "Strictly sequential — each step depends on the previous."
pub(crate) fn invoice() -> Case {
    Case {
        name: "AP Invoice Pipeline".to_owned(),
        definition: include_str!("ap_invoice_pipeline.json").to_owned(),
        input: r#"{"invoice_text":"Invoice 7: 3 chairs"}"#.to_owned(),
        steps: vec![
            step(
                100,
                &[],
                r#"{"agentId":"Alice","input":{"invoice_text":"Invoice 7: 3 chairs"},"wait":true}"#,
            ),
            step(
                140,
                &[0],
                r#"{"agentId":"Bob","wait":true,
                    "input":{"source_agent":"Alice","extraction":"from Alice"}}"#,
            ),
            step(
                80,
                &[0, 1],
                r#"{"agentId":"Carol","wait":true,"input":{"source_pipeline":"Alice -> Bob -> Carol",
                    "extraction":"from Alice","enrichment":"from Bob"}}"#,
            ),
        ],
        output: value(
            r#"{"extraction":"from Alice","enrichment":"from Bob","decision":"from Carol"}"#,
        ),
    }
}

/// Federated Pipeline: "Step 0 executes locally. Step 1 executes on a remote compliance venue."
pub(crate) fn federated() -> Case {
    Case {
        name: "Cross-Venue Pipeline".to_owned(),
        definition: include_str!("federated_pipeline.json").to_owned(),
        input: r#"{"page":1}"#.to_owned(),
        steps: vec![
            step(100, &[], r#"{"agentId":"Scanner","input":{"page":1},"wait":true}"#),
            step(200, &[0], r#"{"agentId":"Validator","input":"from Scanner","wait":true}"#),
        ],
        output: value(r#"{"scanned":"from Scanner","validated":"from Validator"}"#),
    }
}

/// Parallel by Default: three steps without dependencies, and one that waits for all of them.
pub(crate) fn parallel_by_default() -> Case {
    let definition = r#"{"type":"orchestration","operation":{"adapter":"orchestrator","steps":[
        {"op":"covia:read","input":{"path":["const","w/a"]}},
        {"op":"covia:read","input":{"path":["const","w/b"]}},
        {"op":"http:get","input":{"url":["input"]}},
        {"op":"agent:request","input":{"agentId":["const","Dora"],"input":["array",[0,"value"],[1,"value"],[2,"body"]]}}
      ],"result":[3,"output"]}}"#;
    Case {
        name: "Parallel by Default".to_owned(),
        definition: definition.to_owned(),
        input: r#""https://example.com""#.to_owned(),
        steps: vec![
            step(200, &[], r#"{"path":"w/a"}"#),
            step(160, &[], r#"{"path":"w/b"}"#),
            step(120, &[], r#"{"url":"https://example.com"}"#),
            step(
                100,
                &[0, 1, 2],
                r#"{"agentId":"Dora","input":["from w/a","from w/b","from https://example.com"]}"#,
            ),
        ],
        output: "from Dora".into(),
    }
}
