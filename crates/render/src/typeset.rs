//! Runs Typst on sources and writes what it laid out.

use typst::WorldExt as _;
use typst::diag::SourceDiagnostic;
use typst::introspection::Tag;
use typst::layout::{Abs, Frame, FrameItem, Point};
use typst::utils::Scalar;
use typst_layout::{Page, PagedDocument};
use typst_pdf::{PdfOptions, PdfStandard, PdfStandards};
use typst_render::RenderOptions;
use typst_svg::SvgOptions;

use crate::error::{Kind, RenderError};
use crate::limits::{OUTPUT_PIXELS_MAX, OUTPUT_SIDE_MAX, PAGES_MAX};
use crate::world::Sources;

/// Lays sources out.
pub(crate) fn compile(sources: &Sources) -> Result<PagedDocument, RenderError> {
    let document = typst::compile::<PagedDocument>(sources).output;
    let document = document.map_err(|errors| {
        let first = errors.first();
        first.map_or_else(
            || RenderError::request("Typst failed without a reason"),
            |error| convert(sources, error),
        )
    })?;
    if document.pages().len() > PAGES_MAX {
        let pages = document.pages().len();
        return Err(RenderError::limit(format!(
            "the document has {pages} pages; at most {PAGES_MAX} are allowed"
        )));
    }
    Ok(document)
}

fn convert(sources: &Sources, error: &SourceDiagnostic) -> RenderError {
    let message = error.message.to_string();
    let is_limit = [
        "maximum",
        "exceeded",
        "infinite",
        "too large",
        "too deep",
        "limit reached",
        "did not converge",
    ]
    .iter()
    .any(|word| message.contains(word));
    let is_access = message.contains("access denied")
        || message.contains("package")
        || message.contains("outside of");
    let kind = match (is_limit, is_access) {
        (_, true) => Kind::Access,
        (true, _) => Kind::Limit,
        _ => Kind::Source,
    };
    let found = RenderError::new(kind, message);
    // What a block became is nothing that its author knows.
    if let Some(block) = error.span.id().and_then(|id| sources.block(id)) {
        return found.in_block(block);
    }
    let place = error.span.id().zip(sources.range(error.span));
    match place.and_then(|(id, range)| sources.position(id, range.start)) {
        Some((line, column)) => found.at(line, column),
        None => found,
    }
}

/// A page as SVG.
pub(crate) fn svg(page: &Page) -> Result<String, RenderError> {
    let text = typst_svg::svg(page, &SvgOptions { render_bleed: false, pretty: false });
    check_svg(&text)?;
    Ok(text)
}

/// Refuses SVG that refers to anything outside of itself. Typst writes no scripts and no event handlers.
fn check_svg(text: &str) -> Result<(), RenderError> {
    let refers_outside = text.match_indices("href=\"").any(|(at, found)| {
        let target = &text[at + found.len()..];
        !(target.starts_with('#') || target.starts_with("data:image/"))
    });
    if refers_outside {
        return Err(RenderError::new(
            Kind::Access,
            "an image must not refer to anything outside of itself",
        ));
    }
    Ok(())
}

/// The size of a page in pixels.
pub(crate) fn pixels(page: &Page, scale: f64) -> Result<(u32, u32), RenderError> {
    let side = |length: Abs| (length.to_pt() * scale).round().max(1.0);
    let (width, height) = (side(page.frame.width()), side(page.frame.height()));
    let most = f64::from(OUTPUT_SIDE_MAX);
    if width > most || height > most || width * height > OUTPUT_PIXELS_MAX as f64 {
        let text = format!(
            "the image would have {width} by {height} pixels; a side may have {OUTPUT_SIDE_MAX}, all together {OUTPUT_PIXELS_MAX}"
        );
        return Err(RenderError::limit(text));
    }
    Ok((width as u32, height as u32))
}

/// The pixels of a page: width, height, and four bytes for each, multiplied by alpha.
pub(crate) struct Pixels {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) data: Vec<u8>,
}

