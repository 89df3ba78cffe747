//! The environments of an executor: an interpreter, a sandbox around it, and a version.
//!
//! The version names everything that decides how a cell runs: the interpreter, the packages and the code
//! of ours that runs in the process of the cell.

use std::fmt::Write as _;
use std::path::PathBuf;

use catena_sandbox::{Config, Interpreter, Profile, Sandbox, Tier, child_code};
use sha2::{Digest as _, Sha256};

/// An environment that works.
pub(crate) struct Environment {
    /// The kind: `bare`.
    pub(crate) profile: &'static str,
    /// `py-<profile>@<12 hex digits>`.
    pub(crate) version: String,
    pub(crate) sandbox: Sandbox,
}

impl Environment {
    /// Starts the environment with the interpreter alone. Fails with the reason and what to do.
    pub(crate) fn bare(
        interpreters: &[PathBuf],
        pool: usize,
        minimum: Tier,
    ) -> Result<Environment, String> {
        let interpreter = Interpreter::first_of(interpreters).map_err(|error| {
            format!("no Python interpreter can be used ({error}); install python3, 3.9 or later")
        })?;
        let version = version_of("bare", &interpreter);
        let profile =
            Profile { name: "bare".to_owned(), interpreter, has_site: false, preload: Vec::new() };
        let mut config = Config::new(profile);
        config.pool = pool;
        config.minimum = minimum;
        let sandbox = Sandbox::start(config).map_err(|error| {
            format!("the sandbox cannot be set up ({error}); `catena doctor` says what is missing")
        })?;
        Ok(Environment { profile: "bare", version, sandbox })
    }
}

fn version_of(profile: &str, interpreter: &Interpreter) -> String {
    let mut hash = Sha256::new();
    let binary = std::fs::read(interpreter.executable()).unwrap_or_default();
    let parts =
        [profile.as_bytes(), interpreter.version().as_bytes(), &binary, child_code().as_bytes()];
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest: [u8; 32] = hash.finalize().into();
    let mut text = format!("py-{profile}@");
    for byte in &digest[..6] {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
