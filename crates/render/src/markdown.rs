//! Markdown without raw HTML and images, with formulas between dollar signs.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::error::{Kind, RenderError};
use crate::latex::{self, Place};
use crate::limits::LIST_DEPTH_MAX;

/// A part of a line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Inline {
    Text(String),
    Strong(Vec<Inline>),
    Emphasis(Vec<Inline>),
    Strike(Vec<Inline>),
    Code(String),
    Link {
        target: String,
        content: Vec<Inline>,
        place: Place,
    },
    /// A formula: its source and its markup of Typst.
    Math {
        source: String,
        markup: String,
        is_display: bool,
    },
    Break,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    Paragraph(Vec<Inline>),
    Heading(u8, Vec<Inline>),
    List { start: Option<u64>, items: Vec<Vec<Part>> },
    Quote(Vec<Part>),
    Code { language: Option<String>, text: String },
    Table { header: Vec<Vec<Inline>>, rows: Vec<Vec<Vec<Inline>>> },
    Rule,
}

/// Reads a text.
pub(crate) fn parse(text: &str) -> Result<Vec<Part>, RenderError> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_MATH;
    let events: Vec<_> = Parser::new_ext(text, options).into_offset_iter().collect();
    let mut reader = Reader { text, events, at: 0, depth: 0 };
    reader.check_dollars()?;
    reader.parts(None)
}

/// Reads a text of one line, such as a caption or a cell: its paragraphs follow each other.
pub(crate) fn parse_line(text: &str) -> Result<Vec<Inline>, RenderError> {
    let mut line = Vec::new();
    for part in parse(text)? {
        if !line.is_empty() {
            line.push(Inline::Break);
        }
        match part {
            Part::Paragraph(inlines) | Part::Heading(_, inlines) => {
                line.extend(inlines.into_iter().map(within_line));
            }
            Part::Code { text, .. } => line.push(Inline::Code(text)),
            // What looks like a list or a rule in one line is meant as it is written.
            _ => return Ok(vec![Inline::Text(text.to_owned())]),
        }
    }
    Ok(line)
}

/// A part of a line in which no formula stands alone.
fn within_line(inline: Inline) -> Inline {
    let all = |inner: Vec<Inline>| inner.into_iter().map(within_line).collect();
    match inline {
        Inline::Math { source, markup, .. } => Inline::Math { source, markup, is_display: false },
        Inline::Strong(inner) => Inline::Strong(all(inner)),
        Inline::Emphasis(inner) => Inline::Emphasis(all(inner)),
        Inline::Strike(inner) => Inline::Strike(all(inner)),
        Inline::Link { target, content, place } => {
            Inline::Link { target, content: all(content), place }
        }
        other => other,
    }
}

