//! What an operator decides about adapters.

use std::path::PathBuf;

use catena_job::agent::AgentPolicy;
use catena_job::contract::Plan;

use crate::limits::OUTBOUND_CONNECTIONS_MAX;
use crate::outbound::{AllowedHost, AllowedVenue, ListEntryError, SHARED, venue_url};

/// What an operator decides about adapters.
#[derive(Debug, Clone)]
pub struct Options {
    /// Hosts that may be contacted whatever their address is.
    pub allow_hosts: Vec<AllowedHost>,
    /// Venues on which operations may be run.
    pub allow_venues: Vec<AllowedVenue>,
    /// The file that remembers the identities of other venues. Without one they are remembered until
    /// the process ends.
    pub known_venues: Option<PathBuf>,
    /// The highest limits of jobs that run code.
    pub plan: Plan,
    /// The kind of environment in which code runs that names none.
    pub default_environment: String,
    /// The `User-Agent` header of outbound requests.
    pub user_agent: String,
    /// The limits of agents.
    pub agents: AgentPolicy,
    /// The number of connections to other hosts at a time.
    pub connections_max: usize,
}

impl Default for Options {
    /// Only public addresses may be contacted, and no other venue.
    fn default() -> Self {
        Options {
            allow_hosts: Vec::new(),
            allow_venues: Vec::new(),
            known_venues: None,
            plan: Plan::default(),
            default_environment: "bare".to_owned(),
            user_agent: concat!("catena/", env!("CARGO_PKG_VERSION")).to_owned(),
            agents: AgentPolicy::default(),
            connections_max: OUTBOUND_CONNECTIONS_MAX,
        }
    }
}

impl Options {
    /// Parses the entries that an operator gives, such as `127.0.0.1:8080` for a host and
    /// `https://venue.example` or `did:web:venue.example` for a venue. In a list that was split at
    /// commas, `shared` belongs to the venue before it.
    pub fn parse<'a>(
        hosts: impl IntoIterator<Item = &'a str>,
        venues: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, ListEntryError> {
        Ok(Options {
            allow_hosts: hosts.into_iter().map(str::parse).collect::<Result<_, _>>()?,
            allow_venues: parse_venues(venues)?,
            ..Options::default()
        })
    }
}

impl Options {
    /// Whether all users of this venue share an account at a venue, which the operator accepts.
    pub fn is_shared_venue(&self, venue: &str) -> bool {
        let Ok(url) = venue_url(venue) else { return false };
        self.allow_venues.iter().any(|entry| entry.is_shared && entry.covers(&url))
    }
}

fn parse_venues<'a>(
    entries: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<AllowedVenue>, ListEntryError> {
    let mut venues: Vec<AllowedVenue> = Vec::new();
    for entry in entries {
        match venues.last_mut() {
            Some(venue) if entry == SHARED => venue.is_shared = true,
            _ => venues.push(entry.parse()?),
        }
    }
    Ok(venues)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_list_entry_is_refused() {
        assert!(Options::parse(["127.0.0.1:8080", "intranet"], ["https://venue.example"]).is_ok());
        let refused = Options::parse(["http://127.0.0.1/"], []).unwrap_err();
        assert!(refused.to_string().contains("HOST:PORT"), "{refused}");
        let venues = ["https://a.example", "shared", "https://b.example"];
        let venues = Options::parse([], venues).unwrap().allow_venues;
        assert_eq!([venues[0].is_shared, venues[1].is_shared], [true, false]);
        let options = Options { allow_venues: venues, ..Options::default() };
        assert!(options.is_shared_venue("did:web:a.example"));
        assert!(!options.is_shared_venue("https://b.example"));
    }
}
