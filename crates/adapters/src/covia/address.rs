//! Addresses such as `w/records/1/name`: which data of the caller a path names.

use catena_engine::{Failure, RootId};
use catena_job::JobId;
use catena_value::path::{Path, PathError};

use crate::limits::PATH_BYTES_MAX;

/// The namespaces of a user, as a list of the root shows them.
pub(crate) const NAMESPACES: [&str; 8] = ["a", "g", "h", "j", "o", "s", "v", "w"];

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// The root, which has the namespaces.
    Top,
    /// A part of a root that can be read: the workspace, the operations, or the record of an agent.
    Root {
        /// The root.
        root: RootId,
        /// The path below it.
        path: Path,
        /// True if callers may change it.
        is_writable: bool,
    },
    /// A namespace whose entries can only be listed.
    Namespace(Namespace),
    /// The agents, of which the IDs can be read.
    Agents,
    /// A secret, or all of them: their names can be read.
    Secrets(Path),
    /// A part of a job.
    Job(JobId, Path),
    /// A part of the records of a job.
    History(JobId, Path),
    /// A part of the metadata of an asset.
    Asset(String, Path),
    /// A part of what the venue publishes about itself.
    Venue(Path),
}

/// A namespace whose entries are not in one root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// Jobs, `j`.
    Jobs,
    /// Histories, `h`: those of the jobs, and those that were imported, by venue.
    Histories,
    /// Assets, `a`.
    Assets,
}

impl Namespace {
    /// Returns the name with which its paths begin.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Namespace::Jobs => "j",
            Namespace::Histories => "h",
            Namespace::Assets => "a",
        }
    }

    /// Returns why it cannot be read.
    pub(crate) fn refusal(self) -> Failure {
        let name = self.name();
        invalid(format!(
            "`{name}` cannot be read as a whole; list it, or name an entry, such as `{name}/ID`"
        ))
    }
}

fn invalid(error: impl Into<String>) -> Failure {
    Failure::new("invalid_path", error)
}

pub(crate) fn path_failure(error: PathError) -> Failure {
    match error {
        PathError::Load(error) => {
            Failure::new("internal", format!("stored data cannot be read: {error}"))
        }
        error => invalid(error.to_string()),
    }
}

impl Address {
    /// Parses a path of a user. It may begin with a slash or with the DID of the user.
    pub(crate) fn parse(text: &str, owner: &str) -> Result<Address, Failure> {
        if text.len() > PATH_BYTES_MAX {
            return Err(invalid(format!("a path has at most {PATH_BYTES_MAX} bytes")));
        }
        let text = text.strip_prefix('/').unwrap_or(text);
        let text = match text.split_once('/').unwrap_or((text, "")) {
            (did, rest) if did == owner => rest,
            (did, _) if did.starts_with("did:") => {
                let text = format!("`{text}` belongs to {did}, and another path does not");
                return Err(invalid(text));
            }
            _ => text,
        };
        let path = Path::parse(text).map_err(path_failure)?;
        let segments = path.segments();
        let Some(namespace) = segments.first() else { return Ok(Address::Top) };
        let rest = |from: usize| {
            let segments = segments.iter().skip(from).cloned();
            Path::from_segments(segments).map_err(path_failure)
        };
        let second = segments.get(1).map(String::as_str);
        let root = |root: RootId, from: usize, is_writable: bool| {
            Ok(Address::Root { root, path: rest(from)?, is_writable })
        };
        match (namespace.as_str(), second) {
            ("w", _) => root(RootId::workspace(), 1, true),
            ("o", _) => root(RootId::operations(), 1, true),
            ("s", _) => Ok(Address::Secrets(rest(1)?)),
            // The sessions of an agent are a part of its state.
            ("g", Some(agent)) if segments.get(2).is_some_and(|name| name == "sessions") => {
                let state = std::iter::once("state".to_owned());
                let path = Path::from_segments(state.chain(segments.iter().skip(2).cloned()));
                let path = path.map_err(path_failure)?;
                Ok(Address::Root { root: RootId::agent(agent), path, is_writable: false })
            }
            ("g", Some(agent)) => root(RootId::agent(agent), 2, false),
            ("j", Some(id)) => Ok(Address::Job(job_id(id)?, rest(2)?)),
            ("h", Some(id)) if id.starts_with('~') => root(RootId::requests(), 1, false),
            // Requests of agents to people are kept with the agent.
            ("h", Some(id)) if id.contains('~') => {
                let agent = id.split('~').next().unwrap_or_default().to_owned();
                let kept = [agent, "requests".to_owned()].into_iter();
                let path = Path::from_segments(kept.chain(segments.iter().skip(1).cloned()));
                let path = path.map_err(path_failure)?;
                Ok(Address::Root { root: RootId::agent_controls(), path, is_writable: false })
            }
            ("h", Some(venue)) if venue.starts_with("did:") => match segments.get(2) {
                None => {
                    let path = ["venues".to_owned(), venue.to_owned()];
                    let path = Path::from_segments(path).map_err(path_failure)?;
                    Ok(Address::Root { root: RootId::histories(), path, is_writable: false })
                }
                Some(id) => {
                    let records = std::iter::once("records".to_owned());
                    let path = Path::from_segments(records.chain(segments.iter().skip(3).cloned()));
                    let root = RootId::history(venue, job_id(id)?);
                    Ok(Address::Root {
                        root,
                        path: path.map_err(path_failure)?,
                        is_writable: false,
                    })
                }
            },
            ("h", Some(id)) => Ok(Address::History(job_id(id)?, rest(2)?)),
            ("a", Some(id)) => Ok(Address::Asset(format!("a/{id}"), rest(2)?)),
            ("v", _) => Ok(Address::Venue(rest(1)?)),
            ("g", None) => Ok(Address::Agents),
            ("j", None) => Ok(Address::Namespace(Namespace::Jobs)),
            ("h", None) => Ok(Address::Namespace(Namespace::Histories)),
            ("a", None) => Ok(Address::Namespace(Namespace::Assets)),
            (hex, _) if is_asset_id(hex) => Ok(Address::Asset(hex.to_owned(), rest(1)?)),
            (other, _) => Err(invalid(format!(
                "there is no namespace `{other}`; a path begins with one of {}",
                NAMESPACES.join(", ")
            ))),
        }
    }

