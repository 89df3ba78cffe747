//! Installing environments with packages.
//!
//! An environment is a folder of the executor's own: `packages`, which the installer of the interpreter
//! filled, and `environment.json`, which says with which interpreter and lists every package with its
//! version and the hash of the archive that it came from. It is complete or absent: it is installed
//! next to its place and moved there. A folder that is replaced is moved first.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use catena_sandbox::Interpreter;
use catena_value::{NoCells, Value, Vector, json};

use crate::json::object;
use crate::limits::{INSTALL_MESSAGE_BYTES_MAX, MANIFEST_BYTES_MAX};

/// The file that describes an installed environment.
const MANIFEST: &str = "environment.json";

/// The folder with its packages.
const PACKAGES: &str = "packages";

/// A kind of environment that can be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    /// Its name.
    pub profile: &'static str,
    /// The packages to install, by name.
    pub packages: &'static [&'static str],
    /// The modules that are imported before cells start.
    pub(crate) preload: &'static [&'static str],
}

/// The environments that can be installed.
pub const RECIPES: [Recipe; 1] = [Recipe {
    profile: "sci",
    packages: &["numpy", "pandas", "matplotlib"],
    preload: &["numpy", "pandas", "matplotlib.pyplot"],
}];

/// A package of an installed environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The SHA-256 of its archive, in hex.
    pub sha256: String,
}

/// An environment that was installed.
#[derive(Debug, Clone)]
pub struct Installed {
    /// What it was installed from.
    pub recipe: Recipe,
    /// The interpreter for which it was installed.
    pub python: PathBuf,
    /// Its packages, by name.
    pub packages: Vec<Package>,
    /// The folder from which packages are imported.
    pub folder: PathBuf,
}

impl Installed {
    /// Reads an environment in a folder of environments. `None` if it is not installed.
    pub fn find(recipe: Recipe, environments: &Path) -> Result<Option<Installed>, String> {
        let home = environments.join(recipe.profile);
        let path = home.join(MANIFEST);
        let failed = |reason: String| format!("{}: {reason}", path.display());
        let size = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error.to_string())),
        };
        if size > MANIFEST_BYTES_MAX {
            return Err(failed(format!("it has more than {MANIFEST_BYTES_MAX} bytes")));
        }
        let text = fs::read(&path).map_err(|error| failed(error.to_string()))?;
        let value = json::read(&text).map_err(|error| failed(error.to_string()))?;
        let found = Installed::parse(recipe, &value, home.join(PACKAGES));
        found.map(Some).ok_or_else(|| failed("it is not the description of an environment".into()))
    }

    fn parse(recipe: Recipe, value: &Value, folder: PathBuf) -> Option<Installed> {
        let map = value.as_map()?;
        let package = |value: Value| {
            let map = value.as_map()?;
            let text = |name: &str| Some(map.field(name)?.as_str()?.to_owned());
            Some(Package {
                name: text("name")?,
                version: text("version")?,
                sha256: text("sha256")?,
            })
        };
        let packages = map.field("packages")?.as_vector()?.iter(&NoCells);
        let packages = packages.map(|value| value.ok().and_then(package));
        Some(Installed {
            recipe,
            python: map.field("python")?.as_str()?.into(),
            packages: packages.collect::<Option<_>>()?,
            folder,
        })
    }

    fn to_value(&self) -> Option<Value> {
        let package = |package: &Package| {
            object([
                ("name", package.name.as_str().into()),
                ("version", package.version.as_str().into()),
                ("sha256", package.sha256.as_str().into()),
            ])
        };
        let packages: Vector = self.packages.iter().map(package).collect();
        Some(object([
            ("profile", self.recipe.profile.into()),
            ("python", self.python.to_str()?.into()),
            ("packages", packages.into()),
        ]))
    }

    /// What its version is computed from, besides the interpreter and the code of ours.
    pub(crate) fn fingerprint(&self) -> String {
        let line = |package: &Package| {
            format!("{} {} {}\n", package.name, package.version, package.sha256)
        };
        self.packages.iter().map(line).collect()
    }
}

/// Installs an environment, or replaces it. Blocks while packages are fetched.
pub fn install(
    recipe: Recipe,
    environments: &Path,
    interpreters: &[PathBuf],
) -> Result<Installed, String> {
    let interpreter = Interpreter::first_of(interpreters).map_err(|error| {
        format!("no Python interpreter can be used ({error}); install python3, 3.9 or later")
    })?;
    let failed = |error: std::io::Error| format!("{}: {error}", environments.display());
    let home = environments.join(recipe.profile);
    let number = std::process::id();
    let new = environments.join(format!(".{}-{number}-new", recipe.profile));
    let old = environments.join(format!(".{}-{number}-old", recipe.profile));
    remove(&new).map_err(failed)?;
    fs::create_dir_all(&new).map_err(failed)?;
    let installed = run_installer(recipe, &interpreter, &new).and_then(|packages| {
        let folder = home.join(PACKAGES);
        let python = interpreter.executable().to_owned();
        let installed = Installed { recipe, python, packages, folder };
        let text = installed.to_value().and_then(|value| json::to_string(&value).ok());
        let text = text.ok_or("the path of the interpreter is not UTF-8")?;
        fs::write(new.join(MANIFEST), text).map_err(failed)?;
        remove(&old).map_err(failed)?;
        if home.exists() {
            fs::rename(&home, &old).map_err(failed)?;
        }
        fs::rename(&new, &home).map_err(failed)?;
        Ok(installed)
    });
    // What cannot be removed is in nobody's way.
    let _ = (remove(&new), remove(&old));
    installed
}

