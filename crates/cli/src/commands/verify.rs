//! `catena verify`: verifies the history of a job.

mod compare;

use std::path::Path;

use catena_api::limits::ANSWER_DEPTH_MAX;
use catena_api::{HttpClient, VenueUrl};
use catena_job::verify::{Code, Expected, Fault, Report, verify};
use catena_job::{JobId, RecordId};
use catena_value::{Map, Value, json};

use crate::exit::Exit;
use crate::input::Input;
use crate::output::{Failure, Output, printable_line};
use crate::venue::{self, DEFAULT, IdentityArgs, KnownArgs, block_on};

/// Verify the history of a job without trusting its venue.
///
/// Recomputes every record's ID, follows every link, and checks that each change was allowed, that
/// nothing follows the end, that time never runs backwards, and that sub-jobs are those the parent
/// committed to. Reports the first record that is invalid. Everything is checked by this program,
/// whether the history is in a file or on a venue. Of several histories, each is reported on a line
/// of its own.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A file with a history, or - for standard input; the URL of a job or of its history; or the ID
    /// of a job on the venue. May be repeated.
    #[arg(value_name = "FILE|URL|JOB", required = true)]
    subjects: Vec<String>,

    /// Fail unless it is the history of this job.
    #[arg(long, value_name = "ID")]
    job: Option<JobId>,

    /// The URL of the venue to query, or the DID of the venue that the job must belong to; may be
    /// given twice.
    #[arg(long, value_name = "URL|DID")]
    venue: Vec<String>,

    /// The URL of the venue to query, from the environment.
    #[arg(long, env = "CATENA_VENUE", hide = true, default_value = DEFAULT)]
    venue_url: String,

    /// Fail unless this is the last record.
    #[arg(long, value_name = "ID")]
    head: Option<RecordId>,

    /// Fetch the same job from this venue too, and fail at the first record that differs.
    #[arg(long, value_name = "URL")]
    also: Option<String>,

    /// Fetch the histories of sub-jobs too, and verify the complete tree. Those on other venues are
    /// fetched only from venues that are named with --from.
    #[arg(long)]
    deep: bool,

    /// Another venue from which sub-jobs may be fetched; may be repeated. A history can name any
    /// host, so no other host is contacted.
    #[arg(long, value_name = "URL", requires = "deep")]
    from: Vec<String>,

    #[command(flatten)]
    identity: IdentityArgs,

    #[command(flatten)]
    known: KnownArgs,
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    let [subject] = args.subjects.as_slice() else { return run_all(args, output) };
    let (report, also) = check(args, subject)?;
    if output.is_json() {
        output.line(&json::to_string(&report.to_value()).unwrap_or_default());
    } else {
        describe(&report).iter().for_each(|line| output.line(&printable_line(line)));
        if let Some(also) = also {
            output.line(&format!("also:  the same at {also}"));
        }
    }
    Ok(())
}

/// Verifies several histories. One that fails does not keep the others from being verified.
fn run_all(args: &Args, output: &mut Output) -> Result<(), Failure> {
    if args.job.is_some() || args.head.is_some() || args.also.is_some() {
        let message = "--job, --head and --also are about one history; several are given";
        return Err(Failure::new(Exit::Invalid, "usage", message));
    }
    // A history that is wrong says more than one that could not be read.
    let mut exit: Option<Exit> = None;
    let mut failed = 0_u64;
    for subject in &args.subjects {
        if output.is_broken() {
            return Ok(());
        }
        let (line, members) = match check(args, subject) {
            Ok((report, _)) => (describe(&report).swap_remove(0), report.to_value()),
            Err(failure) => {
                failed += 1;
                if exit != Some(Exit::VerificationFailed) {
                    exit = Some(failure.exit());
                }
                (failure.message().to_owned(), failure.to_map().into())
            }
        };
        if output.is_json() {
            let members = members.as_map().map(Map::fields).unwrap_or_default();
            let members = members.into_iter().map(|(name, value)| (name.clone(), value.clone()));
            let own = [(Value::from("subject"), Value::from(subject.as_str()))];
            let line: Map = own.into_iter().chain(members).collect();
            output.line(&json::to_string(&line.into()).unwrap_or_default());
        } else {
            output.line(&printable_line(&format!("{subject}: {line}")));
        }
    }
    match exit {
        None => Ok(()),
        Some(exit) if output.is_json() => Err(Failure::already_reported(exit)),
        Some(exit) => {
            let all = args.subjects.len();
            let message = format!("{failed} of {all} histories could not be verified");
            Err(Failure::new(exit, "not_verified", message))
        }
    }
}

/// Verifies one history, and compares it with that of the venue of `--also`, which is returned.
fn check(args: &Args, subject: &str) -> Result<(Report, Option<String>), Failure> {
    let (document, job) = document(args, subject)?;
    let expected = Expected { job, venue: args.expected_venue(), head: args.head };
    let report = verify(&document, &expected).map_err(|fault| failure(&fault))?;
    let also = args.also.as_ref();
    let also = also.map(|also| check_also(args, also, &document, report.job)).transpose()?;
    Ok((report, also))
}

