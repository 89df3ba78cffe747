//! `\ce{…}` of mhchem: formulas of substances and reactions.
//!
//! Elements stand upright, numbers after them are subscripts, charges superscripts, and arrows may have text
//! above and below.

use super::error::{LatexError, Place};
use super::markup::{join, literal, stretched, string};
use super::parser::Parser;
use super::tokens::{Kind, Token};

/// The argument of `\ce`, after the command.
pub(super) fn formula(parser: &mut Parser, place: Place) -> Result<String, LatexError> {
    let tokens = parser.input.raw_argument("ce", place)?;
    let mut reader =
        Reader { parser, tokens, at: 0, place, parts: Vec::new(), follows_element: false };
    while let Some(token) = reader.peek(0).cloned() {
        reader.part(&token)?;
    }
    let parts = std::mem::take(&mut reader.parts);
    Ok(format!("upright({})", join(parts)))
}

struct Reader<'a> {
    parser: &'a mut Parser,
    tokens: Vec<Token>,
    at: usize,
    place: Place,
    parts: Vec<String>,
    /// Whether a number that follows is a subscript.
    follows_element: bool,
}

const ARROWS: [(&str, char); 6] =
    [("<=>", '⇌'), ("<->", '↔'), ("->", '→'), ("<-", '←'), ("<=", '⇐'), ("=>", '⇒')];

