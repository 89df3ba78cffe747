//! The environments of an executor: an interpreter, a sandbox around it, and a version.
//!
//! The version names everything that decides how a cell runs: the interpreter, the packages and the code
//! of ours that runs in the process of the cell.

use std::fmt::Write as _;
use std::path::PathBuf;

use catena_job::contract::JobType;
use catena_job::contract::envelope::RENDER_PROFILE;
use catena_sandbox::{Config, Interpreter, Profile, Sandbox, Tier, child_code};
use sha2::{Digest as _, Sha256};

use crate::install::Installed;

/// An environment that works.
pub(crate) struct Environment {
    /// The kind: `bare`, `sci` or `render`.
    pub(crate) profile: &'static str,
    /// `py-<profile>@<12 hex digits>`, or `render@<12 hex digits>`.
    pub(crate) version: String,
    pub(crate) sandbox: Sandbox,
}

/// What the sandboxes of an executor have in common.
pub(crate) struct Setup {
    /// Workers that are kept ready.
    pub(crate) pool: usize,
    /// The weakest isolation that is accepted.
    pub(crate) minimum: Tier,
    /// The folder for copies of artifacts.
    pub(crate) spool: Option<PathBuf>,
}

impl Environment {
    /// The types of jobs that it runs.
    pub(crate) fn job_types(&self) -> Vec<&'static str> {
        let is_run = |kind: &JobType| kind.profile("code") == self.kind();
        JobType::ALL.into_iter().filter(is_run).map(JobType::as_str).collect()
    }

    /// The language of what it runs.
    pub(crate) fn language(&self) -> &'static str {
        if self.kind() == RENDER_PROFILE { RENDER_PROFILE } else { "python" }
    }

    fn kind(&self) -> &'static str {
        if self.profile == RENDER_PROFILE { RENDER_PROFILE } else { "code" }
    }

    /// Starts the environment with the interpreter alone. Fails with the reason and what to do.
    pub(crate) fn bare(interpreters: &[PathBuf], setup: &Setup) -> Result<Environment, String> {
        let interpreter = Interpreter::first_of(interpreters).map_err(|error| {
            format!("no Python interpreter can be used ({error}); install python3, 3.9 or later")
        })?;
        let version = version_of("bare", &interpreter, "");
        let profile = Profile {
            name: "bare".to_owned(),
            interpreter,
            has_site: false,
            packages: None,
            preload: Vec::new(),
        };
        Environment::start("bare", version, profile, setup)
    }

    /// Starts an environment with packages.
    pub(crate) fn installed(installed: &Installed, setup: &Setup) -> Result<Environment, String> {
        let name = installed.recipe.profile;
        let interpreter = interpreter_of(installed)?;
        let version = version_of(name, &interpreter, &installed.fingerprint());
        let folder = installed.folder.canonicalize();
        let folder = folder.map_err(|error| format!("{}: {error}", installed.folder.display()))?;
        let profile = Profile {
            name: name.to_owned(),
            interpreter: interpreter.with_folder(&folder),
            has_site: false,
            packages: Some(folder),
            preload: installed.recipe.preload.iter().map(|&module| module.to_owned()).collect(),
        };
        Environment::start(name, version, profile, setup)
    }

    pub(crate) fn start(
        name: &'static str,
        version: String,
        profile: Profile,
        setup: &Setup,
    ) -> Result<Environment, String> {
        let mut config = Config::new(profile);
        config.pool = setup.pool;
        config.minimum = setup.minimum;
        config.spool.clone_from(&setup.spool);
        let sandbox = Sandbox::start(config).map_err(|error| {
            format!("the sandbox cannot be set up ({error}); `catena doctor` says what is missing")
        })?;
        Ok(Environment { profile: name, version, sandbox })
    }
}

fn interpreter_of(installed: &Installed) -> Result<Interpreter, String> {
    Interpreter::resolve(&installed.python).map_err(|error| {
        let name = installed.recipe.profile;
        format!("{error}; install the environment again with `catena env install {name}`")
    })
}

/// The version of an environment that was installed.
pub fn version_of_installed(installed: &Installed) -> Result<String, String> {
    let interpreter = interpreter_of(installed)?;
    Ok(version_of(installed.recipe.profile, &interpreter, &installed.fingerprint()))
}

fn version_of(profile: &str, interpreter: &Interpreter, packages: &str) -> String {
    let mut hash = Sha256::new();
    let binary = std::fs::read(interpreter.executable()).unwrap_or_default();
    let parts = [
        profile.as_bytes(),
        interpreter.version().as_bytes(),
        &binary,
        child_code().as_bytes(),
        packages.as_bytes(),
    ];
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
