//! What the commands of LaTeX mean.

use super::error::{LatexError, Place};
use super::markup::{colored, content, escaped, join, literal, stretched, string};
use super::parser::Parser;
use super::tokens::{Kind, Token};
use super::{chemistry, diagrams, environments, symbols};
use crate::limits::NESTING_MAX;

impl Parser {
    /// Any other command. Returns its markup.
    pub(super) fn command(&mut self, name: &str, place: Place) -> Result<String, LatexError> {
        if let Some(c) = symbols::character(name) {
            return Ok(symbol(name, c));
        }
        if let Some((text, has_limits)) = symbols::operator(name) {
            let limits = if has_limits { ",limits:#true" } else { "" };
            return Ok(format!("op(\"{text}\"{limits})"));
        }
        if let Some(mark) = symbols::accent(name) {
            let base = self.argument(name, place)?;
            return Ok(format!("accent({base},\"{mark}\")"));
        }
        if let Some(function) = style(name) {
            let body = self.argument(name, place)?;
            return Ok(function.replace('*', &body));
        }
        if let Some(space) = space(name) {
            return Ok(space.to_owned());
        }
        if let Some((size, class)) = big(name) {
            let delimiter = self.delimiter(name, place)?;
            if delimiter.is_empty() {
                return Ok("#box()".to_owned());
            }
            return Ok(format!("class(\"{class}\",lr(size:#{size}em,{delimiter}))"));
        }
        self.structure(name, place)
    }

