//! The 200 formulas on which the front end was judged, and equal bytes for equal requests.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use catena_render::{RenderError, Rendered, render};
use serde_json::json;

const FORMULAS: &str = include_str!("formulas.txt");

fn rendered(source: &str) -> Result<Rendered, RenderError> {
    let request = json!({"task": "render", "formats": ["svg"], "object": {"format": "latex", "source": source}});
    render(&request, &|_| None)
}

#[test]
fn every_formula_is_set_or_names_the_command() {
    let mut set = 0;
    let mut wrong = Vec::new();
    for line in FORMULAS.lines() {
        let (kind, source) = line.split_once('\t').unwrap();
        match rendered(source) {
            Ok(made) => {
                set += 1;
                let svg = String::from_utf8(made.outputs[0].bytes.clone()).unwrap();
                assert!(svg.contains("<path") || svg.contains("<use"), "{source} is empty");
            }
            Err(error) if kind == "unsupported" => {
                assert!(error.message.contains('\\') && error.line.is_some(), "{error:?}");
            }
            Err(error) => wrong.push(format!("{source}: {error:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!((set, FORMULAS.lines().count()), (198, 200));
}

#[test]
fn equal_requests_give_equal_bytes() {
    for line in FORMULAS.lines().step_by(7) {
        let (_, source) = line.split_once('\t').unwrap();
        assert_eq!(rendered(source), rendered(source), "{source}");
    }
}

/// What is not among the 200 and yet often used. Each must be accepted by Typst, too.
#[test]
fn alignments_and_phantoms_are_set() {
    for source in [
        r"\begin{pmatrix*}[r]1\\-10\end{pmatrix*}",
        r"x\hphantom{abc}y",
        r"\sqrt{\vphantom{\frac12}x}\mathstrut",
        r"\genfrac{[}{]}{0pt}{2}{a}{b}\genfrac{}{}{}{3}{a}{b}",
        r"\begin{array}{r@{}l}a & b\end{array}",
    ] {
        rendered(source).unwrap_or_else(|error| panic!("{source}: {error:?}"));
    }
    let width =
        |source: &str| rendered(source).unwrap().outputs[0].facts["width"].as_f64().unwrap();
    let height =
        |source: &str| rendered(source).unwrap().outputs[0].facts["height"].as_f64().unwrap();
    assert!((width(r"x\hphantom{abc}y") - width(r"xabcy")).abs() < 0.6);
    assert!((height(r"\vphantom{\frac12}x") - height(r"\frac12")).abs() < 0.1);
    assert!((height(r"\hphantom{\frac12}x") - height("x")).abs() < 0.1);
}
