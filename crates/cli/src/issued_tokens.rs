//! The list of tokens that were issued for a venue: what they grant, never the tokens themselves.
//!
//! The list is a file in the data folder with one JSON object per line. It is only appended to.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use catena_api::wire::{member, text};
use catena_value::{Map, Value, json};

const FILE: &str = "issued-tokens";

/// Only the owner may read the list.
const MODE: u32 = 0o600;

/// A token that was issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IssuedToken {
    pub(crate) id: String,
    pub(crate) subject: String,
    pub(crate) is_admin: bool,
    /// When it was issued: Unix time in seconds.
    pub(crate) issued: i64,
    /// When it expires: Unix time in seconds.
    pub(crate) expires: i64,
}

impl IssuedToken {
    pub(crate) fn members(&self) -> [(&'static str, Value); 5] {
        [
            ("id", self.id.as_str().into()),
            ("subject", self.subject.as_str().into()),
            ("admin", self.is_admin.into()),
            ("issued", self.issued.into()),
            ("expires", self.expires.into()),
        ]
    }

    fn parse(line: &str) -> Option<Self> {
        let value = json::read(line.as_bytes()).ok()?;
        Some(IssuedToken {
            id: text(member(&value, "id")?)?,
            subject: text(member(&value, "subject")?)?,
            is_admin: member(&value, "admin")?.as_bool()?,
            issued: member(&value, "issued")?.as_i64()?,
            expires: member(&value, "expires")?.as_i64()?,
        })
    }
}

/// Appends a token to the list of a data folder.
pub(crate) fn add(data: &Path, token: &IssuedToken) -> io::Result<()> {
    let value = token.members().into_iter().collect::<Map>().into();
    let line = json::to_string(&value).map_err(io::Error::other)? + "\n";
    let mut file = OpenOptions::new().create(true).append(true).mode(MODE).open(data.join(FILE))?;
    file.write_all(line.as_bytes())?;
    file.sync_all()
}

/// The tokens on the list of a data folder, oldest first. An incomplete line is skipped.
pub(crate) fn all(data: &Path) -> io::Result<Vec<IssuedToken>> {
    match std::fs::read_to_string(data.join(FILE)) {
        Ok(text) => Ok(text.lines().filter_map(IssuedToken::parse).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_tokens_are_read_back_and_a_torn_line_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(all(folder.path()).unwrap(), []);
        let token = |id: &str| IssuedToken {
            id: id.to_owned(),
            subject: "did:key:a".to_owned(),
            is_admin: true,
            issued: 5,
            expires: 6,
        };
        add(folder.path(), &token("a")).unwrap();
        let file = folder.path().join(FILE);
        std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + "{\"id\":\"tor\n").unwrap();
        add(folder.path(), &token("b")).unwrap();
        assert_eq!(all(folder.path()).unwrap(), [token("a"), token("b")]);
    }
}
