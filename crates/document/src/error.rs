//! What is wrong with a text.

use thiserror::Error;

use crate::tape::{MAX_BYTES, MAX_DEPTH};

/// Why a text is no document. Lines and columns count from 1, columns in bytes.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DocumentError {
    /// It is not UTF-8.
    #[error("invalid UTF-8 at byte {0}")]
    Encoding(usize),
    /// It is larger than [`MAX_BYTES`].
    #[error("it is larger than {MAX_BYTES} bytes")]
    TooLarge,
    /// It is not JSON.
    #[error("{problem} at line {line} column {column}")]
    Syntax {
        /// What is wrong.
        problem: Problem,
        /// Where.
        line: usize,
        /// Where in the line.
        column: usize,
    },
}

/// What is wrong at some place.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Problem {
    /// Something else must stand there.
    #[error("expected {0}")]
    Expected(&'static str),
    /// The text ends too soon.
    #[error("unexpected end")]
    End,
    /// Something stands behind the document.
    #[error("trailing characters")]
    Trailing,
    /// A control character in a string.
    #[error("control character in a string")]
    Control,
    /// An escape that does not exist.
    #[error("invalid escape")]
    Escape,
    /// Half of a pair of UTF-16.
    #[error("lone surrogate")]
    Surrogate,
    /// A number that JSON does not know.
    #[error("invalid number")]
    Number,
    /// A number that no double is near to.
    #[error("number out of range")]
    Range,
    /// Lists and objects nest too deep.
    #[error("nesting deeper than {MAX_DEPTH}")]
    Depth,
}

impl DocumentError {
    pub(crate) fn at(text: &str, at: usize, problem: Problem) -> Self {
        let before = text.as_bytes().get(..at).unwrap_or_default();
        let line = before.split(|byte| *byte == b'\n').count();
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        Self::Syntax { problem, line, column }
    }
}
