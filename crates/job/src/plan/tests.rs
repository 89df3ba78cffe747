use super::source::Outputs;
use super::*;
use catena_value::{NoCells, json};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn value(text: &str) -> Value {
    json::read(text.as_bytes()).unwrap()
}

/// Metadata with these steps and this result.
fn metadata(steps: &str, result: &str) -> Value {
    value(&format!(
        r#"{{"name":"x","operation":{{"adapter":"orchestrator","steps":{steps},"result":{result}}}}}"#
    ))
}

fn problems(steps: &str, result: &str) -> Vec<String> {
    let problems = Plan::parse(&metadata(steps, result)).unwrap_err();
    problems.iter().map(ToString::to_string).collect()
}

/// An input and the outputs of some steps.
struct Given {
    input: Value,
    outputs: BTreeMap<u32, Value>,
}

impl Outputs for Given {
    fn input(&self) -> &Value {
        &self.input
    }

    fn output(&self, step: u32) -> Option<&Value> {
        self.outputs.get(&step)
    }
}

fn evaluate(source: &str) -> Result<Value, String> {
    let steps = r#"[{"op":"a","input":{}},{"op":"b","input":{}}]"#;
    let plan = Plan::parse(&metadata(steps, source)).unwrap();
    let given = Given {
        input: value(r#"{"name":"Ada","config":{"model":"m","none":null},"list":[1,2]}"#),
        outputs: [(0, value(r#"{"output":{"n":7}}"#))].into(),
    };
    let evaluated = plan.result.evaluate(&given, &NoCells);
    evaluated.map(|evaluated| evaluated.value).map_err(|error| error.to_string())
}

/// Evaluates a source against an input.
fn evaluate_with_input(source: &str, input: Value) -> Result<Value, String> {
    let plan = Plan::parse(&metadata(r#"[{"op":"a","input":{}}]"#, source)).unwrap();
    let evaluated = plan.result.evaluate(&Given { input, outputs: [].into() }, &NoCells);
    evaluated.map(|evaluated| evaluated.value).map_err(|error| error.to_string())
}

#[test]
fn a_member_keeps_its_name_however_long_it_is() {
    let (one, two) = ("k".repeat(5_000), "j".repeat(5_000));
    let source = format!(r#"{{"{one}":["const",1],"{two}":["const",2]}}"#);
    assert_eq!(evaluate(&source), Ok(value(&format!(r#"{{"{one}":1,"{two}":2}}"#))));
}

#[test]
fn sources_assemble_no_more_than_a_value_may_be() {
    let large = Value::from("x".repeat(6_000_000));
    let refused = Err("the assembled value has more than 16777216 bytes".to_owned());
    assert!(evaluate_with_input(r#"["concat",["input"],["input"]]"#, large.clone()).is_ok());
    assert_eq!(
        evaluate_with_input(r#"["concat",["input"],["input"],["input"]]"#, large.clone()),
        refused
    );
    assert_eq!(
        evaluate_with_input(r#"["array",["input"],["input"],["input"]]"#, large.clone()),
        refused
    );
    let twice = r#"["array",["concat",["input"]],["concat",["input"],["input"]]]"#;
    assert_eq!(evaluate_with_input(twice, large), refused);
    let deep = value(&format!("{}1{}", "[".repeat(128), "]".repeat(128)));
    let wrapped = |times| format!("{}[\"input\"]{}", "{\"a\":".repeat(times), "}".repeat(times));
    assert!(evaluate_with_input(&wrapped(8), deep.clone()).is_ok());
    let refused = "the assembled value nests deeper than 136 arrays and objects".to_owned();
    assert_eq!(evaluate_with_input(&wrapped(9), deep), Err(refused));
}

#[test]
fn sources_evaluate_to_what_they_name() {
    for (source, expected) in [
        (r#"["input"]"#, r#"{"name":"Ada","config":{"model":"m","none":null},"list":[1,2]}"#),
        (r#"["input","config","model"]"#, r#""m""#),
        (r#"["input","config","none"]"#, "null"),
        (r#"["input","list",1]"#, "2"),
        (r#"["const",{"a":[1]}]"#, r#"{"a":[1]}"#),
        (r#"[0]"#, r#"{"output":{"n":7}}"#),
        (r#"[0,"output","n"]"#, "7"),
        (r#"["array",["const",1],[0,"output"]]"#, r#"[1,{"n":7}]"#),
        (
            r#"["concat",["input","name"],["const"," is "],[0,"output","n"],["const",null],["const",1.0],["const",true]]"#,
            r#""Ada is 71.0true""#,
        ),
        (r#"{"a":["input","name"],"b":{"c":["const",null]}}"#, r#"{"a":"Ada","b":{"c":null}}"#),
    ] {
        assert_eq!(evaluate(source), Ok(value(expected)), "{source}");
    }
}

#[test]
fn an_absent_optional_input_is_null() {
    for source in [r#"["input","absent"]"#, r#"["input","absent","deeper",3]"#] {
        assert_eq!(evaluate(source), Ok(Value::Nil), "{source}");
    }
}

#[test]
fn what_is_absent_is_named() {
    for (source, expected) in [
        (r#"["input","config","missing"]"#, "the input has nothing at `config/missing`"),
        (r#"["input","list",2]"#, "the input has nothing at `list/2`"),
        (r#"["input","name","x"]"#, "the input has nothing at `name/x`"),
        (r#"[0,"out"]"#, "the output of step 0 has nothing at `out`"),
        (r#"[1]"#, "step 1 has no output yet"),
        (
            r#"["concat",["const","a"],["const",[1]]]"#,
            "`concat` takes strings, numbers and booleans, but part 1 is of type array",
        ),
    ] {
        assert_eq!(evaluate(source), Err(expected.to_owned()), "{source}");
    }
}

#[test]
fn every_problem_is_reported_with_its_pointer() {
    let steps = r#"[
        {"op":"a","input":{"x":[0],"y":[1],"z":[-1],"f":[1.5],"lit":"plain"}},
        {"input":{"list":[]}},
        {"op":7,"name":1,"venue":{}},
        "step"
    ]"#;
    assert_eq!(
        sorted(problems(steps, r#"{"r":[4],"deep/er":["const"]}"#)),
        sorted(vec![
            "/operation/steps/0/input/x/0: step 0 refers to itself".to_owned(),
            "/operation/steps/0/input/y/0: step 0 refers to step 1, which does not come before it".into(),
            "/operation/steps/0/input/z/0: must be the index of a step: a whole number of at least 0".into(),
            "/operation/steps/0/input/f/0: must be the index of a step: a whole number of at least 0".into(),
            "/operation/steps/0/input/lit: is not a source (write a literal as [\"const\", \"plain\"])".into(),
            "/operation/steps/1/op: is missing".into(),
            "/operation/steps/1/input/list: is not a source (write a literal as [\"const\", []])".into(),
            "/operation/steps/2/op: must be a non-empty string".into(),
            "/operation/steps/2/input: is missing".into(),
            "/operation/steps/2/name: must be a string".into(),
            "/operation/steps/2/venue: must be a string".into(),
            "/operation/steps/3: must be an object with `op` and `input`".into(),
            "/operation/result/r/0: the result refers to step 4, which does not exist".into(),
            "/operation/result/deep~1er: `const` takes exactly one value".into(),
        ])
    );
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn an_unknown_member_of_a_step_is_a_problem() {
    let steps = r#"[
        {"op":"t:x","input":{},"when":true,"x-note":1},
        {"op":"t:x","input":{},"operation":"t:y","venu":"https://v"}
    ]"#;
    assert_eq!(
        problems(steps, r#"{"r":[0]}"#),
        [
            "/operation/steps/0/when: unknown member `when`",
            "/operation/steps/1/operation: unknown member `operation`; the nearest is `op`",
            "/operation/steps/1/venu: unknown member `venu`; the nearest is `venue`",
        ]
    );
}

#[test]
fn the_shape_is_checked() {
    let step = r#"[{"op":"a","input":{}}]"#;
    assert_eq!(problems("[]", "{}"), ["/operation/steps: must have at least one step"]);
    assert_eq!(problems("{}", "{}"), ["/operation/steps: must be an array of steps"]);
    assert_eq!(problems(step, "1"), ["/operation/result: must be an object or an array"]);
    let many = format!("[{}]", vec![r#"{"op":"a","input":{}}"#; 1_001].join(","));
    assert_eq!(
        problems(&many, "{}"),
        ["/operation/steps: has 1001 steps; at most 1000 are allowed"]
    );
    let missing = value(r#"{"operation":{"adapter":"http:get","steps":[{"op":"a","input":{}}]}}"#);
    let found: Vec<_> =
        Plan::parse(&missing).unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        ["/operation/adapter: must be \"orchestrator\"", "/operation/result: is missing"]
    );
    assert!(Plan::parse(&Value::Nil).is_err());
    let policy = value(
        r#"{"operation":{"adapter":"orchestrator","onFailure":"leave","steps":[{"op":"a","input":{}}],"result":[0]}}"#,
    );
    assert_eq!(Plan::parse(&policy).unwrap().on_failure, OnFailure::Leave);
}

#[test]
fn waves_and_the_critical_path_follow_from_the_data() {
    let steps = r#"[
        {"op":"read","input":{"path":["const","w/vendors"]}},
        {"op":"read","input":{"path":["const","w/orders"]}},
        {"op":"join","input":{"a":[0],"b":{"c":["concat",[1,"x"],["input","y"]]}}},
        {"op":"alone","input":["input"]},
        {"op":"last","input":["array",[2],[3]]}
    ]"#;
    let plan = Plan::parse(&metadata(steps, "[4]")).unwrap();
    let graph = plan.graph();
    assert_eq!(graph.waves(), [vec![0, 1, 3], vec![2], vec![4]]);
    assert_eq!(graph.critical_path(), [0, 2, 4]);
    assert_eq!(graph.first_steps(), [0, 1, 3]);
    assert_eq!(graph.next_steps(0, |step| step == 0), Vec::<u32>::new());
    assert_eq!(graph.next_steps(1, |step| step <= 1), [2]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_step_runs_once_and_after_what_it_needs(
        needs in proptest::collection::vec(proptest::collection::vec(any::<proptest::sample::Index>(), 0..4), 1..60),
    ) {
        let step = |(at, needs): (usize, &Vec<proptest::sample::Index>)| {
            let sources: Vec<String> = needs
                .iter()
                .filter(|_| at > 0)
                .map(|need| format!("[{}]", need.index(at.max(1))))
                .collect();
            format!(r#"{{"op":"a","input":["array"{}]}}"#, sources.iter().map(|s| format!(",{s}")).collect::<String>())
        };
        let steps: Vec<String> = needs.iter().enumerate().map(step).collect();
        let plan = Plan::parse(&metadata(&format!("[{}]", steps.join(",")), "{}")).unwrap();
        let graph = plan.graph();
        let mut ended = BTreeSet::new();
        let mut ready = graph.first_steps();
        while let Some(step) = ready.pop() {
            prop_assert!(graph.dependencies(step).iter().all(|need| ended.contains(need)));
            prop_assert!(ended.insert(step), "step {} ran twice", step);
            ready.extend(graph.next_steps(step, |other| ended.contains(&other)));
        }
        prop_assert_eq!(ended.len(), plan.steps.len());
        let waves = graph.waves();
        prop_assert_eq!(waves.len(), graph.critical_path().len());
        prop_assert_eq!(waves.iter().map(Vec::len).sum::<usize>(), plan.steps.len());
    }
}
