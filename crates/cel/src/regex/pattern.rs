//! Compiled patterns.
//!
//! Patterns are Go's, as [`re2`] writes them for the `regex` crate, which like Go's takes time linear in the text to
//! find a match. How many steps a byte is depends on the pattern, and on texts that are made for it: see
//! [`breadth`](crate::regex::breadth). Finding all matches is not linear, since a search may go on far beyond the
//! match that it ends with.

use regex::{Regex, RegexBuilder};

use crate::cost;
use crate::error::EvalError;
use crate::regex::re2::{self, Translated};

/// Longest pattern, in bytes.
pub(crate) const MAX_PATTERN_BYTES: usize = 4 << 10;
/// Biggest compiled pattern.
const MAX_COMPILED_BYTES: usize = 1 << 20;
/// A compiled pattern up to this size counts as an ordinary one.
const ORDINARY_BYTES: usize = 64 << 10;
/// What a match that is found counts, besides the text that is gone through.
const MATCH_STEPS: u64 = 4;
/// In this part of a step, what a byte of text counts: at least; with a pattern whose compiled form is large; and for
/// each place of the pattern that may be under way, up to some and from there on.
const PARTS: u64 = 32;
const LEAST_PARTS: u64 = 4;
const HEAVY_PARTS: u64 = 16 * PARTS;
const NARROW: u64 = 16;
const WIDE_PARTS: u64 = 4;
/// Most bytes of a character.
const CHARACTER_BYTES: u64 = 4;

/// A compiled regular expression.
#[derive(Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    /// Whether its compiled form is no ordinary one.
    is_large: bool,
    /// What a byte of text counts, in parts of a step.
    parts: u64,
    /// How far a search may look beyond its match, in bytes, if not to the end.
    reach: Option<u64>,
    /// What applying it multiplies the cost of a text by.
    cost: u64,
}

impl Pattern {
    pub(crate) fn build(source: &str, translated: &Translated) -> Result<Self, EvalError> {
        let Translated { pattern, breadth, reach, .. } = translated;
        let build = |size| RegexBuilder::new(pattern).size_limit(size).dfa_size_limit(size).build();
        let (regex, is_large) = match build(ORDINARY_BYTES) {
            Ok(regex) => (regex, false),
            Err(regex::Error::CompiledTooBig(_)) => {
                (build(MAX_COMPILED_BYTES).map_err(|error| invalid(&error))?, true)
            }
            Err(error) => return Err(invalid(&error)),
        };
        let least = if is_large { HEAVY_PARTS } else { LEAST_PARTS };
        let wide = breadth.saturating_sub(NARROW);
        let parts = breadth.saturating_sub(wide).saturating_add(wide.saturating_mul(WIDE_PARTS));
        Ok(Self {
            regex,
            is_large,
            parts: parts.max(least),
            reach: reach.map(|reach| reach.saturating_mul(CHARACTER_BYTES)),
            cost: cost::pattern(source.chars().count() as u64),
        })
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    pub(crate) fn regex(&self) -> &Regex {
        &self.regex
    }

    pub(crate) fn is_large(&self) -> bool {
        self.is_large
    }

    /// Steps of searching so many bytes once.
    pub(crate) fn steps(&self, bytes: usize) -> u64 {
        self.steps_of(bytes as u64)
    }

    /// Steps of a match with so many bytes left: the search for it may have seen beyond it.
    pub(crate) fn match_steps(&self, left: usize) -> u64 {
        let left = left as u64;
        let beyond = self.reach.map_or(left, |reach| reach.min(left));
        self.steps_of(beyond).saturating_add(MATCH_STEPS)
    }

    fn steps_of(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.parts) / PARTS
    }
}

pub(crate) fn translate(source: &str) -> Result<Translated, EvalError> {
    if source.len() > MAX_PATTERN_BYTES {
        return Err(EvalError::InvalidPattern(format!("longer than {MAX_PATTERN_BYTES} bytes")));
    }
    re2::translate(source).map_err(EvalError::InvalidPattern)
}

/// The last line of the message is the reason; those before draw the pattern.
fn invalid(error: &regex::Error) -> EvalError {
    let message = error.to_string();
    let reason = message.lines().last().unwrap_or_default();
    EvalError::InvalidPattern(reason.strip_prefix("error: ").unwrap_or(reason).to_owned())
}