impl Reader<'_> {
    fn peek(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead)
    }

    fn char_at(&self, ahead: usize) -> Option<char> {
        match self.peek(ahead)?.kind {
            Kind::Char(c) => Some(c),
            _ => None,
        }
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(ahead, c)| self.char_at(ahead) == Some(c))
    }

    fn push(&mut self, markup: String) {
        self.parts.push(markup);
    }

    /// Attaches scripts to the part before, or to nothing.
    fn attach(&mut self, up: Option<String>, down: Option<String>) {
        let base = if self.follows_element { self.parts.pop() } else { None };
        // What stands before an element ends at it, and a charge stands after an index.
        let is_before = base.is_none();
        let base = match base {
            Some(base) if base.starts_with("attach(") => {
                self.push(base);
                None
            }
            other => other,
        };
        let base = base.unwrap_or_else(|| "\"\"".to_owned());
        let (above, below) = if is_before { ("tl", "bl") } else { ("t", "b") };
        let up = up.map(|up| format!(",{above}:{up}")).unwrap_or_default();
        let down = down.map(|down| format!(",{below}:{down}")).unwrap_or_default();
        self.push(format!("attach({base}{up}{down})"));
    }

    fn digits(&mut self) -> String {
        let mut text = String::new();
        while let Some(c) = self.char_at(0).filter(char::is_ascii_digit) {
            text.push(c);
            self.at += 1;
        }
        text
    }

    fn part(&mut self, token: &Token) -> Result<(), LatexError> {
        if let Some((text, arrow)) = ARROWS.into_iter().find(|(text, _)| self.starts_with(text)) {
            self.at += text.len();
            return self.arrow(arrow);
        }
        match &token.kind {
            Kind::Space => self.space(),
            Kind::Char(c) if c.is_ascii_uppercase() => {
                let mut name = c.to_string();
                self.at += 1;
                if let Some(c) = self.char_at(0).filter(char::is_ascii_lowercase) {
                    name.push(c);
                    self.at += 1;
                }
                self.push(string(&name));
                self.follows_element = true;
            }
            Kind::Char(c) if c.is_ascii_digit() => self.number(),
            Kind::Char('+' | '-') if self.is_charge() => {
                let mut charge = String::new();
                while let Some(c) = self.char_at(0).filter(|c| matches!(c, '+' | '-')) {
                    charge.push_str(&literal(c));
                    self.at += 1;
                }
                self.attach(Some(charge), None);
            }
            Kind::Up | Kind::Down => return self.scripts(),
            Kind::Begin => return self.group(),
            Kind::Dollar => return self.math(token.place),
            Kind::Command(name) => {
                self.at += 1;
                let name = name.clone();
                // The command takes its arguments from what follows it within the braces.
                let rest = self.tokens.split_off(self.at);
                let mut inner = self.parser.inner(rest, token.place);
                let markup = inner.command(&name, token.place)?;
                self.tokens.extend(std::iter::from_fn(|| inner.input.next_raw()));
                self.parser.take_back(inner);
                self.push(markup);
                self.follows_element = true;
            }
            Kind::Char(c) => {
                self.at += 1;
                self.plain(*c);
            }
            Kind::End | Kind::Align | Kind::Argument(_) => {
                let text = format!("{} cannot stand in \\ce", token.text());
                return Err(LatexError::new(token.place, text));
            }
        }
        Ok(())
    }

    fn plain(&mut self, c: char) {
        let markup = match c {
            '*' | '.' => "⋅".to_owned(),
            '#' => "≡".to_owned(),
            '-' => "class(\"normal\",–)".to_owned(),
            '=' => "class(\"normal\",\\=)".to_owned(),
            c if c.is_alphabetic() => string(&c.to_string()),
            c => literal(c),
        };
        self.push(markup);
        self.follows_element = matches!(c, ')' | ']') || c.is_alphabetic();
    }

    fn space(&mut self) {
        self.at += 1;
        self.follows_element = false;
        // A sign between spaces adds substances.
        if matches!(self.char_at(0), Some('+' | '-'))
            && self.peek(1).is_none_or(|next| next.kind == Kind::Space)
        {
            let sign = self.char_at(0).map(literal).unwrap_or_default();
            self.at += 1;
            self.push(format!("class(\"binary\",{sign})"));
        } else if let Some(next) = self.char_at(0) {
            // A gas or a precipitate.
            if (next == '^' || next == 'v')
                && self.peek(1).is_none_or(|next| next.kind == Kind::Space)
            {
                self.at += 1;
                self.push("↓".to_owned());
            } else if self
                .parts
                .last()
                .is_some_and(|part| part.starts_with('"') || part.starts_with("attach"))
                && next.is_ascii_uppercase()
            {
                self.push("#h(0.3em)".to_owned());
            }
        } else if self.peek(0).is_some_and(|next| next.kind == Kind::Up)
            && self.peek(1).is_none_or(|next| next.kind == Kind::Space)
        {
            self.at += 1;
            self.push("↑".to_owned());
        }
    }

    fn number(&mut self) {
        let digits = self.digits();
        if self.follows_element {
            // A charge such as the `2-` of a part that ends here is written with a caret in mhchem.
            self.attach(None, Some(digits));
            return;
        }
        if self.char_at(0) == Some('/') && self.char_at(1).is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
            let below = self.digits();
            self.push(format!("inline(frac({digits},{below}))"));
        } else {
            self.push(digits);
        }
        self.push("#h(0.1em)".to_owned());
    }

    /// Whether signs are a charge: they follow an element and nothing follows them.
    fn is_charge(&self) -> bool {
        let mut ahead = 0;
        while matches!(self.char_at(ahead), Some('+' | '-')) {
            ahead += 1;
        }
        let ends = self.peek(ahead).is_none_or(|next| {
            matches!(next.kind, Kind::Space | Kind::Down | Kind::Char(')' | ']' | '(' | ','))
        });
        self.follows_element && ends
    }

    fn scripts(&mut self) -> Result<(), LatexError> {
        let (mut up, mut down) = (None, None);
        while let Some(token) =
            self.peek(0).cloned().filter(|token| matches!(token.kind, Kind::Up | Kind::Down))
        {
            self.at += 1;
            let script = self.script(&token)?;
            if token.kind == Kind::Up { up = Some(script) } else { down = Some(script) }
        }
        // Mass and atomic numbers stand before the element that follows.
        self.attach(up, down);
        self.follows_element = true;
        Ok(())
    }

    fn script(&mut self, sign: &Token) -> Result<String, LatexError> {
        let missing =
            || LatexError::new(sign.place, format!("nothing follows {} in \\ce", sign.text()));
        match self.peek(0).ok_or_else(missing)?.kind.clone() {
            Kind::Begin => {
                let tokens = self.taken_group();
                self.parser.translated(tokens, sign.place)
            }
            _ => {
                let mut text = self.digits();
                while let Some(c) = self.char_at(0).filter(|c| matches!(c, '+' | '-')) {
                    text.push_str(&literal(c));
                    self.at += 1;
                }
                if text.is_empty() {
                    let c = self.char_at(0).ok_or_else(missing)?;
                    self.at += 1;
                    text = literal(c);
                }
                Ok(text)
            }
        }
    }

    /// The tokens of a group that begins here.
    fn taken_group(&mut self) -> Vec<Token> {
        let mut depth = 0;
        let mut taken = Vec::new();
        while let Some(token) = self.peek(0).cloned() {
            self.at += 1;
            match token.kind {
                Kind::Begin => depth += 1,
                Kind::End => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            if depth > 1 || token.kind != Kind::Begin {
                taken.push(token);
            }
        }
        taken
    }

    fn group(&mut self) -> Result<(), LatexError> {
        let tokens = self.taken_group();
        let markup = self.parser.translated(tokens, self.place)?;
        self.push(markup);
        self.follows_element = true;
        Ok(())
    }

    fn math(&mut self, place: Place) -> Result<(), LatexError> {
        self.at += 1;
        let mut tokens = Vec::new();
        while let Some(token) = self.peek(0).cloned() {
            self.at += 1;
            if token.kind == Kind::Dollar {
                break;
            }
            tokens.push(token);
        }
        let markup = self.parser.translated(tokens, place)?;
        self.push(format!("italic({markup})"));
        self.follows_element = true;
        Ok(())
    }

    fn arrow(&mut self, arrow: char) -> Result<(), LatexError> {
        let mut texts = Vec::new();
        while texts.len() < 2 && self.char_at(0) == Some('[') {
            self.at += 1;
            let mut tokens = Vec::new();
            loop {
                let missing = || LatexError::new(self.place, "missing ] after an arrow in \\ce");
                let token = self.peek(0).cloned().ok_or_else(missing)?;
                self.at += 1;
                if token.kind == Kind::Char(']') {
                    break;
                }
                tokens.push(token);
            }
            texts.push(format!("upright({})", self.parser.translated(tokens, self.place)?));
        }
        let mut texts = texts.into_iter();
        let markup = match (texts.next(), texts.next()) {
            (Some(above), below) => stretched(arrow, &above, below.as_deref()),
            _ => format!("stretch({arrow},size:#2em)"),
        };
        self.push(format!("class(\"relation\",{markup})"));
        self.follows_element = false;
        Ok(())
    }
}
