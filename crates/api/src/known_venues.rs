//! The identities of venues as they were when they were first used, by URL.
//!
//! The DID of a venue at a URL is fetched from that URL, so whoever controls the address can claim
//! any DID. A did:web names its host and is compared with the URL. A did:key names nothing: it is
//! remembered when it is first seen, and a different one at the same URL is refused afterwards, as
//! SSH does with host keys.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use parking_lot::Mutex;

use crate::VenueUrl;
use crate::limits::KNOWN_VENUES_BYTES_MAX;

/// The venues that were used before. Without a file they are remembered until the process ends.
#[derive(Debug, Default)]
pub struct KnownVenues {
    file: Option<PathBuf>,
    known: Mutex<BTreeMap<String, String>>,
}

/// Why the identity of a venue is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// A did:web names another host.
    #[error("the venue at {origin} claims to be {did}, which belongs to another host")]
    OtherHost {
        /// The URL of the venue, without a path.
        origin: String,
        /// The DID that it claims.
        did: String,
    },
    /// The DID differs from the one that was seen first.
    #[error("the venue at {origin} was {known} and now claims to be {found}")]
    Changed {
        /// The URL of the venue, without a path.
        origin: String,
        /// The DID that is known.
        known: String,
        /// The DID that it claims.
        found: String,
    },
    /// The file could not be used.
    #[error("the list of known venues cannot be used: {0}")]
    File(String),
}

impl KnownVenues {
    /// Venues that are remembered in a file, which is created when it is first needed.
    pub fn in_file(file: PathBuf) -> Self {
        KnownVenues { file: Some(file), known: Mutex::default() }
    }

    /// Accepts the DID of the venue at an origin (`scheme://host:port`), or says why not. `expected`
    /// is what the user or operator says it is; it overrides everything else.
    pub fn check(
        &self,
        origin: &str,
        did: &str,
        expected: Option<&str>,
    ) -> Result<(), IdentityError> {
        if let Some(expected) = expected {
            return self.compare(origin, expected, did);
        }
        if did.starts_with("did:web:") {
            let is_at = |url: VenueUrl| url.origin() == origin;
            if did.parse::<VenueUrl>().is_ok_and(is_at) {
                return Ok(());
            }
            return Err(IdentityError::OtherHost { origin: origin.into(), did: did.into() });
        }
        let mut known = self.known.lock();
        if !known.contains_key(origin) {
            let read = self.read().map_err(|error| IdentityError::File(error.to_string()))?;
            known.extend(read);
        }
        if let Some(known) = known.get(origin) {
            return self.compare(origin, known, did);
        }
        self.add(origin, did).map_err(|error| IdentityError::File(error.to_string()))?;
        known.insert(origin.to_owned(), did.to_owned());
        Ok(())
    }

    fn compare(&self, origin: &str, known: &str, found: &str) -> Result<(), IdentityError> {
        if known == found {
            return Ok(());
        }
        Err(IdentityError::Changed {
            origin: origin.into(),
            known: known.into(),
            found: found.into(),
        })
    }

    fn read(&self) -> io::Result<BTreeMap<String, String>> {
        let Some(file) = &self.file else { return Ok(BTreeMap::new()) };
        match fs::metadata(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(error),
            Ok(metadata) if metadata.len() > KNOWN_VENUES_BYTES_MAX => {
                return Err(io::Error::other("it is too large"));
            }
            Ok(_) => {}
        }
        let text = fs::read_to_string(file)?;
        let entry = |line: &str| {
            let (origin, did) = line.split_once(' ')?;
            Some((origin.to_owned(), did.trim().to_owned()))
        };
        // The first entry of an origin counts.
        let entries: Vec<_> = text.lines().filter_map(entry).collect();
        Ok(entries.into_iter().rev().collect())
    }

    fn add(&self, origin: &str, did: &str) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let is_plain = |text: &str| {
            !text.chars().any(|character| character.is_whitespace() || character.is_control())
        };
        if !is_plain(origin) || !is_plain(did) {
            return Err(io::Error::other("the venue's DID has unusual characters"));
        }
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let mut file = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(file)?;
        writeln!(file, "{origin} {did}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_did_key_is_remembered_and_a_different_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/known-venues");
        let first = KnownVenues::in_file(file.clone());
        first.check("http://a.example", "did:key:z1", None).unwrap();
        first.check("http://b.example", "did:key:z2", None).unwrap();
        // A process that starts later reads them from the file.
        let later = KnownVenues::in_file(file);
        later.check("http://a.example", "did:key:z1", None).unwrap();
        let changed = later.check("http://a.example", "did:key:z2", None).unwrap_err();
        assert!(matches!(changed, IdentityError::Changed { .. }), "{changed}");
        later.check("http://a.example", "did:key:z2", Some("did:key:z2")).unwrap();
        assert!(later.check("http://c.example", "did:key:z 1", None).is_err());
    }

    #[test]
    fn a_did_web_belongs_to_its_host() {
        let known = KnownVenues::default();
        known.check("https://v.example", "did:web:v.example", None).unwrap();
        known.check("https://v.example:8443", "did:web:v.example%3A8443", None).unwrap();
        for origin in ["https://evil.example", "http://v.example", "https://v.example:8443"] {
            let refused = known.check(origin, "did:web:v.example", None).unwrap_err();
            assert!(matches!(refused, IdentityError::OtherHost { .. }), "{refused}");
        }
    }
}
