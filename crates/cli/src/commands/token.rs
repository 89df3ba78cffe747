//! `catena token`: tokens for users and machines that have no key of their own.
//!
//! Works on the data folder, whether the venue is running or not. A token is signed with the venue's
//! key and is not stored. Stored are a list of issued tokens, without the tokens themselves, and a
//! list of revoked ones.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use catena_auth::Venue;
use catena_auth::identity::Grant;
use catena_server::config::{Config, Flags};
use catena_server::key;
use catena_server::lists::{self, List};
use catena_server::tokens;
use catena_store::embedded::permissions::{self, Sharing};
use catena_value::{Map, Value, Vector};

use crate::exit::Exit;
use crate::format::{table, time};
use crate::issued_tokens::{self, IssuedToken};
use crate::limits::TOKEN_DAYS_MAX;
use crate::output::{Failure, Output};

/// A day in seconds.
const DAY_SECONDS: i64 = 86_400;

/// How long a token is valid by default, in days.
const DEFAULT_DAYS: i64 = 90;

/// Create, list and revoke tokens of a venue.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

    /// The venue's data folder [env: CATENA_DATA] [default: catena-data]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,

    /// The venue's public URL, if the venue is started with this setting; it determines its DID.
    #[arg(long, global = true, value_name = "URL")]
    public_url: Option<String>,

    /// Read settings from this file [default: catena.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Create a token and print it. It cannot be shown again.
    Create {
        /// Give its bearer access to the jobs of all users.
        #[arg(long)]
        admin: bool,

        /// The user it identifies: a DID, or a name that becomes a DID of this venue [default: a new user]
        #[arg(long, value_name = "DID", visible_alias = "for")]
        subject: Option<String>,

        /// Let its bearer claim and end jobs of the user's queues with this name, and nothing else. A
        /// name may end with `*`, and the option may be repeated.
        #[arg(long, value_name = "QUEUE", conflicts_with = "admin")]
        worker: Vec<String>,

        /// Let its bearer run code for this venue as an executor, and nothing else.
        #[arg(long, conflicts_with_all = ["admin", "worker", "subject"])]
        executor: bool,

        /// How many days it is valid.
        #[arg(
            long,
            value_name = "N",
            default_value_t = DEFAULT_DAYS,
            value_parser = clap::value_parser!(i64).range(1..=TOKEN_DAYS_MAX)
        )]
        days: i64,
    },
    /// List the tokens that were created here.
    Ls,
    /// Revoke a token. A running venue applies this within a few seconds.
    Revoke {
        /// The token's ID, as `create` and `ls` show it.
        #[arg(value_name = "ID")]
        id: String,
    },
}

pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Failure> {
    permissions::restrict_new_files(Sharing::Owner);
    let config = config(args)?;
    let data = config.data.as_path();
    match &args.command {
        Command::Create { admin, subject, worker, executor, days } => {
            let queues = [super::executor::QUEUES.to_owned()];
            let request = TokenRequest {
                is_admin: *admin,
                subject: subject.as_deref(),
                is_executor: *executor,
                queues: if *executor { &queues } else { worker },
                days: *days,
            };
            create(&config, &request, output)
        }
        Command::Ls => list(data, output),
        Command::Revoke { id } => revoke(data, id, output),
    }
}

fn config(args: &Args) -> Result<Config, Failure> {
    let data = args.data.as_ref().map(|data| data.display().to_string());
    let flags = Flags { data, public_url: args.public_url.clone(), ..Flags::default() };
    Config::load(&flags, args.config.as_deref()).map_err(|error| failed(&error))
}

/// The properties of a new token.
struct TokenRequest<'a> {
    is_admin: bool,
    subject: Option<&'a str>,
    /// Whether it is for an executor: its subject is then the venue itself.
    is_executor: bool,
    /// Empty unless the token is for a worker.
    queues: &'a [String],
    days: i64,
}

fn create(config: &Config, request: &TokenRequest<'_>, output: &mut Output) -> Result<(), Failure> {
    let data = config.data.as_path();
    let key = key::load(data).map_err(|error| failed(&error))?.ok_or_else(|| no_venue(data))?;
    let did = config.did(&key.did());
    check_queues(request.queues)?;
    let id = random_id()?;
    let now = now();
    let token = IssuedToken {
        subject: if request.is_executor {
            did.clone()
        } else {
            subject(request.subject, &did, &id)?
        },
        id,
        is_admin: request.is_admin,
        issued: now,
        expires: now + request.days * DAY_SECONDS,
    };
    let grant = Grant {
        subject: &token.subject,
        id: &token.id,
        issued: token.issued,
        expires: Some(token.expires),
        is_admin: token.is_admin,
        queues: Some(request.queues).filter(|queues| !queues.is_empty()),
    };
    let text = Venue { did, public: key.public() }.issue(&key, &grant);
    issued_tokens::add(data, &token).map_err(|error| failed(&error))?;
    // Who gets a token may use the venue.
    if !request.is_executor {
        lists::add(data, List::Members, &token.subject).map_err(|error| failed(&error))?;
    }
    if output.is_json() {
        let members = [("token", Value::from(text))].into_iter().chain(token.members());
        output.value(&members.collect::<Map>().into());
        return Ok(());
    }
    output.line(&text);
    let role = match request.queues {
        [] if token.is_admin => ", an admin".to_owned(),
        [] => String::new(),
        queues => format!(", for workers of {}", queues.join(", ")),
    };
    let until = time(token.expires * 1000);
    output.note(&format!("token {} for {}{role}, until {until}", token.id, token.subject));
    Ok(())
}

