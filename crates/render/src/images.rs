//! Images of a request: what they are, and whether they fit into memory when they are unpacked.

use std::io::Cursor;

use crate::error::{Kind, RenderError};
use crate::limits::{IMAGE_BYTES_MAX, IMAGE_SIDE_MAX};

/// The format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Png,
    Jpeg,
    Gif,
    Webp,
    Svg,
    Pdf,
}

impl Format {
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Format::Png => "png",
            Format::Jpeg => "jpg",
            Format::Gif => "gif",
            Format::Webp => "webp",
            Format::Svg => "svg",
            Format::Pdf => "pdf",
        }
    }

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Format::Png => "image/png",
            Format::Jpeg => "image/jpeg",
            Format::Gif => "image/gif",
            Format::Webp => "image/webp",
            Format::Svg => "image/svg+xml",
            Format::Pdf => "application/pdf",
        }
    }
}

/// An image that was checked.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) format: Format,
    /// In pixels, if it has any.
    pub(crate) size: Option<(u32, u32)>,
    pub(crate) bytes: Vec<u8>,
}

/// Looks at the beginning of an image, and refuses one that is too large to be unpacked.
pub(crate) fn check(bytes: Vec<u8>) -> Result<Image, RenderError> {
    let unknown = || {
        RenderError::new(
            Kind::Image,
            "the data is no image; PNG, JPEG, GIF, WebP, SVG and PDF can be used",
        )
    };
    let format = format_of(&bytes).ok_or_else(unknown)?;
    if matches!(format, Format::Svg | Format::Pdf) {
        if format == Format::Svg {
            check_svg(&bytes)?;
        }
        return Ok(Image { format, size: None, bytes });
    }
    let reader = image::ImageReader::new(Cursor::new(&bytes)).with_guessed_format();
    let size = reader.ok().and_then(|reader| reader.into_dimensions().ok());
    let (width, height) = size.ok_or_else(|| {
        RenderError::new(
            Kind::Image,
            format!("the image is not a valid {}", format.extension().to_uppercase()),
        )
    })?;
    let unpacked = u64::from(width) * u64::from(height) * 4;
    if width > IMAGE_SIDE_MAX || height > IMAGE_SIDE_MAX || unpacked > IMAGE_BYTES_MAX {
        let text = format!(
            "the image has {width} by {height} pixels, {unpacked} bytes when it is unpacked; a side may have {IMAGE_SIDE_MAX} pixels, all together {IMAGE_BYTES_MAX} bytes"
        );
        return Err(RenderError::limit(text));
    }
    Ok(Image { format, size: Some((width, height)), bytes })
}

fn format_of(bytes: &[u8]) -> Option<Format> {
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Some(Format::Png);
    }
    if bytes.starts_with(b"\xff\xd8\xff") {
        return Some(Format::Jpeg);
    }
    if bytes.starts_with(b"GIF8") {
        return Some(Format::Gif);
    }
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return Some(Format::Webp);
    }
    if bytes.starts_with(b"%PDF-") {
        return Some(Format::Pdf);
    }
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]).into_owned();
    (head.trim_start_matches('\u{feff}').trim_start().starts_with('<') && head.contains("<svg"))
        .then_some(Format::Svg)
}

/// Refuses SVG with entities, which can grow without end, with scripts, and with references to files and addresses.
fn check_svg(bytes: &[u8]) -> Result<(), RenderError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| RenderError::new(Kind::Image, "the SVG is not UTF-8"))?;
    let refused = |what: &str| {
        RenderError::new(Kind::Access, format!("the SVG has {what}, which is not allowed"))
    };
    for (part, what) in [
        ("<!ENTITY", "an entity"),
        ("<script", "a script"),
        ("foreignObject", "a foreign object"),
        ("@import", "a style sheet of another file"),
        ("<?xml-stylesheet", "a style sheet of another file"),
    ] {
        if text.contains(part) {
            return Err(refused(what));
        }
    }
    for (at, found) in text.match_indices("url(") {
        let target = text[at + found.len()..].trim_start_matches(['"', '\'', ' ']);
        let is_quoted = target.starts_with("&quot;#") || target.starts_with("&apos;#");
        if !(target.starts_with('#') || target.starts_with("data:image/") || is_quoted) {
            return Err(refused("a reference to something outside of it"));
        }
    }
    for (at, _) in text.match_indices("href") {
        let rest = text[at + 4..].trim_start();
        let Some(value) = rest.strip_prefix('=') else { continue };
        let value = value.trim_start().trim_start_matches(['"', '\'']).trim_start();
        if !(value.starts_with('#') || value.starts_with("data:image/")) {
            return Err(refused("a reference to something outside of it"));
        }
    }
    Ok(())
}
