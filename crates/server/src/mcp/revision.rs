//! The published revisions of the protocol.
//!
//! The revisions up to 2025-11-25 begin with a handshake; 2026-07-28 has none, and each of its
//! requests is self-contained.

use catena_value::Value;

use crate::values::list;

/// A published revision of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Revision {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

impl Revision {
    /// All revisions, newest first.
    const ALL: [Revision; 5] = [
        Revision::V2026_07_28,
        Revision::V2025_11_25,
        Revision::V2025_06_18,
        Revision::V2025_03_26,
        Revision::V2024_11_05,
    ];

    pub(super) const NEWEST: Revision = Revision::V2026_07_28;

    pub(super) const NEWEST_WITH_HANDSHAKE: Revision = Revision::V2025_11_25;

    /// The revision of clients that send no version header: the last one that does not require it.
    pub(super) const WITHOUT_HEADER: Revision = Revision::V2025_03_26;

    /// Its name, which is a date.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Revision::V2024_11_05 => "2024-11-05",
            Revision::V2025_03_26 => "2025-03-26",
            Revision::V2025_06_18 => "2025-06-18",
            Revision::V2025_11_25 => "2025-11-25",
            Revision::V2026_07_28 => "2026-07-28",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Revision::ALL.into_iter().find(|revision| revision.as_str() == text)
    }

    /// The names of all revisions, newest first.
    pub(super) fn supported() -> Value {
        list(Revision::ALL.map(|revision| revision.as_str().into()))
    }

    /// The result of a handshake: the requested revision, otherwise the newest that has a handshake.
    pub(super) fn negotiate(requested: Option<&str>) -> Revision {
        let requested = requested.and_then(Revision::parse);
        requested
            .filter(|revision| !revision.is_stateless())
            .unwrap_or(Revision::NEWEST_WITH_HANDSHAKE)
    }

    /// Whether each request is self-contained.
    pub(super) fn is_stateless(self) -> bool {
        self >= Revision::V2026_07_28
    }

    /// Whether one body may carry several messages.
    pub(super) fn allows_batches(self) -> bool {
        self < Revision::V2025_06_18
    }

    /// Whether servers announce that they complete arguments.
    pub(super) fn has_completions(self) -> bool {
        self >= Revision::V2025_03_26
    }

    /// Whether a server may ask the user of a client to fill in a form.
    pub(super) fn has_forms(self) -> bool {
        self >= Revision::V2025_06_18
    }

    /// Whether questions have a mode: a form, or a URL to visit.
    pub(super) fn has_modes(self) -> bool {
        self >= Revision::V2025_11_25
    }

    /// Whether it has tasks, in the core or as an extension.
    pub(super) fn has_tasks(self) -> bool {
        self >= Revision::V2025_11_25
    }

    /// Whether a call itself requests to become a task.
    pub(super) fn requests_tasks(self) -> bool {
        self.has_tasks() && !self.is_stateless()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_agrees_on_the_requested_revision_if_that_has_one() {
        for (asked, agreed) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-03-26", "2025-03-26"),
            ("2025-06-18", "2025-06-18"),
            ("2025-11-25", "2025-11-25"),
            ("2026-07-28", "2025-11-25"),
            ("1900-01-01", "2025-11-25"),
        ] {
            assert_eq!(Revision::negotiate(Some(asked)).as_str(), agreed);
        }
        assert_eq!(Revision::negotiate(None), Revision::V2025_11_25);
    }
}