/// Fails if a pattern can match no queue.
fn check_queues(queues: &[String]) -> Result<(), Failure> {
    for queue in queues {
        let name = queue.strip_suffix('*').unwrap_or(queue);
        if queue != "*" && !catena_engine::operations::is_name(name) {
            let message = format!("{queue:?} is not the name of a queue");
            let hint =
                "A name consists of letters, digits, `.`, `_` and `-`, and may end with `*`.";
            return Err(Failure::new(Exit::Invalid, "invalid_queue", message).hint(hint));
        }
    }
    Ok(())
}

/// The DID that a token identifies.
fn subject(requested: Option<&str>, venue: &str, id: &str) -> Result<String, Failure> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match requested {
        None => Ok(format!("{venue}:u:{id}")),
        Some(did) if did.starts_with("did:") && !did.contains(char::is_whitespace) => {
            Ok(did.to_owned())
        }
        Some(name) if !name.is_empty() && name.bytes().all(is_plain) => {
            Ok(format!("{venue}:u:{name}"))
        }
        Some(other) => {
            let message = format!("{other:?} is neither a DID nor a valid name");
            let hint = "A name consists of letters, digits, `.`, `_` and `-`.";
            Err(Failure::new(Exit::Invalid, "invalid_subject", message).hint(hint))
        }
    }
}

/// Returns true if a venue has ever run on this folder.
fn has_key(data: &Path) -> bool {
    matches!(catena_server::key::load(data), Ok(Some(_)))
}

fn list(data: &Path, output: &mut Output) -> Result<(), Failure> {
    if !has_key(data) {
        return Err(no_venue(data));
    }
    let all = issued_tokens::all(data).map_err(|error| failed(&error))?;
    let revoked = lists::read(data, List::RevokedTokens).map_err(|error| failed(&error))?;
    let state = |token: &IssuedToken| {
        if revoked.contains(&token.id) {
            "revoked"
        } else if token.expires <= now() {
            "expired"
        } else {
            "valid"
        }
    };
    if output.is_json() {
        let described = all.iter().map(|token| {
            let state = ("state", Value::from(state(token)));
            Value::from(token.members().into_iter().chain([state]).collect::<Map>())
        });
        output.value(&described.collect::<Vector>().into());
        return Ok(());
    }
    let heads = ["ID", "STATE", "UNTIL", "ADMIN", "SUBJECT"].map(str::to_owned).to_vec();
    let row = |token: &IssuedToken| {
        let admin = if token.is_admin { "yes" } else { "no" };
        let until = time(token.expires * 1000);
        vec![token.id.clone(), state(token).into(), until, admin.into(), token.subject.clone()]
    };
    let rows: Vec<_> = std::iter::once(heads).chain(all.iter().map(row)).collect();
    table(&rows).iter().for_each(|line| output.line(line));
    Ok(())
}

fn revoke(data: &Path, id: &str, output: &mut Output) -> Result<(), Failure> {
    if !has_key(data) {
        return Err(no_venue(data));
    }
    let all = issued_tokens::all(data).map_err(|error| failed(&error))?;
    if !all.iter().any(|token| token.id == id) {
        let message = format!("no token {id} was created here");
        let hint = "`catena token ls` lists all tokens.";
        return Err(Failure::new(Exit::NotFound, "token_not_found", message).hint(hint));
    }
    tokens::revoke(data, id).map_err(|error| failed(&error))?;
    if output.is_json() {
        let members = [("id", Value::from(id)), ("revoked", true.into())];
        output.value(&members.into_iter().collect::<Map>().into());
    } else {
        output.note(&format!("revoked token {id}"));
    }
    Ok(())
}

fn random_id() -> Result<String, Failure> {
    let number = getrandom::u64().map_err(|error| {
        Failure::new(
            Exit::Invalid,
            "no_randomness",
            format!("could not get random numbers: {error}"),
        )
    })?;
    Ok(format!("{number:016x}"))
}

/// Unix time in seconds.
fn now() -> i64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "a token contains the times of its issue and expiry"
    )]
    let now = SystemTime::now();
    let passed = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(passed.as_secs()).unwrap_or(i64::MAX)
}

fn no_venue(data: &Path) -> Failure {
    let message = format!("there is no venue in {}", data.display());
    Failure::new(Exit::NotFound, "no_venue", message)
        .hint("Pass its data folder with --data. A venue creates its key when it is first started.")
}

fn failed(error: &dyn std::error::Error) -> Failure {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::new(Exit::Invalid, "token_failed", format!("{error}{cause}"))
}
