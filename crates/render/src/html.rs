//! Documents as HTML: one file without scripts and without references to other files.
//!
//! Formulas are SVG within the text, laid out by Typst in one run; figures are data. A policy in the file
//! forbids everything else to a browser.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::json;

use crate::document::{Block, Document, Kind};
use crate::error::{self, RenderError};
use crate::formula::{FONTS, equation};
use crate::images::{Format, Image};
use crate::latex::{self, Place};
use crate::markdown::{self, Inline, Part};
use crate::paged::{self, View, label_name};
use crate::typeset;
use crate::world::Sources;
use crate::{Images, Output, Rendered};

/// The size of formulas in points. One em of the text around them is as large.
const FORMULA_SIZE: f64 = 12.0;

const STYLE: &str = "body{font:16px/1.55 Georgia,'Times New Roman',serif;color:#1a1a1a;background:#fff;max-width:46em;margin:2em auto;padding:0 1em;overflow-wrap:anywhere}\
h1,h2,h3,h4,h5,h6{line-height:1.25;font-family:system-ui,sans-serif}header{text-align:center}nav{border:1px solid #ddd;border-radius:6px;padding:.6em 1em;margin:1.5em 0}\
nav ol{list-style:none;padding-left:1em;margin:.2em 0}pre{background:#f6f6f6;border:1px solid #ddd;border-radius:4px;padding:.7em;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere}\
pre.output{background:none;border:0;border-left:3px solid #bbb;border-radius:0}table{border-collapse:collapse;margin:1em auto;display:block;width:fit-content;max-width:100%;overflow-x:auto}td,th{border:1px solid #bbb;padding:.3em .6em;overflow-wrap:break-word}\
figure{margin:1.2em 0;text-align:center}figure img{max-width:100%;max-height:90vh;width:auto;height:auto}figcaption{color:#444;font-size:.93em}blockquote{border-left:3px solid #bbb;margin-left:0;padding-left:1em;color:#333}\
.equation{display:flex;align-items:center;justify-content:center;margin:1em 0;overflow-x:auto}.equation .number{margin-left:auto;padding-left:1em}.equation.numbered::before{content:'';margin-right:auto}\
aside.notes{background:#fff8e1;border-left:3px solid #f0b429;padding:.5em 1em;margin:1em 0}svg.formula{overflow:visible;max-width:100%}.equation svg.formula{height:auto!important;margin:0 auto}\
section.slide{border:1px solid #ccc;border-radius:8px;padding:1.2em 2em;margin:1.5em 0;min-height:26em;box-sizing:border-box}\
@media print{table{display:table}td,th{overflow-wrap:anywhere}section.slide{break-after:page;border:0}body{max-width:none;margin:0}}";

/// Words of the page in some languages.
fn words(lang: &str) -> [&'static str; 4] {
    match lang {
        "de" => ["Inhaltsverzeichnis", "Abbildung", "Tabelle", "Notizen"],
        "fr" => ["Table des matières", "Figure", "Tableau", "Notes"],
        "es" => ["Índice", "Figura", "Tabla", "Notas"],
        "it" => ["Indice", "Figura", "Tabella", "Note"],
        "nl" => ["Inhoudsopgave", "Figuur", "Tabel", "Notities"],
        "pt" => ["Sumário", "Figura", "Tabela", "Notas"],
        _ => ["Contents", "Figure", "Table", "Notes"],
    }
}

/// Exports a document as HTML.
pub(crate) fn html(
    document: &Document,
    view: View,
    has_notes: bool,
    images: Images<'_>,
) -> Result<Rendered, RenderError> {
    let mut writer = Writer {
        document,
        view,
        has_notes,
        figures: paged::figures(document, images)?,
        numbers: numbers(document)?,
        formulas: Vec::new(),
        words: words(&document.lang),
    };
    let body = writer.body()?;
    let formulas = draw(&writer.formulas)?;
    let text = filled(&body, &formulas);
    let facts = document.title.as_ref().map_or_else(|| json!({}), |title| json!({"title": title}));
    Ok(Rendered {
        outputs: vec![Output { name: "document.html".to_owned(), bytes: text.into_bytes(), facts }],
    })
}