struct Reader<'a> {
    text: &'a str,
    events: Vec<(Event<'a>, std::ops::Range<usize>)>,
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<(Event<'a>, usize)> {
        let (event, range) = self.events.get(self.at)?.clone();
        self.at += 1;
        Some((event, range.start))
    }

    /// The place of a byte.
    fn place(&self, byte: usize) -> Place {
        let before = &self.text[..self.text.floor_char_boundary(byte)];
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
        Place {
            line: u32::try_from(line).unwrap_or(u32::MAX - 1) + 1,
            column: u32::try_from(column).unwrap_or(u32::MAX - 1) + 1,
        }
    }

    fn wrong(&self, byte: usize, message: impl Into<String>) -> RenderError {
        let place = self.place(byte);
        RenderError::new(Kind::Source, message).at(place.line, place.column)
    }

    /// Fails if dollar signs that are shown as text enclose a formula whose braces are unbalanced: what reads
    /// Markdown takes only formulas with balanced ones.
    fn check_dollars(&self) -> Result<(), RenderError> {
        let mut dollars = Vec::new();
        let mut is_code = false;
        for (event, range) in &self.events {
            match event {
                Event::Start(Tag::CodeBlock(_)) => is_code = true,
                Event::End(TagEnd::CodeBlock) => is_code = false,
                Event::Text(_) if is_code => {}
                Event::Text(_) => dollars.extend(self.dollars(range.clone())),
                // Without a formula, its characters may look like markup.
                Event::SoftBreak
                | Event::HardBreak
                | Event::Start(Tag::Emphasis | Tag::Strong | Tag::Strikethrough)
                | Event::End(TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough) => {}
                _ => self.check_formulas(&std::mem::take(&mut dollars))?,
            }
        }
        self.check_formulas(&dollars)
    }

    /// The positions of dollar signs in a range that no backslash precedes.
    fn dollars(&self, range: std::ops::Range<usize>) -> impl Iterator<Item = usize> {
        let bytes = self.text.as_bytes();
        let backslashes = |at: usize| bytes[..at].iter().rev().take_while(|b| **b == b'\\').count();
        range.filter(move |at| bytes[*at] == b'$' && backslashes(*at).is_multiple_of(2))
    }

    /// Fails if two of these dollar signs, or two pairs of them, enclose a formula with unbalanced braces. Each
    /// sign is looked at once.
    fn check_formulas(&self, dollars: &[usize]) -> Result<(), RenderError> {
        let bytes = self.text.as_bytes();
        let is_space = |byte: usize| bytes.get(byte).is_none_or(u8::is_ascii_whitespace);
        let is_pair = |at: usize| dollars.get(at + 1).is_some_and(|next| *next == dollars[at] + 1);
        // The sign that is open, or the first of a pair, and the number of signs.
        let mut open: Option<(usize, usize)> = None;
        let mut at = 0;
        while at < dollars.len() {
            let width = if is_pair(at) { 2 } else { 1 };
            let byte = dollars[at];
            // The second sign of a price has a space before it, or a digit after it.
            let closes = width == 2
                || byte > 0
                    && !is_space(byte - 1)
                    && !bytes.get(byte + 1).is_some_and(u8::is_ascii_digit);
            match open {
                Some((start, signs)) if signs == width && closes => {
                    self.check_formula(start, start + width..byte)?;
                    open = None;
                }
                Some((_, 2)) => {}
                _ if width == 2 || !is_space(byte + 1) => open = Some((byte, width)),
                _ => {}
            }
            at += width;
        }
        Ok(())
    }

    /// Fails if a formula has unbalanced braces.
    fn check_formula(
        &self,
        byte: usize,
        source: std::ops::Range<usize>,
    ) -> Result<(), RenderError> {
        let is_display = source.start - byte == 2;
        let source = &self.text[source];
        if source.is_empty() || is_balanced(source) {
            return Ok(());
        }
        self.math(source, byte, is_display).map(drop)
    }

    /// Reads parts up to the end of a container, or of the text.
    fn parts(&mut self, end: Option<TagEnd>) -> Result<Vec<Part>, RenderError> {
        self.depth += 1;
        if self.depth > LIST_DEPTH_MAX {
            return Err(RenderError::limit(format!(
                "lists and quotes are nested more than {LIST_DEPTH_MAX} deep"
            )));
        }
        let mut parts = Vec::new();
        // Items of tight lists have lines without a paragraph around them.
        let mut loose: Vec<Inline> = Vec::new();
        while let Some((event, byte)) = self.next() {
            let part = match event {
                Event::End(found) if Some(found) == end => break,
                Event::Start(Tag::Paragraph) => Part::Paragraph(self.inlines(TagEnd::Paragraph)?),
                Event::Start(Tag::Heading { level, .. }) => {
                    Part::Heading(level_of(level), self.inlines(TagEnd::Heading(level))?)
                }
                Event::Start(Tag::BlockQuote(kind)) => {
                    Part::Quote(self.parts(Some(TagEnd::BlockQuote(kind)))?)
                }
                Event::Start(Tag::CodeBlock(kind)) => self.code(&kind),
                Event::Start(Tag::List(start)) => self.list(start)?,
                Event::Start(Tag::Table(_)) => self.table()?,
                Event::Rule => Part::Rule,
                Event::Html(_) | Event::Start(Tag::HtmlBlock) => {
                    return Err(self.wrong(byte, "raw HTML is not allowed in Markdown"));
                }
                Event::End(_) => continue,
                other => {
                    self.inline(other, byte, &mut loose)?;
                    continue;
                }
            };
            if !loose.is_empty() {
                parts.push(Part::Paragraph(std::mem::take(&mut loose)));
            }
            parts.push(part);
        }
        if !loose.is_empty() {
            parts.push(Part::Paragraph(loose));
        }
        self.depth -= 1;
        Ok(parts)
    }

    fn code(&mut self, kind: &CodeBlockKind<'_>) -> Part {
        let language = match kind {
            CodeBlockKind::Fenced(language) if !language.is_empty() => Some(language.to_string()),
            _ => None,
        };
        let mut text = String::new();
        while let Some((event, _)) = self.next() {
            match event {
                Event::Text(part) => text.push_str(&part),
                Event::End(TagEnd::CodeBlock) => break,
                _ => {}
            }
        }
        Part::Code { language, text: text.trim_end_matches('\n').to_owned() }
    }

    fn list(&mut self, start: Option<u64>) -> Result<Part, RenderError> {
        let mut items = Vec::new();
        while let Some((event, _)) = self.next() {
            match event {
                Event::Start(Tag::Item) => items.push(self.parts(Some(TagEnd::Item))?),
                Event::End(TagEnd::List(_)) => break,
                _ => {}
            }
        }
        Ok(Part::List { start, items })
    }

    fn table(&mut self) -> Result<Part, RenderError> {
        let (mut header, mut rows, mut row) = (Vec::new(), Vec::new(), Vec::new());
        while let Some((event, _)) = self.next() {
            match event {
                Event::Start(Tag::TableCell) => row.push(self.inlines(TagEnd::TableCell)?),
                Event::End(TagEnd::TableHead) => header = std::mem::take(&mut row),
                Event::End(TagEnd::TableRow) => rows.push(std::mem::take(&mut row)),
                Event::End(TagEnd::Table) => break,
                _ => {}
            }
        }
        Ok(Part::Table { header, rows })
    }

    fn inlines(&mut self, end: TagEnd) -> Result<Vec<Inline>, RenderError> {
        self.depth += 1;
        if self.depth > 2 * LIST_DEPTH_MAX {
            return Err(RenderError::limit("markup is nested too deeply"));
        }
        let mut inlines = Vec::new();
        while let Some((event, byte)) = self.next() {
            if matches!(&event, Event::End(found) if *found == end) {
                break;
            }
            self.inline(event, byte, &mut inlines)?;
        }
        self.depth -= 1;
        Ok(inlines)
    }

    fn inline(
        &mut self,
        event: Event<'a>,
        byte: usize,
        into: &mut Vec<Inline>,
    ) -> Result<(), RenderError> {
        let inline = match event {
            Event::Text(text) => Inline::Text(text.to_string()),
            Event::Code(text) => Inline::Code(text.to_string()),
            Event::SoftBreak => Inline::Text(" ".to_owned()),
            Event::HardBreak => Inline::Break,
            Event::Start(Tag::Strong) => Inline::Strong(self.inlines(TagEnd::Strong)?),
            Event::Start(Tag::Emphasis) => Inline::Emphasis(self.inlines(TagEnd::Emphasis)?),
            Event::Start(Tag::Strikethrough) => {
                Inline::Strike(self.inlines(TagEnd::Strikethrough)?)
            }
            Event::Start(Tag::Link { dest_url, .. }) => {
                let target = self.target(&dest_url, byte)?;
                let place = self.place(byte);
                Inline::Link { target, content: self.inlines(TagEnd::Link)?, place }
            }
            Event::Start(Tag::Image { .. }) => {
                return Err(
                    self.wrong(byte, "an image in Markdown; use a block of the type figure")
                );
            }
            Event::InlineMath(source) => self.math(&source, byte, false)?,
            Event::DisplayMath(source) => self.math(&source, byte, true)?,
            Event::InlineHtml(_) | Event::Html(_) => {
                return Err(self.wrong(byte, "raw HTML is not allowed in Markdown"));
            }
            _ => return Ok(()),
        };
        into.push(inline);
        Ok(())
    }

    fn math(&self, source: &str, byte: usize, is_display: bool) -> Result<Inline, RenderError> {
        let mut place = self.place(byte);
        place.column += if is_display { 2 } else { 1 };
        let markup = latex::to_typst_at(source, place)?;
        Ok(Inline::Math { source: source.to_owned(), markup, is_display })
    }

    fn target(&self, url: &str, byte: usize) -> Result<String, RenderError> {
        let is_allowed =
            ["http://", "https://", "mailto:", "#"].iter().any(|start| url.starts_with(start));
        if is_allowed && !url.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Ok(url.to_owned());
        }
        let text = format!("a link to {url:?}; links begin with http://, https://, mailto: or #");
        Err(self.wrong(byte, text))
    }
}

/// Returns true if each brace of a formula has its counterpart.
fn is_balanced(source: &str) -> bool {
    let mut depth = 0_usize;
    let mut chars = source.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => _ = chars.next(),
            '{' => depth += 1,
            '}' if depth == 0 => return false,
            '}' => depth -= 1,
            _ => {}
        }
    }
    depth == 0
}

fn level_of(level: HeadingLevel) -> u8 {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}

/// The text of a line without its markup.
pub(crate) fn plain(inlines: &[Inline]) -> String {
    let mut text = String::new();
    for inline in inlines {
        match inline {
            Inline::Text(part) | Inline::Code(part) => text.push_str(part),
            Inline::Strong(inner) | Inline::Emphasis(inner) | Inline::Strike(inner) => {
                text.push_str(&plain(inner));
            }
            Inline::Link { content, .. } => text.push_str(&plain(content)),
            Inline::Math { source, .. } => text.push_str(source),
            Inline::Break => text.push(' '),
        }
    }
    text
}
