//! The literal patterns of an expression, compiled with it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::EvalError;
use crate::regex::pattern::{Pattern, translate};

/// Most different literal patterns of an expression, and as how many more a large one counts: compiling them all
/// takes up to some tenths of a second.
const MAX_LITERAL: u32 = 256;
const LARGE_LITERAL: u32 = 15;

/// The literal patterns of one expression.
#[derive(Debug)]
pub(crate) struct LiteralPatterns {
    compiled: HashMap<String, Arc<Pattern>>,
    /// How many more may be compiled.
    left: u32,
}

impl Default for LiteralPatterns {
    fn default() -> Self {
        Self { compiled: HashMap::new(), left: MAX_LITERAL }
    }
}

impl LiteralPatterns {
    /// The pattern, compiled if it was not yet.
    pub(crate) fn get(&mut self, source: &str) -> Result<Arc<Pattern>, LiteralError> {
        if let Some(pattern) = self.compiled.get(source) {
            return Ok(Arc::clone(pattern));
        }
        self.left = self.left.checked_sub(1).ok_or(LiteralError::TooMany)?;
        let translated = translate(source).map_err(LiteralError::Invalid)?;
        let pattern = Pattern::build(source, &translated).map(Arc::new);
        // One that is refused now may have been too large.
        if pattern.as_ref().map_or(true, |pattern| pattern.is_large()) {
            self.left = self.left.saturating_sub(LARGE_LITERAL);
        }
        let pattern = pattern.map_err(LiteralError::Invalid)?;
        self.compiled.insert(source.to_owned(), Arc::clone(&pattern));
        Ok(pattern)
    }
}

/// Why a literal pattern cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LiteralError {
    #[error("{0}")]
    Invalid(EvalError),
    #[error("too many patterns in one expression: at most {MAX_LITERAL}, and fewer that are large")]
    TooMany,
}
