//! What Typst can see: the fonts of this binary, and the sources and images that belong to one request.
//!
//! There is no file system, no package, no network and no clock behind it. Whatever else a source asks for is
//! refused.

use std::collections::HashMap;
use std::sync::OnceLock;

use sha2::{Digest as _, Sha256};
use typst::diag::{FileError, FileResult};
use typst::foundations::{Bytes, Datetime, Duration};
use typst::syntax::{FileId, RootedPath, Source, VirtualPath, VirtualRoot};
use typst::text::{Font, FontBook};
use typst::utils::LazyHash;
use typst::{Library, LibraryExt as _, World};

use crate::error::RenderError;

/// What all requests have in common.
struct Shared {
    library: LazyHash<Library>,
    book: LazyHash<FontBook>,
    fonts: Vec<Font>,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let fonts: Vec<Font> =
            typst_assets::fonts().flat_map(|data| Font::iter(Bytes::new(data))).collect();
        Shared {
            library: LazyHash::new(Library::default()),
            book: LazyHash::new(FontBook::from_fonts(&fonts)),
            fonts,
        }
    })
}

/// The digest of everything that decides what a source looks like besides the source: the code of this crate and
/// of its dependencies, and the fonts.
pub fn fingerprint() -> [u8; 32] {
    fingerprint_of(env!("RENDER_SOURCES"), typst_assets::fonts())
}

fn fingerprint_of<'a>(sources: &str, fonts: impl Iterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(sources.as_bytes());
    for font in fonts {
        part(font);
    }
    hash.finalize().into()
}

/// The sources and images of one request.
pub(crate) struct Sources {
    main: Source,
    others: HashMap<FileId, Source>,
    files: HashMap<FileId, Bytes>,
    /// The blocks of a document, which are sources of their own.
    blocks: HashMap<FileId, String>,
}

/// The name of a file of a request.
fn id(path: &str) -> Result<FileId, RenderError> {
    let path =
        VirtualPath::new(path).map_err(|error| RenderError::request(format!("{error:?}")))?;
    Ok(RootedPath::new(VirtualRoot::Project, path).intern())
}

impl Sources {
    pub(crate) fn new(main: String) -> Result<Self, RenderError> {
        let main = Source::new(id("/main.typ")?, main);
        Ok(Sources { main, others: HashMap::new(), files: HashMap::new(), blocks: HashMap::new() })
    }

    /// Adds a source that the main one includes.
    pub(crate) fn add_source(&mut self, path: &str, text: String) -> Result<(), RenderError> {
        let id = id(path)?;
        self.others.insert(id, Source::new(id, text));
        Ok(())
    }

    /// Adds a source that was made of a block of a document.
    pub(crate) fn add_block(
        &mut self,
        path: &str,
        block: &str,
        text: String,
    ) -> Result<(), RenderError> {
        self.blocks.insert(id(path)?, block.to_owned());
        self.add_source(path, text)
    }

    /// The block that a source was made of.
    pub(crate) fn block(&self, id: FileId) -> Option<&str> {
        self.blocks.get(&id).map(String::as_str)
    }

    /// Adds an image.
    pub(crate) fn add_file(&mut self, path: &str, content: Vec<u8>) -> Result<(), RenderError> {
        self.files.insert(id(path)?, Bytes::new(content));
        Ok(())
    }

    /// The line and column of a byte of a source that was added.
    pub(crate) fn position(&self, id: FileId, byte: usize) -> Option<(u32, u32)> {
        let (line, column) = self.others.get(&id)?.lines().byte_to_line_column(byte)?;
        Some((u32::try_from(line).ok()? + 1, u32::try_from(column).ok()? + 1))
    }
}

impl World for Sources {
    fn library(&self) -> &LazyHash<Library> {
        &shared().library
    }

    fn book(&self) -> &LazyHash<FontBook> {
        &shared().book
    }

    fn main(&self) -> FileId {
        self.main.id()
    }

    fn source(&self, id: FileId) -> FileResult<Source> {
        if id == self.main.id() {
            return Ok(self.main.clone());
        }
        self.others.get(&id).cloned().ok_or(FileError::AccessDenied)
    }

    fn file(&self, id: FileId) -> FileResult<Bytes> {
        self.files.get(&id).cloned().ok_or(FileError::AccessDenied)
    }

    fn font(&self, index: usize) -> Option<Font> {
        shared().fonts.get(index).cloned()
    }

    fn today(&self, _offset: Option<Duration>) -> Option<Datetime> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_font_or_another_source_gives_another_version() {
        let fonts = || typst_assets::fonts().map(<[u8]>::to_vec).collect::<Vec<_>>();
        let of = |sources: &str, fonts: &[Vec<u8>]| {
            fingerprint_of(sources, fonts.iter().map(Vec::as_slice))
        };
        let same = of(env!("RENDER_SOURCES"), &fonts());
        assert_eq!(same, fingerprint());
        let mut changed = fonts();
        changed[3][100] ^= 1;
        assert_ne!(same, of(env!("RENDER_SOURCES"), &changed));
        assert_ne!(same, of(env!("RENDER_SOURCES"), &fonts()[1..]));
        assert_ne!(same, of("another source", &fonts()));
    }
}
