//! Commutative diagrams: `CD` of amscd and `tikzcd`, with arrows to the next cell in a row or column.

use super::error::{LatexError, Place};
use super::markup::{content, join, stretched};
use super::parser::{Ended, Parser};
use super::tokens::{Kind, Token};

/// Whether a command draws an arrow of `tikzcd`.
pub(super) fn is_arrow(name: &str) -> bool {
    matches!(
        name,
        "arrow" | "ar" | "rar" | "lar" | "dar" | "uar" | "drar" | "dlar" | "urar" | "ular"
    )
}

/// A horizontal arrow with text above and below.
fn horizontal(arrow: char, above: &str, below: &str) -> String {
    if above.is_empty() && below.is_empty() {
        return format!("stretch({arrow},size:#2.6em)");
    }
    let below = (!below.is_empty()).then(|| format!("script({below})"));
    stretched(arrow, &content(above.to_owned()), below.as_deref())
}

/// A vertical arrow with text on both sides: as much space is left on the other side.
fn vertical(arrow: char, left: &str, right: &str) -> String {
    let side = |shown: &str, other: &str| {
        let hidden = |text: &str| format!("#hide($script({text})$)");
        match (shown.is_empty(), other.is_empty()) {
            (true, true) => String::new(),
            (true, false) => hidden(other),
            (false, true) => format!("script({shown})"),
            (false, false) => format!("script({shown})"),
        }
    };
    let arrow = format!("stretch({arrow},size:#2.2em)");
    join([side(left, right), arrow, side(right, left)])
}

fn grid(rows: Vec<Vec<String>>) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let row = |mut row: Vec<String>| {
        row.resize(columns, String::new());
        row.into_iter().map(content).collect::<Vec<_>>().join(",")
    };
    let rows: Vec<String> = rows.into_iter().map(row).collect();
    format!("mat(delim:#none,row-gap:#0.5em,column-gap:#0.4em,{})", rows.join(";"))
}

/// `\begin{CD}`, after its name.
pub(super) fn cd(parser: &mut Parser, place: Place) -> Result<String, LatexError> {
    let tokens = until_end(parser, "CD", place)?;
    let rows = tokens.split(|token| token.is_command("\\") || token.is_command("cr"));
    let mut made = Vec::new();
    for row in rows {
        if row.iter().all(|token| token.kind == Kind::Space) {
            continue;
        }
        made.push(cd_row(parser, row)?);
    }
    Ok(grid(made))
}

fn cd_row(parser: &mut Parser, row: &[Token]) -> Result<Vec<String>, LatexError> {
    let mut cells = Vec::new();
    let mut object: Vec<Token> = Vec::new();
    let is_vertical = row.windows(2).any(|pair| {
        pair[0].kind == Kind::Char('@') && matches!(pair[1].kind, Kind::Char('V' | 'A' | '|'))
    }) && !row.windows(2).any(|pair| {
        pair[0].kind == Kind::Char('@') && matches!(pair[1].kind, Kind::Char('>' | '<' | '='))
    });
    let mut at = 0;
    let mut arrows = 0;
    while at < row.len() {
        if row[at].kind != Kind::Char('@') {
            object.push(row[at].clone());
            at += 1;
            continue;
        }
        let place = row[at].place;
        if !is_vertical {
            cells.push(parser.translated(std::mem::take(&mut object), place)?);
        }
        object.clear();
        let (markup, next) = cd_arrow(parser, row, at, place)?;
        // Vertical arrows stand below objects, and those are every second column.
        if is_vertical && arrows > 0 {
            cells.push(String::new());
        }
        cells.push(markup);
        arrows += 1;
        at = next;
    }
    if !is_vertical {
        let place = row.last().map_or(Place::START, |token| token.place);
        cells.push(parser.translated(object, place)?);
    }
    Ok(cells)
}

