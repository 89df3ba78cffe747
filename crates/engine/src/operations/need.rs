//! What an operation needs to be allowed.

/// What an operation needs to be allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The ability, such as `crud/read`.
    pub ability: &'static str,
    /// Another ability that is enough.
    pub alternative: Option<&'static str>,
    /// The resource: a path of the caller, or one with the DID of its owner.
    pub resource: String,
    /// True if somebody must have granted the ability expressly, even for what belongs to the caller.
    pub is_explicit: bool,
}

impl Need {
    /// An ability on a resource.
    pub fn new(ability: &'static str, resource: impl Into<String>) -> Self {
        Need { ability, alternative: None, resource: resource.into(), is_explicit: false }
    }

    /// Returns the abilities of which one is enough.
    pub(super) fn abilities(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.ability).chain(self.alternative)
    }

    /// Returns the resource with the DID of its owner.
    pub(super) fn qualified(&self, caller: &str) -> String {
        match self.resource.trim_matches('/') {
            "" => caller.to_owned(),
            path if path.starts_with("did:") => path.to_owned(),
            path => format!("{caller}/{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_without_a_did_belongs_to_the_caller() {
        let resource = |text: &str| Need::new("crud/read", text).qualified("did:key:me");
        assert_eq!(resource("w/a"), "did:key:me/w/a");
        assert_eq!(resource("/w/a/"), "did:key:me/w/a");
        assert_eq!(resource("did:key:you/w/a*"), "did:key:you/w/a*");
        assert_eq!(resource("/"), "did:key:me");
    }
}