/// What a label names, as text that refers to it says it.
struct Numbered {
    kind: &'static str,
    number: usize,
    text: String,
}

/// Numbers the blocks with labels, and figures and tables with captions.
fn numbers(document: &Document) -> Result<BTreeMap<String, Numbered>, RenderError> {
    paged::labels(document)?;
    let mut found = BTreeMap::new();
    let (mut equations, mut figures, mut tables) = (0, 0, 0);
    for block in &document.blocks {
        let (kind, number, text) = match &block.kind {
            Kind::Heading { text, .. } => {
                let line = markdown::parse_line(text).map_err(|error| error.in_block(&block.id))?;
                ("heading", 0, markdown::plain(&line))
            }
            Kind::Equation(_) if block.label.is_some() => {
                equations += 1;
                ("equation", equations, String::new())
            }
            Kind::Figure { .. } => {
                figures += 1;
                ("figure", figures, String::new())
            }
            Kind::Table { caption, .. } if caption.is_some() || block.label.is_some() => {
                tables += 1;
                ("table", tables, String::new())
            }
            _ => continue,
        };
        if let Some(label) = &block.label {
            found.insert(label.clone(), Numbered { kind, number, text });
        }
    }
    Ok(found)
}

struct Writer<'a> {
    document: &'a Document,
    view: View,
    has_notes: bool,
    figures: BTreeMap<String, Image>,
    numbers: BTreeMap<String, Numbered>,
    /// The formulas in the order of their places: markup, source, and whether it is a display.
    formulas: Vec<(String, String, bool)>,
    words: [&'static str; 4],
}

/// Text in HTML.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(c),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// The mark of a place for a formula. No text has control characters.
fn mark(index: usize) -> String {
    format!("\u{1}{index}\u{2}")
}

/// Puts formulas in the places that were left for them.
fn filled(body: &str, formulas: &[String]) -> String {
    let mut text = String::with_capacity(body.len());
    for (at, part) in body.split('\u{1}').enumerate() {
        if at == 0 {
            text.push_str(part);
            continue;
        }
        let (index, rest) = part.split_once('\u{2}').unwrap_or(("", part));
        let formula = index.parse::<usize>().ok().and_then(|index| formulas.get(index));
        text.push_str(formula.map_or("", String::as_str));
        text.push_str(rest);
    }
    text
}

