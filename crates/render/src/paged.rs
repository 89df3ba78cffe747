//! Documents as pages: the blocks as source of Typst, and as PDF.
//!
//! Text reaches Typst in strings and formulas as markup that [`crate::latex`] made, so that nothing of a document
//! is code. Each block is a source of its own: an error of Typst thereby names its block.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::json;
use typst_layout::{Page, PagedDocument};

use crate::document::{Block, Document, Kind};
use crate::error::{self, RenderError};
use crate::formula::FONTS;
use crate::images::{self, Format, Image};
use crate::latex::{self, Place};
use crate::limits::PAGES_MAX;
use crate::markdown::{self, Inline, Part};
use crate::typeset::{self, quoted};
use crate::world::Sources;
use crate::{Images, Output, Rendered};

/// How a document is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Document,
    Slide,
}

impl View {
    /// The size of text, and the width and height that blocks have, in points.
    fn measures(self) -> (f64, f64, f64) {
        match self {
            View::Document => (11.0, 453.0, 640.0),
            View::Slide => (18.0, 640.0, 300.0),
        }
    }
}

/// What is exported.
pub(crate) struct Export<'a> {
    pub(crate) document: &'a Document,
    pub(crate) view: View,
    pub(crate) has_notes: bool,
    pub(crate) figures: BTreeMap<String, Image>,
    /// The formulas of the document that are wider than a page, with the factor by which they shrink.
    shrunk: BTreeMap<String, f64>,
    /// Labels of the document with what they name.
    labels: BTreeMap<String, Labelled<'a>>,
}

/// What a label names.
pub(crate) struct Labelled<'a> {
    kind: &'static str,
    /// The text of a heading.
    text: &'a str,
}

/// Reads the figures of a document.
pub(crate) fn figures(
    document: &Document,
    images: Images<'_>,
) -> Result<BTreeMap<String, Image>, RenderError> {
    let mut figures = BTreeMap::new();
    for (block, digest) in document.figures() {
        if figures.contains_key(digest) {
            continue;
        }
        let missing = || RenderError::request(format!("the figure {digest} was not sent"));
        let bytes = images(digest).ok_or_else(missing)?;
        let image = images::check(bytes).and_then(crate::thumbnail::measured);
        let image = image.map_err(|error| error.in_block(&block.id))?;
        figures.insert(digest.to_owned(), image);
    }
    Ok(figures)
}

/// The names by which text can refer to blocks.
pub(crate) fn labels(document: &Document) -> Result<BTreeMap<String, Labelled<'_>>, RenderError> {
    let mut labels = BTreeMap::new();
    for block in &document.blocks {
        let (kind, text) = match &block.kind {
            Kind::Heading { text, .. } => ("heading", text.as_str()),
            Kind::Equation(_) => ("equation", ""),
            Kind::Figure { .. } => ("figure", ""),
            Kind::Table { .. } => ("table", ""),
            _ => continue,
        };
        if let Some(label) = &block.label
            && labels.insert(label.clone(), Labelled { kind, text }).is_some()
        {
            let text = format!("two blocks have the label {label:?}");
            // A label is a member of its block, so this is where the block begins.
            return Err(RenderError::new(error::Kind::Source, text).at(1, 1).in_block(&block.id));
        }
    }
    Ok(labels)
}

/// Lays a document out.
pub(crate) fn layout(
    document: &Document,
    view: View,
    has_notes: bool,
    images: Images<'_>,
) -> Result<(PagedDocument, Sources), RenderError> {
    let mut export = Export {
        document,
        view,
        has_notes,
        figures: figures(document, images)?,
        shrunk: BTreeMap::new(),
        labels: labels(document)?,
    };
    export.shrunk = shrunk(document, view)?;
    let sources = export.sources()?;
    Ok((typeset::compile(&sources)?, sources))
}

/// Exports a document as PDF.
pub(crate) fn pdf(
    document: &Document,
    view: View,
    has_notes: bool,
    images: Images<'_>,
) -> Result<Rendered, RenderError> {
    let (laid_out, sources) = layout(document, view, has_notes, images)?;
    let (bytes, follows_standard) = typeset::pdf(&laid_out, &sources)?;
    let mut facts = json!({"pages": laid_out.pages().len()});
    if follows_standard {
        facts["standard"] = json!(typeset::STANDARD);
    }
    if let Some(title) = &document.title {
        facts["title"] = json!(title);
    }
    Ok(Rendered { outputs: vec![Output { name: "document.pdf".to_owned(), bytes, facts }] })
}

