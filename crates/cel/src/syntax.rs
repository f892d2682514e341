//! From source to a syntax tree of bounded depth.
//!
//! ```text
//! source ──lexer──▶ tokens ──parser (literals)──▶ tree (ast), places
//! ```
//!
//! The grammar is CEL's with the optional syntax that Kubernetes switches on (`a.?b`, `a[?b]`, `[?e]`, `{?k: v}`),
//! without names in backticks.
//!
//! The invariant: whatever the source, parsing ends soon, with a tree no deeper than the check, the compiler and
//! the machine are made for, or with an error, on a small stack.

pub(crate) mod ast;
mod fault;
mod lexer;
mod literals;
mod parser;
#[cfg(test)]
mod tests;

pub(crate) use fault::{Fault, FaultKind};
pub use parser::MAX_DEPTH;

use crate::error::CompileError;
use crate::syntax::ast::IdedExpr;

/// Longest expression, in bytes.
pub const MAX_SOURCE_BYTES: usize = 8 << 10;

/// An expression's tree, and where its nodes are in the source.
#[derive(Debug)]
pub(crate) struct Tree<'s> {
    pub(crate) root: IdedExpr,
    source: &'s str,
    places: Vec<usize>,
}

impl Tree<'_> {
    /// The error that faults of nodes make.
    pub(crate) fn error(&self, faults: Vec<Fault>) -> CompileError {
        fault::compile_error(self.source, &self.places, faults)
    }
}

/// Parses `source`.
pub(crate) fn parse(source: &str) -> Result<Tree<'_>, CompileError> {
    if source.len() > MAX_SOURCE_BYTES {
        let message = format!("expression of {} bytes is longer than {MAX_SOURCE_BYTES}", source.len());
        return Err(CompileError::at(1, 1, message));
    }
    let (root, places) = parser::parse(source).map_err(|error| fault::syntax_error(source, error))?;
    Ok(Tree { root, source, places })
}