/// Lays formulas out, each on a page of its own, and returns each as an SVG element.
fn draw(formulas: &[(String, String, bool)]) -> Result<Vec<String>, RenderError> {
    if formulas.is_empty() {
        return Ok(Vec::new());
    }
    let mut main = format!(
        "{FONTS}#set page(width:auto,height:auto,margin:0.5pt,fill:none)\n#set text(size:{FORMULA_SIZE}pt)\n#set par(leading:0pt)\n"
    );
    for (index, (markup, _, is_display)) in formulas.iter().enumerate() {
        let between = if index > 0 { "#pagebreak()\n" } else { "" };
        let _ = writeln!(
            main,
            "{between}{}#metadata(none)<baseline>#box()",
            equation(markup, *is_display)
        );
    }
    let laid_out = typeset::compile(&Sources::new(main)?)?;
    let mut drawn = Vec::new();
    for (index, (page, (_, source, _))) in laid_out.pages().iter().zip(formulas).enumerate() {
        let svg = typeset::svg(page)?;
        let start = svg.find('>').map_or(0, |at| at + 1);
        let head = &svg[..start];
        let view = head
            .split("viewBox=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .unwrap_or_default();
        // The names of glyphs must be unique in a page.
        let inner = svg[start..]
            .replace("id=\"", &format!("id=\"f{index}-"))
            .replace("href=\"#", &format!("href=\"#f{index}-"))
            .replace("url(#", &format!("url(#f{index}-"));
        let (width, height) = (page.frame.width().to_pt(), page.frame.height().to_pt());
        let below = height - typeset::label_y(page, "baseline").unwrap_or(height);
        drawn.push(format!(
            "<svg class=\"formula\" role=\"img\" aria-label=\"{}\" viewBox=\"{view}\" style=\"width:{:.4}em;height:{:.4}em;vertical-align:{:.4}em\" xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\">{inner}",
            escaped(source),
            width / FORMULA_SIZE,
            height / FORMULA_SIZE,
            -below / FORMULA_SIZE,
        ));
    }
    Ok(drawn)
}

impl Writer<'_> {
    fn formula(&mut self, markup: &str, source: &str, is_display: bool) -> String {
        self.formulas.push((markup.to_owned(), source.to_owned(), is_display));
        mark(self.formulas.len() - 1)
    }

    fn body(&mut self) -> Result<String, RenderError> {
        let document = self.document;
        let title = document.title.as_deref().unwrap_or("Document");
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"{}\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n",
            escaped(&document.lang),
            escaped(title)
        );
        for author in &document.authors {
            let _ = writeln!(page, "<meta name=\"author\" content=\"{}\">", escaped(author));
        }
        let _ = writeln!(page, "<style>{STYLE}</style>\n</head>\n<body>");
        if document.title.is_some() {
            let authors = escaped(&document.authors.join(", "));
            let _ = writeln!(page, "<header><h1>{}</h1><p>{authors}</p></header>", escaped(title));
        }
        page.push_str(&self.contents()?);
        page.push_str("<main>\n");
        let mut is_open = false;
        let (mut figures, mut tables) = (0, 0);
        for (index, block) in document.blocks.iter().enumerate() {
            let starts = matches!(block.kind, Kind::Heading { level: 1 | 2, .. } | Kind::PageBreak);
            if self.view == View::Slide && (starts || !is_open) {
                page.push_str(if is_open {
                    "</section>\n<section class=\"slide\">\n"
                } else {
                    "<section class=\"slide\">\n"
                });
                is_open = true;
            }
            match &block.kind {
                Kind::Figure { .. } => figures += 1,
                Kind::Table { caption, .. } if caption.is_some() || block.label.is_some() => {
                    tables += 1;
                }
                _ => {}
            }
            let markup = self
                .block(index, block, figures, tables)
                .map_err(|error| error.in_block(&block.id))?;
            page.push_str(&markup);
        }
        page.push_str(if is_open { "</section>\n" } else { "" });
        page.push_str("</main>\n</body>\n</html>\n");
        Ok(page)
    }

    fn contents(&mut self) -> Result<String, RenderError> {
        if self.document.headings() < 2 {
            return Ok(String::new());
        }
        let mut list = format!("<nav aria-label=\"{0}\"><strong>{0}</strong><ol>\n", self.words[0]);
        let document = self.document;
        for (index, block) in document.blocks.iter().enumerate() {
            let Kind::Heading { level, text } = &block.kind else { continue };
            let text = escaped(&markdown::plain(
                &markdown::parse_line(text).map_err(|error| error.in_block(&block.id))?,
            ));
            let indent = u32::from(level.saturating_sub(1));
            let _ = writeln!(
                list,
                "<li style=\"margin-left:{indent}em\"><a href=\"#{}\">{text}</a></li>",
                anchor(index, block)
            );
        }
        list.push_str("</ol></nav>\n");
        Ok(list)
    }

    fn block(
        &mut self,
        index: usize,
        block: &Block,
        figures: usize,
        tables: usize,
    ) -> Result<String, RenderError> {
        let id = anchor(index, block);
        Ok(match &block.kind {
            Kind::Heading { level, text } => {
                let line = self.line(&markdown::parse_line(text)?)?;
                // The title of the document is the first heading.
                let level = (level + 1).min(6);
                format!("<h{level} id=\"{id}\">{line}</h{level}>\n")
            }
            Kind::Text(text) => self.parts(&markdown::parse(text)?)?,
            Kind::Equation(source) => {
                let markup = latex::to_typst(source)?;
                let formula = self.formula(&markup, source, true);
                let numbered = block.label.as_ref().and_then(|label| self.numbers.get(label));
                match numbered {
                    Some(numbered) => format!(
                        "<div class=\"equation numbered\" id=\"{id}\">{formula}<span class=\"number\">({})</span></div>\n",
                        numbered.number
                    ),
                    None => format!("<div class=\"equation\" id=\"{id}\">{formula}</div>\n"),
                }
            }
            Kind::Code { language, text, output } => {
                let mut markup = code(language.as_deref(), text);
                if let Some(output) = output {
                    let _ = writeln!(markup, "<pre class=\"output\">{}</pre>", escaped(output));
                }
                markup
            }
            Kind::Figure { digest, caption, alt } => {
                self.figure(&id, digest, caption.as_deref(), alt.as_deref(), figures)?
            }
            Kind::Table { header, rows, caption } => {
                let cells = |row: &Vec<String>| {
                    row.iter().map(|cell| markdown::parse_line(cell)).collect::<Result<Vec<_>, _>>()
                };
                let header = cells(header)?;
                let rows = rows.iter().map(cells).collect::<Result<Vec<_>, _>>()?;
                let table = self.table(&header, &rows)?;
                let caption = match caption {
                    Some(caption) => format!(": {}", self.line(&markdown::parse_line(caption)?)?),
                    None if block.label.is_some() => String::new(),
                    None => return Ok(table),
                };
                format!(
                    "<figure id=\"{id}\"><figcaption>{} {tables}{caption}</figcaption>{table}</figure>\n",
                    self.words[2]
                )
            }
            Kind::List { is_ordered, items } => {
                let tag = if *is_ordered { "ol" } else { "ul" };
                let mut list = format!("<{tag}>\n");
                for item in items {
                    let _ = writeln!(list, "<li>{}</li>", self.parts(&markdown::parse(item)?)?);
                }
                format!("{list}</{tag}>\n")
            }
            Kind::Quote { text, attribution } => {
                let text = self.parts(&markdown::parse(text)?)?;
                let by = attribution
                    .as_ref()
                    .map(|name| format!("<footer>— {}</footer>", escaped(name)))
                    .unwrap_or_default();
                format!("<blockquote>{text}{by}</blockquote>\n")
            }
            Kind::Divider => "<hr>\n".to_owned(),
            Kind::PageBreak => "<div style=\"break-after:page\"></div>\n".to_owned(),
            Kind::Notes(_) if !self.has_notes => String::new(),
            Kind::Notes(text) => {
                let text = self.parts(&markdown::parse(text)?)?;
                format!("<aside class=\"notes\"><strong>{}</strong>{text}</aside>\n", self.words[3])
            }
        })
    }

    fn figure(
        &mut self,
        id: &str,
        digest: &str,
        caption: Option<&str>,
        alt: Option<&str>,
        number: usize,
    ) -> Result<String, RenderError> {
        use base64::Engine as _;
        let missing = || RenderError::request(format!("the figure {digest} was not sent"));
        let image = self.figures.get(digest).ok_or_else(missing)?;
        let (kind, bytes) = if image.format == Format::Pdf {
            // Browsers show no PDF as an image.
            (Format::Png, crate::thumbnail::first_page(image)?)
        } else {
            (image.format, image.bytes.clone())
        };
        let size = image
            .size
            .map(|(width, height)| format!(" width=\"{width}\" height=\"{height}\""))
            .unwrap_or_default();
        let data = base64::engine::general_purpose::STANDARD.encode(&bytes);
        let alt = escaped(alt.or(caption).unwrap_or_default());
        let caption = match caption {
            Some(caption) => format!(": {}", self.line(&markdown::parse_line(caption)?)?),
            None => String::new(),
        };
        Ok(format!(
            "<figure id=\"{id}\"><img alt=\"{alt}\"{size} src=\"data:{};base64,{data}\"><figcaption>{} {number}{caption}</figcaption></figure>\n",
            kind.media_type(),
            self.words[1]
        ))
    }

    fn table(
        &mut self,
        header: &[Vec<Inline>],
        rows: &[Vec<Vec<Inline>>],
    ) -> Result<String, RenderError> {
        let mut table = String::from("<table>\n");
        if !header.is_empty() {
            table.push_str("<thead><tr>");
            for cell in header {
                let _ = write!(table, "<th scope=\"col\">{}</th>", self.line(cell)?);
            }
            table.push_str("</tr></thead>\n");
        }
        table.push_str("<tbody>\n");
        for row in rows {
            table.push_str("<tr>");
            for cell in row {
                let _ = write!(table, "<td>{}</td>", self.line(cell)?);
            }
            table.push_str("</tr>\n");
        }
        table.push_str("</tbody></table>\n");
        Ok(table)
    }

    fn parts(&mut self, parts: &[Part]) -> Result<String, RenderError> {
        let mut markup = String::new();
        for part in parts {
            let text = match part {
                Part::Paragraph(inlines) => format!("<p>{}</p>\n", self.line(inlines)?),
                Part::Heading(level, inlines) => {
                    let level = (*level + 3).min(6);
                    format!("<h{level}>{}</h{level}>\n", self.line(inlines)?)
                }
                Part::List { start, items } => {
                    let (tag, attribute) = match start {
                        Some(start) => ("ol", format!(" start=\"{start}\"")),
                        None => ("ul", String::new()),
                    };
                    let mut list = format!("<{tag}{attribute}>\n");
                    for item in items {
                        let _ = writeln!(list, "<li>{}</li>", self.parts(item)?);
                    }
                    format!("{list}</{tag}>\n")
                }
                Part::Quote(parts) => format!("<blockquote>{}</blockquote>\n", self.parts(parts)?),
                Part::Code { language, text } => code(language.as_deref(), text),
                Part::Table { header, rows } => self.table(header, rows)?,
                Part::Rule => "<hr>\n".to_owned(),
            };
            markup.push_str(&text);
        }
        Ok(markup)
    }

    fn line(&mut self, inlines: &[Inline]) -> Result<String, RenderError> {
        let mut markup = String::new();
        for inline in inlines {
            let text = match inline {
                Inline::Text(text) => escaped(text),
                Inline::Strong(inner) => format!("<strong>{}</strong>", self.line(inner)?),
                Inline::Emphasis(inner) => format!("<em>{}</em>", self.line(inner)?),
                Inline::Strike(inner) => format!("<s>{}</s>", self.line(inner)?),
                Inline::Code(text) => format!("<code>{}</code>", escaped(text)),
                Inline::Link { target, content, place } => self.link(target, content, *place)?,
                Inline::Math { source, markup, is_display } => {
                    let formula = self.formula(markup, source, *is_display);
                    if *is_display {
                        format!("<span class=\"equation\">{formula}</span>")
                    } else {
                        formula
                    }
                }
                Inline::Break => "<br>".to_owned(),
            };
            markup.push_str(&text);
        }
        Ok(markup)
    }

    fn link(
        &mut self,
        target: &str,
        content: &[Inline],
        place: Place,
    ) -> Result<String, RenderError> {
        let Some(label) = target.strip_prefix('#') else {
            let text = if content.is_empty() { escaped(target) } else { self.line(content)? };
            return Ok(format!("<a href=\"{}\" rel=\"noreferrer\">{text}</a>", escaped(target)));
        };
        let unknown = || {
            let text = format!("no block has the label {label:?}");
            RenderError::new(error::Kind::Source, text).at(place.line, place.column)
        };
        let numbered = self.numbers.get(label).ok_or_else(unknown)?;
        let own = match numbered.kind {
            "equation" => format!("({})", numbered.number),
            "figure" => format!("{} {}", self.words[1], numbered.number),
            "table" => format!("{} {}", self.words[2], numbered.number),
            _ => numbered.text.clone(),
        };
        let text = if content.is_empty() { escaped(&own) } else { self.line(content)? };
        Ok(format!("<a href=\"#{}\">{text}</a>", label_name(label)))
    }
}

fn code(language: Option<&str>, text: &str) -> String {
    let class = language
        .map(|language| format!(" class=\"language-{}\"", escaped(language)))
        .unwrap_or_default();
    format!("<pre><code{class}>{}</code></pre>\n", escaped(text))
}

/// The name of a block in the page.
fn anchor(index: usize, block: &Block) -> String {
    block.label.as_deref().map_or_else(|| format!("b-{index}"), label_name)
}
