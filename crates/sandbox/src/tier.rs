//! Tiers: how much isolation a host allows.

use std::fmt;

/// How much isolation there is. A lower number is stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Privileges to set everything up: all namespaces, two identities of its own, cgroups.
    T1,
    /// A plain user with user namespaces: all namespaces, one identity; cgroups if delegated.
    T2,
    /// No user namespaces: seccomp, Landlock and resource limits only. Not implemented.
    T3,
    /// A WebAssembly interpreter. Not implemented.
    T4,
    /// No isolation. This crate never runs anything like that.
    T5,
}

impl Tier {
    /// All of them, strongest first.
    pub const ALL: [Tier; 5] = [Tier::T1, Tier::T2, Tier::T3, Tier::T4, Tier::T5];

    /// `T1` and so on.
    pub fn as_str(self) -> &'static str {
        match self {
            Tier::T1 => "T1",
            Tier::T2 => "T2",
            Tier::T3 => "T3",
            Tier::T4 => "T4",
            Tier::T5 => "T5",
        }
    }

    /// One sentence about it.
    pub fn about(self) -> &'static str {
        match self {
            Tier::T1 => {
                "privileged: all namespaces, two separate identities, seccomp, Landlock, cgroups"
            }
            Tier::T2 => {
                "plain user: all namespaces, one identity, seccomp, Landlock; cgroups if delegated"
            }
            Tier::T3 => "no user namespaces: seccomp, Landlock and resource limits only",
            Tier::T4 => "WebAssembly interpreter",
            Tier::T5 => "no isolation",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
