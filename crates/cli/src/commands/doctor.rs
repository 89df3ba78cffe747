//! `catena doctor`: what this host allows, found out by doing it.

use std::path::PathBuf;

use catena_sandbox::{Feature, Probe, Tier, TierProbe, probe};
use catena_value::{Map, Value, Vector};

use crate::commands::executor::interpreters;
use crate::exit::Exit;
use crate::format::table;
use crate::output::{Failure, Output};

/// Check whether this host can run untrusted code, and say why not.
///
/// Starts a sandbox at each tier and runs a cell in it. Ends with 0 if the weakest tier that is
/// accepted, or a stronger one, works; with 1 if not.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The weakest tier that is accepted.
    #[arg(long, value_name = "TIER", default_value = "T2", value_parser = parse_tier)]
    minimum: Tier,

    /// The Python interpreter; the first `python3` that can be used by default.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let found = probe(&interpreters(args.python.as_ref()), args.minimum);
    if output.is_json() {
        output.value(&described(&found));
    } else {
        let heads = ["", "WORKS", "WHAT WAS SEEN"].map(str::to_owned).to_vec();
        let features = found.features.iter().map(feature_row);
        let rows: Vec<_> =
            [heads].into_iter().chain(features).chain(found.tiers.iter().map(tier_row)).collect();
        table(&rows).iter().for_each(|line| output.line(line));
        output.line(&summary(&found));
    }
    if found.is_sufficient() { Ok(()) } else { Err(Failure::already_reported(Exit::JobFailed)) }
}

pub(super) fn parse_tier(text: &str) -> Result<Tier, String> {
    let known = Tier::ALL.into_iter().find(|tier| tier.as_str().eq_ignore_ascii_case(text));
    known.ok_or_else(|| "a tier is T1, T2, T3, T4 or T5".to_owned())
}

fn summary(found: &Probe) -> String {
    let minimum = found.minimum;
    match found.best() {
        Some(tier) if found.is_sufficient() => {
            format!("Untrusted code runs at {tier}; at least {minimum} is required.")
        }
        _ => format!("Untrusted code is refused here: at least {minimum} is required."),
    }
}

fn yes_or_no(works: bool) -> String {
    (if works { "yes" } else { "no" }).to_owned()
}

fn feature_row(feature: &Feature) -> Vec<String> {
    vec![feature.name.to_owned(), yes_or_no(feature.works), feature.reason.clone()]
}

fn tier_row(tier: &TierProbe) -> Vec<String> {
    vec![tier.tier.to_string(), yes_or_no(tier.works), tier.reason.clone()]
}

fn described(found: &Probe) -> Value {
    let features = found.features.iter().map(|feature| {
        let members = [
            ("name", Value::from(feature.name)),
            ("works", feature.works.into()),
            ("reason", feature.reason.as_str().into()),
        ];
        Value::from(members.into_iter().collect::<Map>())
    });
    let tiers = found.tiers.iter().map(|tier| {
        let members = [
            ("tier", Value::from(tier.tier.as_str())),
            ("about", tier.tier.about().into()),
            ("works", tier.works.into()),
            ("reason", tier.reason.as_str().into()),
        ];
        Value::from(members.into_iter().collect::<Map>())
    });
    let best = found.best().map_or(Value::Nil, |tier| tier.as_str().into());
    let members = [
        ("minimum", Value::from(found.minimum.as_str())),
        ("best", best),
        ("sufficient", found.is_sufficient().into()),
        ("tiers", tiers.collect::<Vector>().into()),
        ("features", features.collect::<Vector>().into()),
    ];
    members.into_iter().collect::<Map>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_what_follows() {
        let tier = |tier, works| TierProbe { tier, works, reason: String::new() };
        let mut found =
            Probe { tiers: vec![tier(Tier::T2, true)], features: Vec::new(), minimum: Tier::T2 };
        assert_eq!(summary(&found), "Untrusted code runs at T2; at least T2 is required.");
        found.minimum = Tier::T1;
        assert_eq!(summary(&found), "Untrusted code is refused here: at least T1 is required.");
        assert_eq!(parse_tier("t1"), Ok(Tier::T1));
        assert!(parse_tier("T9").is_err());
    }
}
