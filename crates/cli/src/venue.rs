//! The venue that a command talks to: which one, as whom, and what its refusals mean.

use std::path::{Path, PathBuf};

use catena_api::{Client, ClientError, Credentials, VenueUrl};
use catena_auth::KeyPair;
use catena_value::{NoCells, Value};

use crate::exit::Exit;
use crate::output::Failure;

/// Where a venue is unless somebody says otherwise: where `catena up` starts one.
pub(crate) const DEFAULT: &str = "http://127.0.0.1:8787";

/// Longest file that is read as a key: hex digits and white space around them.
const KEY_BYTES_MAX: u64 = 256;

/// Which venue, and as whom.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct VenueArgs {
    /// The venue's URL, or its did:web.
    #[arg(long, global = true, env = "CATENA_VENUE", default_value = DEFAULT, value_name = "URL")]
    venue: String,

    #[command(flatten)]
    identity: IdentityArgs,
}

/// As whom.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct IdentityArgs {
    /// A token that the venue issued.
    #[arg(long, global = true, env = "CATENA_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,

    /// A file with a key of your own, 32 bytes or 64 hex digits; it wins over a token.
    #[arg(long, global = true, env = "CATENA_KEY", value_name = "FILE")]
    key: Option<PathBuf>,
}

impl VenueArgs {
    /// A client of the venue.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(parse(&self.venue)?, self.identity.credentials()?))
    }
}

impl IdentityArgs {
    /// What to show to the venue that the token is for.
    pub(crate) fn credentials(&self) -> Result<Credentials, Failure> {
        match (&self.key, &self.token) {
            (Some(file), _) => Ok(Credentials::Key(Box::new(read_key(file)?))),
            (None, Some(token)) if !token.is_empty() => Ok(Credentials::Token(token.clone())),
            _ => Ok(Credentials::Anonymous),
        }
    }

    /// What to show to any other venue: a key signs for each venue anew, but a token is for one.
    pub(crate) fn credentials_elsewhere(&self) -> Result<Credentials, Failure> {
        match self.credentials()? {
            Credentials::Token(_) => Ok(Credentials::Anonymous),
            other => Ok(other),
        }
    }
}

/// The venue that a text names.
pub(crate) fn parse(text: &str) -> Result<VenueUrl, Failure> {
    text.parse().map_err(|error: catena_api::VenueUrlError| {
        Failure::new(Exit::Invalid, "invalid_url", error.to_string())
            .hint(format!("Give the venue as a URL, such as {DEFAULT}."))
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

/// The 32 bytes of a key, as they are or in hex.
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

/// Runs something that talks to a venue to its end.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Exit::Invalid, "runtime_failed", format!("could not start: {error}"))
    })?;
    let done = runtime.block_on(work);
    // A look-up of a name that hangs must not hold up the end.
    runtime.shutdown_background();
    done
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let (exit, code) = match &error {
            ClientError::Unreachable { .. } => (Exit::Unreachable, "unreachable"),
            ClientError::TimedOut { .. } => (Exit::Timeout, "no_answer"),
            ClientError::Auth(_) => (Exit::Auth, "forbidden"),
            ClientError::NotFound(_) => (Exit::NotFound, "not_found"),
            ClientError::Conflict(_) => (Exit::Invalid, "conflict"),
            ClientError::Busy(_) => (Exit::Unreachable, "busy"),
            ClientError::Refused(_) => (Exit::Invalid, "refused"),
            ClientError::Malformed { .. } => (Exit::Unreachable, "malformed_answer"),
            ClientError::Invalid(_) => (Exit::Invalid, "invalid_request"),
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

fn refused(exit: Exit, code: &'static str, refusal: &catena_api::client::Refusal) -> Failure {
    let problems = refusal.body.as_ref().and_then(|body| body.as_map()?.field("problems"));
    let message = match (&refusal.detail, problems) {
        (Some(detail), _) => format!("{}: {detail}", refusal.error),
        (None, Some(problems)) => {
            format!("{}:{}", not_acceptable(&refusal.error), listed(problems))
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

/// An error without its first problem, when all of them are listed.
fn not_acceptable(error: &str) -> &str {
    error.split_once(": ").map_or(error, |(what, _)| what)
}

/// Every problem and its place, each on a line of its own.
fn listed(problems: &Value) -> String {
    let problems = problems.as_vector().map(|problems| problems.iter(&NoCells).flatten());
    let line = |problem: Value| {
        let text = |name: &str| Some(problem.as_map()?.field(name)?.to_text()?.into_owned());
        let (path, problem) = (text("path"), text("problem"));
        format!("\n  {}: {}", path.unwrap_or_default(), problem.unwrap_or_default())
    };
    problems.into_iter().flatten().map(line).collect()
}

/// What one can do about an error, in terms of this program.
fn hint(error: &ClientError) -> Option<String> {
    match error {
        ClientError::Unreachable { venue, .. } => Some(start_hint(venue)),
        ClientError::Auth(refusal) if refusal.status == 401 => Some(
            "Give a token with --token or CATENA_TOKEN, or a key with --key; \
             `catena token create --data DIR` makes a token."
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

/// How to have a venue at this URL.
fn start_hint(venue: &str) -> String {
    let elsewhere = "or name another venue with --venue or CATENA_VENUE.";
    match venue.parse::<VenueUrl>() {
        Ok(_) if venue == DEFAULT => format!("Start a venue with `catena up`, {elsewhere}"),
        Ok(url) if url.is_loopback() && !url.is_https() => {
            let address = url.authority();
            format!("Start a venue there with `catena up --listen {address}`, {elsewhere}")
        }
        _ => format!("Check the URL and that the venue runs (`catena up` starts one), {elsewhere}"),
    }
}

fn nearest_hint(refusal: &catena_api::client::Refusal) -> String {
    let nearest = refusal.body.as_ref().and_then(|body| body.as_map()?.field("nearest"));
    let nearest = nearest.and_then(|nearest| nearest.as_vector());
    let names: Vec<String> = nearest
        .map(|names| names.iter(&catena_value::NoCells).flatten().collect::<Vec<_>>())
        .unwrap_or_default()
        .iter()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    match names.is_empty() {
        true => "`catena ops ls` lists what there is.".to_owned(),
        false => format!("Did you mean {}? `catena ops ls` lists what there is.", names.join(", ")),
    }
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
    fn the_hint_names_the_command_that_starts_a_venue_there() {
        assert!(start_hint(DEFAULT).starts_with("Start a venue with `catena up`, "));
        assert!(start_hint("http://127.0.0.1:9").contains("`catena up --listen 127.0.0.1:9`"));
        assert!(start_hint("https://v.example").starts_with("Check the URL"));
    }
}
