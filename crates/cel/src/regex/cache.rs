//! The patterns made at run time that one activation keeps.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::EvalError;
use crate::regex::pattern::{MAX_PATTERN_BYTES, Pattern};

/// Patterns that one activation keeps.
const MAX_CACHED: usize = 16;

/// Patterns made at run time, refused ones included.
#[derive(Debug, Default)]
pub(crate) struct PatternCache {
    patterns: HashMap<String, Result<Arc<Pattern>, EvalError>>,
}

impl PatternCache {
    pub(crate) fn get(&self, source: &str) -> Option<Result<Arc<Pattern>, EvalError>> {
        self.patterns.get(source).cloned()
    }

    pub(crate) fn keep(&mut self, source: &str, pattern: Result<Arc<Pattern>, EvalError>) {
        if self.patterns.len() >= MAX_CACHED {
            self.patterns.clear();
        }
        if source.len() <= MAX_PATTERN_BYTES {
            self.patterns.insert(source.to_owned(), pattern);
        }
    }
}
