//! The venue that a command connects to: its URL, the credentials, and the meaning of its errors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use catena_api::client::Refusal;
use catena_api::{ClientError, Credentials, HttpClient, KnownVenues, TransportError, VenueUrl};
use catena_auth::KeyPair;
use catena_value::{NoCells, Value};

use crate::exit::Exit;
use crate::limits::KEY_BYTES_MAX;
use crate::output::Failure;

/// The URL of the venue by default: where `catena up` starts one.
pub(crate) const DEFAULT: &str = "http://127.0.0.1:8787";

/// The venue and the credentials for it.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct VenueArgs {
    /// URL or did:web of the venue.
    #[arg(long, global = true, env = "CATENA_VENUE", default_value = DEFAULT, value_name = "URL")]
    venue: String,

    #[command(flatten)]
    identity: IdentityArgs,

    #[command(flatten)]
    known: KnownArgs,
}

/// How the identity of a venue is checked before credentials are sent to it.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct KnownArgs {
    /// The DID that the venue must have. By default a did:web must name the host of its URL, and a
    /// did:key must be the one that was seen first at this URL.
    #[arg(long, global = true, env = "CATENA_VENUE_DID", value_name = "DID")]
    venue_did: Option<String>,

    /// The file that remembers the DIDs of venues
    /// [default: catena/known-venues in XDG_STATE_HOME or ~/.local/state]
    #[arg(long, global = true, env = "CATENA_KNOWN_VENUES", value_name = "FILE")]
    known_venues: Option<PathBuf>,

    #[arg(long, global = true, env = "XDG_STATE_HOME", hide = true)]
    state_home: Option<PathBuf>,

    #[arg(long, global = true, env = "HOME", hide = true)]
    home: Option<PathBuf>,
}

impl KnownArgs {
    /// The venues that were used before. Without a home folder they are not remembered.
    fn known_venues(&self) -> KnownVenues {
        let state = || match (&self.state_home, &self.home) {
            (Some(state), _) if state.is_absolute() => Some(state.clone()),
            (_, Some(home)) if home.is_absolute() => Some(home.join(".local/state")),
            _ => None,
        };
        let default = || Some(state()?.join("catena/known-venues"));
        match self.known_venues.clone().or_else(default) {
            Some(file) => KnownVenues::in_file(file),
            None => KnownVenues::default(),
        }
    }

    /// A client that checks the identity of its venue.
    pub(crate) fn connect(&self, venue: VenueUrl, credentials: Credentials) -> HttpClient {
        HttpClient::connect(venue, credentials).with_known_venues(Arc::new(self.known_venues()))
    }
}

/// The credentials.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct IdentityArgs {
    /// Authenticate with a token that the venue issued.
    #[arg(long, global = true, env = "CATENA_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,

    /// Authenticate with the key in this file (32 bytes or 64 hex digits); takes precedence over a token.
    #[arg(long, global = true, env = "CATENA_KEY", value_name = "FILE")]
    key: Option<PathBuf>,
}

impl VenueArgs {
    /// A client of the venue.
    pub(crate) fn client(&self) -> Result<HttpClient, Failure> {
        let client = self.known.connect(parse(&self.venue)?, self.identity.credentials()?);
        Ok(client.with_expected_did(self.known.venue_did.clone()))
    }
}

impl IdentityArgs {
    /// The credentials for the venue that the token is for.
    pub(crate) fn credentials(&self) -> Result<Credentials, Failure> {
        match (&self.key, &self.token) {
            (Some(file), _) => Ok(Credentials::Key(Box::new(read_key(file)?))),
            (None, Some(token)) if !token.is_empty() => Ok(Credentials::Token(token.clone())),
            _ => Ok(Credentials::Anonymous),
        }
    }

    /// The credentials for any other venue: a key signs for each venue, but a token is for one.
    pub(crate) fn credentials_for_other_venue(&self) -> Result<Credentials, Failure> {
        match self.credentials()? {
            Credentials::Token(_) => Ok(Credentials::Anonymous),
            other => Ok(other),
        }
    }
}