/// The formulas of a document: those of a display, and long ones within lines.
#[derive(Default)]
struct Formulas {
    display: Vec<String>,
    inline: Vec<String>,
}

/// Bytes of markup up to which a formula is certainly narrower than a page.
const NARROW_BYTES: usize = 80;

impl Formulas {
    fn from_document(document: &Document) -> Result<Formulas, RenderError> {
        let mut formulas = Formulas::default();
        for block in &document.blocks {
            formulas.add_block(block).map_err(|error| error.in_block(&block.id))?;
        }
        Ok(formulas)
    }

    fn add_block(&mut self, block: &Block) -> Result<(), RenderError> {
        match &block.kind {
            Kind::Equation(source) => self.display.push(latex::to_typst(source)?),
            Kind::Text(text) | Kind::Notes(text) | Kind::Quote { text, .. } => {
                self.add_parts(&markdown::parse(text)?);
            }
            Kind::List { items, .. } => {
                for item in items {
                    self.add_parts(&markdown::parse(item)?);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add_parts(&mut self, parts: &[Part]) {
        for part in parts {
            match part {
                Part::Paragraph(inlines) | Part::Heading(_, inlines) => self.add_line(inlines),
                Part::List { items, .. } => items.iter().for_each(|item| self.add_parts(item)),
                Part::Quote(parts) => self.add_parts(parts),
                Part::Code { .. } | Part::Table { .. } | Part::Rule => {}
            }
        }
    }

    fn add_line(&mut self, inlines: &[Inline]) {
        for inline in inlines {
            match inline {
                Inline::Math { markup, is_display: true, .. } => self.display.push(markup.clone()),
                Inline::Math { markup, .. } if markup.len() > NARROW_BYTES => {
                    self.inline.push(markup.clone());
                }
                Inline::Strong(inner)
                | Inline::Emphasis(inner)
                | Inline::Strike(inner)
                | Inline::Link { content: inner, .. } => self.add_line(inner),
                _ => {}
            }
        }
    }
}

/// Lays each formula out on a page of its own, and returns what its page says about it.
fn one_page_each(
    formulas: Vec<String>,
    setup: &str,
    is_display: bool,
    factor: impl Fn(&Page) -> f64,
) -> Result<Vec<(String, f64)>, RenderError> {
    let mut factors = Vec::with_capacity(formulas.len());
    for some in formulas.chunks(PAGES_MAX - 1) {
        let mut main = format!("{FONTS}{setup}#set par(leading:0pt)\n");
        for markup in some {
            let _ =
                writeln!(main, "{}\n#pagebreak()", crate::formula::equation(markup, is_display));
        }
        main.push_str("#h(1pt)\n");
        let laid_out = typeset::compile(&Sources::new(main)?)?;
        factors.extend(some.iter().cloned().zip(laid_out.pages().iter().map(&factor)));
    }
    Ok(factors)
}

/// Finds the formulas that are wider than a page, or higher. A formula within a line may go on on the next line, and is
/// too wide only if it has a part that cannot.
fn shrunk(document: &Document, view: View) -> Result<BTreeMap<String, f64>, RenderError> {
    let (size, width, height) = view.measures();
    let formulas = Formulas::from_document(document)?;
    // A number at the right needs its place, and lists and quotes are indented.
    let available = width - 60.0;
    let setup = |width: &str| {
        format!("#set page(width:{width},height:auto,margin:0pt)\n#set text(size:{size}pt)\n")
    };
    let fits = |page: &Page| {
        let size = page.frame.size();
        (available / size.x.to_pt()).min(height / size.y.to_pt())
    };
    let reaches = |page: &Page| available / typeset::right_edge(page);
    let display = one_page_each(formulas.display, &setup("auto"), true, fits)?;
    let inline = one_page_each(formulas.inline, &setup(&format!("{available}pt")), false, reaches)?;
    let all = display.into_iter().chain(inline);
    Ok(all.filter(|(_, factor)| *factor < 1.0).collect())
}

const PRELUDE: &str = "#set heading(outlined:true)\n\
    #show heading:set block(above:1.4em,below:0.8em)\n\
    #show link:set text(fill:rgb(\"#1d4ed8\"))\n\
    #show figure:set block(breakable:true)\n\
    #show figure.where(kind:table):set figure.caption(position:top)\n\
    #set table(stroke:0.5pt+luma(190),inset:0.45em)\n\
    #show table.cell.where(y:0):set text(weight:\"bold\")\n";

const TEMPLATE: &str = "#let code-box(it)=block(fill:luma(246),stroke:0.5pt+luma(215),inset:8pt,radius:3pt,width:100%,breakable:true,it)\n\
    #let output-box(it)=block(stroke:(left:2pt+luma(190)),inset:(left:8pt,y:4pt),width:100%,breakable:true,it)\n\
    #let notes-box(it)=block(fill:rgb(\"#fff8e1\"),stroke:(left:2pt+rgb(\"#f0b429\")),inset:8pt,width:100%,breakable:true,it)\n";

impl Export<'_> {
    fn sources(&self) -> Result<Sources, RenderError> {
        let mut main = String::from(FONTS);
        let authors: Vec<String> = self.document.authors.iter().map(|name| quoted(name)).collect();
        let title = self.document.title.as_deref().map_or("none".to_owned(), quoted);
        let comma = if authors.len() == 1 { "," } else { "" };
        let _ = writeln!(
            main,
            "#set document(title:{title},author:({}{comma}),date:none)",
            authors.join(",")
        );
        let (size, ..) = self.view.measures();
        let _ = writeln!(main, "#set text(size:{size}pt,lang:{})", quoted(&self.document.lang));
        main.push_str(PRELUDE);
        match self.view {
            View::Document => main.push_str("#set page(paper:\"a4\",margin:2.5cm,numbering:\"1 / 1\")\n#set par(justify:true)\n"),
            View::Slide => main.push_str(
                "#set page(width:254mm,height:142.875mm,margin:(x:14mm,top:11mm,bottom:14mm),numbering:\"1 / 1\",number-align:right)\n\
                 #show heading.where(level:1):set text(size:1.15em)\n#show heading:set block(above:0pt,below:0.7em)\n",
            ),
        }
        self.front(&mut main);
        let mut sources_of_blocks = Vec::new();
        let mut notes: Vec<usize> = Vec::new();
        for (index, block) in self.document.blocks.iter().enumerate() {
            if self.view == View::Slide && starts_slide(block) {
                self.notes_page(&mut main, &mut notes);
                main.push_str("#pagebreak(weak:true)\n");
            }
            match &block.kind {
                Kind::PageBreak if self.view == View::Document => {
                    main.push_str("#pagebreak(weak:true)\n");
                }
                Kind::PageBreak => {}
                Kind::Notes(_) if !self.has_notes => {}
                // The slide ends here anyway: the line could only end up alone on the next one.
                Kind::Divider if self.view == View::Slide && self.ends_slide(index) => {}
                Kind::Notes(_) if self.view == View::Slide => notes.push(index),
                _ => {
                    let _ = writeln!(main, "#include \"/b/{index}.typ\"");
                }
            }
            let source = self.block(block).map_err(|error| error.in_block(&block.id))?;
            sources_of_blocks.push((index, block.id.as_str(), source));
        }
        self.notes_page(&mut main, &mut notes);
        let mut sources = Sources::new(main)?;
        for (index, id, source) in sources_of_blocks {
            sources.add_block(&format!("/b/{index}.typ"), id, format!("{TEMPLATE}{source}\n"))?;
        }
        for (digest, image) in &self.figures {
            sources.add_file(
                &format!("/f/{digest}.{}", image.format.extension()),
                image.bytes.clone(),
            )?;
        }
        Ok(sources)
    }

    /// Whether nothing is shown between this block and the end of its slide.
    fn ends_slide(&self, index: usize) -> bool {
        let mut rest = self.document.blocks.iter().skip(index + 1);
        let is_shown = |block: &&Block| !matches!(block.kind, Kind::Notes(_) | Kind::Divider);
        rest.find(is_shown).is_none_or(starts_slide)
    }

    /// The title, the authors, and the table of contents.
    fn front(&self, main: &mut String) {
        let is_slide = self.view == View::Slide;
        if self.document.title.is_some() {
            let space = if is_slide { "#v(1fr)\n" } else { "" };
            let _ = writeln!(main, "{space}#align(center)[#title()]");
            if !self.document.authors.is_empty() {
                let _ = writeln!(
                    main,
                    "#align(center)[#{}]",
                    quoted(&self.document.authors.join(", "))
                );
            }
            main.push_str(if is_slide {
                "#v(1.4fr)\n#pagebreak(weak:true)\n"
            } else {
                "#v(1em)\n"
            });
        }
        if self.document.headings() > 1 {
            let depth = if is_slide { 2 } else { 3 };
            let _ = writeln!(main, "#outline(depth:{depth})");
            main.push_str(if is_slide { "#pagebreak(weak:true)\n" } else { "#v(1em)\n" });
        }
    }

    /// The notes of the slide that ends here, on a page of their own.
    fn notes_page(&self, main: &mut String, notes: &mut Vec<usize>) {
        if notes.is_empty() {
            return;
        }
        main.push_str("#pagebreak(weak:true)\n");
        for index in notes.drain(..) {
            let _ = writeln!(main, "#include \"/b/{index}.typ\"");
        }
    }

    fn block(&self, block: &Block) -> Result<String, RenderError> {
        Ok(match &block.kind {
            Kind::Heading { level, text } => {
                let line = self.line(&markdown::parse_line(text)?)?;
                format!("#heading(level:{level})[{line}]{}", angle(block))
            }
            Kind::Text(text) => self.parts(&markdown::parse(text)?)?,
            Kind::Equation(source) => {
                let markup = latex::to_typst(source)?;
                let size = self.shrunk.get(&markup).map_or(1.0, |factor| *factor);
                let alt = quoted(source);
                let markup = if markup.is_empty() { "\"\"".to_owned() } else { markup };
                let numbering = if block.label.is_some() { "\"(1)\"" } else { "none" };
                let label = angle(block);
                format!(
                    "#[#set text(size:{size:.4}em)\n#math.equation(block:true,numbering:{numbering},alt:{alt},$ {markup} $){label}]"
                )
            }
            Kind::Code { language, text, output } => {
                let mut markup = self.code(language.as_deref(), text);
                if let Some(output) = output {
                    let _ = write!(
                        markup,
                        "\n#output-box(raw(block:true,{}))",
                        quoted(&breakable(output, WORD_CHARACTERS))
                    );
                }
                markup
            }
            Kind::Figure { digest, caption, alt } => {
                let figure = self.figure(digest, caption.as_deref(), alt.as_deref())?;
                format!("#{figure}{}", angle(block))
            }
            Kind::Table { header, rows, caption } => {
                let header = cells(header)?;
                let rows = rows.iter().map(|row| cells(row)).collect::<Result<Vec<_>, _>>()?;
                let table = self.table(&header, &rows)?;
                let caption = match caption {
                    Some(caption) => {
                        format!(",caption:[{}]", self.line(&markdown::parse_line(caption)?)?)
                    }
                    None => String::new(),
                };
                if caption.is_empty() && block.label.is_none() {
                    format!("#align(center,{table})")
                } else {
                    format!("#figure({table},kind:table{caption}){}", angle(block))
                }
            }
            Kind::List { is_ordered, items } => {
                let mut rows = Vec::new();
                for item in items {
                    rows.push(format!("[{}]", self.parts(&markdown::parse(item)?)?));
                }
                format!("#{}({})", if *is_ordered { "enum" } else { "list" }, rows.join(","))
            }
            Kind::Quote { text, attribution } => {
                let attribution = match attribution {
                    Some(name) => format!(",attribution:[#{}]", quoted(name)),
                    None => String::new(),
                };
                format!("#quote(block:true{attribution})[{}]", self.parts(&markdown::parse(text)?)?)
            }
            Kind::Divider => {
                "#v(0.4em)\n#line(length:100%,stroke:0.5pt+luma(160))\n#v(0.4em)".to_owned()
            }
            Kind::PageBreak => String::new(),
            Kind::Notes(text) => format!("#notes-box[{}]", self.parts(&markdown::parse(text)?)?),
        })
    }

    fn code(&self, language: Option<&str>, text: &str) -> String {
        let language =
            language.map(|language| format!(",lang:{}", quoted(language))).unwrap_or_default();
        format!(
            "#code-box(raw(block:true{language},{}))",
            quoted(&breakable(text, WORD_CHARACTERS))
        )
    }

    fn figure(
        &self,
        digest: &str,
        caption: Option<&str>,
        alt: Option<&str>,
    ) -> Result<String, RenderError> {
        let missing = || RenderError::request(format!("the figure {digest} was not sent"));
        let image = self.figures.get(digest).ok_or_else(missing)?;
        let (_, width, height) = self.view.measures();
        let size = match image.size {
            Some((own_width, own_height)) => {
                // 96 pixels are an inch, unless that is more than a page has.
                let (own_width, own_height) =
                    (f64::from(own_width) * 0.75, f64::from(own_height) * 0.75);
                let factor = (width / own_width).min((height - 60.0) / own_height).min(1.0);
                format!("width:{:.2}pt,height:{:.2}pt", own_width * factor, own_height * factor)
            }
            None => {
                format!("width:{:.2}pt,height:{:.2}pt,fit:\"contain\"", width * 0.8, height * 0.5)
            }
        };
        let page = if image.format == Format::Pdf { ",page:1" } else { "" };
        let alt = alt.or(caption).map(|alt| format!(",alt:{}", quoted(alt))).unwrap_or_default();
        let path = format!("/f/{digest}.{}", image.format.extension());
        let caption = match caption {
            Some(caption) => format!(",caption:[{}]", self.line(&markdown::parse_line(caption)?)?),
            None => String::new(),
        };
        Ok(format!("figure(image({},{size}{page}{alt}){caption})", quoted(&path)))
    }

    fn table(
        &self,
        header: &[Vec<Inline>],
        rows: &[Vec<Vec<Inline>>],
    ) -> Result<String, RenderError> {
        let columns = rows.iter().map(Vec::len).chain([header.len(), 1]).max().unwrap_or(1);
        // The more columns, the smaller the text, and the shorter the words that a cell can hold.
        let size = match columns {
            0..=8 => 1.0,
            9..=14 => 0.8,
            15..=25 => 0.55,
            _ => 0.35,
        };
        let (points, width, _) = self.view.measures();
        let share = width / columns as f64 - 2.0 * CELL_INSET * size * points;
        let letters = share / (CHARACTER_WIDTH * size * points);
        let letters = (letters as usize).clamp(1, WORD_CHARACTERS);
        let row = |cells: &[Vec<Inline>]| -> Result<String, RenderError> {
            let mut markup = Vec::new();
            for at in 0..columns {
                let cell = cells.get(at).map(Vec::as_slice).unwrap_or_default();
                markup.push(format!("[{}]", self.line_of(cell, letters)?));
            }
            Ok(markup.join(","))
        };
        let header = if header.is_empty() {
            String::new()
        } else {
            format!("table.header({}),", row(header)?)
        };
        let rows = rows.iter().map(|cells| row(cells)).collect::<Result<Vec<_>, _>>()?.join(",");
        let plain =
            if header.is_empty() { "#show table.cell:set text(weight:\"regular\");" } else { "" };
        Ok(format!(
            "{{show table:set text(size:{size}em);{}table(columns:{columns},{header}{rows})}}",
            plain.trim_start_matches('#')
        ))
    }

    /// The parts of a text.
    fn parts(&self, parts: &[Part]) -> Result<String, RenderError> {
        let mut markup = String::new();
        for part in parts {
            let text = match part {
                Part::Paragraph(inlines) => format!("{}\n#parbreak()", self.line(inlines)?),
                Part::Heading(level, inlines) => {
                    let level = (*level + 2).min(6);
                    format!("#heading(level:{level},outlined:false)[{}]", self.line(inlines)?)
                }
                Part::List { start, items } => {
                    let mut rows = Vec::new();
                    for item in items {
                        rows.push(format!("[{}]", self.parts(item)?));
                    }
                    let rows = rows.join(",");
                    match start {
                        Some(start) => format!("#enum(start:{start},{rows})"),
                        None => format!("#list({rows})"),
                    }
                }
                Part::Quote(parts) => format!("#quote(block:true)[{}]", self.parts(parts)?),
                Part::Code { language, text } => self.code(language.as_deref(), text),
                Part::Table { header, rows } => {
                    format!("#align(center,{})", self.table(header, rows)?)
                }
                Part::Rule => "#line(length:100%,stroke:0.5pt+luma(160))".to_owned(),
            };
            markup.push_str(&text);
            markup.push('\n');
        }
        Ok(markup)
    }

    fn line(&self, inlines: &[Inline]) -> Result<String, RenderError> {
        self.line_of(inlines, WORD_CHARACTERS)
    }

    /// The same, where a word may be broken after so many characters.
    fn line_of(&self, inlines: &[Inline], letters: usize) -> Result<String, RenderError> {
        let mut markup = String::new();
        for inline in inlines {
            match inline {
                Inline::Text(text) => {
                    markup.push_str(&format!("#{}", quoted(&breakable(text, letters))));
                }
                Inline::Strong(inner) => {
                    markup.push_str(&format!("#strong[{}]", self.line_of(inner, letters)?));
                }
                Inline::Emphasis(inner) => {
                    markup.push_str(&format!("#emph[{}]", self.line_of(inner, letters)?));
                }
                Inline::Strike(inner) => {
                    markup.push_str(&format!("#strike[{}]", self.line_of(inner, letters)?));
                }
                Inline::Code(text) => {
                    markup.push_str(&format!("#raw({})", quoted(&breakable(text, letters))));
                }
                Inline::Link { target, content, place } => {
                    markup.push_str(&self.link(target, content, *place, letters)?);
                }
                Inline::Math { source, markup: formula, is_display } => {
                    let formula = if formula.is_empty() { "\"\"" } else { formula.as_str() };
                    let (space, block) = if *is_display { (" ", "true") } else { ("", "false") };
                    let equation = format!(
                        "#math.equation(block:{block},alt:{},${space}{formula}{space}$)",
                        quoted(source)
                    );
                    markup.push_str(&match self.shrunk.get(formula) {
                        Some(factor) => format!("#[#set text(size:{factor:.4}em)\n{equation}]"),
                        None => equation,
                    });
                }
                Inline::Break => markup.push_str("#linebreak()"),
            }
        }
        Ok(markup)
    }

    fn link(
        &self,
        target: &str,
        content: &[Inline],
        place: Place,
        letters: usize,
    ) -> Result<String, RenderError> {
        let Some(label) = target.strip_prefix('#') else {
            let content = if content.is_empty() {
                format!("#{}", quoted(&breakable(target, letters)))
            } else {
                self.line_of(content, letters)?
            };
            return Ok(format!("#link({})[{content}]", quoted(target)));
        };
        let unknown = || {
            let text = format!("no block has the label {label:?}");
            RenderError::new(error::Kind::Source, text).at(place.line, place.column)
        };
        let named = self.labels.get(label).ok_or_else(unknown)?;
        let name = quoted(&label_name(label));
        if content.is_empty() && named.kind != "heading" {
            return Ok(format!("#ref(label({name}))"));
        }
        let content = if content.is_empty() {
            let text = markdown::plain(&markdown::parse_line(named.text)?);
            format!("#{}", quoted(&breakable(&text, letters)))
        } else {
            self.line_of(content, letters)?
        };
        Ok(format!("#link(label({name}))[{content}]"))
    }
}

fn starts_slide(block: &Block) -> bool {
    matches!(block.kind, Kind::Heading { level: 1 | 2, .. } | Kind::PageBreak)
}

/// The label of a block in angle brackets.
fn angle(block: &Block) -> String {
    block.label.as_deref().map(|label| format!("<{}>", label_name(label))).unwrap_or_default()
}

/// The cells of a row.
fn cells(row: &[String]) -> Result<Vec<Vec<Inline>>, RenderError> {
    row.iter().map(|cell| markdown::parse_line(cell)).collect()
}

/// A name for a label that Typst accepts, different for different labels.
pub(crate) fn label_name(label: &str) -> String {
    let mut name = String::from("l-");
    for c in label.chars() {
        match c {
            c if c.is_ascii_alphanumeric() => name.push(c),
            c => {
                let _ = write!(name, "-{:x}-", u32::from(c));
            }
        }
    }
    name
}

/// The space at the sides of a cell of a table, in em. [`PRELUDE`] has it, too.
const CELL_INSET: f64 = 0.45;

/// The width of a wide character, in em.
const CHARACTER_WIDTH: f64 = 0.7;

/// Characters of a word that every line can hold.
const WORD_CHARACTERS: usize = 40;

/// Text in which a word that no line can hold may be broken, after so many characters.
pub(crate) fn breakable(text: &str, letters: usize) -> String {
    let mut broken = String::with_capacity(text.len());
    let mut length = 0;
    for c in text.chars() {
        length = if c.is_whitespace() || c == '-' { 0 } else { length + 1 };
        if length > letters {
            broken.push('\u{200b}');
            length = 1;
        }
        broken.push(c);
    }
    broken
}