/// An arrow that begins at the `@`. Returns its markup and where the row goes on.
fn cd_arrow(
    parser: &mut Parser,
    row: &[Token],
    at: usize,
    place: Place,
) -> Result<(String, usize), LatexError> {
    let wrong = || {
        LatexError::new(
            place,
            "@ in \\begin{CD} must start one of @>>>, @<<<, @VVV, @AAA, @=, @| and @.",
        )
    };
    let Some(Kind::Char(kind)) = row.get(at + 1).map(|token| token.kind.clone()) else {
        return Err(wrong());
    };
    match kind {
        '=' => return Ok(("stretch(\\=,size:#2.6em)".to_owned(), at + 2)),
        '|' => return Ok(("stretch(∥,size:#2.2em)".to_owned(), at + 2)),
        '.' => return Ok((String::new(), at + 2)),
        '>' | '<' | 'V' | 'A' => {}
        _ => return Err(wrong()),
    }
    let mut labels = Vec::new();
    let mut from = at + 2;
    for _ in 0..2 {
        let mut depth = 0;
        let length = row.get(from..).unwrap_or_default().iter().position(|token| {
            match token.kind {
                Kind::Begin => depth += 1,
                Kind::End => depth -= 1,
                _ => {}
            }
            depth == 0 && token.kind == Kind::Char(kind)
        });
        let length = length.ok_or_else(|| {
            LatexError::new(
                place,
                format!("an arrow @{kind} in \\begin{{CD}} has no end; it needs three {kind}"),
            )
        })?;
        let label: Vec<Token> = row[from..from + length].to_vec();
        let label = if label.iter().all(|token| token.kind == Kind::Space) {
            String::new()
        } else {
            parser.translated(label, place)?
        };
        labels.push(label);
        from += length + 1;
    }
    let (first, second) = (&labels[0], &labels[1]);
    let markup = match kind {
        '>' => horizontal('→', first, second),
        '<' => horizontal('←', first, second),
        'V' => vertical('↓', first, second),
        _ => vertical('↑', first, second),
    };
    Ok((markup, from))
}

/// The tokens up to `\end{name}`.
fn until_end(parser: &mut Parser, name: &str, place: Place) -> Result<Vec<Token>, LatexError> {
    let mut tokens = Vec::new();
    loop {
        let missing =
            || LatexError::new(place, format!("missing \\end{{{name}}} after \\begin{{{name}}}"));
        let token = parser.input.next()?.ok_or_else(missing)?;
        if token.is_command("end") {
            let found = parser.name_argument("end", token.place)?;
            if found == name {
                return Ok(tokens);
            }
            let text = format!("\\begin{{{name}}} is ended by \\end{{{found}}}");
            return Err(LatexError::new(token.place, text));
        }
        tokens.push(token);
    }
}

/// An arrow of `tikzcd`.
struct Arrow {
    /// Rows and columns to its end.
    step: (i32, i32),
    glyph: &'static str,
    label: String,
    /// Whether the text stands on the other side.
    is_swapped: bool,
}

/// `\begin{tikzcd}`, after its name.
pub(super) fn tikzcd(parser: &mut Parser, place: Place) -> Result<String, LatexError> {
    parser.input.bracketed("begin")?;
    let tokens = until_end(parser, "tikzcd", place)?;
    let mut objects: Vec<Vec<String>> = Vec::new();
    let mut arrows: Vec<(usize, usize, Arrow, Place)> = Vec::new();
    let mut inner = parser.inner(tokens, place);
    let mut row = Vec::new();
    loop {
        let (cell, found, ended) = tikzcd_cell(&mut inner)?;
        arrows.extend(found.into_iter().map(|(arrow, at)| (objects.len(), row.len(), arrow, at)));
        row.push(cell);
        if ended != Ended::Cell {
            objects.push(std::mem::take(&mut row));
        }
        if ended == Ended::Source {
            break;
        }
    }
    parser.take_back(inner);
    if objects.last().is_some_and(|row| row.iter().all(String::is_empty)) {
        objects.pop();
    }
    let columns = objects.iter().map(Vec::len).max().unwrap_or(0);
    let mut cells = vec![
        vec![String::new(); (2 * columns).saturating_sub(1)];
        (2 * objects.len()).saturating_sub(1)
    ];
    for (at, row) in objects.into_iter().enumerate() {
        for (column, object) in row.into_iter().enumerate() {
            cells[2 * at][2 * column] = object;
        }
    }
    for (at, column, arrow, place) in arrows {
        let (down, right) = arrow.step;
        let target = (
            i32::try_from(2 * at).unwrap_or(0) + down,
            i32::try_from(2 * column).unwrap_or(0) + right,
        );
        let cell = usize::try_from(target.0).ok().zip(usize::try_from(target.1).ok());
        let cell = cell.and_then(|(row, column)| cells.get_mut(row)?.get_mut(column));
        let cell = cell.ok_or_else(|| LatexError::new(place, "\\arrow leaves the diagram"))?;
        let (first, second) =
            if arrow.is_swapped { ("", arrow.label.as_str()) } else { (arrow.label.as_str(), "") };
        let glyph = |plain, hooked, dashed, double| match arrow.glyph {
            "hook" => hooked,
            "dashed" => dashed,
            "double" => double,
            _ => plain,
        };
        *cell = match arrow.step {
            (0, 1) => horizontal(glyph('→', '↪', '⇢', '⇒'), first, second),
            (0, _) => horizontal(glyph('←', '↩', '⇠', '⇐'), second, first),
            (1, _) => vertical(glyph('↓', '↓', '⇣', '⇓'), second, first),
            _ => vertical(glyph('↑', '↑', '⇡', '⇑'), first, second),
        };
    }
    Ok(grid(cells))
}