    /// Commands with a structure of their own.
    fn structure(&mut self, name: &str, place: Place) -> Result<String, LatexError> {
        Ok(match name {
            "frac" | "dfrac" | "tfrac" | "cfrac" => {
                if name == "cfrac" {
                    self.input.bracketed(name)?;
                }
                let (top, bottom) = (self.argument(name, place)?, self.argument(name, place)?);
                match name {
                    "frac" => format!("frac({top},{bottom})"),
                    "tfrac" => format!("inline(frac({top},{bottom}))"),
                    "dfrac" => format!("display(frac({top},{bottom}))"),
                    _ => format!("display(frac(display({top}),display({bottom})))"),
                }
            }
            "binom" | "dbinom" | "tbinom" => {
                let (top, bottom) = (self.argument(name, place)?, self.argument(name, place)?);
                match name {
                    "binom" => format!("binom({top},{bottom})"),
                    "tbinom" => format!("inline(binom({top},{bottom}))"),
                    _ => format!("display(binom({top},{bottom}))"),
                }
            }
            "genfrac" => return self.generic_fraction(place),
            "sqrt" => match self.optional(name)? {
                Some(index) => format!("root({index},{})", self.argument(name, place)?),
                None => format!("sqrt({})", self.argument(name, place)?),
            },
            "left" => self.left(place)?,
            "middle" => {
                let delimiter = self.delimiter(name, place)?;
                format!("mid({})", content(delimiter))
            }
            "begin" => {
                self.deeper(place)?;
                let markup = environments::environment(self, place)?;
                self.depth -= 1;
                markup
            }
            "intertext" => self.text(name, place)?,
            font if is_text_font(font) => self.text(name, place)?,
            "operatorname" | "operatorname*" => {
                let body = self.argument(name, place)?;
                let limits = if name.ends_with('*') { ",limits:#true" } else { "" };
                format!("op(upright({body}){limits})")
            }
            "overset" | "stackrel" => {
                let (above, base) = (self.argument(name, place)?, self.argument(name, place)?);
                format!("attach(limits({base}),t:{above})")
            }
            "underset" => {
                let (below, base) = (self.argument(name, place)?, self.argument(name, place)?);
                format!("attach(limits({base}),b:{below})")
            }
            "sideset" | "smash" | "char" | "symbol" => {
                return Err(LatexError::new(place, format!("\\{name} is not supported")));
            }
            "hline" => {
                return Err(LatexError::new(place, "\\hline is not at the start of a row"));
            }
            "xrightarrow" | "xleftarrow" | "xleftrightarrow" | "xRightarrow" | "xLeftarrow"
            | "xmapsto" | "xhookrightarrow" | "xrightleftharpoons" => {
                let below = self.optional(name)?;
                let above = self.argument(name, place)?;
                let arrow = match name {
                    "xrightarrow" => '→',
                    "xleftarrow" => '←',
                    "xleftrightarrow" => '↔',
                    "xRightarrow" => '⇒',
                    "xLeftarrow" => '⇐',
                    "xhookrightarrow" => '↪',
                    "xrightleftharpoons" => '⇌',
                    _ => '↦',
                };
                stretched(arrow, &above, below.as_deref())
            }
            "substack" => {
                let tokens = self.input.raw_argument(name, place)?;
                let mut inner = self.inner(tokens, place);
                let rows = environments::rows(&mut inner, None)?;
                self.take_back(inner);
                // It is used below operators, and the cells of a matrix would be smaller still.
                let row = |row: Vec<String>| format!("script({})", content(join(row)));
                let rows: Vec<String> = rows.into_iter().map(row).collect();
                format!("mat(delim:#none,row-gap:#0.25em,{})", rows.join(";"))
            }
            "not" => self.negation(place)?,
            "textcolor" => {
                let fill = self.color(name, place)?;
                let body = self.argument(name, place)?;
                colored(&fill, &body)
            }
            "boxed" | "fbox" => {
                let body = if name == "fbox" {
                    self.text(name, place)?
                } else {
                    self.argument(name, place)?
                };
                format!("#box(stroke:0.04em,inset:0.3em,baseline:0.3em,$display({body})$)")
            }
            "phantom" => format!("#hide($display({})$)", self.argument(name, place)?),
            "hphantom" => {
                format!("#context h(measure($display({})$).width)", self.argument(name, place)?)
            }
            // The inner box keeps its content in one line.
            "vphantom" => {
                format!("#box(width:0pt,box(hide($display({})$)))", self.argument(name, place)?)
            }
            "mathstrut" | "strut" => "#box(width:0pt,hide($\\($))".to_owned(),
            "pmod" | "pod" => {
                let body = self.argument(name, place)?;
                let word = if name == "pmod" { "\"mod\"#h(0.3em)" } else { "" };
                format!("#h(1em)\\({word}{body}\\)")
            }
            "bmod" => "class(\"binary\",\"mod\")".to_owned(),
            "mod" => format!("#h(1em)\"mod\"#h(0.3em){}", self.argument(name, place)?),
            "tag" | "tag*" => {
                let text = self.name_argument(name, place)?;
                let text = if name == "tag" { format!("({text})") } else { text };
                format!("#h(2em){}", string(&text))
            }
            "label" | "nonumber" | "notag" | "displaybreak" | "allowbreak" | "nobreak"
            | "relax" | "centering" | "protect" => {
                if name == "label" {
                    self.input.raw_argument(name, place)?;
                }
                String::new()
            }
            "hspace" | "hspace*" | "kern" | "mkern" | "mskip" | "hskip" => {
                self.length(name, place)?
            }
            "bra" => format!("lr(\\⟨{}\\|)", self.argument(name, place)?),
            "ket" => format!("lr(\\|{}\\⟩)", self.argument(name, place)?),
            "braket" => format!("lr(\\⟨{}\\⟩)", self.argument(name, place)?),
            "abs" => format!("lr(\\|{}\\|)", self.argument(name, place)?),
            "norm" => format!("lr(‖{}‖)", self.argument(name, place)?),
            "ce" => chemistry::formula(self, place)?,
            "#" | "%" | "&" | "_" | "$" | "{" | "}" => format!("\\{name}"),
            "|" => "‖".to_owned(),
            "colon" => "class(\"punctuation\",\\:)".to_owned(),
            "-" => String::new(),
            "(" | ")" | "[" | "]" => {
                return Err(LatexError::new(
                    place,
                    format!("\\{name} starts or ends a formula; this is one already"),
                ));
            }
            name if diagrams::is_arrow(name) => {
                return Err(LatexError::new(
                    place,
                    format!("\\{name} outside of \\begin{{tikzcd}}"),
                ));
            }
            name if FORBIDDEN.contains(&name) => {
                let text = format!(
                    "\\{name} is not allowed: a formula reads no files, writes nothing and cannot change how TeX works"
                );
                return Err(LatexError::new(place, text));
            }
            name => return Err(LatexError::new(place, format!("unknown command \\{name}"))),
        })
    }

