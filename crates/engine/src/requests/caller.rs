//! The identity behind a request.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use catena_auth::Token;
use catena_auth::capability::Capability;
use catena_job::JobId;
use catena_value::{Map, NoCells, Value, Vector};

/// A DID, as text and as the value that records carry. The value is built once and shared.
#[derive(Clone)]
pub struct Did {
    text: Arc<str>,
    value: Value,
}

impl Did {
    /// Returns the shared text.
    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Returns the value that records carry.
    pub fn value(&self) -> Value {
        self.value.clone()
    }
}

impl From<&str> for Did {
    fn from(text: &str) -> Self {
        Did { text: text.into(), value: text.into() }
    }
}

impl From<String> for Did {
    fn from(text: String) -> Self {
        Did { text: text.as_str().into(), value: text.into() }
    }
}

impl Deref for Did {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Did {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Did {}

impl fmt::Display for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// What separates the two identities in the name of a scoped account. A did:key contains no colon
/// after its prefix, so nobody can sign as such an account.
const SCOPE: &str = ":for:";

/// The authenticated identity behind a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The caller's DID.
    pub did: Did,
    /// What the caller may do with resources of others.
    pub role: Role,
    /// The delegations sent with the request that steps on other venues may present, as compact
    /// tokens. The server has verified them.
    pub delegations: Vec<String>,
    /// The queues from which the caller may claim jobs, if it may do nothing else: names, or prefixes
    /// that end with `*`. `None` if it may do everything that its role allows.
    pub queues: Option<Arc<[String]>>,
    /// What the caller may do of what its role allows. `None` if that is everything.
    pub restriction: Option<Arc<Restriction>>,
    /// The job that the caller may work on, if it may do nothing else: the venue pushed it to the caller.
    pub held: Option<HeldJob>,
}

/// A restriction of a caller. It applies to everything that is done on the caller's authority, and is
/// never lifted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restriction {
    /// The capabilities of the caller. Every list must permit a request; an empty list permits
    /// nothing. Without a list, everything is permitted.
    pub caps: Vec<Vec<Capability>>,
    /// True if a model chose the request.
    pub is_chosen_by_model: bool,
}

impl Restriction {
    /// Returns the value that a first record carries: `{caps?: [[{with, can}]], chosenBy?: "model"}`.
    pub fn to_value(&self) -> Value {
        let entry = |capability: &Capability| {
            let entry = [("with", capability.with.as_str()), ("can", &capability.can)];
            Value::from(entry.into_iter().collect::<Map>())
        };
        let list = |caps: &Vec<Capability>| Value::from(caps.iter().map(entry).collect::<Vector>());
        let mut members: Vec<(&str, Value)> = Vec::new();
        if !self.caps.is_empty() {
            members.push(("caps", self.caps.iter().map(list).collect::<Vector>().into()));
        }
        if self.is_chosen_by_model {
            members.push(("chosenBy", "model".into()));
        }
        members.into_iter().collect::<Map>().into()
    }

    /// Reads a restriction. One that cannot be read permits nothing.
    pub fn from_value(value: &Value) -> Arc<Restriction> {
        let nothing = || Restriction { caps: vec![Vec::new()], is_chosen_by_model: true };
        Arc::new(Restriction::parse(value).unwrap_or_else(nothing))
    }

    fn parse(value: &Value) -> Option<Restriction> {
        let map = value.as_map()?;
        let caps = match map.field("caps") {
            None => Vec::new(),
            Some(lists) => {
                let lists = lists.as_vector()?.iter(&NoCells);
                lists.map(|list| capabilities(&list.ok()?)).collect::<Option<_>>()?
            }
        };
        let is_chosen_by_model = match map.field("chosenBy") {
            None => false,
            Some(by) => by.as_str()? == "model",
        };
        Some(Restriction { caps, is_chosen_by_model })
    }
}

/// Reads a list of capabilities: `[{with, can}]`. `None` if it is malformed.
pub fn capabilities(list: &Value) -> Option<Vec<Capability>> {
    let capability = |entry: Value| {
        let text = |name: &str| Some(entry.as_map()?.field(name)?.as_str()?.to_owned());
        Some(Capability { with: text("with")?, can: text("can")? })
    };
    list.as_vector()?.iter(&NoCells).map(|entry| capability(entry.ok()?)).collect()
}

/// A job that somebody holds, and the fence under which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldJob {
    /// The job.
    pub job: JobId,
    /// The fence.
    pub fence: u64,
}