/// Parses the URL or did:web of a venue.
pub(crate) fn parse(text: &str) -> Result<VenueUrl, Failure> {
    text.parse().map_err(|error: catena_api::VenueUrlError| {
        Failure::new(Exit::Invalid, "invalid_url", error.to_string())
            .hint(format!("Use a URL such as {DEFAULT}."))
    })
}

fn read_key(file: &Path) -> Result<KeyPair, Failure> {
    let unreadable = |error: std::io::Error| {
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound => Exit::NotFound,
            _ => Exit::Invalid,
        };
        let message = format!("could not read the key {}: {error}", file.display());
        Failure::new(exit, "key_unreadable", message)
    };
    let len = std::fs::metadata(file).map_err(unreadable)?.len();
    let bytes = match len {
        0..=KEY_BYTES_MAX => std::fs::read(file).map_err(unreadable)?,
        _ => Vec::new(),
    };
    let seed = seed(&bytes).ok_or_else(|| {
        let message =
            format!("{} is not a key: expected 32 bytes or 64 hex digits", file.display());
        Failure::new(Exit::Invalid, "key_malformed", message)
    })?;
    Ok(KeyPair::from_seed(&seed))
}

/// The 32 bytes of a key, raw or in hex; `None` if there are not 32.
fn seed(bytes: &[u8]) -> Option<[u8; 32]> {
    if let Ok(seed) = <[u8; 32]>::try_from(bytes) {
        return Some(seed);
    }
    let text = str::from_utf8(bytes).ok()?.trim();
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut seed = [0; 32];
    for (at, byte) in seed.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(seed)
}

/// Runs requests to a venue to completion.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Exit::Invalid, "runtime_failed", format!("could not start: {error}"))
    })?;
    let done = runtime.block_on(work);
    // A host name lookup that hangs must not delay the exit.
    runtime.shutdown_background();
    done
}

