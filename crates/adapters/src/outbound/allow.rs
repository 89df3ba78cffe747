//! The hosts and venues that an operator allows.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use url::{Host, Origin, Url};

use crate::limits::URL_BYTES_MAX;

/// A host that may be contacted whatever its address is: `HOST` or `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHost {
    host: String,
    port: Option<u16>,
}

/// A venue on which operations may be run: a URL, a `did:web`, or a bare `HOST` or `HOST:PORT`,
/// which means `https`. Scheme, host and port are compared, the path is not. `URL=DID` states the
/// identity of the venue, and `URL,shared` allows delegations on a venue at which all users of this
/// one share an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedVenue {
    origin: Origin,
    /// The DID that the venue must have.
    did: Option<String>,
    /// Whether steps with delegations may be sent there although the venue does not keep the users
    /// of this one apart.
    pub(crate) is_shared: bool,
}

/// What follows a venue in a list to say that its users share an account there.
pub(crate) const SHARED: &str = "shared";

/// An invalid entry of a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListEntryError {
    /// The entry is not a host.
    #[error("{entry:?} is not a host; write HOST or HOST:PORT, such as 127.0.0.1:8080")]
    Host {
        /// The entry.
        entry: String,
    },
    /// The entry is not a venue.
    #[error("{entry:?} is not a venue: {reason}")]
    Venue {
        /// The entry.
        entry: String,
        /// The problem with it.
        reason: String,
    },
}

impl FromStr for AllowedHost {
    type Err = ListEntryError;

    fn from_str(entry: &str) -> Result<Self, Self::Err> {
        let refused = || ListEntryError::Host { entry: entry.to_owned() };
        if let Ok(address) = entry.parse::<IpAddr>() {
            return Ok(AllowedHost { host: address.to_string(), port: None });
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) if !entry.ends_with(']') => {
                (host, Some(port.parse().map_err(|_| refused())?))
            }
            _ => (entry, None),
        };
        let host = Host::parse(host).map_err(|_| refused())?;
        Ok(AllowedHost { host: host_name(&host), port })
    }
}

impl fmt::Display for AllowedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.host.contains(':'), self.port) {
            (true, Some(port)) => write!(f, "[{}]:{port}", self.host),
            (false, Some(port)) => write!(f, "{}:{port}", self.host),
            (_, None) => f.write_str(&self.host),
        }
    }
}

impl AllowedHost {
    /// Returns true if this entry covers a host name or address with this port.
    pub(super) fn covers(&self, host: &str, port: u16) -> bool {
        self.host == host && self.port.is_none_or(|own| own == port)
    }
}

impl FromStr for AllowedVenue {
    type Err = ListEntryError;

    fn from_str(entry: &str) -> Result<Self, Self::Err> {
        let refused = |reason| ListEntryError::Venue { entry: entry.to_owned(), reason };
        let (entry, is_shared) = match entry.rsplit_once(',') {
            Some((rest, word)) if word.trim() == SHARED => (rest, true),
            _ => (entry, false),
        };
        let (entry, did) = match entry.split_once('=') {
            Some((entry, did)) if did.starts_with("did:") => (entry, Some(did.to_owned())),
            Some(_) => return Err(refused("what follows `=` is not a DID".to_owned())),
            None => (entry, None),
        };
        let is_bare = !entry.contains("://") && !entry.starts_with("did:");
        let url = if is_bare { format!("https://{entry}") } else { entry.to_owned() };
        let url = venue_url(&url).map_err(refused)?;
        Ok(AllowedVenue { origin: url.origin(), did, is_shared })
    }
}

impl fmt::Display for AllowedVenue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin.ascii_serialization())?;
        if let Some(did) = &self.did {
            write!(f, "={did}")?;
        }
        if self.is_shared { write!(f, ",{SHARED}") } else { Ok(()) }
    }
}

impl AllowedVenue {
    /// Returns true if this entry covers the venue at this URL.
    pub(crate) fn covers(&self, url: &Url) -> bool {
        self.origin == url.origin()
    }

    /// The DID that the operator says the venue has.
    pub(crate) fn did(&self) -> Option<&str> {
        self.did.as_deref()
    }
}

