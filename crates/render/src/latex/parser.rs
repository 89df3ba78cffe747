//! The translation of a formula.
//!
//! A list of atoms is read up to what ends it; each atom is markup of Typst that stands for itself. Scripts
//! and `\limits` change the atom before them.

use super::commands::switch;
use super::error::{LatexError, Place};
use super::macros::Input;
use super::markup::{colored, content, escaped, join, literal};
use super::symbols;
use super::tokens::{Kind, Token};
use crate::limits::NESTING_MAX;

/// What ended a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// The end of the source.
    Source,
    /// `}`
    Group,
    /// `&`
    Cell,
    /// `\\` or `\cr`
    Row,
    /// `\right`
    Right,
    /// `\end{…}`
    Environment(String),
    /// `]`
    Bracket,
    /// `$`
    Dollar,
}

/// One part of a list.
#[derive(Debug, Clone, Default)]
struct Atom {
    markup: String,
    /// Whether scripts were attached already: they cannot be attached twice.
    up: Option<String>,
    down: Option<String>,
}

impl Atom {
    fn new(markup: impl Into<String>) -> Self {
        Atom { markup: markup.into(), up: None, down: None }
    }

    fn finish(self) -> String {
        if self.up.is_none() && self.down.is_none() {
            return self.markup;
        }
        let base = if self.markup.is_empty() { "\"\"".to_owned() } else { self.markup };
        let mut text = format!("attach({base}");
        for (name, script) in [("t", self.up), ("b", self.down)] {
            if let Some(script) = script {
                text.push_str(&format!(",{name}: {}", content(script)));
            }
        }
        text.push(')');
        text
    }
}

pub(super) struct Parser {
    pub(super) input: Input,
    pub(super) depth: usize,
}

impl Parser {
    pub(super) fn new(tokens: Vec<Token>, first: Place) -> Self {
        Parser { input: Input::new(tokens, first), depth: 0 }
    }

    /// A parser of tokens that were taken out of this one.
    pub(super) fn formula(mut self) -> Result<String, LatexError> {
        // Dollar signs around the whole formula are a habit of many sources.
        let (markup, ended) = self.list()?;
        match ended {
            Ended::Source => Ok(markup),
            other => Err(self.unexpected(&other)),
        }
    }

    fn unexpected(&self, ended: &Ended) -> LatexError {
        let place = self.input.last_place();
        let text = match ended {
            Ended::Group => "} without a {".to_owned(),
            Ended::Cell => "& outside of an environment with columns".to_owned(),
            Ended::Row => "\\\\ outside of an environment with rows".to_owned(),
            Ended::Right => "\\right without \\left".to_owned(),
            Ended::Environment(name) => format!("\\end{{{name}}} without \\begin{{{name}}}"),
            Ended::Dollar => "$ within a formula".to_owned(),
            Ended::Bracket => "] where nothing was opened".to_owned(),
            Ended::Source => "the formula ends too early".to_owned(),
        };
        LatexError::new(place, text)
    }

    /// Reads atoms until something ends the list, and returns what did.
    pub(super) fn list(&mut self) -> Result<(String, Ended), LatexError> {
        self.list_until(false)
    }

