//! Macros that formulas define, and the input of the parser: tokens after expansion.

use std::collections::BTreeMap;

use super::error::{LatexError, Place};
use super::tokens::{Kind, Token};
use crate::limits::{EXPANDED_TOKENS_MAX, EXPANSIONS_MAX, MACROS_MAX};

/// A macro.
#[derive(Debug, Clone)]
struct Macro {
    arguments: usize,
    /// The value of the first argument if none is given in brackets.
    default: Option<Vec<Token>>,
    body: Vec<Token>,
}

/// What is still to be read.
pub(super) struct Input {
    /// The next token is the last one.
    rest: Vec<Token>,
    macros: BTreeMap<String, Macro>,
    expansions: usize,
    produced: usize,
    /// Where the source ends.
    end: Place,
    /// The place of the token that was read last.
    last: Place,
    /// What is read after this.
    outer: Vec<(Vec<Token>, Place)>,
}

impl Input {
    pub(super) fn new(mut tokens: Vec<Token>, first: Place) -> Self {
        let end = tokens.last().map_or(first, |token| token.place);
        tokens.reverse();
        Input {
            rest: tokens,
            macros: BTreeMap::new(),
            expansions: 0,
            produced: 0,
            end,
            last: first,
            outer: Vec::new(),
        }
    }

    /// Reads other tokens first, with the same macros and the same bounds, until [`Self::leave`].
    pub(super) fn enter(mut self, mut tokens: Vec<Token>, place: Place) -> Self {
        let end = tokens.last().map_or(place, |token| token.place);
        tokens.reverse();
        let mut inner = Input::new(Vec::new(), place);
        inner.macros = std::mem::take(&mut self.macros);
        (inner.expansions, inner.produced) = (self.expansions, self.produced);
        (inner.rest, inner.end) = (tokens, end);
        inner.outer = std::mem::take(&mut self.outer);
        inner.outer.push((self.rest, self.end));
        inner
    }

    /// Returns to what was read before [`Self::enter`].
    pub(super) fn leave(mut self) -> Self {
        if let Some((rest, end)) = self.outer.pop() {
            (self.rest, self.end) = (rest, end);
        }
        self
    }

    /// The place of what comes next.
    pub(super) fn place(&self) -> Place {
        self.rest.last().map_or(self.end, |token| token.place)
    }

    /// The place of what was read last.
    pub(super) fn last_place(&self) -> Place {
        self.last
    }

    /// Reads a token as it is.
    pub(super) fn next_raw(&mut self) -> Option<Token> {
        let token = self.rest.pop()?;
        self.last = token.place;
        Some(token)
    }

    /// Puts a token back.
    pub(super) fn put_back(&mut self, token: Token) {
        self.rest.push(token);
    }

    /// Puts tokens in front of what is left.
    pub(super) fn put_all(&mut self, tokens: Vec<Token>) {
        self.rest.extend(tokens.into_iter().rev());
    }

    /// Looks at the next token, with macros expanded.
    pub(super) fn peek(&mut self) -> Result<Option<&Token>, LatexError> {
        self.expand()?;
        Ok(self.rest.last())
    }

    /// Reads the next token, with macros expanded.
    pub(super) fn next(&mut self) -> Result<Option<Token>, LatexError> {
        self.expand()?;
        Ok(self.next_raw())
    }

    pub(super) fn skip_spaces(&mut self) -> Result<(), LatexError> {
        while self.peek()?.is_some_and(|token| token.kind == Kind::Space) {
            self.next_raw();
        }
        Ok(())
    }

    /// Replaces macros at the front until none is left there.
    fn expand(&mut self) -> Result<(), LatexError> {
        loop {
            let Some(Token { kind: Kind::Command(name), place }) = self.rest.last() else {
                return Ok(());
            };
            let (name, place) = (name.clone(), *place);
            if let Some(found) = self.macros.get(&name) {
                let found = found.clone();
                self.next_raw();
                self.replace(&name, &found, place)?;
            } else if !self.define(&name, place)? {
                return Ok(());
            }
        }
    }

    fn replace(&mut self, name: &str, found: &Macro, place: Place) -> Result<(), LatexError> {
        let mut arguments = Vec::new();
        if let Some(default) = &found.default {
            arguments.push(self.bracketed(name)?.unwrap_or_else(|| default.clone()));
        }
        while arguments.len() < found.arguments {
            arguments.push(self.raw_argument(name, place)?);
        }
        let mut tokens = Vec::new();
        for token in &found.body {
            match &token.kind {
                Kind::Argument(number) => {
                    let given = arguments.get(number - 1).ok_or_else(|| {
                        LatexError::new(place, format!("\\{name} has no argument #{number}"))
                    })?;
                    tokens.extend(given.iter().cloned());
                }
                // What a macro produces is where the macro is.
                kind => tokens.push(Token { kind: kind.clone(), place }),
            }
        }
        self.expansions += 1;
        self.produced += tokens.len();
        if self.expansions > EXPANSIONS_MAX || self.produced > EXPANDED_TOKENS_MAX {
            let text = format!(
                "\\{name} does not stop expanding: more than {EXPANSIONS_MAX} macros or {EXPANDED_TOKENS_MAX} tokens"
            );
            return Err(LatexError::limit(place, text));
        }
        self.put_all(tokens);
        Ok(())
    }