impl Args {
    /// The DID that the job's venue must have; `None` if any.
    fn expected_venue(&self) -> Option<String> {
        self.venue.iter().find(|venue| venue.starts_with("did:")).cloned()
    }

    /// The venue to query if the subject is not a URL.
    fn queried_venue(&self) -> Result<VenueUrl, Failure> {
        let url = self.venue.iter().find(|venue| !venue.starts_with("did:"));
        venue::parse(url.unwrap_or(&self.venue_url))
    }

    /// Whether the user allows to fetch sub-jobs from this venue.
    fn may_fetch_from(&self, venue: &VenueUrl) -> bool {
        let named = self.from.iter().filter_map(|name| name.parse::<VenueUrl>().ok());
        named.into_iter().any(|named| named.origin() == venue.origin())
    }

    /// A client of a venue. The token is sent only to the venue that it is for.
    fn client(&self, venue: VenueUrl) -> Result<HttpClient, Failure> {
        let credentials = if self.queried_venue().is_ok_and(|queried| queried == venue) {
            self.identity.credentials()?
        } else {
            self.identity.credentials_for_other_venue()?
        };
        Ok(self.known.connect(venue, credentials))
    }
}

/// The history to verify, and the job that it must belong to.
fn document(args: &Args, subject: &str) -> Result<(Value, Option<JobId>), Failure> {
    if subject.starts_with("http://") || subject.starts_with("https://") {
        let (venue, job) = job_at(subject)?;
        let history = fetch(args, &args.client(venue)?, job)?;
        return Ok((history, Some(check_requested(args.job, job)?)));
    }
    let is_file = subject == "-" || Path::new(subject).exists();
    match subject.parse::<JobId>() {
        Ok(job) if !is_file => {
            let history = fetch(args, &args.client(args.queried_venue()?)?, job)?;
            Ok((history, Some(check_requested(args.job, job)?)))
        }
        _ => {
            let document = Input::open(Path::new(subject))?.document_nested(ANSWER_DEPTH_MAX)?;
            Ok((document, args.job))
        }
    }
}

/// Checks that the job of `--job` is the requested one.
fn check_requested(expected: Option<JobId>, requested: JobId) -> Result<JobId, Failure> {
    match expected {
        Some(expected) if expected != requested => {
            let message = format!("--job is {expected}, but {requested} was requested");
            Err(Failure::new(Exit::Invalid, "usage", message))
        }
        _ => Ok(requested),
    }
}

fn job_at(url: &str) -> Result<(VenueUrl, JobId), Failure> {
    let invalid = |message: String| {
        let hint = "Use the URL of a job, such as http://127.0.0.1:8787/api/v1/jobs/ID.";
        Failure::new(Exit::Invalid, "invalid_url", message).hint(hint)
    };
    let split = VenueUrl::split_job(url).map_err(|error| invalid(error.to_string()))?;
    let (venue, id) = split.ok_or_else(|| invalid(format!("{url:?} is not the URL of a job")))?;
    let id = id.parse().map_err(|error| invalid(format!("{url:?}: {error}")))?;
    Ok((venue, id))
}

fn fetch(args: &Args, client: &HttpClient, job: JobId) -> Result<Value, Failure> {
    block_on(async {
        let id = job.to_string();
        if !args.deep {
            return Ok(client.history(&id).await?);
        }
        // The credentials were read before, so that a client of another venue can be made as well.
        let other_venue = |venue: VenueUrl| {
            args.may_fetch_from(&venue).then(|| args.client(venue).ok()).flatten()
        };
        Ok(client.history_with_subjobs(&id, &other_venue).await?)
    })
}

/// Fetches the same job from another venue and compares the histories. Returns the other venue.
fn check_also(args: &Args, also: &str, history: &Value, job: JobId) -> Result<String, Failure> {
    let venue = match VenueUrl::split_job(also) {
        Ok(Some((venue, id))) if id.parse() == Ok(job) => venue,
        Ok(Some(_)) => {
            let message = format!("{also:?} is the URL of another job");
            return Err(Failure::new(Exit::Invalid, "invalid_url", message));
        }
        _ => venue::parse(also)?,
    };
    let client = args.client(venue)?;
    let other_history = fetch(args, &client, job)?;
    let other = client.venue();
    compare::compare(history, &other_history, &other)?;
    Ok(other)
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
    if report.signatures_verified > 0 {
        lines.push(format!("signatures: {} verified", report.signatures_verified));
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
    // A document that is not a history is invalid input, not a failed verification.
    let is_input = fault.code == Code::MalformedHistory && fault.record.is_none();
    let exit = if is_input { Exit::Invalid } else { Exit::VerificationFailed };
    let message =
        if is_input { fault.to_string() } else { format!("verification failed: {fault}") };
    let mut failure = Failure::new(exit, fault.code.as_str(), message);
    if let Some(record) = fault.record {
        failure = failure.with("record", i64::try_from(record).unwrap_or(i64::MAX));
    }
    if let Some(job) = fault.subjob {
        failure = failure.with("subjob", job);
    }
    failure
}