fn remove(folder: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Has the interpreter's own installer fill the folder. Returns what it installed.
fn run_installer(
    recipe: Recipe,
    interpreter: &Interpreter,
    folder: &Path,
) -> Result<Vec<Package>, String> {
    let report = folder.join("report.json");
    // Archives that would run code of their own while they are installed are refused.
    let flags = ["--no-input", "--disable-pip-version-check", "--only-binary", ":all:"];
    let output = Command::new(interpreter.executable())
        .args(["-I", "-m", "pip", "install"])
        .args(flags)
        .arg("--target")
        .arg(folder.join(PACKAGES))
        .arg("--report")
        .arg(&report)
        .args(recipe.packages)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", interpreter.executable().display()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let text = text.trim_end();
        let start = text.ceil_char_boundary(text.len().saturating_sub(INSTALL_MESSAGE_BYTES_MAX));
        return Err(format!("pip could not install the packages: {}", &text[start..]));
    }
    let unreadable = |reason: String| format!("the report of pip cannot be read: {reason}");
    let text = fs::read(&report).map_err(|error| unreadable(error.to_string()))?;
    let value = json::read(&text).map_err(|error| unreadable(error.to_string()))?;
    let packages = packages_of(&value);
    let packages = packages.ok_or_else(|| unreadable("it names no packages with hashes".into()))?;
    fs::remove_file(&report).map_err(|error| unreadable(error.to_string()))?;
    let readable = |error: std::io::Error| format!("cannot make the packages readable: {error}");
    make_readable(&folder.join(PACKAGES)).map_err(readable)?;
    Ok(packages)
}

/// Lets every user read a folder and what is in it: cells have an identity of their own.
fn make_readable(path: &Path) -> std::io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let added = if metadata.is_dir() { 0o555 } else { 0o444 };
    let mode = metadata.permissions().mode();
    if mode & added != added {
        fs::set_permissions(path, fs::Permissions::from_mode(mode | added))?;
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            make_readable(&entry?.path())?;
        }
    }
    Ok(())
}

/// The packages in a report of pip, by name.
fn packages_of(report: &Value) -> Option<Vec<Package>> {
    let package = |value: Value| {
        let map = value.as_map()?;
        let metadata = map.field("metadata")?.as_map()?;
        let text = |name: &str| Some(metadata.field(name)?.as_str()?.to_owned());
        let archive = map.field("download_info")?.as_map()?.field("archive_info")?.as_map()?;
        let hash = archive.field("hash").and_then(Value::as_str);
        let hash = hash.and_then(|hash| hash.strip_prefix("sha256="));
        let hashes = archive.field("hashes").and_then(Value::as_map);
        let sha256 = hash.or_else(|| hashes?.field("sha256")?.as_str())?.to_owned();
        Some(Package { name: text("name")?, version: text("version")?, sha256 })
    };
    let entries = report.as_map()?.field("install")?.as_vector()?.iter(&NoCells);
    let packages = entries.map(|value| value.ok().and_then(package));
    let mut packages: Vec<Package> = packages.collect::<Option<_>>()?;
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    (!packages.is_empty()).then_some(packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_hashes_is_refused() {
        let report = |archive: &str| {
            let text = format!(
                r#"{{"install":[{{"metadata":{{"name":"n","version":"1"}},"download_info":{{"archive_info":{archive}}}}}]}}"#
            );
            packages_of(&json::read(text.as_bytes()).unwrap())
        };
        let expected = Package { name: "n".into(), version: "1".into(), sha256: "ab".into() };
        assert_eq!(report(r#"{"hash":"sha256=ab"}"#), Some(vec![expected.clone()]));
        assert_eq!(report(r#"{"hashes":{"sha256":"ab"}}"#), Some(vec![expected]));
        assert_eq!(report("{}"), None);
    }

    #[test]
    fn a_description_is_read_as_it_was_written() {
        let package = Package { name: "n".into(), version: "1".into(), sha256: "ab".into() };
        let installed = Installed {
            recipe: RECIPES[0],
            python: "/usr/bin/python3".into(),
            packages: vec![package],
            folder: "/x".into(),
        };
        let value = installed.to_value().unwrap();
        let read = Installed::parse(RECIPES[0], &value, "/x".into()).unwrap();
        assert_eq!(read.packages, installed.packages);
        assert_eq!(read.fingerprint(), "n 1 ab\n");
    }
}
