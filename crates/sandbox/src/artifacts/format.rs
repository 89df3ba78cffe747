//! Formats of artifacts, by content. The extension says what a file claims to be, and the content
//! must agree; an extension that we do not know makes no claim.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use crate::limits::TEXT_CHECKED_MAX;

/// What is read to recognise a format, in bytes.
const HEAD: usize = 4096;

/// The extension in lower case; empty if there is none.
pub(crate) fn extension(name: &str) -> String {
    let file = name.rsplit('/').next().unwrap_or(name);
    match file.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => extension.to_ascii_lowercase(),
        _ => String::new(),
    }
}

/// Whether a requested format means this extension.
pub(crate) fn is_same(format: &str, extension: &str) -> bool {
    let plain = |text: &str| match text.trim_start_matches('.').to_ascii_lowercase().as_str() {
        "jpeg" => "jpg".to_owned(),
        "htm" => "html".to_owned(),
        other => other.to_owned(),
    };
    plain(format) == plain(extension)
}

/// The media type of a file whose content is what its extension claims.
pub(crate) fn check(extension: &str, file: &mut File, size: u64) -> Result<&'static str, String> {
    let head = head(file).map_err(|error| error.to_string())?;
    let by_magic: Option<(&'static str, bool)> = match extension {
        "png" => Some(("image/png", head.starts_with(b"\x89PNG\r\n\x1a\n") && head.len() >= 33)),
        "jpg" | "jpeg" => Some(("image/jpeg", head.starts_with(b"\xff\xd8\xff"))),
        "gif" => Some(("image/gif", head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a"))),
        "webp" => {
            Some(("image/webp", head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP")))
        }
        "pdf" => Some(("application/pdf", head.starts_with(b"%PDF-"))),
        "zip" => Some(("application/zip", is_zip(&head))),
        "npz" | "xlsx" => Some(("application/octet-stream", is_zip(&head))),
        "gz" => Some(("application/gzip", head.starts_with(b"\x1f\x8b"))),
        "npy" => Some(("application/octet-stream", head.starts_with(b"\x93NUMPY"))),
        "parquet" => Some(("application/vnd.apache.parquet", head.starts_with(b"PAR1"))),
        _ => None,
    };
    match by_magic {
        Some((content_type, true)) => return Ok(content_type),
        Some((_, false)) => return Err(format!("the content is not {}", extension.to_uppercase())),
        None => {}
    }
    let text_type = match extension {
        "txt" | "log" | "md" | "tex" | "py" => "text/plain; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "tsv" => "text/tab-separated-values; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "html" | "htm" => "text/html; charset=utf-8",
        "xml" => "application/xml",
        _ => return Ok("application/octet-stream"),
    };
    let text = text(file, size).map_err(|error| error.to_string())?;
    let text = text.ok_or_else(|| format!("the content is not text, as .{extension} claims"))?;
    let agrees = match extension {
        "json" => serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok(),
        "svg" => first_element(&text).is_some_and(|name| name == "svg" || name.ends_with(":svg")),
        "xml" => first_element(&text).is_some(),
        _ => true,
    };
    if agrees {
        Ok(text_type)
    } else {
        Err(format!("the content is not {}", extension.to_uppercase()))
    }
}

fn is_zip(head: &[u8]) -> bool {
    head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06")
}

fn head(file: &mut File) -> io::Result<Vec<u8>> {
    file.rewind()?;
    let mut head = Vec::with_capacity(HEAD);
    io::Read::by_ref(file).take(HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// The content as text without NUL characters; `None` if it is something else.
fn text(file: &mut File, size: u64) -> io::Result<Option<String>> {
    file.rewind()?;
    let mut bytes = Vec::new();
    io::Read::by_ref(file).take(size.min(TEXT_CHECKED_MAX)).read_to_end(&mut bytes)?;
    Ok(String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')))
}

/// The name of the first element of an XML document.
fn first_element(text: &str) -> Option<&str> {
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    loop {
        if let Some(after) = rest.strip_prefix("<!--") {
            rest = after.split_once("-->")?.1.trim_start();
        } else if let Some(after) = rest.strip_prefix("<?") {
            rest = after.split_once("?>")?.1.trim_start();
        } else if let Some(after) = rest.strip_prefix("<!") {
            rest = after.split_once('>')?.1.trim_start();
        } else {
            let name = rest.strip_prefix('<')?;
            let end = name.find(|c: char| c.is_whitespace() || c == '>' || c == '/')?;
            return (end > 0).then(|| &name[..end]);
        }
    }
}

/// Width and height of a raster image, from its header alone.
pub(crate) fn dimensions(extension: &str, file: &mut File) -> io::Result<Option<(u32, u32)>> {
    let head = head(file)?;
    let big = |at: usize| Some(u32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let small16 =
        |at: usize| Some(u32::from(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?)));
    Ok(match extension {
        "png" if head.get(12..16) == Some(b"IHDR") => big(16).zip(big(20)),
        "gif" => small16(6).zip(small16(8)),
        "webp" => webp_dimensions(&head),
        "jpg" | "jpeg" => jpeg_dimensions(file)?,
        _ => None,
    })
}

fn webp_dimensions(head: &[u8]) -> Option<(u32, u32)> {
    let byte = |at: usize| head.get(at).copied().map(u32::from);
    match head.get(12..16)? {
        b"VP8X" => {
            let three = |at: usize| Some(byte(at)? | byte(at + 1)? << 8 | byte(at + 2)? << 16);
            Some((three(24)? + 1, three(27)? + 1))
        }
        b"VP8L" => {
            let bits = u32::from_le_bytes(head.get(21..25)?.try_into().ok()?);
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8 " => {
            let two = |at: usize| Some((byte(at)? | byte(at + 1)? << 8) & 0x3fff);
            two(26).zip(two(28))
        }
        _ => None,
    }
}

/// Follows the segments of a JPEG to the one with its size; at most a hundred of them.
fn jpeg_dimensions(file: &mut File) -> io::Result<Option<(u32, u32)>> {
    let mut at = 2u64;
    for _ in 0..100 {
        file.seek(SeekFrom::Start(at))?;
        let mut segment = [0u8; 9];
        let mut filled = 0;
        while filled < segment.len() {
            match file.read(&mut segment[filled..])? {
                0 => return Ok(None),
                count => filled += count,
            }
        }
        let [0xff, marker, high, low, _, h1, h0, w1, w0] = segment else { return Ok(None) };
        let length = u64::from(u16::from_be_bytes([high, low]));
        let is_frame = matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc);
        if is_frame {
            let height = u32::from(u16::from_be_bytes([h1, h0]));
            let width = u32::from(u16::from_be_bytes([w1, w0]));
            return Ok(Some((width, height)));
        }
        at += 2 + length;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn file(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn checked(extension: &str, content: &[u8]) -> Result<&'static str, String> {
        check(extension, &mut file(content), content.len() as u64)
    }

    fn png() -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        bytes.extend(640u32.to_be_bytes());
        bytes.extend(480u32.to_be_bytes());
        bytes.extend([8, 2, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn content_must_agree_with_the_extension() {
        assert_eq!(checked("png", &png()), Ok("image/png"));
        assert!(checked("png", b"<html>").is_err());
        assert!(checked("svg", b"<html><svg></svg></html>").is_err());
        let svg = b"<?xml version='1.0'?><!-- x --><svg width='1'/>";
        assert_eq!(checked("svg", svg), Ok("image/svg+xml"));
        assert!(checked("json", b"{]").is_err());
        assert_eq!(checked("json", b"[1]"), Ok("application/json"));
        // Text that would be large in memory, or deep, is not built.
        let wide = format!("[{}0]", "[],".repeat(1 << 20));
        assert_eq!(checked("json", wide.as_bytes()), Ok("application/json"));
        assert!(checked("json", "[".repeat(1 << 20).as_bytes()).is_err());
        assert!(checked("txt", b"a\0b").is_err());
        assert!(checked("csv", b"\xff\xfe").is_err());
        assert_eq!(checked("dat", b"\0"), Ok("application/octet-stream"));
    }

    #[test]
    fn sizes_come_from_headers() {
        let size = |extension: &str, bytes: &[u8]| dimensions(extension, &mut file(bytes)).unwrap();
        assert_eq!(size("png", &png()), Some((640, 480)));
        assert_eq!(size("gif", b"GIF89a\x10\x00\x20\x00"), Some((16, 32)));
        let jpeg = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x05\x00\x07\x03\0";
        assert_eq!(size("jpg", jpeg), Some((7, 5)));
        assert_eq!(size("jpg", b"\xff\xd8\xff"), None);
        assert_eq!(size("txt", b"abc"), None);
    }

    #[test]
    fn extensions_are_compared_without_case() {
        assert_eq!(extension("a/b.PNG"), "png");
        assert_eq!(extension(".hidden"), "");
        assert!(is_same("jpeg", "jpg") && is_same(".PNG", "png") && !is_same("png", "svg"));
    }
}
