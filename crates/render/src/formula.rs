//! Formulas and Typst sources as images.

use serde_json::{Value, json};

use crate::error::{Kind, RenderError};
use crate::latex;
use crate::limits::SOURCE_BYTES_MAX;
use crate::typeset::{self, quoted};
use crate::world::Sources;
use crate::{Output, Rendered};

/// What is rendered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Content {
    Latex { source: String, is_display: bool },
    Typst(String),
}

/// How it looks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Look {
    /// Pixels for each point.
    pub(crate) scale: f64,
    /// `#rrggbb` or `#rrggbbaa`.
    pub(crate) color: String,
    pub(crate) background: Option<String>,
    /// In points.
    pub(crate) font_size: f64,
}

impl Default for Look {
    fn default() -> Self {
        Look { scale: 2.0, color: "#000000".to_owned(), background: None, font_size: 12.0 }
    }
}

/// Reads the content of an object.
pub(crate) fn read_content(object: &Value) -> Result<Content, RenderError> {
    let text = |name: &str| object[name].as_str().map(str::to_owned);
    let source = text("source").ok_or_else(|| RenderError::request("`source` is missing"))?;
    if source.len() > SOURCE_BYTES_MAX {
        let text = format!(
            "the source has {} bytes; at most {SOURCE_BYTES_MAX} are allowed",
            source.len()
        );
        return Err(RenderError::limit(text));
    }
    match object["format"].as_str() {
        Some("latex") => {
            let is_display = object["display"].as_bool().unwrap_or(true);
            Ok(Content::Latex { source, is_display })
        }
        Some("typst") => Ok(Content::Typst(source)),
        _ => Err(RenderError::request("`format` must be latex or typst")),
    }
}

fn read_look(options: &Value) -> Look {
    let default = Look::default();
    let text = |name: &str| options[name].as_str().map(str::to_owned);
    let number = |name: &str, least: f64, most: f64, default: f64| {
        options[name].as_f64().map_or(default, |number| number.clamp(least, most))
    };
    Look {
        scale: number("scale", 1.0, 8.0, default.scale),
        color: text("color").unwrap_or(default.color),
        background: text("background").filter(|background| background != "transparent"),
        font_size: number("font_size", 4.0, 144.0, default.font_size),
    }
}

/// The common beginning of sources: fonts, and a page as large as its content.
fn prelude(look: &Look) -> String {
    let fill = look
        .background
        .as_deref()
        .map_or("none".to_owned(), |fill| format!("rgb({})", quoted(fill)));
    let margin = look.font_size / 8.0;
    format!(
        "{FONTS}#set page(width:auto,height:auto,margin:{margin}pt,fill:{fill})\n\
         #set text(size:{}pt,fill:rgb({}))\n#set par(leading:0pt)\n",
        look.font_size,
        quoted(&look.color),
    )
}

/// The fonts of everything.
pub(crate) const FONTS: &str = "#set text(font:\"New Computer Modern\")\n\
    #show math.equation:set text(font:\"New Computer Modern Math\")\n\
    #show raw:set text(font:\"DejaVu Sans Mono\",size:0.9em)\n";

/// A formula as an equation in a line.
pub(crate) fn equation(markup: &str, is_display: bool) -> String {
    let style = if is_display { "display" } else { "inline" };
    let markup = if markup.is_empty() { "\"\"" } else { markup };
    format!("${style}({markup})$")
}

/// The sources of an image.
pub(crate) fn sources(content: &Content, look: &Look) -> Result<Sources, RenderError> {
    let mut main = prelude(look);
    match content {
        Content::Latex { source, is_display } => {
            let markup = latex::to_typst(source)?;
            main.push_str(&equation(&markup, *is_display));
            main.push_str("#metadata(none)<baseline>#box()\n");
            Sources::new(main)
        }
        Content::Typst(source) => {
            // A link would be a reference to something outside of the image.
            main.push_str("#show link:it=>it.body\n#include \"source.typ\"\n");
            let mut sources = Sources::new(main)?;
            sources.add_source("/source.typ", source.clone())?;
            Ok(sources)
        }
    }
}

/// Rounds to a thousandth, so that a number is short in JSON.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// Renders an object to images.
pub(crate) fn render(request: &Value) -> Result<Rendered, RenderError> {
    let content = read_content(&request["object"])?;
    let look = read_look(&request["options"]);
    let sources = sources(&content, &look)?;
    let document = typeset::compile(&sources)?;
    let page = match document.pages() {
        [page] => page,
        pages => {
            let text = format!("the source fills {} pages; an image has one", pages.len());
            return Err(RenderError::new(Kind::Source, text));
        }
    };
    let (alt, name) = match &content {
        Content::Latex { source, .. } => (source.as_str(), "formula"),
        Content::Typst(source) => (source.as_str(), "image"),
    };
    let baseline = typeset::label_y(page, "baseline");
    let mut outputs = Vec::new();
    for format in request["formats"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let (bytes, scale, unit) = match format {
            "svg" => (typeset::svg(page)?.into_bytes(), 1.0, "pt"),
            "png" => (typeset::png(typeset::draw(page, look.scale)?)?, look.scale, "px"),
            other => return Err(RenderError::request(format!("there is no format {other:?}"))),
        };
        let (width, height) = (page.frame.width().to_pt(), page.frame.height().to_pt());
        let (width, height) = match unit {
            "px" => {
                let (width, height) = typeset::pixels(page, scale)?;
                (json!(width), json!(height))
            }
            _ => (json!(rounded(width)), json!(rounded(height))),
        };
        let mut facts = json!({"width": width, "height": height, "unit": unit, "alt": alt});
        if let (Some(baseline), Content::Latex { .. }) = (baseline, &content) {
            facts["baseline"] = json!(rounded(baseline * scale));
        }
        outputs.push(Output { name: format!("{name}.{format}"), bytes, facts });
    }
    Ok(Rendered { outputs })
}