    /// The same, where `]` ends the list, too.
    fn list_until(&mut self, ends_at_bracket: bool) -> Result<(String, Ended), LatexError> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            let text = format!("the formula is nested more than {NESTING_MAX} deep");
            return Err(LatexError::limit(self.input.place(), text));
        }
        let mut atoms: Vec<Atom> = Vec::new();
        let ended = loop {
            let Some(token) = self.input.next()? else { break Ended::Source };
            match token.kind {
                Kind::Space => {}
                Kind::End => break Ended::Group,
                Kind::Align => break Ended::Cell,
                Kind::Dollar => break Ended::Dollar,
                Kind::Char(']') if ends_at_bracket => break Ended::Bracket,
                Kind::Up | Kind::Down => self.script(&mut atoms, &token)?,
                Kind::Char('\'') => self.primes(&mut atoms, token.place)?,
                Kind::Argument(number) => {
                    let text = format!("#{number} outside of a macro");
                    return Err(LatexError::new(token.place, text));
                }
                Kind::Char(c) if c.is_ascii_digit() => atoms.push(Atom::new(self.number(c)?)),
                Kind::Char('~') => atoms.push(Atom::new("#h(0.333em)")),
                Kind::Char(c) => atoms.push(Atom::new(literal(c))),
                Kind::Begin => atoms.push(Atom::new(self.group(token.place, "{")?)),
                Kind::Command(ref name) => match name.as_str() {
                    "\\" | "cr" | "newline" => {
                        self.skip_row_options()?;
                        break Ended::Row;
                    }
                    "right" => break Ended::Right,
                    "end" => break Ended::Environment(self.name_argument("end", token.place)?),
                    "limits" | "nolimits" | "displaylimits" => {
                        change_limits(&mut atoms, name, token.place)?;
                    }
                    "over" | "atop" | "choose" | "above" => {
                        let (markup, ended) =
                            self.over(name, std::mem::take(&mut atoms), ends_at_bracket)?;
                        atoms.push(Atom::new(markup));
                        break ended;
                    }
                    name if switch(name).is_some()
                        || matches!(
                            name,
                            "color" | "rm" | "bf" | "it" | "sf" | "tt" | "cal" | "mit"
                        ) =>
                    {
                        let (markup, ended) = self.switched(name, token.place, ends_at_bracket)?;
                        atoms.push(Atom::new(markup));
                        break ended;
                    }
                    name => atoms.push(Atom::new(self.command(name, token.place)?)),
                },
            }
        };
        self.depth -= 1;
        Ok((join(atoms.into_iter().map(Atom::finish)), ended))
    }

    /// Digits, with a decimal point between them.
    pub(super) fn number(&mut self, first: char) -> Result<String, LatexError> {
        let mut number = first.to_string();
        loop {
            match self.input.peek()?.map(|token| token.kind.clone()) {
                Some(Kind::Char(c)) if c.is_ascii_digit() => {
                    number.push(c);
                    self.input.next_raw();
                }
                Some(Kind::Char('.')) if !number.contains('.') => {
                    let Some(point) = self.input.next_raw() else { return Ok(number) };
                    let next = self.input.peek()?.map(|token| token.kind.clone());
                    if matches!(next, Some(Kind::Char(c)) if c.is_ascii_digit()) {
                        number.push('.');
                    } else {
                        self.input.put_back(point);
                        return Ok(number);
                    }
                }
                _ => return Ok(number),
            }
        }
    }

    /// The rest of a group whose `{` was read.
    pub(super) fn group(&mut self, place: Place, after: &str) -> Result<String, LatexError> {
        match self.list()? {
            (markup, Ended::Group) => Ok(content(markup)),
            (_, Ended::Source) if after == "{" => Err(LatexError::new(place, "missing } after {")),
            (_, Ended::Source) => Err(LatexError::new(place, format!("missing }} after {after}"))),
            (_, Ended::Dollar) => Err(self.unexpected(&Ended::Dollar)),
            (_, other) => {
                let found = match other {
                    Ended::Cell => "&".to_owned(),
                    Ended::Row => "\\\\".to_owned(),
                    Ended::Right => "\\right".to_owned(),
                    Ended::Environment(name) => format!("\\end{{{name}}}"),
                    _ => "]".to_owned(),
                };
                Err(LatexError::new(place, format!("missing }} after {after}: found {found}")))
            }
        }
    }

    /// An argument of a command, translated.
    pub(super) fn argument(&mut self, name: &str, place: Place) -> Result<String, LatexError> {
        self.input.skip_spaces()?;
        let missing = || LatexError::new(place, format!("an argument of \\{name} is missing"));
        let token = self.input.next()?.ok_or_else(missing)?;
        match token.kind {
            Kind::Begin => self.group(token.place, &format!("\\{name}")),
            Kind::End | Kind::Align | Kind::Dollar => Err(missing()),
            Kind::Up | Kind::Down => {
                let text = format!("{} where an argument of \\{name} should be", token.text());
                Err(LatexError::new(token.place, text))
            }
            Kind::Char(c) => Ok(literal(c)),
            Kind::Command(inner) if matches!(inner.as_str(), "right" | "end" | "\\" | "cr") => {
                Err(missing())
            }
            Kind::Command(inner) => {
                self.deeper(token.place)?;
                let markup = self.command(&inner, token.place)?;
                self.depth -= 1;
                Ok(markup)
            }
            Kind::Space | Kind::Argument(_) => Err(missing()),
        }
    }

    pub(super) fn deeper(&mut self, place: Place) -> Result<(), LatexError> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            let text = format!("the formula is nested more than {NESTING_MAX} deep");
            return Err(LatexError::limit(place, text));
        }
        Ok(())
    }

    /// An argument in brackets, translated.
    pub(super) fn optional(&mut self, name: &str) -> Result<Option<String>, LatexError> {
        self.input.skip_spaces()?;
        if self.input.peek()?.is_none_or(|token| token.kind != Kind::Char('[')) {
            return Ok(None);
        }
        let place = self.input.place();
        self.input.next_raw();
        match self.list_until(true)? {
            (markup, Ended::Bracket) => Ok(Some(content(markup))),
            _ => Err(LatexError::new(place, format!("missing ] after \\{name}"))),
        }
    }

    /// An argument that is a name, such as that of an environment.
    pub(super) fn name_argument(&mut self, name: &str, place: Place) -> Result<String, LatexError> {
        let tokens = self.input.raw_argument(name, place)?;
        Ok(tokens.iter().map(Token::text).collect::<String>().trim().to_owned())
    }

    fn skip_row_options(&mut self) -> Result<(), LatexError> {
        if self.input.peek()?.is_some_and(|token| token.kind == Kind::Char('*')) {
            self.input.next_raw();
        }
        // `\\[2pt]`, but not a row that begins with an interval: a length follows at once.
        if self.input.peek()?.is_some_and(|token| token.kind == Kind::Char('[')) {
            let tokens = self.input.bracketed("\\")?.unwrap_or_default();
            let text: String = tokens.iter().map(Token::text).collect();
            let is_length = ["pt", "em", "ex", "mm", "cm", "in", "mu"]
                .iter()
                .any(|unit| text.trim().ends_with(unit))
                && text
                    .trim()
                    .trim_start_matches('-')
                    .starts_with(|c: char| c.is_ascii_digit() || c == '.');
            if !is_length {
                let place = self.input.last_place();
                let bracket = |c| Token { kind: Kind::Char(c), place };
                let mut again = vec![bracket('[')];
                again.extend(tokens);
                again.push(bracket(']'));
                self.input.put_all(again);
            }
        }
        Ok(())
    }

    fn script(&mut self, atoms: &mut Vec<Atom>, token: &Token) -> Result<(), LatexError> {
        let sign = token.text();
        self.input.skip_spaces()?;
        let is_missing = self.input.peek()?.is_none_or(|next| {
            matches!(next.kind, Kind::End | Kind::Up | Kind::Down | Kind::Align | Kind::Dollar)
        });
        if is_missing {
            return Err(LatexError::new(token.place, format!("nothing follows {sign}")));
        }
        let script = match self.input.next()? {
            Some(next) if next.kind == Kind::Begin => self.group(next.place, &sign)?,
            Some(Token { kind: Kind::Char(c), .. }) => literal(c),
            Some(Token { kind: Kind::Command(name), place }) => {
                self.deeper(place)?;
                let markup = self.command(&name, place)?;
                self.depth -= 1;
                markup
            }
            _ => return Err(LatexError::new(token.place, format!("nothing follows {sign}"))),
        };
        if atoms.is_empty() {
            atoms.push(Atom::default());
        }
        let Some(atom) = atoms.last_mut() else { return Ok(()) };
        let slot = if token.kind == Kind::Up { &mut atom.up } else { &mut atom.down };
        match slot {
            // A prime and then a superscript are one.
            Some(before) if token.kind == Kind::Up && before.starts_with('′') => {
                *before = join([std::mem::take(before), script]);
            }
            Some(_) => {
                return Err(LatexError::new(token.place, format!("a second {sign}; use braces")));
            }
            None => *slot = Some(script),
        }
        Ok(())
    }

    fn primes(&mut self, atoms: &mut Vec<Atom>, place: Place) -> Result<(), LatexError> {
        let mut count = 1;
        while self.input.peek()?.is_some_and(|token| token.kind == Kind::Char('\'')) {
            self.input.next_raw();
            count += 1;
        }
        if atoms.is_empty() {
            atoms.push(Atom::default());
        }
        let Some(atom) = atoms.last_mut() else { return Ok(()) };
        if atom.up.is_some() {
            return Err(LatexError::new(place, "a prime after a superscript; use braces"));
        }
        atom.up = Some(match count {
            1 => "′".to_owned(),
            2 => "″".to_owned(),
            3 => "‴".to_owned(),
            _ => "⁗".to_owned(),
        });
        // Both begin alike when a superscript follows.
        if let Some(up) = atom.up.as_mut().filter(|_| count > 1) {
            *up = vec!["′"; count].join("/**/");
        }
        Ok(())
    }

    /// `a \over b` and its relatives: everything before and after in the list.
    fn over(
        &mut self,
        name: &str,
        before: Vec<Atom>,
        ends_at_bracket: bool,
    ) -> Result<(String, Ended), LatexError> {
        let top = content(join(before.into_iter().map(Atom::finish)));
        let (bottom, ended) = self.list_until(ends_at_bracket)?;
        let bottom = content(bottom);
        let markup = match name {
            "choose" => format!("binom({top},{bottom})"),
            "atop" => format!("mat(delim:#none,row-gap:#0.3em,{top};{bottom})"),
            _ => format!("frac({top},{bottom})"),
        };
        Ok((markup, ended))
    }

    /// Commands that change everything up to the end of the list.
    fn switched(
        &mut self,
        name: &str,
        place: Place,
        ends_at_bracket: bool,
    ) -> Result<(String, Ended), LatexError> {
        let fill = if name == "color" { Some(self.color(name, place)?) } else { None };
        let (rest, ended) = self.list_until(ends_at_bracket)?;
        let rest = content(rest);
        let markup = match (name, fill) {
            (_, Some(fill)) => colored(&fill, &rest),
            ("rm", _) => format!("upright({rest})"),
            ("bf", _) => format!("upright(bold({rest}))"),
            ("it" | "mit", _) => format!("italic({rest})"),
            ("sf", _) => format!("sans({rest})"),
            ("tt", _) => format!("mono({rest})"),
            ("cal", _) => format!("cal({rest})"),
            (name, _) => format!("{}({rest})", switch(name).unwrap_or("inline")),
        };
        Ok((markup, ended))
    }

    pub(super) fn color(&mut self, name: &str, place: Place) -> Result<String, LatexError> {
        let model = self.input.bracketed(name)?;
        let model: Option<String> = model.map(|tokens| tokens.iter().map(Token::text).collect());
        let color = self.name_argument(name, place)?;
        let hex = match model.as_deref() {
            Some("HTML") => Some(color.clone()),
            _ => color.strip_prefix('#').map(str::to_owned),
        };
        if let Some(hex) = hex
            && matches!(hex.len(), 3 | 6)
            && hex.chars().all(|c| c.is_ascii_hexdigit())
        {
            return Ok(format!("rgb(\"#{hex}\")"));
        }
        // The values of xcolor.
        let known = match color.as_str() {
            "black" => "#000000",
            "blue" => "#0000ff",
            "brown" => "#bf8040",
            "cyan" => "#00ffff",
            "darkgray" => "#404040",
            "gray" => "#808080",
            "green" => "#00ff00",
            "lightgray" => "#bfbfbf",
            "lime" => "#bfff00",
            "magenta" => "#ff00ff",
            "olive" => "#808000",
            "orange" => "#ff8000",
            "pink" => "#ffbfbf",
            "purple" => "#bf0040",
            "red" => "#ff0000",
            "teal" => "#008080",
            "violet" => "#800080",
            "white" => "#ffffff",
            "yellow" => "#ffff00",
            _ => {
                return Err(LatexError::new(
                    place,
                    format!("\\{name} does not know the color {color:?}"),
                ));
            }
        };
        Ok(format!("rgb(\"{known}\")"))
    }

    /// A delimiter after `\left`, `\big` and the like. Empty for `.`.
    pub(super) fn delimiter(&mut self, name: &str, place: Place) -> Result<String, LatexError> {
        self.input.skip_spaces()?;
        let missing = || LatexError::new(place, format!("\\{name} has no delimiter"));
        let token = self.input.next()?.ok_or_else(missing)?;
        let c = match &token.kind {
            Kind::Char('.') => return Ok(String::new()),
            Kind::Char(c) if "()[]|/".contains(*c) => *c,
            Kind::Char('<') => '⟨',
            Kind::Char('>') => '⟩',
            Kind::Command(name) if matches!(name.as_str(), "{" | "lbrace") => '{',
            Kind::Command(name) if matches!(name.as_str(), "}" | "rbrace") => '}',
            Kind::Command(name) if name == "|" => '‖',
            Kind::Command(name) => {
                let found = symbols::character(name)
                    .filter(|c| "[]⟨⟩⌈⌉⌊⌋|‖⟮⟯⎰⎱⌜⌝⌞⌟\\⟦⟧↑↓↕⇑⇓⇕{}".contains(*c));
                found.ok_or_else(|| {
                    LatexError::new(token.place, format!("\\{name} is not a delimiter"))
                })?
            }
            _ => {
                return Err(LatexError::new(
                    token.place,
                    format!("{} is not a delimiter", token.text()),
                ));
            }
        };
        Ok(escaped(c))
    }

    /// `\left … \right`, after `\left`.
    pub(super) fn left(&mut self, place: Place) -> Result<String, LatexError> {
        let open = self.delimiter("left", place)?;
        let (inner, ended) = self.list()?;
        if ended != Ended::Right {
            return Err(LatexError::new(place, "\\left without \\right"));
        }
        let close_place = self.input.last_place();
        let close = self.delimiter("right", close_place)?;
        // Without a delimiter of its own, an inner one at the edge would grow instead.
        let guard =
            |delimiter: String| if delimiter.is_empty() { "#box()".to_owned() } else { delimiter };
        Ok(format!("lr({})", join([guard(open), inner, guard(close)])))
    }

    /// A parser of tokens that were read as they are. It has the macros of this one until [`Self::take_back`].
    pub(super) fn inner(&mut self, tokens: Vec<Token>, place: Place) -> Parser {
        let outer = std::mem::replace(&mut self.input, Input::new(Vec::new(), place));
        Parser { input: outer.enter(tokens, place), depth: self.depth }
    }

    /// Ends [`Self::inner`].
    pub(super) fn take_back(&mut self, inner: Parser) {
        self.input = inner.input.leave();
    }

    /// Translates tokens that were read as they are.
    pub(super) fn translated(
        &mut self,
        tokens: Vec<Token>,
        place: Place,
    ) -> Result<String, LatexError> {
        let mut inner = self.inner(tokens, place);
        let (markup, ended) = inner.list()?;
        if ended != Ended::Source {
            return Err(inner.unexpected(&ended));
        }
        self.take_back(inner);
        Ok(content(markup))
    }
}

fn change_limits(atoms: &mut [Atom], name: &str, place: Place) -> Result<(), LatexError> {
    let atom = atoms.last_mut();
    let atom =
        atom.ok_or_else(|| LatexError::new(place, format!("\\{name} has no operator before it")))?;
    match name {
        "limits" => atom.markup = format!("limits({})", atom.markup),
        "nolimits" => atom.markup = format!("scripts({})", atom.markup),
        _ => {}
    }
    Ok(())
}
