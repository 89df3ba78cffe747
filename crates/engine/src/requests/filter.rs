//! Which jobs a list, a stream of events or a bulk action is about. One filter with the same names in
//! URLs, in the input of operations and on the command line.

use catena_job::{JobId, Status};
use catena_store::ListedJob;

use crate::limits::FILTER_TEXT_BYTES_MAX;
use crate::requests::{Caller, Role};

/// The owner that stands for all owners.
pub const ALL_OWNERS: &str = "*";

/// A filter of jobs. A job matches if it matches every member that is present.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct JobFilter {
    /// The DID of the owner, or `*` for all owners. `None` for the caller's own jobs.
    pub owner: Option<String>,
    /// Only jobs with this status.
    pub status: Option<Status>,
    /// Only jobs of this operation, as the caller wrote the reference.
    pub op: Option<String>,
    /// Only jobs with this tag.
    pub tag: Option<String>,
    /// Only jobs that were created at this time or later, as Unix time in ms.
    pub since: Option<i64>,
    /// Only jobs that were created before this time, as Unix time in ms.
    pub until: Option<i64>,
    /// Only sub-jobs of this job. `None` for jobs that are no sub-jobs.
    pub parent: Option<JobId>,
    /// Only jobs whose operation, tags or error contain this text in any case, or whose ID begins
    /// with it.
    pub text: Option<String>,
}

impl JobFilter {
    /// The names of the members.
    pub const NAMES: [&'static str; 8] =
        ["owner", "status", "op", "tag", "since", "until", "parent", "text"];

    /// Parses a filter from the texts of its members. An error names the member.
    pub fn parse(mut member: impl FnMut(&'static str) -> Option<String>) -> Result<Self, String> {
        let [owner, status, op, tag, since, until, parent, text] = Self::NAMES.map(&mut member);
        Ok(JobFilter {
            owner,
            status: status.as_deref().map(parse_status).transpose()?,
            op,
            tag,
            since: since.as_deref().map(|time| parse_time("since", time)).transpose()?,
            until: until.as_deref().map(|time| parse_time("until", time)).transpose()?,
            parent: parent.as_deref().map(parse_parent).transpose()?,
            text: text.map(parse_text).transpose()?.filter(|text| !text.is_empty()),
        })
    }

    /// Returns true if the filter is about jobs that the caller may see.
    pub fn is_allowed(&self, caller: &Caller) -> bool {
        match self.owner.as_deref() {
            None => true,
            Some(ALL_OWNERS) => caller.role == Role::Admin,
            Some(owner) => caller.may_touch(owner),
        }
    }

    /// Returns the owner whose jobs match. `None` for all owners.
    pub(crate) fn owner_for<'a>(&'a self, caller: &'a Caller) -> Option<&'a str> {
        match self.owner.as_deref() {
            None => Some(&caller.did),
            Some(ALL_OWNERS) => None,
            Some(owner) => Some(owner),
        }
    }

    /// Returns true if an entry of a list matches status, operation and time.
    pub(crate) fn matches_entry(&self, job: &ListedJob) -> bool {
        self.status.is_none_or(|status| job.status == status)
            && self.op.as_ref().is_none_or(|op| job.op == *op)
            && self.since.is_none_or(|since| job.created >= since)
            && self.until.is_none_or(|until| job.created < until)
    }

    /// Returns true if the operation or the ID of an entry matches the text.
    pub(crate) fn matches_text(&self, job: &ListedJob) -> bool {
        let Some(text) = &self.text else { return true };
        contains(&job.op, text) || has_id_prefix(job.id, text)
    }
}

/// Returns true if `text` contains `part` in any case.
pub(crate) fn contains(text: &str, part: &str) -> bool {
    text.contains(part) || text.to_lowercase().contains(&part.to_lowercase())
}

/// Returns true if an ID begins with these digits, with or without `0x` or the dashes of a UUID.
fn has_id_prefix(id: JobId, text: &str) -> bool {
    let digits = text.strip_prefix("0x").unwrap_or(text).replace('-', "").to_ascii_lowercase();
    !digits.is_empty() && id.to_hex().starts_with(&digits)
}

fn parse_status(word: &str) -> Result<Status, String> {
    Status::parse(word).ok_or_else(|| {
        format!("`status` must be one of {}", Status::ALL.map(Status::as_str).join(", "))
    })
}

fn parse_parent(id: &str) -> Result<JobId, String> {
    id.parse().map_err(|_| "`parent` must be the ID of a job".to_owned())
}

fn parse_text(text: String) -> Result<String, String> {
    if text.len() > FILTER_TEXT_BYTES_MAX {
        return Err(format!("`text` must have at most {FILTER_TEXT_BYTES_MAX} bytes"));
    }
    Ok(text)
}

/// Unix time in ms, from a number in ms or an ISO 8601 text with an offset, with or without seconds.
fn parse_time(name: &str, text: &str) -> Result<i64, String> {
    let with_seconds = || {
        // 2026-01-31T09:00Z
        let (date, time) = text.split_once('T')?;
        let end = time.find(['Z', '+', '-'])?;
        let (clock, offset) = time.split_at(end);
        format!("{date}T{clock}:00{offset}").parse::<jiff::Timestamp>().ok()
    };
    let number = text.parse::<i64>().ok();
    let time = text.parse::<jiff::Timestamp>().ok().or_else(with_seconds);
    number.or(time.map(jiff::Timestamp::as_millisecond)).ok_or_else(|| {
        format!("`{name}` must be Unix time in ms, or a text such as 2026-01-31T09:00Z")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, text: &str) -> Result<JobFilter, String> {
        JobFilter::parse(|member| (member == name).then(|| text.to_owned()))
    }

    #[test]
    fn times_are_numbers_or_texts() {
        for text in ["1769850000000", "2026-01-31T09:00Z", "2026-01-31T09:00:00Z"] {
            assert_eq!(parse("since", text).unwrap().since, Some(1_769_850_000_000), "{text}");
        }
        let until = parse("until", "2026-01-31T10:00+01:00").unwrap().until;
        assert_eq!(until, Some(1_769_850_000_000));
        for text in ["", "yesterday", "2026-01-31", "09:00Z", "T", "TZ"] {
            assert!(parse("since", text).unwrap_err().contains("`since`"), "{text}");
        }
    }

    #[test]
    fn an_error_names_the_member() {
        assert!(parse("status", "complete").unwrap_err().contains("`status`"));
        assert!(parse("parent", "0x12").unwrap_err().contains("`parent`"));
        let long = "x".repeat(FILTER_TEXT_BYTES_MAX + 1);
        assert!(parse("text", &long).unwrap_err().contains("`text`"));
    }

    #[test]
    fn only_admins_see_all_owners() {
        let all = parse("owner", "*").unwrap();
        let known = Caller::known("did:key:a");
        assert!(!all.is_allowed(&known));
        assert!(all.is_allowed(&Caller { role: Role::Admin, ..known.clone() }));
        assert!(JobFilter::default().is_allowed(&known));
        assert!(!parse("owner", "did:key:b").unwrap().is_allowed(&known));
    }

    #[test]
    fn an_id_is_found_by_its_first_digits() {
        let id = JobId::from_bytes([0xab; 16]);
        for text in ["0xab", "ABAB", "abababab-abab-ab"] {
            assert!(has_id_prefix(id, text), "{text}");
        }
        for text in ["", "0x", "ba", "b", "-"] {
            assert!(!has_id_prefix(id, text), "{text}");
        }
    }
}
