//! `compare`: two binaries in turn on the same workloads, so that what disturbs the machine disturbs
//! both.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Fault;
use crate::http::{self, Kind};
use crate::measure::median;
use crate::orchestrations::{self, AT_ONCE};
use crate::web::{Options, Venue, pin};

/// A binary against an earlier one: `submit_echo`, `submit_delay0`, `poll` and workflows, in turn.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// The binary to compare with.
    #[arg(long, value_name = "BINARY")]
    with: PathBuf,
    /// The duration of each measurement in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// The number of rounds. In each, every workload runs once on either binary.
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// A run of a few seconds that only shows that everything works.
    #[arg(long)]
    small: bool,
}

impl Args {
    /// The duration of each measurement.
    fn time(&self) -> Duration {
        Duration::from_secs_f64(if self.small { 0.2 } else { self.seconds })
    }
}

/// The connections of the workloads that are not workflows.
const CONNECTIONS: usize = 64;

/// A rate per second and the core time of a request, in seconds.
type Figures = (f64, f64);

/// What is compared.
#[derive(Clone, Copy)]
enum Workload {
    Http(Kind),
    Workflows,
}

const WORKLOADS: [Workload; 4] = [
    Workload::Http(Kind::Echo),
    Workload::Http(Kind::Delay),
    Workload::Http(Kind::Poll),
    Workload::Workflows,
];

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Workload::Http(kind) => kind.name(),
            Workload::Workflows => "workflows",
        }
    }
}

/// The two venues of one binary: one for jobs, one for workflows.
struct Subject {
    jobs: http::Bench,
    workflows: orchestrations::Bench,
    /// The body that invokes the workflow.
    invocation: String,
}

impl Subject {
    fn start(
        args: &Args,
        binary: &Path,
        folder: &Path,
        cores: Option<(usize, usize)>,
    ) -> Result<Subject, Fault> {
        let jobs = Venue::start(binary, &folder.join("jobs"), cores)?;
        let venue = Venue::start(binary, &folder.join("workflows"), cores)?;
        if let Some((own, _)) = cores {
            pin(own)?;
        }
        let wait_mode = args.options.wait_mode();
        let time = args.time();
        let jobs = http::Bench::warmed_up(jobs, time, wait_mode)?;
        let workflows = orchestrations::Bench { venue, time, wait_mode };
        let invocation = workflows.fan_invocation()?;
        Ok(Subject { jobs, workflows, invocation })
    }

    fn measure(&mut self, workload: Workload) -> Result<Figures, Fault> {
        Ok(match workload {
            Workload::Http(kind) => {
                let measured = self.jobs.measure(kind, CONNECTIONS, None)?;
                (measured.round.rate(), measured.cost)
            }
            Workload::Workflows => {
                let measured = self.workflows.measure(&self.invocation, AT_ONCE)?;
                (measured.round.rate(), measured.cost)
            }
        })
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let rounds = if args.small { 1 } else { args.rounds };
    let (folder, _temporary) = args.options.folder()?;
    // Before this thread is pinned: afterwards it would find only one core.
    let cores = args.options.cores();
    let mut old = Subject::start(args, &args.with, &folder.join("old"), cores)?;
    let binary = args.options.binary()?;
    let mut new = Subject::start(args, &binary, &folder.join("new"), cores)?;
    let mut pairs: [Vec<(Figures, Figures)>; WORKLOADS.len()] = Default::default();
    for round in 0..rounds {
        for (workload, pairs) in WORKLOADS.into_iter().zip(&mut pairs) {
            // Neither binary is always the first: the first measurement after another workload differs.
            let pair = if round % 2 == 0 {
                let figures = old.measure(workload)?;
                (figures, new.measure(workload)?)
            } else {
                let figures = new.measure(workload)?;
                (old.measure(workload)?, figures)
            };
            pairs.push(pair);
        }
    }
    for (workload, pairs) in WORKLOADS.into_iter().zip(&pairs) {
        report(workload, pairs);
    }
    Ok(())
}

fn report(workload: Workload, pairs: &[(Figures, Figures)]) {
    let of = |figure: fn(&(Figures, Figures)) -> f64| median(pairs.iter().map(figure).collect());
    let old = (of(|pair| pair.0.0), of(|pair| pair.0.1));
    let new = (of(|pair| pair.1.0), of(|pair| pair.1.1));
    println!(
        "{:>13}: {:.0}/s before, {:.0}/s now: {:.3} by medians of rates, {:.3} by median of ratios; {:.1} and {:.1} us of core: {:.3}",
        workload.name(),
        old.0,
        new.0,
        new.0 / old.0,
        of(|pair| pair.1.0 / pair.0.0),
        old.1 * 1e6,
        new.1 * 1e6,
        old.1 / new.1,
    );
}