/// What a caller may do with resources of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// No token was presented: the shared anonymous identity.
    Anonymous,
    /// A valid token was presented.
    Known,
    /// May see and control every job.
    Admin,
}

impl Caller {
    /// Creates a caller that presented a valid token.
    pub fn known(did: &str) -> Self {
        Caller::new(did.into(), Role::Known)
    }

    /// Creates a caller without delegations and restrictions.
    pub fn new(did: Did, role: Role) -> Self {
        Caller { did, role, delegations: Vec::new(), queues: None, restriction: None, held: None }
    }

    /// The same caller with these capabilities and no others: `caps` of an agent.
    pub fn narrowed(&self, caps: Vec<Capability>) -> Self {
        self.restricted(|restriction| restriction.caps.push(caps))
    }

    /// The same caller in a request that a model chose. It receives secrets only for hosts to which they
    /// are bound, and for the operation's own default host.
    pub fn for_model(&self) -> Self {
        self.restricted(|restriction| restriction.is_chosen_by_model = true)
    }

    /// The same caller with a further restriction.
    pub fn with_restriction(&self, more: &Restriction) -> Self {
        self.restricted(|restriction| {
            restriction.is_chosen_by_model |= more.is_chosen_by_model;
            for caps in &more.caps {
                if !restriction.caps.contains(caps) {
                    restriction.caps.push(caps.clone());
                }
            }
        })
    }

    /// The same caller without capabilities, for what is not a choice of the caller but part of the
    /// operation that runs on its authority.
    pub fn without_caps(&self) -> Self {
        self.restricted(|restriction| restriction.caps.clear())
    }

    fn restricted(&self, change: impl FnOnce(&mut Restriction)) -> Self {
        let mut restriction = self.restriction.as_deref().cloned().unwrap_or_default();
        change(&mut restriction);
        Caller { restriction: Some(Arc::new(restriction)), ..self.clone() }
    }

    /// Returns true if a model chose the request.
    pub fn is_model(&self) -> bool {
        self.restriction.as_ref().is_some_and(|restriction| restriction.is_chosen_by_model)
    }

    /// Returns the identity that showed a token: of a scoped account, the one that acts for the user.
    pub fn identity(&self) -> &str {
        self.did.split_once(SCOPE).map_or(&*self.did, |(identity, _)| identity)
    }

    /// The account of an identity that acts for a user under a delegation. Two users of one venue
    /// have two accounts.
    pub fn scoped(did: &str, user: &str) -> Self {
        Caller::known(&format!("{did}{SCOPE}{user}"))
    }

    /// The user for whom this identity acts in an account, if it is an account of this identity.
    pub fn user_of_scoped<'a>(&self, account: &'a str) -> Option<&'a str> {
        account.strip_prefix(&*self.did)?.strip_prefix(SCOPE)
    }

    /// Returns true if the caller may see and change what belongs to `owner`. That includes the
    /// accounts in which the caller itself acts for its users: a venue keeps these apart, and
    /// requests about a job that it started carry no delegations.
    pub fn may_touch(&self, owner: &str) -> bool {
        self.role == Role::Admin
            || *self.did == *owner
            || self.role == Role::Known && self.user_of_scoped(owner).is_some()
    }

    /// Returns true if the caller may claim jobs from its own queue with this name.
    pub fn may_claim(&self, queue: &str) -> bool {
        let covers = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => queue.starts_with(prefix),
            None => pattern == queue,
        };
        self.queues.as_ref().is_none_or(|queues| queues.iter().any(covers))
    }

    /// Returns true if the caller presented a token.
    pub fn is_authenticated(&self) -> bool {
        self.role != Role::Anonymous
    }

    /// Returns the delegations that name `venue` as their audience: those that this venue may
    /// present to others. All others are not ours to use.
    pub(crate) fn delegations_for(&self, venue: &str) -> Vec<String> {
        let names_venue = |text: &&String| {
            let Ok(token) = Token::parse(text) else { return false };
            match token.claims().field("aud") {
                Some(Value::Vector(names)) => {
                    let mut names = names.iter(&NoCells).flatten();
                    names.any(|name| name.as_str() == Some(venue))
                }
                Some(name) => {
                    // Other venues know a venue with a did:web by the did:key of its key.
                    let name = name.as_str().unwrap_or_default();
                    name == venue || venue.starts_with("did:web:") && name.starts_with("did:key:")
                }
                None => false,
            }
        };
        self.delegations.iter().filter(names_venue).cloned().collect()
    }
}