    fn generic_fraction(&mut self, place: Place) -> Result<String, LatexError> {
        let name = "genfrac";
        let mut delimiters = Vec::new();
        for _ in 0..2 {
            let tokens = self.input.raw_argument(name, place)?;
            if tokens.is_empty() {
                delimiters.push("#box()".to_owned());
                continue;
            }
            let mut inner = self.inner(tokens, place);
            delimiters.push(inner.delimiter(name, place)?);
            self.take_back(inner);
        }
        let thickness = self.name_argument(name, place)?;
        let style = self.name_argument(name, place)?;
        let (top, bottom) = (self.argument(name, place)?, self.argument(name, place)?);
        let digits = thickness.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
        let body = if digits.is_empty() {
            format!("frac({top},{bottom})")
        } else if digits.trim().parse() == Ok(0.0) {
            format!("mat(delim:#none,row-gap:#0.3em,{top};{bottom})")
        } else {
            let text = format!("\\genfrac with a line of {thickness}; it may be 0pt or not given");
            return Err(LatexError::new(place, text));
        };
        let markup = format!("lr({})", join([delimiters.remove(0), body, delimiters.remove(0)]));
        Ok(match style.as_str() {
            "0" => format!("display({markup})"),
            "1" => format!("inline({markup})"),
            "2" => format!("script({markup})"),
            "3" => format!("sscript({markup})"),
            _ => markup,
        })
    }

    fn negation(&mut self, place: Place) -> Result<String, LatexError> {
        self.input.skip_spaces()?;
        let missing = || LatexError::new(place, "\\not has nothing to negate");
        let token = self.input.next()?.ok_or_else(missing)?;
        let c = match &token.kind {
            Kind::Char(c) => *c,
            Kind::Command(name) => symbols::character(name).ok_or_else(missing)?,
            _ => return Err(missing()),
        };
        Ok(match symbols::negated(c) {
            Some(negated) => negated.to_string(),
            None => format!("cancel({})", literal(c)),
        })
    }

    /// A length such as `2em` or `3mu`, as space.
    fn length(&mut self, name: &str, place: Place) -> Result<String, LatexError> {
        let is_braced = name.starts_with("hspace");
        let text = if is_braced {
            self.name_argument(name, place)?
        } else {
            let mut text = String::new();
            while let Some(Kind::Char(c)) = self.input.peek()?.map(|token| token.kind.clone()) {
                if !(c.is_ascii_alphanumeric() || c == '.' || c == '-')
                    || text.ends_with(|c: char| c.is_ascii_alphabetic())
                        && text.chars().rev().take_while(char::is_ascii_alphabetic).count() >= 2
                {
                    break;
                }
                text.push(c);
                self.input.next_raw();
            }
            text
        };
        let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let number = number.trim().parse::<f64>().ok().filter(|number| number.abs() <= 1000.0);
        let (factor, unit) = match unit.trim() {
            "em" => (1.0, "em"),
            "ex" => (0.43, "em"),
            "mu" => (1.0 / 18.0, "em"),
            "pt" => (1.0, "pt"),
            "mm" => (1.0, "mm"),
            "cm" => (1.0, "cm"),
            "in" => (1.0, "in"),
            _ => (0.0, ""),
        };
        match number {
            Some(number) if !unit.is_empty() => Ok(format!("#h({:.4}{unit})", number * factor)),
            _ => Err(LatexError::new(place, format!("\\{name} has no length: {text:?}"))),
        }
    }

    /// `\text{…}` and its relatives, in which `$` starts a formula.
    pub(super) fn text(&mut self, name: &str, place: Place) -> Result<String, LatexError> {
        let tokens = self.input.raw_argument(name, place)?;
        self.text_of(name, tokens, place)
    }

