//! Splits LaTeX into tokens, each with its place in the source.

use super::error::{LatexError, Place};
use crate::limits::SOURCE_BYTES_MAX;

/// What a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A command without its backslash: letters, or one other character.
    Command(String),
    /// Any other character.
    Char(char),
    /// White space between tokens, however much.
    Space,
    /// `{`
    Begin,
    /// `}`
    End,
    /// `^`
    Up,
    /// `_`
    Down,
    /// `&`
    Align,
    /// `$`
    Dollar,
    /// `#` and a digit: an argument of a macro.
    Argument(usize),
}

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) place: Place,
}

impl Token {
    pub(super) fn is_command(&self, name: &str) -> bool {
        matches!(&self.kind, Kind::Command(found) if found == name)
    }

    /// The token as it was written.
    pub(super) fn text(&self) -> String {
        match &self.kind {
            Kind::Command(name) => format!("\\{name}"),
            Kind::Char(c) => c.to_string(),
            Kind::Space => " ".to_owned(),
            Kind::Begin => "{".to_owned(),
            Kind::End => "}".to_owned(),
            Kind::Up => "^".to_owned(),
            Kind::Down => "_".to_owned(),
            Kind::Align => "&".to_owned(),
            Kind::Dollar => "$".to_owned(),
            Kind::Argument(number) => format!("#{number}"),
        }
    }
}

struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    place: Place,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            self.place = Place { line: self.place.line + 1, column: 1 };
        } else {
            self.place.column += 1;
        }
        Some(c)
    }

    fn skip_while(&mut self, is_skipped: impl Fn(char) -> bool) {
        while self.rest.peek().is_some_and(|c| is_skipped(*c)) {
            self.next();
        }
    }
}

/// Splits a source.
pub(super) fn tokens(source: &str, first: Place) -> Result<Vec<Token>, LatexError> {
    if source.len() > SOURCE_BYTES_MAX {
        let text = format!(
            "the source has {} bytes; at most {SOURCE_BYTES_MAX} are allowed",
            source.len()
        );
        return Err(LatexError::limit(first, text));
    }
    let mut reader = Reader { rest: source.chars().peekable(), place: first };
    let mut tokens = Vec::new();
    loop {
        let place = reader.place;
        let Some(c) = reader.next() else { return Ok(tokens) };
        let kind = match c {
            '\\' => command(&mut reader, place)?,
            '{' => Kind::Begin,
            '}' => Kind::End,
            '^' => Kind::Up,
            '_' => Kind::Down,
            '&' => Kind::Align,
            '$' => Kind::Dollar,
            '#' => match reader.rest.peek().and_then(|c| c.to_digit(10)) {
                Some(number) if number > 0 => {
                    reader.next();
                    Kind::Argument(number as usize)
                }
                _ => {
                    return Err(LatexError::new(
                        place,
                        "# must be followed by the number of an argument; write \\# for the sign",
                    ));
                }
            },
            '%' => {
                reader.skip_while(|c| c != '\n');
                reader.next();
                reader.skip_while(|c| c == ' ' || c == '\t');
                continue;
            }
            c if c.is_whitespace() => {
                reader.skip_while(char::is_whitespace);
                Kind::Space
            }
            c if c.is_control() => {
                return Err(LatexError::new(place, "the source has a control character"));
            }
            c => Kind::Char(c),
        };
        tokens.push(Token { kind, place });
    }
}

fn command(reader: &mut Reader<'_>, place: Place) -> Result<Kind, LatexError> {
    let Some(first) = reader.next() else {
        return Err(LatexError::new(place, "the source ends with a backslash"));
    };
    let mut name = first.to_string();
    if first.is_ascii_alphabetic() {
        while let Some(c) = reader.rest.peek().copied().filter(char::is_ascii_alphabetic) {
            name.push(c);
            reader.next();
        }
        // A star belongs to the name of these only.
        if matches!(name.as_str(), "operatorname" | "DeclareMathOperator" | "hspace" | "tag")
            && reader.rest.peek() == Some(&'*')
        {
            reader.next();
            name.push('*');
        }
        reader.skip_while(char::is_whitespace);
    } else if first.is_whitespace() {
        name = " ".to_owned();
    }
    Ok(Kind::Command(name))
}