    /// Reads a definition, if the command makes one.
    fn define(&mut self, name: &str, place: Place) -> Result<bool, LatexError> {
        match name {
            "newcommand" | "renewcommand" | "providecommand" | "newcommand*" => {
                self.next_raw();
                self.new_command(name, place)?;
            }
            "def" | "gdef" => {
                self.next_raw();
                self.def(name, place)?;
            }
            "let" => {
                self.next_raw();
                self.let_command(place)?;
            }
            "DeclareMathOperator" | "DeclareMathOperator*" => {
                self.next_raw();
                let command = self.command_name(name, place)?;
                let body = self.raw_argument(name, place)?;
                let star = if name.ends_with('*') { "*" } else { "" };
                let mut tokens =
                    vec![Token { kind: Kind::Command(format!("operatorname{star}")), place }];
                tokens.push(Token { kind: Kind::Begin, place });
                tokens.extend(body);
                tokens.push(Token { kind: Kind::End, place });
                self.store(command, Macro { arguments: 0, default: None, body: tokens }, place)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn store(&mut self, name: String, made: Macro, place: Place) -> Result<(), LatexError> {
        if self.macros.len() >= MACROS_MAX {
            return Err(LatexError::limit(
                place,
                format!("more than {MACROS_MAX} macros are defined"),
            ));
        }
        self.macros.insert(name, made);
        Ok(())
    }

    fn new_command(&mut self, name: &str, place: Place) -> Result<(), LatexError> {
        let command = self.command_name(name, place)?;
        let count = self.bracketed(name)?;
        let arguments = match count {
            None => 0,
            Some(tokens) => {
                let text: String = tokens.iter().map(Token::text).collect();
                let number = text.trim().parse::<usize>().ok().filter(|number| *number <= 9);
                number.ok_or_else(|| LatexError::new(place, format!("\\{name}{{\\{command}}} has {text:?} arguments; it must be a number up to 9")))?
            }
        };
        let default = self.bracketed(name)?;
        let body = self.raw_argument(name, place)?;
        self.store(command, Macro { arguments, default, body }, place)
    }

    fn def(&mut self, name: &str, place: Place) -> Result<(), LatexError> {
        let command = self.command_name(name, place)?;
        let mut arguments = 0;
        loop {
            match self.rest.last().map(|token| &token.kind) {
                Some(Kind::Argument(number)) if *number == arguments + 1 => {
                    arguments += 1;
                    self.next_raw();
                }
                Some(Kind::Space) => {
                    self.next_raw();
                }
                Some(Kind::Begin) => break,
                _ => {
                    let text = format!(
                        "\\{name}\\{command} must be followed by its arguments #1#2… and a body in braces"
                    );
                    return Err(LatexError::new(place, text));
                }
            }
        }
        let body = self.raw_argument(name, place)?;
        self.store(command, Macro { arguments, default: None, body }, place)
    }

    fn let_command(&mut self, place: Place) -> Result<(), LatexError> {
        let command = self.command_name("let", place)?;
        while self
            .rest
            .last()
            .is_some_and(|token| matches!(token.kind, Kind::Space | Kind::Char('=')))
        {
            self.next_raw();
        }
        let missing = || LatexError::new(place, format!("\\let\\{command} has no value"));
        let value = self.next_raw().ok_or_else(missing)?;
        let copied = match &value.kind {
            Kind::Command(name) => self.macros.get(name).cloned(),
            _ => None,
        };
        let made = copied.unwrap_or(Macro { arguments: 0, default: None, body: vec![value] });
        self.store(command, made, place)
    }

    /// The name of the command that is defined, in braces or not.
    fn command_name(&mut self, name: &str, place: Place) -> Result<String, LatexError> {
        let tokens = self.raw_argument(name, place)?;
        match tokens.as_slice() {
            [Token { kind: Kind::Command(command), .. }] => Ok(command.clone()),
            _ => Err(LatexError::new(place, format!("\\{name} must name a command"))),
        }
    }

    /// Tokens in brackets, if they come next.
    pub(super) fn bracketed(&mut self, name: &str) -> Result<Option<Vec<Token>>, LatexError> {
        while self.rest.last().is_some_and(|token| token.kind == Kind::Space) {
            self.next_raw();
        }
        let Some(Token { kind: Kind::Char('['), place }) = self.rest.last() else {
            return Ok(None);
        };
        let place = *place;
        self.next_raw();
        let mut depth = 0;
        let mut tokens = Vec::new();
        loop {
            let token = self.next_raw();
            let token =
                token.ok_or_else(|| LatexError::new(place, format!("missing ] after \\{name}")))?;
            match token.kind {
                Kind::Char(']') if depth == 0 => return Ok(Some(tokens)),
                Kind::Begin => depth += 1,
                Kind::End if depth == 0 => {
                    return Err(LatexError::new(place, format!("missing ] after \\{name}")));
                }
                Kind::End => depth -= 1,
                _ => {}
            }
            tokens.push(token);
        }
    }

    /// An argument as it is written: a group without its braces, or one token.
    pub(super) fn raw_argument(
        &mut self,
        name: &str,
        place: Place,
    ) -> Result<Vec<Token>, LatexError> {
        while self.rest.last().is_some_and(|token| token.kind == Kind::Space) {
            self.next_raw();
        }
        let missing = || LatexError::new(place, format!("an argument of \\{name} is missing"));
        let first = self.next_raw().ok_or_else(missing)?;
        match first.kind {
            Kind::Begin => {}
            Kind::End => return Err(missing()),
            _ => return Ok(vec![first]),
        }
        let mut depth = 0;
        let mut tokens = Vec::new();
        loop {
            let unclosed = || LatexError::new(first.place, format!("missing }} after \\{name}"));
            let token = self.next_raw().ok_or_else(unclosed)?;
            match token.kind {
                Kind::Begin => depth += 1,
                Kind::End if depth == 0 => return Ok(tokens),
                Kind::End => depth -= 1,
                _ => {}
            }
            tokens.push(token);
        }
    }
}
