//! `matches`, `find` and `findAll`.
//!
//! Patterns are Go's, as [`re2`] writes them for the `regex` crate, which like Go's takes time linear in the text to
//! find a match. How many steps a byte is depends on the pattern, and on texts that are made for it: see
//! [`breadth`](crate::regex::breadth). Finding all matches is not linear, since a search may go on far beyond the match
//! that it ends with. Literal patterns are compiled with the expression; others once an activation, as far as a small
//! cache goes.

use std::collections::HashMap;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use crate::error::EvalError;
use crate::library::{Function, Outcome};
use crate::meter::Meter;
use crate::plan::price;
use crate::regex::re2::{self, Translated};
use crate::value::{Text, Val};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::either("matches", 2, |meter, arguments| dynamic(meter, PatternUse::Matches, arguments)),
    Function::member("find", 2, |meter, arguments| dynamic(meter, PatternUse::Find, arguments)),
    Function::member("findAll", 2, |meter, arguments| dynamic(meter, PatternUse::FindAll, arguments)),
    Function::member("findAll", 3, |meter, arguments| dynamic(meter, PatternUse::FindAll, arguments)),
];

/// Longest pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 4 << 10;
/// Biggest compiled pattern.
const MAX_COMPILED_BYTES: usize = 1 << 20;
/// A compiled pattern up to this size counts as an ordinary one.
const ORDINARY_BYTES: usize = 64 << 10;
/// Most different literal patterns of an expression, and as how many more a large one counts: compiling them all
/// takes up to some tenths of a second.
const MAX_LITERAL: u32 = 256;
const LARGE_LITERAL: u32 = 15;
/// Patterns that one activation keeps.
const MAX_CACHED: usize = 16;
/// Steps that compiling a pattern counts: it takes up to some milliseconds, so that few are enough. Where upper and
/// lower case are the same, wide sets take more, so many of their characters a step.
const COMPILE_TICKS: u64 = 100_000;
const FOLDED_PER_TICK: u64 = 16;
/// How often the hash of a pattern made at run time, and comparing it, go through its text.
const LOOK_UP_PASSES: usize = 4;
/// What a match that is found counts, besides the text that is gone through.
const MATCH_TICKS: u64 = 4;
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
    fn build(source: &str, translated: &Translated) -> Result<Self, EvalError> {
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
            cost: price::pattern(source.chars().count() as u64),
        })
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// Steps of going through so many bytes.
    fn steps(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.parts) / PARTS
    }

    /// Counts going through a text once.
    fn meter(&self, meter: &Meter, text: &str) -> Result<(), EvalError> {
        meter.tick(self.steps(text.len() as u64))
    }

    /// Counts what the search for a match may have seen beyond it, with so many bytes left.
    fn meter_match(&self, meter: &Meter, left: usize) -> Result<(), EvalError> {
        let left = left as u64;
        let beyond = match self.reach {
            Some(reach) => self.steps(reach.min(left)),
            None => self.steps(left),
        };
        meter.tick(beyond.saturating_add(MATCH_TICKS))
    }
}

fn translate(source: &str) -> Result<Translated, EvalError> {
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

/// What is done with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternUse {
    Matches,
    Find,
    FindAll,
}

impl PatternUse {
    /// The use that a function of the table makes of its second argument.
    pub(crate) fn of(function: &str) -> Option<Self> {
        match function {
            "matches" => Some(Self::Matches),
            "find" => Some(Self::Find),
            "findAll" => Some(Self::FindAll),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Matches => "matches",
            Self::Find => "find",
            Self::FindAll => "findAll",
        }
    }
}

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
        if pattern.as_ref().map_or(true, |pattern| pattern.is_large) {
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

/// Patterns made at run time, refused ones included.
#[derive(Debug, Default)]
pub(crate) struct PatternCache {
    patterns: HashMap<String, Result<Arc<Pattern>, EvalError>>,
}

impl PatternCache {
    fn get(&mut self, meter: &Meter, source: &str) -> Result<Arc<Pattern>, EvalError> {
        meter.work(source.len().saturating_mul(LOOK_UP_PASSES))?;
        if let Some(pattern) = self.patterns.get(source) {
            return pattern.clone();
        }
        meter.tick(COMPILE_TICKS)?;
        let pattern = match translate(source) {
            Ok(translated) => {
                meter.tick(translated.folded / FOLDED_PER_TICK)?;
                Pattern::build(source, &translated).map(Arc::new)
            }
            Err(error) => Err(error),
        };
        if self.patterns.len() >= MAX_CACHED {
            self.patterns.clear();
        }
        if source.len() <= MAX_PATTERN_BYTES {
            self.patterns.insert(source.to_owned(), pattern.clone());
        }
        pattern
    }
}

fn dynamic<'a>(meter: &Meter, usage: PatternUse, arguments: &[Val<'a>]) -> Outcome<'a> {
    let [text @ Val::Str(_), Val::Str(pattern), rest @ ..] = arguments else {
        return Err(EvalError::no_such_overload(usage.name(), arguments));
    };
    let pattern = meter.patterns.borrow_mut().get(meter, pattern)?;
    match rest {
        [] => apply(meter, usage, &pattern, std::slice::from_ref(text)),
        [limit, ..] => apply(meter, usage, &pattern, &[text.clone(), limit.clone()]),
    }
}

/// Runs a pattern over the text among `arguments`, which no longer hold the pattern.
pub(crate) fn apply<'a>(
    meter: &Meter,
    usage: PatternUse,
    pattern: &Pattern,
    arguments: &[Val<'a>],
) -> Outcome<'a> {
    let (text, limit) = match arguments {
        [Val::Str(text)] => (text, -1),
        [Val::Str(text), Val::Int(limit)] if usage == PatternUse::FindAll => (text, *limit),
        _ => return Err(EvalError::no_such_overload(usage.name(), arguments)),
    };
    pattern.meter(meter, text)?;
    match usage {
        PatternUse::Matches => Ok(Val::Bool(pattern.regex.is_match(text))),
        PatternUse::Find => {
            let found = pattern.regex.find(text).map_or("", |found| found.as_str());
            copy(meter, found)
        }
        PatternUse::FindAll => {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let mut all = Vec::new();
            for found in pattern.regex.find_iter(text).take(limit) {
                pattern.meter_match(meter, text.len().saturating_sub(found.end()))?;
                meter.produce_items(1)?;
                all.push(copy(meter, found.as_str())?);
            }
            Val::list(all)
        }
    }
}

fn copy<'a>(meter: &Meter, text: &str) -> Outcome<'a> {
    meter.produce(text.len())?;
    Ok(Val::Str(Text::Shared(text.into())))
}
