//! `render`: formulas and a document through the sandbox, against `print(1)` through the same sandbox.
//!
//! Every request is checked: that it succeeded, and that it left its file.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use catena_sandbox::{
    Cell, Config, Control, Entrypoint, Interpreter, Outcome, Profile, Sandbox, USUAL_PATHS, Verdict,
};

use crate::Fault;
use crate::cells::{print, used};
use crate::measure::Round;

/// Formulas and a document through the sandbox: latency, and what is left after many.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Formulas whose latency is measured, and cells to compare them with.
    #[arg(long, default_value_t = 500)]
    formulas: usize,
    /// Formulas after which memory, descriptors and processes are compared.
    #[arg(long, default_value_t = 1_000)]
    many: usize,
    /// The binary whose child side renders. It is not used: this program is one itself.
    #[arg(long)]
    catena: Option<PathBuf>,
    /// A run of a few seconds that only shows that everything works.
    #[arg(long)]
    small: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let (formulas, many) = if args.small { (10, 40) } else { (args.formulas, args.many) };
    let paths: Vec<PathBuf> = USUAL_PATHS.iter().map(PathBuf::from).collect();
    let python = start(Interpreter::first_of(&paths)?)?;
    let printed = measure(&python, formulas, |_| Cell::new("print(1)"))?;
    print("print(1) through the sandbox", &printed);
    drop(python);
    let begun = Instant::now();
    let renderer = start(Interpreter::this_binary()?)?;
    println!("the renderer was ready after {} ms", begun.elapsed().as_millis());
    let rendered = measure(&renderer, formulas, formula)?;
    print("a formula as SVG", &rendered);
    println!(
        "  ratio of the medians {:.2} (target 2), {:.2} ms (target 15)",
        rendered.p50_us as f64 / printed.p50_us as f64,
        rendered.p50_us as f64 / 1000.0
    );
    let document = measure(&renderer, if args.small { 1 } else { 10 }, |_| document())?;
    print("ten pages with 20 formulas and 5 figures as PDF", &document);
    let before = used()?;
    for number in 0..many {
        check(&renderer, &formula(formulas + number))?;
    }
    renderer.wait_ready(Duration::from_secs(10));
    let after = used()?;
    println!(
        "{many} formulas: resident kB, descriptors and processes {before:?} before, {after:?} after"
    );
    Ok(())
}

fn start(interpreter: Interpreter) -> Result<Sandbox, Fault> {
    let profile = Profile {
        name: "bench".to_owned(),
        interpreter,
        has_site: false,
        packages: None,
        preload: Vec::new(),
    };
    Ok(Sandbox::start(Config { pool: 4, ..Config::new(profile) })?)
}

/// Runs cells one after the other, each from a full pool.
fn measure(sandbox: &Sandbox, count: usize, cell: impl Fn(usize) -> Cell) -> Result<Round, Fault> {
    let mut latencies = Vec::with_capacity(count);
    let begun = Instant::now();
    for number in 0..count {
        let cell = cell(number);
        sandbox.wait_ready(Duration::from_secs(10));
        let started = Instant::now();
        check(sandbox, &cell)?;
        latencies.push(u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    Round::from_latencies(latencies, begun.elapsed())
}

fn check(sandbox: &Sandbox, cell: &Cell) -> Result<(), Fault> {
    let Outcome { verdict, artifacts, stdout, .. } = sandbox.run(cell, &Control::new()?)?;
    if verdict == Verdict::Succeeded && (artifacts.len() == 1 || stdout.text == "1\n") {
        return Ok(());
    }
    Err(format!("a request ended as {verdict:?} with {} files", artifacts.len()).into())
}

fn request(request: &serde_json::Value) -> Cell {
    Cell { entrypoint: Entrypoint::None, parameters: request.to_string(), ..Cell::new("") }
}

/// A formula that no other request has.
fn formula(number: usize) -> Cell {
    let source =
        format!("\\int_0^{{{number}}} \\frac{{x^2 + {number}}}{{\\sqrt{{1 + x^{number}}}}} \\, dx");
    request(&serde_json::json!({
        "task": "render", "formats": ["svg"], "object": {"format": "latex", "source": source},
    }))
}

/// The document of the target.
fn document() -> Cell {
    let mut blocks = Vec::new();
    let words = "A sentence with some words that fills a line of the page. ".repeat(24);
    let mut figures = 0;
    for section in 0..10 {
        blocks.push(serde_json::json!({"type": "heading", "level": 1, "text": format!("Section {section}")}));
        for part in 0..2 {
            blocks.push(
                serde_json::json!({"type": "text", "text": format!("{words} {section}.{part}")}),
            );
            let latex = format!(
                "\\sum_{{i=1}}^{{{section}}} \\frac{{i^{part}}}{{n!}} = \\int_0^1 f_{section}(x)\\,dx"
            );
            blocks.push(serde_json::json!({"type": "equation", "latex": latex}));
        }
        if section % 2 == 0 {
            figures += 1;
            blocks.push(serde_json::json!({"type": "figure", "digest": "figure", "caption": format!("Figure {figures}")}));
        }
        blocks.push(serde_json::json!({"type": "page_break"}));
    }
    let mut cell = request(&serde_json::json!({
        "task": "export", "format": "pdf", "document": {"title": "Ten pages", "blocks": blocks},
    }));
    cell.inputs.extend(figure().ok());
    cell
}

/// A figure of 200 by 100 points.
fn figure() -> std::io::Result<catena_sandbox::Input> {
    use std::io::{Seek as _, Write as _};
    let points: String = (0..200).map(|x| format!("{x},{} ", (x * x) % 97)).collect();
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"200\" height=\"100\"><polyline points=\"{points}\" fill=\"none\" stroke=\"navy\"/></svg>"
    );
    let mut file = tempfile::tempfile()?;
    file.write_all(svg.as_bytes())?;
    file.rewind()?;
    Ok(catena_sandbox::Input { name: "figure".to_owned(), file })
}