impl From<ClientError<TransportError>> for Failure {
    fn from(error: ClientError<TransportError>) -> Self {
        let (exit, code) = match &error {
            ClientError::Transport(TransportError::Unreachable { .. }) => {
                (Exit::Unreachable, "unreachable")
            }
            ClientError::Transport(TransportError::TimedOut { .. }) => (Exit::Timeout, "no_answer"),
            ClientError::Auth(_) => (Exit::Auth, "forbidden"),
            ClientError::Identity { .. } => (Exit::Auth, "venue_identity"),
            ClientError::NotFound(_) => (Exit::NotFound, "not_found"),
            ClientError::Conflict(_) => (Exit::Invalid, "conflict"),
            ClientError::Busy(_) => (Exit::Unreachable, "busy"),
            ClientError::Refused(_) => (Exit::Invalid, "refused"),
            ClientError::Transport(TransportError::TooLarge { .. })
            | ClientError::Malformed { .. } => (Exit::Unreachable, "malformed_answer"),
            ClientError::Transport(TransportError::Invalid(_)) | ClientError::Invalid(_) => {
                (Exit::Invalid, "invalid_request")
            }
        };
        let hint = hint(&error);
        let failure = match error.refusal() {
            Some(refusal) => refused(exit, code, refusal),
            None => Failure::new(exit, code, error.to_string()),
        };
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

fn refused(exit: Exit, code: &'static str, refusal: &Refusal) -> Failure {
    let problems = refusal.body.as_ref().and_then(|body| body.as_map()?.field("problems"));
    let message = match (&refusal.detail, problems) {
        (Some(detail), _) => format!("{}: {detail}", refusal.error),
        (None, Some(problems)) => {
            format!("{}:{}", without_first_problem(&refusal.error), list_problems(problems))
        }
        (None, None) => refusal.error.clone(),
    };
    let failure = match &refusal.code {
        Some(code) => Failure::new(exit, code.clone(), message),
        None => Failure::new(exit, code, message),
    };
    let failure =
        failure.with("status", i64::from(refusal.status)).with("venue", refusal.venue.as_str());
    match problems {
        Some(problems) => failure.with("problems", problems.clone()),
        None => failure,
    }
}

/// An error text without its first problem, for use before a list of all problems.
fn without_first_problem(error: &str) -> &str {
    error.split_once(": ").map_or(error, |(what, _)| what)
}

/// Every problem and its location, each on a line of its own.
fn list_problems(problems: &Value) -> String {
    let problems = problems.as_vector().map(|problems| problems.iter(&NoCells).flatten());
    let line = |problem: Value| {
        let text = |name: &str| Some(problem.as_map()?.field(name)?.to_text()?.into_owned());
        let path = text("path");
        let problem = text("problem");
        format!("\n  {}: {}", path.unwrap_or_default(), problem.unwrap_or_default())
    };
    problems.into_iter().flatten().map(line).collect()
}

/// What the user can do about an error with this program; `None` if nothing is known.
fn hint(error: &ClientError<TransportError>) -> Option<String> {
    match error {
        ClientError::Transport(TransportError::Unreachable { venue, .. }) => {
            Some(start_hint(venue))
        }
        ClientError::Identity { .. } => Some(
            "Check the URL and whom the credentials are for. If this DID is right, pass it with \
             --venue-did, or remove the venue from the file of known venues."
                .to_owned(),
        ),
        ClientError::Auth(refusal) if refusal.status == 401 => Some(
            "Pass a token with --token or CATENA_TOKEN, or a key with --key. \
             `catena token create --data DIR` creates a token."
                .to_owned(),
        ),
        other => {
            let refusal = other.refusal()?;
            match refusal.code.as_deref() {
                Some("operation_not_found") => Some(nearest_hint(refusal)),
                _ => refusal.hint.clone(),
            }
        }
    }
}

/// How to start a venue at this URL, or use another one.
fn start_hint(venue: &str) -> String {
    let other = "or choose another venue with --venue or CATENA_VENUE.";
    match venue.parse::<VenueUrl>() {
        Ok(_) if venue == DEFAULT => format!("Start a venue with `catena up`, {other}"),
        Ok(url) if url.is_loopback() && !url.is_https() => {
            let address = url.authority();
            format!("Start a venue at this address with `catena up --listen {address}`, {other}")
        }
        _ => {
            format!("Check the URL and that the venue is running (`catena up` starts one), {other}")
        }
    }
}

fn nearest_hint(refusal: &Refusal) -> String {
    let nearest = refusal.body.as_ref().and_then(|body| body.as_map()?.field("nearest"));
    let nearest = nearest.and_then(|nearest| nearest.as_vector());
    let names: Vec<String> = nearest
        .map(|names| names.iter(&NoCells).flatten().collect::<Vec<_>>())
        .unwrap_or_default()
        .iter()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    let list = "`catena ops ls` lists all operations.";
    if names.is_empty() {
        return list.to_owned();
    }
    format!("Did you mean {}? {list}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_32_bytes_or_their_hex() {
        assert_eq!(seed(&[7; 32]), Some([7; 32]));
        assert_eq!(seed("07".repeat(32).as_bytes()), Some([7; 32]));
        assert_eq!(seed(format!(" 0x{}\n", "fF".repeat(32)).as_bytes()), Some([0xff; 32]));
        for bad in [&b""[..], &[7; 31], &[7; 33], "0g".repeat(32).as_bytes()] {
            assert_eq!(seed(bad), None);
        }
    }

    #[test]
    fn the_hint_contains_the_command_that_starts_a_venue() {
        assert!(start_hint(DEFAULT).starts_with("Start a venue with `catena up`, "));
        assert!(start_hint("http://127.0.0.1:9").contains("`catena up --listen 127.0.0.1:9`"));
        assert!(start_hint("https://v.example").starts_with("Check the URL"));
    }
}
