//! `catena verify`: whether a history is one that could have happened.

use std::path::PathBuf;

use catena_job::verify::{Code, Expected, Fault, Report, verify};
use catena_job::{JobId, RecordId};
use catena_value::json;

use crate::exit::Exit;
use crate::input::Input;
use crate::output::{Failure, Output};

/// Verify the history of a job, without trusting whoever made it.
///
/// Recomputes every record's ID, follows every link, and checks that each change was allowed,
/// that nothing follows the end, that time never runs backwards, and that sub-jobs are those the
/// parent committed to. Names the first record that does not hold.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A history document as `GET /api/v1/jobs/{id}/history` returns it, or - for the standard
    /// input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Fail unless it is the history of this job.
    #[arg(long, value_name = "ID")]
    job: Option<JobId>,

    /// Fail unless the job belongs to the venue with this DID.
    #[arg(long, value_name = "DID")]
    venue: Option<String>,

    /// Fail unless this is the last record.
    #[arg(long, value_name = "ID")]
    head: Option<RecordId>,
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let document = Input::open(&args.file)?.document()?;
    let expected = Expected { job: args.job, venue: args.venue.clone(), head: args.head };
    let report = verify(&document, &expected).map_err(|fault| failure(&fault))?;
    if output.is_json() {
        output.line(&json::to_string(&report.to_value()).unwrap_or_default());
    } else {
        describe(&report).iter().for_each(|line| output.line(line));
    }
    Ok(())
}

fn describe(report: &Report) -> Vec<String> {
    let records = plural(report.records, "record");
    let mut lines = vec![
        format!("valid: job {} is {} after {records}", report.job, report.status),
        format!("venue: {}", report.venue),
        format!("head:  {}", report.head),
    ];
    if report.subjobs_verified + report.subjobs_unavailable > 0 {
        let verified = report.subjobs_verified;
        let unavailable = report.subjobs_unavailable;
        lines.push(format!("sub-jobs: {verified} verified, {unavailable} unavailable"));
    }
    if report.signatures_unchecked > 0 {
        lines.push(format!("signatures: {} not checked", report.signatures_unchecked));
    }
    lines
}

fn plural(count: u64, word: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {word}{ending}")
}

fn failure(fault: &Fault) -> Failure {
    // A document that is no history at all is bad input, not a proof that fails.
    let is_input = fault.code == Code::MalformedHistory && fault.record.is_none();
    let exit = if is_input { Exit::Invalid } else { Exit::VerificationFailed };
    let message = match is_input {
        true => fault.to_string(),
        false => format!("verification failed: {fault}"),
    };
    let mut failure = Failure::new(exit, fault.code.as_str(), message);
    if let Some(record) = fault.record {
        failure = failure.with("record", i64::try_from(record).unwrap_or(i64::MAX));
    }
    if let Some(job) = fault.subjob {
        failure = failure.with("subjob", job);
    }
    failure
}
