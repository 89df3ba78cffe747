//! Environments: matrices, cases, and systems of equations.

use super::diagrams;
use super::error::{LatexError, Place};
use super::markup::{content, join};
use super::parser::{Ended, Parser};
use super::tokens::{Kind, Token};

/// Rows of cells, and before which of them a line is drawn.
pub(super) struct Table {
    pub(super) rows: Vec<Vec<String>>,
    lines: Vec<usize>,
}

/// Reads rows up to the end of an environment, or of the source without one.
pub(super) fn rows(
    parser: &mut Parser,
    name: Option<&str>,
) -> Result<Vec<Vec<String>>, LatexError> {
    Ok(table(parser, name)?.rows)
}

fn table(parser: &mut Parser, name: Option<&str>) -> Result<Table, LatexError> {
    let begin = parser.input.last_place();
    let mut table = Table { rows: vec![Vec::new()], lines: Vec::new() };
    loop {
        if table.rows.last().is_some_and(Vec::is_empty) {
            lines_before(parser, &mut table)?;
        }
        let (cell, ended) = parser.list()?;
        if let Some(row) = table.rows.last_mut() {
            row.push(cell);
        }
        match (&ended, name) {
            (Ended::Cell, _) => {}
            (Ended::Row, _) => table.rows.push(Vec::new()),
            (Ended::Environment(found), Some(name)) if found == name => break,
            (Ended::Environment(found), Some(name)) => {
                let text = format!("\\begin{{{name}}} is ended by \\end{{{found}}}");
                return Err(LatexError::new(parser.input.last_place(), text));
            }
            (Ended::Source, None) => break,
            (_, Some(name)) => {
                let text = format!("missing \\end{{{name}}} after \\begin{{{name}}}");
                return Err(LatexError::new(begin, text));
            }
            (_, None) => return Err(LatexError::new(begin, "the rows are not complete")),
        }
    }
    // A row break at the end starts no row.
    if table.rows.last().is_some_and(|row| row.iter().all(String::is_empty)) && table.rows.len() > 1
    {
        table.rows.pop();
    }
    Ok(table)
}

fn lines_before(parser: &mut Parser, table: &mut Table) -> Result<(), LatexError> {
    loop {
        parser.input.skip_spaces()?;
        match parser.input.peek()? {
            Some(token) if token.is_command("hline") => {
                parser.input.next_raw();
                table.lines.push(table.rows.len() - 1);
            }
            _ => return Ok(()),
        }
    }
}

/// An environment, after `\begin`.
pub(super) fn environment(parser: &mut Parser, place: Place) -> Result<String, LatexError> {
    let name = parser.name_argument("begin", place)?;
    let plain = name.trim_end_matches('*');
    match plain {
        "matrix" | "pmatrix" | "bmatrix" | "Bmatrix" | "vmatrix" | "Vmatrix" | "smallmatrix" => {
            // Only the starred ones of mathtools take an alignment: `[` is content of the others.
            let alignment = if plain == name { None } else { alignment(parser, &name, place)? };
            let rows = rows(parser, Some(&name))?;
            Ok(matrix(plain, rows, alignment))
        }
        "array" | "subarray" | "darray" => array(parser, &name, place),
        "cases" | "dcases" | "rcases" | "drcases" => {
            let rows = rows(parser, Some(&name))?;
            Ok(cases(plain, rows))
        }
        "aligned" | "align" | "split" | "eqnarray" | "alignat" | "alignedat" | "flalign" => {
            if plain.starts_with("aligned") {
                parser.input.bracketed("begin")?;
            }
            if plain.starts_with("align") && plain.ends_with("at") {
                parser.input.raw_argument("begin", place)?;
            }
            let has_gap = !plain.ends_with("at");
            let rows = rows(parser, Some(&name))?;
            Ok(aligned(rows, has_gap && plain != "eqnarray"))
        }
        "gather" | "gathered" | "multline" => {
            if plain == "gathered" {
                parser.input.bracketed("begin")?;
            }
            let rows = rows(parser, Some(&name))?;
            Ok(gathered(rows, plain == "multline"))
        }
        "equation" | "math" | "displaymath" => {
            let rows = rows(parser, Some(&name))?;
            Ok(gathered(rows, false))
        }
        "CD" => diagrams::cd(parser, place),
        "tikzcd" => diagrams::tikzcd(parser, place),
        _ => Err(LatexError::new(place, format!("unknown environment \\begin{{{name}}}"))),
    }
}

