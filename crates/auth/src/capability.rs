//! Capabilities: an ability on a resource, and what it covers.
//!
//! A resource is a path below the DID of its owner, such as `did:key:z6Mk…/w/notes`. A capability
//! covers a request if its resource is the same or lies above, and its ability is the same or more
//! general: `crud` covers `crud/read`, and `*` covers everything. Prefixes end at the boundaries of
//! segments, so that `w/a` covers `w/a/b` and not `w/ab`.

/// One entry of `att` of a delegation, or of the `caps` of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability {
    /// The resource: a DID URL, or a path of the identity that has the capability.
    pub with: String,
    /// The ability.
    pub can: String,
}

impl Capability {
    /// Returns true if the capability covers an ability on a resource. `subject` is the DID to which a
    /// resource without a DID belongs.
    pub fn covers(&self, subject: &str, ability: &str, resource: &str) -> bool {
        covers_ability(&self.can, ability) && is_at_or_below(&self.resource(subject), resource)
    }

    /// Returns the resource with the DID of its owner, without trailing slashes and wildcards.
    pub fn resource(&self, subject: &str) -> String {
        qualified(&self.with, subject)
    }
}

impl std::fmt::Display for Capability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.can, self.with)
    }
}

/// Returns a resource with the DID of its owner. One without a DID belongs to `subject`.
pub fn qualified(resource: &str, subject: &str) -> String {
    let path = resource.strip_suffix('*').unwrap_or(resource);
    let path = path.trim_matches('/');
    match path {
        "" => subject.to_owned(),
        path if path.starts_with("did:") => path.to_owned(),
        path => format!("{subject}/{path}"),
    }
}

/// Returns the DID of the owner of a resource.
pub fn owner_of(resource: &str) -> &str {
    resource.split_once('/').map_or(resource, |(owner, _)| owner)
}

/// Returns true if an ability is the same as another one or more general.
fn covers_ability(general: &str, ability: &str) -> bool {
    let is_everything = |ability: &str| ability == "*";
    let general = general.strip_suffix("/*").unwrap_or(general);
    let ability = ability.strip_suffix("/*").unwrap_or(ability);
    is_everything(general) || !is_everything(ability) && is_at_or_below(general, ability)
}

/// Returns true if a path is another one or below it.
fn is_at_or_below(prefix: &str, path: &str) -> bool {
    let rest = path.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(with: &str, can: &str, ability: &str, resource: &str) -> bool {
        let capability = Capability { with: with.to_owned(), can: can.to_owned() };
        capability.covers("did:key:me", ability, resource)
    }

    #[test]
    fn prefixes_end_at_boundaries() {
        let at = |with: &str, resource: &str| covers(with, "*", "crud/read", resource);
        for with in ["w/a", "/w/a", "w/a/", "did:key:me/w/a", "did:key:me/w/a/*", "w", "*", ""] {
            assert!(at(with, "did:key:me/w/a"), "{with}");
            assert!(at(with, "did:key:me/w/a/b"), "{with}");
        }
        for with in ["w/ab", "w/a/b", "did:key:me2/w/a", "did:key:m", "o", "did:key:you"] {
            assert!(!at(with, "did:key:me/w/a"), "{with}");
        }
        assert!(!at("w/a", "did:key:me/w/ab"));
        assert!(!at("did:key:me", "did:key:me:for:did:key:you/w/a"));
        assert!(!at("w/a", "did:key:me/w"), "a part does not cover the whole");
    }

    #[test]
    fn an_ability_covers_more_special_ones() {
        let with = |can: &str, ability: &str| covers("w", can, ability, "did:key:me/w/a");
        for can in ["*", "crud", "crud/*", "crud/read"] {
            assert!(with(can, "crud/read"), "{can}");
        }
        for can in ["crud/write", "crud/rea", "cru", "read", "crud/read/x", ""] {
            assert!(!with(can, "crud/read"), "{can}");
        }
        assert!(with("*", "*"));
        assert!(!with("crud", "*"), "a part does not cover everything");
        assert!(with("crud/*", "crud"));
    }
}