/// The base URL, without `/api/v1`, of the venue that a URL or `did:web` names.
pub(crate) fn venue_url(name: &str) -> Result<Url, String> {
    let text = match name.strip_prefix("did:web:") {
        Some(id) => {
            // A colon separates path segments; the one before a port is written `%3A`.
            let mut parts = id.split(':');
            let host = parts.next().unwrap_or_default().replace("%3A", ":").replace("%3a", ":");
            let path: String = parts.map(|part| format!("/{part}")).collect();
            format!("https://{host}{path}")
        }
        None if name.starts_with("did:") => {
            return Err(
                "only a did:web contains the venue's address; give its URL instead".to_owned()
            );
        }
        None => name.to_owned(),
    };
    let mut url = Url::parse(&text).map_err(|error| error.to_string())?;
    check(&url)?;
    url.set_query(None);
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/api/v1").unwrap_or(path).trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

/// Fails if a URL cannot be requested, whatever the operator allows.
pub(crate) fn check(url: &Url) -> Result<(), String> {
    if url.as_str().len() > URL_BYTES_MAX {
        return Err(format!("it has more than {URL_BYTES_MAX} bytes"));
    }
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("{} is not http or https", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it contains credentials; send them as a header".to_owned());
    }
    if url.host().is_none() {
        return Err("it has no host".to_owned());
    }
    Ok(())
}

/// A host in the form that lists compare: lower case, without brackets or a final dot.
pub(super) fn host_name<S: AsRef<str>>(host: &Host<S>) -> String {
    match host {
        Host::Domain(name) => name.as_ref().trim_end_matches('.').to_ascii_lowercase(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(entry: &str, url: &str) -> bool {
        let url = Url::parse(url).unwrap();
        let port = url.port_or_known_default().unwrap();
        entry.parse::<AllowedHost>().unwrap().covers(&host_name(&url.host().unwrap()), port)
    }

    #[test]
    fn an_entry_covers_a_host_on_one_port_or_on_all() {
        assert!(covers("127.0.0.1:8080", "http://127.0.0.1:8080/x"));
        assert!(covers("127.0.0.1:8080", "http://2130706433:8080/x"));
        assert!(!covers("127.0.0.1:8080", "http://127.0.0.1/"));
        assert!(covers("Intranet", "https://intranet./"));
        assert!(covers("intranet:443", "https://INTRANET/"));
        assert!(!covers("intranet", "https://intranet.example/"));
        assert!(covers("::1", "http://[::1]:9/"));
        assert!(covers("[::1]:9", "http://[0:0::1]:9/"));
        assert!(!covers("[::1]:9", "http://[::1]/"));
    }

    #[test]
    fn an_entry_is_shown_as_it_is_written() {
        for text in ["127.0.0.1:8080", "intranet", "[::1]:9", "::1"] {
            assert_eq!(text.parse::<AllowedHost>().unwrap().to_string(), text);
        }
        for text in ["", "a b", "http://x/", "host:port", "host:70000", "a:1:2"] {
            assert!(text.parse::<AllowedHost>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_venue_is_found_by_url_or_did() {
        let check = |name: &str, expected: Result<&str, &str>| {
            let found = venue_url(name).map(String::from);
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{name}");
        };
        check("https://venue.example", Ok("https://venue.example/"));
        check("https://venue.example/base/api/v1/", Ok("https://venue.example/base"));
        check("did:web:venue.example", Ok("https://venue.example/"));
        check("did:web:venue.example%3A8443:a:b", Ok("https://venue.example:8443/a/b"));
        check("ftp://venue.example", Err("ftp is not http or https"));
        check(
            "did:key:z6Mk",
            Err("only a did:web contains the venue's address; give its URL instead"),
        );
        check("https://me:pw@venue.example", Err("it contains credentials; send them as a header"));
        check("venue", Err("relative URL without a base"));
        check("did:web:", Err("empty host"));
    }

    #[test]
    fn a_venue_on_the_list_counts_with_its_scheme_and_port() {
        let covers = |entry: &str, url: &str| {
            entry.parse::<AllowedVenue>().unwrap().covers(&venue_url(url).unwrap())
        };
        assert!(covers("https://venue.example", "did:web:venue.example"));
        assert!(covers("venue.example", "https://venue.example/base"));
        assert!(covers("did:web:venue.example%3A8443", "https://venue.example:8443"));
        assert!(!covers("https://venue.example", "http://venue.example"));
        assert!(!covers("https://venue.example", "https://venue.example:8443"));
        assert!(covers("http://127.0.0.1:9000", "http://127.0.0.1:9000/api/v1"));
        assert!("ftp://x".parse::<AllowedVenue>().is_err());
        let entry: AllowedVenue = "http://127.0.0.1:9=did:key:z1,shared".parse().unwrap();
        assert_eq!((entry.did(), entry.is_shared), (Some("did:key:z1"), true));
        assert_eq!(entry.to_string(), "http://127.0.0.1:9=did:key:z1,shared");
        assert!("http://127.0.0.1:9=somebody".parse::<AllowedVenue>().is_err());
    }
}