fn cells(row: Vec<String>) -> String {
    row.into_iter().map(content).collect::<Vec<_>>().join(",")
}

fn padded(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    for row in &mut rows {
        row.resize(columns, String::new());
    }
    rows
}

/// How the columns of a starred matrix are aligned, if it says so.
fn alignment(
    parser: &mut Parser,
    name: &str,
    place: Place,
) -> Result<Option<&'static str>, LatexError> {
    let Some(tokens) = parser.input.bracketed("begin")? else { return Ok(None) };
    let text: String = tokens.iter().map(Token::text).collect();
    match text.trim() {
        "l" => Ok(Some("left")),
        "c" => Ok(None),
        "r" => Ok(Some("right")),
        _ => {
            let text = format!("[{text}] after \\begin{{{name}}}; l, c and r are known");
            Err(LatexError::new(place, text))
        }
    }
}

fn matrix(name: &str, rows: Vec<Vec<String>>, alignment: Option<&str>) -> String {
    let delimiter = match name {
        "pmatrix" => "\"(\"",
        "bmatrix" => "\"[\"",
        "Bmatrix" => "\"{\"",
        "vmatrix" => "\"|\"",
        "Vmatrix" => "\"‖\"",
        _ => "#none",
    };
    let is_small = name == "smallmatrix";
    let style = if is_small { "script" } else { "inline" };
    let styled = |cell: String| format!("{style}({})", content(cell));
    let rows = padded(rows).into_iter().map(|row| cells(row.into_iter().map(styled).collect()));
    let gaps = if is_small {
        "row-gap:#0.15em,column-gap:#0.3em"
    } else {
        "row-gap:#0.35em,column-gap:#0.9em"
    };
    let align = alignment.map(|side| format!("align:#{side},")).unwrap_or_default();
    format!("mat(delim:{delimiter},{align}{gaps},{})", rows.collect::<Vec<_>>().join(";"))
}

/// How a column is aligned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Left,
    Center,
    Right,
}

fn array(parser: &mut Parser, name: &str, place: Place) -> Result<String, LatexError> {
    parser.input.bracketed("begin")?;
    let spec = parser.input.raw_argument("begin", place)?;
    let mut columns = Vec::new();
    let mut lines = Vec::new();
    let mut spec = spec.into_iter();
    while let Some(token) = spec.next() {
        match token.kind {
            Kind::Char('l') => columns.push(Column::Left),
            Kind::Char('c') => columns.push(Column::Center),
            Kind::Char('r') => columns.push(Column::Right),
            Kind::Char('|') => lines.push(columns.len()),
            Kind::Space => {}
            // Less space around a column is not supported, and its absence does no harm; content is.
            Kind::Char(kind @ ('@' | '!')) => {
                if !is_empty_group(&mut spec) {
                    let text = format!(
                        "{kind}{{…}} in the columns of \\begin{{{name}}} may only be empty"
                    );
                    return Err(LatexError::new(token.place, text));
                }
            }
            _ => {
                let text = format!(
                    "{} in the columns of \\begin{{{name}}}; l, c, r and | are known",
                    token.text()
                );
                return Err(LatexError::new(token.place, text));
            }
        }
    }
    let table = table(parser, Some(name))?;
    let count = table.rows.len();
    // TeX sets cells in the style of text, whatever is around them.
    let style = match name {
        "subarray" => "script",
        "darray" => "display",
        _ => "inline",
    };
    let is_outer = |lines: &[usize], last: usize| lines.iter().any(|at| *at == 0 || *at >= last);
    if is_outer(&lines, columns.len()) || is_outer(&table.lines, count) {
        return Ok(framed(&columns, &lines, table, style));
    }
    let align = |(at, cell): (usize, String)| {
        let cell = format!("{style}({})", content(cell));
        match columns.get(at).copied().unwrap_or(Column::Center) {
            Column::Left => format!("&{cell}"),
            Column::Right => format!("{cell}&"),
            Column::Center => cell,
        }
    };
    let rows = padded(table.rows)
        .into_iter()
        .map(|row| row.into_iter().enumerate().map(align).collect::<Vec<_>>().join(","));
    let inner = |lines: Vec<usize>, most: usize| {
        let lines: Vec<String> = lines
            .into_iter()
            .filter(|line| *line > 0 && *line < most)
            .map(|line| line.to_string())
            .collect();
        format!("({}{})", lines.join(","), if lines.len() == 1 { "," } else { "" })
    };
    let (vertical, horizontal) = (inner(lines, columns.len()), inner(table.lines, count));
    let augment = if vertical == "()" && horizontal == "()" {
        String::new()
    } else {
        format!("augment:#(vline:{vertical},hline:{horizontal},stroke:0.04em),")
    };
    let gap = if name == "subarray" { "0.25em" } else { "0.35em" };
    let rows = rows.collect::<Vec<_>>().join(";");
    Ok(format!("mat(delim:#none,{augment}row-gap:#{gap},column-gap:#0.9em,{rows})"))
}

