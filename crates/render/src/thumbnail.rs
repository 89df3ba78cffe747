//! Thumbnails: an image, the first page of a PDF, a document or a formula, in exactly the size that was asked for.

use serde_json::{Value, json};

use crate::document::Document;
use crate::error::{Kind, RenderError};
use crate::formula::{self, Look};
use crate::images::{self, Format, Image};
use crate::paged::{self, View};
use crate::typeset::{self, Pixels, quoted};
use crate::world::Sources;
use crate::{Images, Output, Rendered};

/// Pixels of the longer side of a page of a PDF that is shown as a figure.
const PAGE_SIDE: u32 = 1_600;

/// Draws a thumbnail.
pub(crate) fn render(request: &Value, images: Images<'_>) -> Result<Rendered, RenderError> {
    let side = |name: &str| request[name].as_u64().and_then(|side| u32::try_from(side).ok());
    let (Some(width), Some(height)) = (side("width"), side("height")) else {
        return Err(RenderError::request("`width` and `height` must be numbers"));
    };
    let is_cover = request["fit"].as_str() == Some("cover");
    let pixels = if let Some(digest) = request["digest"].as_str() {
        let digest = digest.trim_start_matches("sha256:");
        let bytes = images(digest).ok_or_else(|| RenderError::request("the image was not sent"))?;
        draw_image(&images::check(bytes)?, width, height, is_cover)?
    } else if request["document"].is_object() {
        let document = Document::read(&request["document"])?;
        let (laid_out, _) = paged::layout(&document, View::Document, false, images)?;
        let first = laid_out.pages().first();
        let first = first.ok_or_else(|| RenderError::request("the document has no page"))?;
        draw_page(first, width, height, is_cover)?
    } else {
        let content = formula::read_content(&request["object"])?;
        let laid_out = typeset::compile(&formula::sources(&content, &Look::default())?)?;
        let first = laid_out.pages().first();
        let first = first.ok_or_else(|| RenderError::request("the object has no page"))?;
        draw_page(first, width, height, is_cover)?
    };
    let facts = json!({"width": pixels.width, "height": pixels.height, "unit": "px"});
    let bytes = typeset::png(pixels)?;
    Ok(Rendered { outputs: vec![Output { name: "thumbnail.png".to_owned(), bytes, facts }] })
}

/// Lays an image out on a page of this size and draws it.
fn draw_image(
    image: &Image,
    width: u32,
    height: u32,
    is_cover: bool,
) -> Result<Pixels, RenderError> {
    let path = format!("/image.{}", image.format.extension());
    let fit = if is_cover { "cover" } else { "contain" };
    let page = if image.format == Format::Pdf { ",page:1" } else { "" };
    let main = format!(
        "#set page(width:{width}pt,height:{height}pt,margin:0pt,fill:none)\n\
         #image({},width:100%,height:100%,fit:\"{fit}\"{page})\n",
        quoted(&path)
    );
    let mut sources = Sources::new(main)?;
    sources.add_file(&path, image.bytes.clone())?;
    let laid_out = typeset::compile(&sources).map_err(as_image_error)?;
    let first = laid_out.pages().first();
    typeset::draw(first.ok_or_else(|| RenderError::request("the image has no page"))?, 1.0)
}

/// An image whose size is known: a drawing or a page of a PDF is laid out for that.
pub(crate) fn measured(mut image: Image) -> Result<Image, RenderError> {
    if image.size.is_some() {
        return Ok(image);
    }
    let path = format!("/image.{}", image.format.extension());
    let page = if image.format == Format::Pdf { ",page:1" } else { "" };
    let main =
        format!("#set page(width:auto,height:auto,margin:0pt)\n#image({}{page})\n", quoted(&path));
    let mut sources = Sources::new(main)?;
    sources.add_file(&path, image.bytes.clone())?;
    let laid_out = typeset::compile(&sources).map_err(as_image_error)?;
    let first = laid_out.pages().first();
    let first = first.ok_or_else(|| RenderError::request("the image has no page"))?;
    // A point of a page is a 72nd of an inch. A pixel of a drawing is a 96th, which is one point here, too.
    let scale = if image.format == Format::Pdf { 96.0 / 72.0 } else { 1.0 };
    let side = |length: typst::layout::Abs| (length.to_pt() * scale).round().max(1.0) as u32;
    image.size = Some((side(first.frame.width()), side(first.frame.height())));
    Ok(image)
}

/// What is wrong with the source of an image is wrong with the image.
fn as_image_error(error: RenderError) -> RenderError {
    match error.kind {
        Kind::Source => RenderError { kind: Kind::Image, line: None, column: None, ..error },
        _ => error,
    }
}

/// The first page of a PDF as PNG.
pub(crate) fn first_page(image: &Image) -> Result<Vec<u8>, RenderError> {
    typeset::png(draw_image(image, PAGE_SIDE, PAGE_SIDE, false)?)
}

/// Draws a page so that it fits, or so that it covers everything, and puts it on an image of this size.
fn draw_page(
    page: &typst_layout::Page,
    width: u32,
    height: u32,
    is_cover: bool,
) -> Result<Pixels, RenderError> {
    let (own_width, own_height) =
        (page.frame.width().to_pt().max(1.0), page.frame.height().to_pt().max(1.0));
    let (across, down) = (f64::from(width) / own_width, f64::from(height) / own_height);
    let scale = if is_cover { across.max(down) } else { across.min(down) };
    Ok(placed(&typeset::draw(page, scale)?, width, height))
}

/// Puts pixels in the middle of a transparent image. What does not fit is left out.
fn placed(pixels: &Pixels, width: u32, height: u32) -> Pixels {
    let mut data = vec![0; width as usize * height as usize * 4];
    let offset = |outer: u32, inner: u32| (i64::from(outer) - i64::from(inner)) / 2;
    let left = offset(width, pixels.width);
    // The beginning of a page says more than its middle.
    let top = offset(height, pixels.height).max(0);
    for y in 0..i64::from(height) {
        let from_y = y - top;
        if from_y < 0 || from_y >= i64::from(pixels.height) {
            continue;
        }
        for x in 0..i64::from(width) {
            let from_x = x - left;
            if from_x < 0 || from_x >= i64::from(pixels.width) {
                continue;
            }
            let from = ((from_y * i64::from(pixels.width) + from_x) * 4) as usize;
            let to = ((y * i64::from(width) + x) * 4) as usize;
            data[to..to + 4].copy_from_slice(&pixels.data[from..from + 4]);
        }
    }
    Pixels { width, height, data }
}
