//! Pieces of the math markup of Typst.

/// Markup as an argument: an empty one must be something.
pub(super) fn content(markup: String) -> String {
    if markup.is_empty() { "\"\"".to_owned() } else { markup }
}

/// Joins markup so that the end of one part and the start of the next are not read as one word.
pub(super) fn join(parts: impl IntoIterator<Item = String>) -> String {
    let is_word = |c: char| c.is_alphanumeric() || !c.is_ascii();
    let mut text = String::new();
    for part in parts {
        let ends = text.chars().next_back().is_some_and(is_word);
        let starts = part.chars().next().is_some_and(|c| is_word(c) || matches!(c, '.' | '('));
        if ends && starts {
            text.push_str("/**/");
        }
        text.push_str(&part);
    }
    text
}

/// A character as markup that stands for itself.
pub(super) fn literal(c: char) -> String {
    match c {
        '-' => "−".to_owned(),
        '*' => "∗".to_owned(),
        '\'' => "′".to_owned(),
        '`' => "‘".to_owned(),
        // An ordinary character in TeX.
        '/' => "class(\"normal\",\\/)".to_owned(),
        '.' => "class(\"normal\",\\.)".to_owned(),
        c => escaped(c),
    }
}

/// A character that is neither markup nor a delimiter that Typst would look for the other half of.
pub(super) fn escaped(c: char) -> String {
    if c.is_ascii_punctuation() || "⟨⟩⌈⌉⌊⌋⟦⟧⟮⟯⎰⎱⌜⌝⌞⌟".contains(c) {
        format!("\\{c}")
    } else {
        c.to_string()
    }
}

/// Text as a string of Typst. Spaces do not vanish at its ends.
pub(super) fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' ' | '~' => quoted.push('\u{a0}'),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// An arrow as long as what stands above and below it.
pub(super) fn stretched(arrow: char, above: &str, below: Option<&str>) -> String {
    let pad = |text: &str| join(["#h(0.5em)".to_owned(), text.to_owned(), "#h(0.5em)".to_owned()]);
    let below = below.map(|below| format!(",b:{}", pad(below))).unwrap_or_default();
    format!("attach(stretch({arrow}),t:{}{below})", pad(above))
}

pub(super) fn colored(fill: &str, markup: &str) -> String {
    format!("#text(fill:{fill},$display({markup})$)")
}