    /// Tokens as text, in the font of the command `name`.
    fn text_of(
        &mut self,
        name: &str,
        tokens: Vec<Token>,
        place: Place,
    ) -> Result<String, LatexError> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            let text = format!("the formula is nested more than {NESTING_MAX} deep");
            return Err(LatexError::limit(place, text));
        }
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut tokens = tokens.into_iter();
        while let Some(token) = tokens.next() {
            match &token.kind {
                Kind::Dollar => {
                    let inside: Vec<Token> =
                        tokens.by_ref().take_while(|token| token.kind != Kind::Dollar).collect();
                    parts.push(words(&std::mem::take(&mut plain)));
                    parts.push(format!("inline({})", self.translated(inside, token.place)?));
                }
                Kind::Command(command) => match command.as_str() {
                    " " | "," | ";" | ":" | "quad" => plain.push(' '),
                    "#" | "%" | "&" | "_" | "$" | "{" | "}" => plain.push_str(command),
                    "textbackslash" | "backslash" => plain.push('\\'),
                    "-" | "/" | "@" => {}
                    inner if is_text_font(inner) => {
                        let group = group(&mut tokens);
                        parts.push(words(&std::mem::take(&mut plain)));
                        parts.push(self.text_of(inner, group, token.place)?);
                    }
                    other => match symbols::character(other) {
                        Some(c) => plain.push(c),
                        None => {
                            let text = format!(
                                "\\{other} cannot stand in \\{name}; put it between dollar signs"
                            );
                            return Err(LatexError::new(token.place, text));
                        }
                    },
                },
                Kind::Begin | Kind::End => {}
                Kind::Char('`') => plain.push('‘'),
                Kind::Char('\'') => plain.push('’'),
                Kind::Char('-') => plain.push('-'),
                _ => plain.push_str(&token.text()),
            }
        }
        self.depth -= 1;
        parts.push(words(&plain));
        let markup = content(join(parts.into_iter().filter(|part| part != "\"\"")));
        Ok(match name {
            "textbf" => format!("bold({markup})"),
            "textit" | "emph" => format!("italic({markup})"),
            "texttt" => format!("mono({markup})"),
            "textsf" => format!("sans({markup})"),
            // Strings are upright, and formulas in between are not.
            _ => markup,
        })
    }
}

/// Whether a command sets its argument as text.
fn is_text_font(name: &str) -> bool {
    matches!(
        name,
        "text"
            | "textrm"
            | "textnormal"
            | "mbox"
            | "hbox"
            | "textup"
            | "textbf"
            | "textit"
            | "emph"
            | "texttt"
            | "textsf"
    )
}

/// The tokens of the group that follows, without its braces, or the one token that does.
fn group(tokens: &mut impl Iterator<Item = Token>) -> Vec<Token> {
    let mut found = Vec::new();
    let mut depth = 0;
    for token in tokens {
        match token.kind {
            Kind::Space if depth == 0 => continue,
            Kind::Begin => depth += 1,
            Kind::End => depth -= 1,
            _ => {}
        }
        let is_brace = matches!(token.kind, Kind::Begin if depth == 1)
            || matches!(token.kind, Kind::End if depth <= 0);
        if !is_brace {
            found.push(token);
        }
        if depth <= 0 {
            break;
        }
    }
    found
}

/// Text as a string, with the quotes and dashes of TeX.
fn words(plain: &str) -> String {
    let text = plain.replace("‘‘", "“").replace("’’", "”").replace("---", "—").replace("--", "–");
    string(&text)
}

/// The markup of a command that is one character. Some have another class than Unicode says.
fn symbol(name: &str, c: char) -> String {
    let markup = escaped(c);
    let class = match name {
        "mid" | "shortmid" | "parallel" | "perp" => "relation",
        "setminus" | "smallsetminus" | "star" | "ast" | "dagger" | "ddagger" | "amalg"
        | "bigcirc" | "triangleleft" | "triangleright" => "binary",
        "lvert" | "lVert" => "opening",
        "rvert" | "rVert" => "closing",
        "vert" | "Vert" | "backslash" | "triangle" | "angle" | "square" | "Box" => "normal",
        _ => return markup,
    };
    format!("class(\"{class}\",{markup})")
}

