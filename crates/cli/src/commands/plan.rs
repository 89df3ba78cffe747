//! `catena plan`: explains an orchestration without running it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use catena_adapters::Options;
use catena_engine::operations::schema::{Place, Schema, Secret};
use catena_job::plan::{Graph, Plan, Problem, Source};
use catena_server::config::{Config, Flags};
use catena_value::{Map, Value, Vector, json};

use crate::exit::Exit;
use crate::input::Input;
use crate::output::{Failure, Output};

/// Explain an orchestration: its waves, its critical path, and its problems.
///
/// Checks everything that can be checked without a venue. Whether operations exist and accept their
/// input is checked when the job starts.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A file with the metadata of an orchestration, or - for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print the graph in the DOT language.
    #[arg(long, conflicts_with_all = ["mermaid", "json"])]
    dot: bool,

    /// Print the graph in the Mermaid language.
    #[arg(long, conflicts_with = "json")]
    mermaid: bool,

    /// An entry of the venue's list of other venues, as `catena serve --allow-venue` takes it; may be
    /// repeated [default: from the environment and catena.toml]
    #[arg(long = "allow-venue", value_name = "URL")]
    allow_venues: Vec<String>,
}

impl Args {
    /// What the operator allows.
    fn options(&self) -> Result<Options, Failure> {
        let invalid = |error: &dyn std::fmt::Display| {
            Failure::new(Exit::Invalid, "config_invalid", error.to_string())
        };
        let joined = self.allow_venues.join(",");
        let allow_venues = (!joined.is_empty()).then_some(joined);
        let flags = Flags { allow_venues, ..Flags::default() };
        let config = Config::load(&flags, None).map_err(|error| invalid(&error))?;
        let venues = config.allow_venues.iter().map(String::as_str);
        Options::parse([], venues).map_err(|error| invalid(&error))
    }
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let metadata = Input::open(&args.file)?.document()?;
    let plan = Plan::parse(&metadata).map_err(|problems| failure(&problems))?;
    let graph = plan.graph();
    let secrets = secrets_of(&metadata);
    let options = args.options()?;
    let lines = match (args.dot, args.mermaid, output.is_json()) {
        (true, _, _) => dot(&plan, &graph),
        (_, true, _) => mermaid(&plan, &graph),
        (_, _, true) => {
            let described = describe_json(&plan, &graph, &secrets, &options);
            vec![json::to_string(&described).unwrap_or_default()]
        }
        _ => describe(&plan, &graph, &secrets, &options),
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

/// The label of a step, such as `2 Join (test:echo)`.
fn label(plan: &Plan, step: u32) -> String {
    let step_of_plan = &plan.steps[step as usize];
    match &step_of_plan.name {
        Some(name) => format!("{step} {name} ({})", step_of_plan.op),
        None => format!("{step} ({})", step_of_plan.op),
    }
}

fn describe(plan: &Plan, graph: &Graph, secrets: &[Secret], options: &Options) -> Vec<String> {
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
    for (step, of_plan) in (0u32..).zip(&plan.steps) {
        if let Some(venue) = &of_plan.venue {
            let data = SentData::from_source(&of_plan.input, secrets);
            lines.push(format!("step {step} is sent to {venue} {data}"));
            if options.is_shared_venue(venue) {
                lines.push(format!(
                    "step {step}: with delegations, all users of this venue share one account at {venue}"
                ));
            }
        }
    }
    lines
}

/// The paths in the input that the orchestration's own schema marks `writeOnly`.
fn secrets_of(metadata: &Value) -> Vec<Secret> {
    let operation = metadata.as_map().and_then(|map| map.field("operation")?.as_map());
    let schema = operation.and_then(|operation| operation.field("input"));
    let schema = schema.and_then(|schema| Schema::compile(schema).ok());
    schema.map_or_else(Vec::new, |schema| schema.secrets().to_vec())
}

/// A description of the data that a remote step sends to its venue, and of what it withholds.
#[derive(Default)]
struct SentData {
    sent: BTreeSet<String>,
    withheld: BTreeSet<String>,
}

impl std::fmt::Display for SentData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let listed =
            |places: &BTreeSet<String>| places.iter().cloned().collect::<Vec<_>>().join(", ");
        if self.sent.is_empty() {
            f.write_str("with nothing")?;
        } else {
            write!(f, "with {}", listed(&self.sent))?;
        }
        if self.withheld.is_empty() {
            return Ok(());
        }
        write!(f, ", without {} (writeOnly)", listed(&self.withheld))
    }
}

impl SentData {
    fn from_source(source: &Source, secrets: &[Secret]) -> Self {
        let mut data = SentData::default();
        data.add(source, secrets);
        data
    }

    fn add(&mut self, source: &Source, secrets: &[Secret]) {
        match source {
            Source::Input(path) => self.add_input(path.segments(), secrets),
            Source::Step { index, path } => {
                self.sent
                    .insert(describe_path(&format!("the output of step {index}"), path.segments()));
            }
            Source::Const(_) => {
                self.sent.insert("constants".to_owned());
            }
            Source::Concat(parts) | Source::Array(parts) => {
                parts.iter().for_each(|part| self.add(part, secrets));
            }
            Source::Object(members) => {
                members.iter().for_each(|(_, member)| self.add(member, secrets));
            }
        }
    }

    /// Adds a path of the input. Secrets at this path or below it are withheld.
    fn add_input(&mut self, path: &[String], secrets: &[Secret]) {
        let is_match = |(place, name): (&Place, &String)| match place {
            Place::At(own) => own == name,
            Place::Each | Place::EachExcept(_) => true,
        };
        let overlaps = |secret: &&Secret| secret.iter().zip(path).all(is_match);
        let overlapping: Vec<&Secret> = secrets.iter().filter(overlaps).collect();
        if !overlapping.iter().any(|secret| secret.len() <= path.len()) {
            self.sent.insert(describe_path("the input", path));
        }
        let name = |place: &Place| match place {
            Place::At(name) => name.clone(),
            Place::Each | Place::EachExcept(_) => "*".to_owned(),
        };
        let names = |secret: &&Secret| secret.iter().map(name).collect::<Vec<_>>();
        self.withheld
            .extend(overlapping.iter().map(|secret| describe_path("the input", &names(secret))));
    }
}

/// A description of a path in a value.
fn describe_path(what: &str, path: &[String]) -> String {
    if path.is_empty() {
        return what.to_owned();
    }
    format!("{what} at `{}`", path.join("/"))
}

fn describe_json(plan: &Plan, graph: &Graph, secrets: &[Secret], options: &Options) -> Value {
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
            let SentData { sent, withheld } = SentData::from_source(&step.input, secrets);
            let list = |places: BTreeSet<String>| -> Value {
                places.into_iter().map(Value::from).collect::<Vector>().into()
            };
            fields.push(("sends", list(sent)));
            if !withheld.is_empty() {
                fields.push(("withholds", list(withheld)));
            }
        }
        if step.venue.as_deref().is_some_and(|venue| options.is_shared_venue(venue)) {
            fields.push(("sharedAccount", true.into()));
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

/// A text for use inside double quotes of either graph language.
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