/// Draws a page with this many pixels for each point.
pub(crate) fn draw(page: &Page, scale: f64) -> Result<Pixels, RenderError> {
    pixels(page, scale)?;
    let options = RenderOptions { pixel_per_pt: Scalar::new(scale), render_bleed: false };
    let drawn = typst_render::render(page, &options);
    Ok(Pixels { width: drawn.width(), height: drawn.height(), data: drawn.take() })
}

/// Pixels as PNG.
pub(crate) fn png(mut pixels: Pixels) -> Result<Vec<u8>, RenderError> {
    for pixel in pixels.data.chunks_exact_mut(4) {
        let alpha = u16::from(pixel[3]);
        if alpha != 0 && alpha != 255 {
            for channel in &mut pixel[..3] {
                let value = (u16::from(*channel) * 255 + alpha / 2) / alpha;
                *channel = u8::try_from(value).unwrap_or(u8::MAX);
            }
        }
    }
    let mut bytes = Vec::new();
    let encoder = image::codecs::png::PngEncoder::new(&mut bytes);
    let kind = image::ExtendedColorType::Rgba8;
    image::ImageEncoder::write_image(encoder, &pixels.data, pixels.width, pixels.height, kind)
        .map_err(|error| RenderError::request(error.to_string()))?;
    Ok(bytes)
}

/// The standard that a document follows if it has what the standard wants: a title, texts for its images,
/// headings in order, and a glyph for every character.
pub(crate) const STANDARD: &str = "PDF/UA-1";

/// A document as PDF: tagged, without a time, and with an identifier that follows from its content. Returns also
/// whether it follows [`STANDARD`].
pub(crate) fn pdf(
    document: &PagedDocument,
    sources: &Sources,
) -> Result<(Vec<u8>, bool), RenderError> {
    let write = |standards: PdfStandards| {
        let options = PdfOptions {
            creator: typst::foundations::Smart::Custom(Some("catena".to_owned())),
            standards,
            ..PdfOptions::default()
        };
        typst_pdf::pdf(document, &options)
    };
    if let Ok(Ok(bytes)) = PdfStandards::new(&[PdfStandard::Ua_1]).map(&write) {
        return Ok((bytes, true));
    }
    let bytes = write(PdfStandards::default()).map_err(|errors| {
        let first = errors.first();
        first.map_or_else(
            || RenderError::request("the PDF could not be written"),
            |error| convert(sources, error),
        )
    })?;
    Ok((bytes, false))
}

/// How far below the top of a page the element with this label is, in points.
pub(crate) fn label_y(page: &Page, label: &str) -> Option<f64> {
    find(&page.frame, Point::zero(), label).map(|point| point.y.to_pt())
}

fn find(frame: &Frame, origin: Point, label: &str) -> Option<Point> {
    frame.items().find_map(|(at, item)| {
        let at = origin + *at;
        match item {
            FrameItem::Group(group) => find(&group.frame, at, label),
            FrameItem::Tag(Tag::Start(element, _)) => {
                element.label().filter(|found| found.resolve().as_str() == label).map(|_| at)
            }
            _ => None,
        }
    })
}

/// How far to the right the content of a page reaches, in points.
pub(crate) fn right_edge(page: &Page) -> f64 {
    edge(&page.frame).to_pt()
}

fn edge(frame: &Frame) -> Abs {
    let right = |(at, item): &(Point, FrameItem)| {
        let width = match item {
            FrameItem::Group(group) => edge(&group.frame),
            FrameItem::Text(text) => text.width(),
            FrameItem::Shape(shape, _) => shape.bbox(false).max.x,
            FrameItem::Image(_, size, _) => size.x,
            _ => Abs::zero(),
        };
        at.x + width
    };
    frame.items().map(right).max().unwrap_or_default()
}

/// Text as a string of Typst's code.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => quoted.push('\u{fffd}'),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