/// Functions of Typst that change the rest of a list.
pub(super) fn switch(name: &str) -> Option<&'static str> {
    Some(match name {
        "displaystyle" => "display",
        "textstyle" => "inline",
        "scriptstyle" => "script",
        "scriptscriptstyle" => "sscript",
        "boldmath" => "bold",
        _ => return None,
    })
}

/// Commands with one argument that are a function of Typst: the argument replaces the star.
fn style(name: &str) -> Option<&'static str> {
    Some(match name {
        "mathrm" | "mathup" | "symrm" => "upright(*)",
        "mathbf" | "symbf" => "upright(bold(*))",
        "boldsymbol" | "bm" | "pmb" | "mathbfit" => "bold(*)",
        "mathit" => "italic(*)",
        "mathnormal" => "italic(*)",
        "mathcal" => "cal(*)",
        "mathscr" => "scr(*)",
        "mathfrak" => "frak(*)",
        "mathbb" | "Bbb" => "bb(*)",
        "mathsf" => "upright(sans(*))",
        "mathtt" => "mono(*)",
        "overline" => "overline(*)",
        "underline" | "underbar" => "underline(*)",
        "overbrace" => "limits(overbrace(*))",
        "underbrace" => "limits(underbrace(*))",
        "overbracket" => "limits(overbracket(*))",
        "underbracket" => "limits(underbracket(*))",
        "overparen" => "overparen(*)",
        "underparen" => "underparen(*)",
        "cancel" => "cancel(*)",
        "bcancel" => "cancel(inverted:#true,*)",
        "xcancel" => "cancel(cross:#true,*)",
        "mathop" => "limits(class(\"large\",*))",
        "mathbin" => "class(\"binary\",*)",
        "mathrel" => "class(\"relation\",*)",
        "mathord" => "class(\"normal\",*)",
        "mathopen" => "class(\"opening\",*)",
        "mathclose" => "class(\"closing\",*)",
        "mathpunct" => "class(\"punctuation\",*)",
        "mathinner" => "class(\"normal\",*)",
        "ensuremath" => "*",
        "underrightarrow" => "attach(limits(*),b:stretch(→))",
        "underleftarrow" => "attach(limits(*),b:stretch(←))",
        _ => return None,
    })
}

fn space(name: &str) -> Option<&'static str> {
    Some(match name {
        "," | "thinspace" => "#h(0.1667em)",
        ":" | ">" | "medspace" => "#h(0.2222em)",
        ";" | "thickspace" => "#h(0.2778em)",
        "!" | "negthinspace" => "#h(-0.1667em)",
        "negmedspace" => "#h(-0.2222em)",
        "negthickspace" => "#h(-0.2778em)",
        " " | "space" | "nobreakspace" => "#h(0.3333em)",
        "enspace" | "enskip" => "#h(0.5em)",
        "quad" => "#h(1em)",
        "qquad" => "#h(2em)",
        _ => return None,
    })
}

/// The height of `\big` and its relatives in em, and the class of what they make.
fn big(name: &str) -> Option<(&'static str, &'static str)> {
    let (size, rest) = [("bigg", "2.4"), ("Bigg", "3"), ("big", "1.2"), ("Big", "1.8")]
        .into_iter()
        .find_map(|(prefix, size)| Some((size, name.strip_prefix(prefix)?)))?;
    let class = match rest {
        "" => "normal",
        "l" => "opening",
        "r" => "closing",
        "m" => "relation",
        _ => return None,
    };
    Some((size, class))
}

/// Commands that read or write files, run programs, or change how TeX works.
const FORBIDDEN: [&str; 34] = [
    "input",
    "include",
    "includegraphics",
    "includeonly",
    "usepackage",
    "documentclass",
    "RequirePackage",
    "openin",
    "openout",
    "read",
    "readline",
    "write",
    "immediate",
    "closein",
    "closeout",
    "newread",
    "newwrite",
    "special",
    "catcode",
    "csname",
    "expandafter",
    "url",
    "href",
    "bibliography",
    "verbatiminput",
    "lstinputlisting",
    "directlua",
    "ShellEscape",
    "jobname",
    "today",
    "loop",
    "message",
    "typeout",
    "everymath",
];
