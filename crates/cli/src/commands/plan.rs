//! `catena plan`: an orchestration explained without running it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use catena_job::plan::{Graph, Plan, Problem, Source};
use catena_value::{Map, Value, Vector, json};

use crate::exit::Exit;
use crate::input::Input;
use crate::output::{Failure, Output};

/// Explain an orchestration: its waves, its critical path, and what is wrong with it.
///
/// Checks everything that can be known without a venue. Whether operations exist and what their
/// schemas ask for is checked when the job starts.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The metadata of an orchestration, or - for the standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Draw the graph in the DOT language.
    #[arg(long, conflicts_with_all = ["mermaid", "json"])]
    dot: bool,

    /// Draw the graph in the Mermaid language.
    #[arg(long, conflicts_with = "json")]
    mermaid: bool,
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let metadata = Input::open(&args.file)?.document()?;
    let plan = Plan::parse(&metadata).map_err(|problems| failure(&problems))?;
    let graph = plan.graph();
    let lines = match (args.dot, args.mermaid, output.is_json()) {
        (true, _, _) => dot(&plan, &graph),
        (_, true, _) => mermaid(&plan, &graph),
        (_, _, true) => vec![json::to_string(&describe_json(&plan, &graph)).unwrap_or_default()],
        _ => describe(&plan, &graph),
    };
    lines.iter().for_each(|line| output.line(line));
    Ok(())
}

fn failure(problems: &[Problem]) -> Failure {
    let lines: Vec<String> = problems.iter().map(|problem| format!("\n  {problem}")).collect();
    let count = problems.len();
    let ending = if count == 1 { "" } else { "s" };
    let message = format!("the orchestration has {count} problem{ending}:{}", lines.concat());
    let each = |problem: &Problem| -> Value {
        let mut fields = vec![
            ("pointer", Value::from(problem.pointer.as_str())),
            ("message", problem.message.as_str().into()),
        ];
        fields.extend(problem.hint.as_deref().map(|hint| ("hint", hint.into())));
        fields.into_iter().collect::<Map>().into()
    };
    let all: Vector = problems.iter().map(each).collect();
    Failure::new(Exit::Invalid, "invalid_orchestration", message).with("problems", all)
}

/// `2 Join (test:echo)`.
fn label(plan: &Plan, step: u32) -> String {
    let step_of_plan = &plan.steps[step as usize];
    match &step_of_plan.name {
        Some(name) => format!("{step} {name} ({})", step_of_plan.op),
        None => format!("{step} ({})", step_of_plan.op),
    }
}

fn describe(plan: &Plan, graph: &Graph) -> Vec<String> {
    let waves = graph.waves();
    let path: Vec<String> = graph.critical_path().iter().map(u32::to_string).collect();
    let mut lines = vec![
        format!("steps: {}", plan.steps.len()),
        format!("waves: {}", waves.len()),
        format!("critical path: {}", path.join(" -> ")),
    ];
    for (at, wave) in waves.iter().enumerate() {
        let steps: Vec<String> = wave.iter().map(|step| label(plan, *step)).collect();
        lines.push(format!("wave {}: {}", at + 1, steps.join(", ")));
    }
    for (step, venue, sent) in federated(plan) {
        lines.push(format!("step {step} is sent to {venue} with {}", sent.join(", ")));
    }
    lines
}

/// Steps that run elsewhere, and what leaves this venue for each.
fn federated(plan: &Plan) -> Vec<(u32, &str, Vec<String>)> {
    let elsewhere = (0u32..).zip(&plan.steps).filter_map(|(index, step)| {
        let mut sent = BTreeSet::new();
        sources(&step.input, &mut sent);
        step.venue.as_deref().map(|venue| (index, venue, sent.into_iter().collect()))
    });
    elsewhere.collect()
}

/// The places that a source takes values from, in words.
fn sources(source: &Source, found: &mut BTreeSet<String>) {
    let place = |what: String, path: String| match path.is_empty() {
        true => what,
        false => format!("{what} at `{path}`"),
    };
    match source {
        Source::Input(path) => {
            found.insert(place("the input".to_owned(), path.to_string()));
        }
        Source::Step { index, path } => {
            found.insert(place(format!("the output of step {index}"), path.to_string()));
        }
        Source::Const(_) => {
            found.insert("constants".to_owned());
        }
        Source::Concat(parts) | Source::Array(parts) => {
            parts.iter().for_each(|part| sources(part, found));
        }
        Source::Object(members) => members.iter().for_each(|(_, member)| sources(member, found)),
    }
}

fn describe_json(plan: &Plan, graph: &Graph) -> Value {
    let numbers = |steps: &[u32]| -> Value {
        steps.iter().map(|step| Value::from(*step)).collect::<Vector>().into()
    };
    let step = |index: u32| -> Value {
        let step = &plan.steps[index as usize];
        let needs: Vec<u32> = graph.dependencies(index).iter().copied().collect();
        let mut fields = vec![
            ("index", Value::from(index)),
            ("op", step.op.as_str().into()),
            ("dependsOn", numbers(&needs)),
        ];
        fields.extend(step.name.as_deref().map(|name| ("name", name.into())));
        fields.extend(step.venue.as_deref().map(|venue| ("venue", venue.into())));
        if step.venue.is_some() {
            let mut sent = BTreeSet::new();
            sources(&step.input, &mut sent);
            let sent: Vector = sent.into_iter().map(Value::from).collect();
            fields.push(("sends", sent.into()));
        }
        fields.into_iter().collect::<Map>().into()
    };
    let waves: Vector = graph.waves().iter().map(|wave| numbers(wave)).collect();
    let steps: Vector = (0u32..).take(plan.steps.len()).map(step).collect();
    let fields = [
        ("steps", Value::from(steps)),
        ("waves", waves.into()),
        ("criticalPath", numbers(&graph.critical_path())),
    ];
    fields.into_iter().collect::<Map>().into()
}

fn edges(plan: &Plan, graph: &Graph) -> Vec<(u32, u32)> {
    let steps = (0u32..).take(plan.steps.len());
    steps.flat_map(|to| graph.dependencies(to).iter().map(move |from| (*from, to))).collect()
}

/// Text inside double quotes of either drawing language.
fn quoted(text: &str) -> String {
    text.replace('\\', "/").replace('"', "'").replace(['\n', '\r'], " ")
}

fn dot(plan: &Plan, graph: &Graph) -> Vec<String> {
    let mut lines = vec!["digraph plan {".to_owned(), "  rankdir=LR;".to_owned()];
    for step in (0u32..).take(plan.steps.len()) {
        lines.push(format!("  s{step} [label=\"{}\"];", quoted(&label(plan, step))));
    }
    lines.extend(edges(plan, graph).iter().map(|(from, to)| format!("  s{from} -> s{to};")));
    lines.push("}".to_owned());
    lines
}

fn mermaid(plan: &Plan, graph: &Graph) -> Vec<String> {
    let mut lines = vec!["flowchart LR".to_owned()];
    for step in (0u32..).take(plan.steps.len()) {
        lines.push(format!("  s{step}[\"{}\"]", quoted(&label(plan, step))));
    }
    lines.extend(edges(plan, graph).iter().map(|(from, to)| format!("  s{from} --> s{to}")));
    lines
}