type Cell = (String, Vec<(Arrow, Place)>, Ended);

/// An object and its arrows.
fn tikzcd_cell(parser: &mut Parser) -> Result<Cell, LatexError> {
    let mut object = Vec::new();
    let mut arrows = Vec::new();
    let mut depth = 0;
    let ended = loop {
        let Some(token) = parser.input.next()? else { break Ended::Source };
        match &token.kind {
            Kind::Align if depth == 0 => break Ended::Cell,
            Kind::Command(name) if depth == 0 && (name == "\\" || name == "cr") => {
                parser.input.bracketed("\\")?;
                break Ended::Row;
            }
            Kind::Command(name) if is_arrow(name) => {
                arrows.push((tikzcd_arrow(parser, name, token.place)?, token.place));
            }
            Kind::Begin => {
                depth += 1;
                object.push(token);
            }
            Kind::End => {
                depth -= 1;
                object.push(token);
            }
            _ => object.push(token),
        }
    };
    let place = parser.input.last_place();
    let is_empty = object.iter().all(|token| token.kind == Kind::Space);
    let cell = if is_empty { String::new() } else { parser.translated(object, place)? };
    Ok((cell, arrows, ended))
}

fn tikzcd_arrow(parser: &mut Parser, name: &str, place: Place) -> Result<Arrow, LatexError> {
    let mut arrow = Arrow { step: (0, 0), glyph: "", label: String::new(), is_swapped: false };
    let mut direction = name.strip_suffix("ar").unwrap_or("").to_owned();
    let options = parser.input.bracketed(name)?.unwrap_or_default();
    for option in split_options(options) {
        let text: String = option.iter().map(Token::text).collect::<String>().trim().to_owned();
        let is_quoted = text.starts_with('"');
        if is_quoted {
            let last = option.iter().rposition(|token| token.kind == Kind::Char('"')).unwrap_or(0);
            let first = option.iter().position(|token| token.kind == Kind::Char('"')).unwrap_or(0);
            arrow.is_swapped = text.ends_with('\'') || text.ends_with("swap");
            let label = option.get(first + 1..last).unwrap_or_default().to_vec();
            arrow.label = parser.translated(label, place)?;
            continue;
        }
        match text.as_str() {
            "" => {}
            "swap" | "'" => arrow.is_swapped = true,
            "hook" | "hookrightarrow" => arrow.glyph = "hook",
            "dashed" | "dotted" => arrow.glyph = "dashed",
            "Rightarrow" | "equal" | "equals" => arrow.glyph = "double",
            text if text.chars().all(|c| "rlud".contains(c)) => direction = text.to_owned(),
            text => {
                let text = format!("\\{name}[{text}] is not supported in \\begin{{tikzcd}}");
                return Err(LatexError::new(place, text));
            }
        }
    }
    arrow.step = match direction.as_str() {
        "r" => (0, 1),
        "l" => (0, -1),
        "d" => (1, 0),
        "u" => (-1, 0),
        other => {
            let text = format!(
                "\\{name}[{other}] is not supported: arrows lead to the next cell of a row or column"
            );
            return Err(LatexError::new(place, text));
        }
    };
    Ok(arrow)
}

fn split_options(tokens: Vec<Token>) -> Vec<Vec<Token>> {
    let mut options = vec![Vec::new()];
    let (mut depth, mut is_quoted) = (0, false);
    for token in tokens {
        match token.kind {
            Kind::Begin => depth += 1,
            Kind::End => depth -= 1,
            Kind::Char('"') => is_quoted = !is_quoted,
            Kind::Char(',') if depth == 0 && !is_quoted => {
                options.push(Vec::new());
                continue;
            }
            _ => {}
        }
        if let Some(option) = options.last_mut() {
            option.push(token);
        }
    }
    options
}