    /// Returns the root and the path of what is to be changed. Fails if callers may not change it.
    pub(crate) fn writable(self, text: &str) -> Result<(RootId, Path), Failure> {
        match self {
            Address::Root { root, path, is_writable: true } => {
                if path.segments().is_empty() {
                    let text =
                        format!("`{text}` is a namespace, which cannot be changed as a whole");
                    return Err(Failure::new("not_writable", text));
                }
                Ok((root, path))
            }
            _ => {
                let text = format!("`{text}` cannot be written; paths below `w` and `o` can");
                Err(Failure::new("not_writable", text))
            }
        }
    }

    /// Returns the root that reading the address needs.
    pub(crate) fn root(&self) -> Option<RootId> {
        match self {
            Address::Root { root, .. } => Some(root.clone()),
            Address::Secrets(_) => Some(RootId::secrets()),
            Address::Agents => Some(RootId::agent_controls()),
            _ => None,
        }
    }
}

fn job_id(text: &str) -> Result<JobId, Failure> {
    text.parse().map_err(|_| invalid(format!("`{text}` is not a job ID")))
}

fn is_asset_id(text: &str) -> bool {
    let hex = text.strip_prefix("0x").unwrap_or(text);
    hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the DID with which a path begins.
pub(crate) fn did_of(text: &str) -> Option<&str> {
    let text = text.strip_prefix('/').unwrap_or(text);
    let first = text.split_once('/').map_or(text, |(first, _)| first);
    first.starts_with("did:").then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: &str = "did:key:me";

    fn workspace(path: &str) -> Address {
        let path = Path::parse(path).unwrap();
        Address::Root { root: RootId::workspace(), path, is_writable: true }
    }

    #[test]
    fn a_path_may_begin_with_a_slash_or_the_own_did() {
        for text in ["w/a/1", "/w/a/1", "did:key:me/w/a/1", "/did:key:me/w/a/1"] {
            assert_eq!(Address::parse(text, ME).unwrap(), workspace("a/1"), "{text}");
        }
        for text in ["", "/", "did:key:me", "did:key:me/"] {
            assert_eq!(Address::parse(text, ME).unwrap(), Address::Top, "{text}");
        }
    }

    #[test]
    fn paths_of_others_and_unknown_namespaces_are_refused() {
        let code = |text: &str| Address::parse(text, ME).unwrap_err().code;
        assert_eq!(code("did:key:you/w/a"), "invalid_path");
        assert_eq!(Address::parse("did:key:you/w/a", "did:key:you").unwrap(), workspace("a"));
        for text in ["x/a", "w//a", "w/a/", "j/none", &format!("w/{}", "a".repeat(2_048))] {
            assert_eq!(code(text), "invalid_path", "{text}");
        }
        assert_eq!(code(&"a/".repeat(200)), "invalid_path");
    }

    #[test]
    fn only_entries_of_two_namespaces_are_writable() {
        let code = |text: &str| {
            let address = Address::parse(text, ME).unwrap();
            address.writable(text).err().map(|failure| failure.code)
        };
        assert_eq!(code("w/a"), None);
        assert_eq!(code("o/a"), None);
        let id = "0x0123456789abcdef0123456789abcdef";
        let imported = format!("h/did:key:venue/{id}");
        for text in [
            "w",
            "o",
            "/",
            "s/K",
            "g",
            "j",
            "h",
            "a",
            "g/bob",
            "v/info",
            &format!("j/{id}"),
            &imported,
        ] {
            assert_eq!(code(text).as_deref(), Some("not_writable"), "{text}");
        }
    }
}