/// An array with lines at its edges, which a matrix of Typst cannot have.
fn framed(columns: &[Column], lines: &[usize], table: Table, style: &str) -> String {
    let rows = padded(table.rows);
    let width = rows.first().map_or(0, Vec::len).max(columns.len());
    let alignment = |at: usize| match columns.get(at).copied().unwrap_or(Column::Center) {
        Column::Left => "left",
        Column::Center => "center",
        Column::Right => "right",
    };
    let mut parts = vec![
        format!("columns:{width}"),
        format!("align:({},)", (0..width).map(alignment).collect::<Vec<_>>().join(",")),
        "inset:(x:0.45em,y:0.3em)".to_owned(),
    ];
    let line = |kind: &str, axis: &str, at: usize, last: usize| {
        format!("grid.{kind}({axis}:{},stroke:0.04em)", at.min(last))
    };
    parts.extend(lines.iter().map(|at| line("vline", "x", *at, width)));
    parts.extend(table.lines.iter().map(|at| line("hline", "y", *at, rows.len())));
    for row in rows {
        let missing = width - row.len();
        parts.extend(row.into_iter().map(|cell| format!("${style}({})$", content(cell))));
        parts.extend(std::iter::repeat_n("[]".to_owned(), missing));
    }
    // The matrix around it puts the middle on the axis.
    format!("mat(delim:#none,#box(grid({})))", parts.join(","))
}

/// Reads a group, and says whether nothing but spaces is in it.
fn is_empty_group(tokens: &mut impl Iterator<Item = Token>) -> bool {
    let mut inside = tokens.skip_while(|token| token.kind == Kind::Space);
    inside.next().is_some_and(|token| token.kind == Kind::Begin)
        && inside
            .find(|token| token.kind != Kind::Space)
            .is_some_and(|token| token.kind == Kind::End)
}

fn cases(name: &str, rows: Vec<Vec<String>>) -> String {
    let style = if name.starts_with('d') { "display" } else { "inline" };
    let rows = rows.into_iter().map(|row| {
        let styled = row.into_iter().map(|cell| format!("{style}({})", content(cell)));
        format!("&{}", styled.collect::<Vec<_>>().join("#h(1em)&"))
    });
    let reverse = if name.ends_with("rcases") { "reverse:#true," } else { "" };
    format!("cases({reverse}gap:#0.4em,{})", rows.collect::<Vec<_>>().join(","))
}

/// Columns that are aligned to the right and to the left by turns.
fn aligned(rows: Vec<Vec<String>>, has_gap: bool) -> String {
    let rows = rows.into_iter().map(|row| {
        let mut markup = String::new();
        for (at, cell) in row.into_iter().enumerate() {
            if at > 0 {
                markup.push('&');
            }
            if has_gap && at > 0 && at % 2 == 0 {
                markup.push_str("#h(2em)");
            }
            markup.push_str(&format!("display({})", content(cell)));
        }
        markup
    });
    format!("vec(delim:#none,gap:#0.55em,{})", rows.collect::<Vec<_>>().join(","))
}

fn gathered(rows: Vec<Vec<String>>, is_multline: bool) -> String {
    let count = rows.len();
    if count == 1 {
        let row = rows.into_iter().next().unwrap_or_default();
        return format!("display({})", content(join(row)));
    }
    let rows = rows.into_iter().enumerate().map(|(at, row)| {
        let markup = format!("display({})", content(join(row)));
        match at {
            0 if is_multline => format!("&{markup}#h(4em)"),
            last if is_multline && last + 1 == count => format!("&#h(4em){markup}"),
            _ if is_multline => format!("&#h(2em){markup}"),
            _ => markup,
        }
    });
    format!("vec(delim:#none,gap:#0.55em,align:#center,{})", rows.collect::<Vec<_>>().join(","))
}
