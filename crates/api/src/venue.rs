//! The URL or did:web that names a venue.

use std::fmt;
use std::str::FromStr;

use url::Url;

use crate::wire::API;

/// The base URL of a venue: scheme, host, port, and a path if the venue is not at the root of its
/// host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VenueUrl(Url);

/// A text that is not the URL or did:web of a venue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the URL of a venue: {reason}")]
pub struct VenueUrlError {
    /// The text, without credentials.
    pub text: String,
    /// The problem with it.
    pub reason: String,
}

impl VenueUrl {
    /// A venue at a port of this machine.
    pub fn loopback(port: u16) -> Self {
        let url = format!("http://127.0.0.1:{port}");
        url.parse().expect("an address and a port are a URL")
    }

    /// Returns true if connections use TLS.
    pub fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The host. IPv6 addresses have no brackets.
    pub fn host(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        host.trim_matches(['[', ']']).to_owned()
    }

    /// The port, which is that of the scheme unless the URL has one.
    pub fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or_default()
    }

    /// The value of the `Host` header.
    pub fn authority(&self) -> String {
        match (self.0.host_str().unwrap_or_default(), self.0.port()) {
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_owned(),
        }
    }

    /// Scheme, host and port, without the port that the scheme implies: `https://v.example:8443`.
    pub fn origin(&self) -> String {
        self.0.origin().ascii_serialization()
    }

    /// Returns true if the venue is on this machine: at a loopback address or `localhost`.
    pub fn is_loopback(&self) -> bool {
        match self.0.host() {
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            Some(url::Host::Domain(name)) => name == "localhost",
            None => false,
        }
    }

    /// A path below the base URL, for a request line.
    pub fn path(&self, below: &str) -> String {
        format!("{}{below}", self.0.path().trim_end_matches('/'))
    }

    /// The venue and the job ID in the URL of a job, its history or its stream; `None` if it is the
    /// URL of something else.
    pub fn split_job(url: &str) -> Result<Option<(Self, String)>, VenueUrlError> {
        let parsed: VenueUrl = parse(url, url)?;
        let path = parsed.0.path();
        let jobs = format!("{API}/jobs/");
        let Some(at) = path.rfind(&jobs) else { return Ok(None) };
        let rest = &path[at + jobs.len()..];
        let (id, after) = rest.split_once('/').unwrap_or((rest, ""));
        if id.is_empty() || !matches!(after, "" | "history" | "sse") {
            return Ok(None);
        }
        let mut base = parsed.0.clone();
        base.set_path(&path[..at]);
        Ok(Some((VenueUrl(base), id.to_owned())))
    }
}

impl FromStr for VenueUrl {
    type Err = VenueUrlError;

    /// Parses `http://…`, `https://…` or `did:web:…`. A trailing path of the API is removed.
    fn from_str(text: &str) -> Result<Self, VenueUrlError> {
        let refused = |reason: &str| VenueUrlError { text: text.to_owned(), reason: reason.into() };
        let url = match text.strip_prefix("did:web:") {
            Some(host) if host.contains([':', '/']) => {
                return Err(refused("a did:web with a path is not supported"));
            }
            Some(host) => format!("https://{}", host.replace("%3A", ":").replace("%3a", ":")),
            None => text.to_owned(),
        };
        let VenueUrl(mut url) = parse(text, &url)?;
        let path = url.path().trim_end_matches('/');
        let path = path.strip_suffix(API).unwrap_or(path).to_owned();
        url.set_path(&path);
        Ok(VenueUrl(url))
    }
}

/// Parses a URL and removes query and fragment. The error for a URL with credentials does not repeat
/// them.
fn parse(text: &str, url: &str) -> Result<VenueUrl, VenueUrlError> {
    let refused = |reason: String| VenueUrlError { text: text.to_owned(), reason };
    let mut parsed = Url::parse(url).map_err(|error| match error {
        url::ParseError::RelativeUrlWithoutBase => refused("expected http:// or https://".into()),
        error => refused(error.to_string()),
    })?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(refused("expected http:// or https://".to_owned()));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        let shown = format!("{}://…@{}", parsed.scheme(), parsed.host_str().unwrap_or_default());
        let reason = "it contains a user name or a password".to_owned();
        return Err(VenueUrlError { text: shown, reason });
    }
    if parsed.host_str().is_none_or(str::is_empty) {
        return Err(refused("it has no host".to_owned()));
    }
    parsed.set_query(None);
    parsed.set_fragment(None);
    Ok(VenueUrl(parsed))
}

impl fmt::Display for VenueUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_venue_is_named_by_url_or_did() {
        for (text, expected) in [
            ("http://127.0.0.1:8787", "http://127.0.0.1:8787"),
            ("http://127.0.0.1:8787/", "http://127.0.0.1:8787"),
            ("https://v.example/api/v1/", "https://v.example"),
            ("https://v.example/venue/api/v1?x#y", "https://v.example/venue"),
            ("did:web:v.example", "https://v.example"),
            ("did:web:v.example%3A8443", "https://v.example:8443"),
            ("http://[::1]:80/", "http://[::1]"),
        ] {
            let venue: VenueUrl = text.parse().unwrap();
            assert_eq!(venue.to_string(), expected, "{text}");
        }
        let venue: VenueUrl = "http://[::1]:8787/venue".parse().unwrap();
        assert_eq!((venue.host().as_str(), venue.port()), ("::1", 8787));
        assert_eq!(venue.authority(), "[::1]:8787");
        assert_eq!(venue.path("/api/v1/status"), "/venue/api/v1/status");
        assert!(venue.is_loopback() && !venue.is_https());
    }

    #[test]
    fn a_text_that_names_no_venue_is_refused() {
        for (text, expected) in [
            ("127.0.0.1:8787", "expected http:// or https://"),
            ("venue", "expected http:// or https://"),
            ("ftp://v.example", "expected http:// or https://"),
            ("did:web:v.example:a", "a did:web with a path is not supported"),
            ("http://", "empty host"),
        ] {
            let refused = text.parse::<VenueUrl>().unwrap_err();
            assert!(refused.to_string().ends_with(expected), "{refused}");
        }
        let refused = "http://a:secret@v.example".parse::<VenueUrl>().unwrap_err().to_string();
        assert!(!refused.contains("secret") && refused.contains("v.example"), "{refused}");
    }

    #[test]
    fn the_url_of_a_job_is_split() {
        for url in [
            "http://v.example/x/api/v1/jobs/0xab",
            "http://v.example/x/api/v1/jobs/0xab/history?from=3",
            "http://v.example/x/api/v1/jobs/0xab/sse",
        ] {
            let (venue, id) = VenueUrl::split_job(url).unwrap().unwrap();
            assert_eq!((venue.to_string().as_str(), id.as_str()), ("http://v.example/x", "0xab"));
        }
        for url in [
            "http://v.example",
            "http://v.example/api/v1/jobs/",
            "http://v.example/api/v1/jobs/a/b",
        ] {
            assert_eq!(VenueUrl::split_job(url).unwrap(), None, "{url}");
        }
        assert!(VenueUrl::split_job("nothing").is_err());
    }
}
