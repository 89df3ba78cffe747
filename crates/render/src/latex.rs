//! Translates formulas from LaTeX to the math markup of Typst.
//!
//! The translation knows the commands of LaTeX, amsmath and amssymb that stand in formulas, mhchem's `\ce`,
//! and the diagrams of amscd and tikz-cd with straight arrows. Everything else is an error that names the
//! command and its place. Nothing that a formula contains becomes code of Typst: every character is
//! escaped, and only what this module writes is markup.
//!
//! Modules, in reading order: `error`, `tokens`, `macros` (what formulas define), `symbols` (the table), `markup`, `parser`
//! (lists, arguments and scripts), `commands`, `environments`, `chemistry`, `diagrams`.

mod chemistry;
mod commands;
mod diagrams;
mod environments;
mod error;
mod macros;
mod markup;
mod parser;
mod symbols;
mod tokens;

pub use error::{LatexError, Place};

/// Translates a formula to what stands between the dollar signs of Typst.
pub fn to_typst(source: &str) -> Result<String, LatexError> {
    to_typst_at(source, Place::START)
}

/// The same for a formula that begins at this place of a larger source.
pub fn to_typst_at(source: &str, first: Place) -> Result<String, LatexError> {
    parser::Parser::new(tokens::tokens(source, first)?, first).formula()
}

#[cfg(test)]
mod tests;
