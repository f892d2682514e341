//! `matches`, `find` and `findAll`.
//!
//! Patterns are Go's, as [`re2`] writes them for the `regex` crate, which like Go's takes time linear in the text.
//! Literal patterns are compiled with the expression; others once an activation, as far as a small cache goes.

use std::collections::HashMap;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use crate::cost;
use crate::error::EvalError;
use crate::functions::{Function, Outcome};
use crate::meter::Meter;
use crate::re2;
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
/// Patterns that one activation keeps.
const MAX_CACHED: usize = 16;
/// Steps that compiling a pattern counts: it takes up to some milliseconds, so that few are enough.
const COMPILE_TICKS: u64 = 100_000;
/// Bytes of text that count as one step with an ordinary pattern, and steps for a byte with another.
const BYTES_PER_TICK: usize = 8;
const HEAVY_TICKS_PER_BYTE: usize = 16;

/// A compiled regular expression.
#[derive(Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    heavy: bool,
    /// What applying it multiplies the cost of a text by.
    cost: u64,
}

impl Pattern {
    pub(crate) fn compile(source: &str) -> Result<Self, EvalError> {
        if source.len() > MAX_PATTERN_BYTES {
            return Err(EvalError::InvalidPattern(format!("longer than {MAX_PATTERN_BYTES} bytes")));
        }
        let cost = cost::pattern(source.chars().count() as u64);
        let pattern = re2::translate(source).map_err(EvalError::InvalidPattern)?;
        let build = |size| RegexBuilder::new(&pattern).size_limit(size).dfa_size_limit(size).build();
        match build(ORDINARY_BYTES) {
            Ok(regex) => Ok(Self { regex, heavy: false, cost }),
            Err(regex::Error::CompiledTooBig(_)) => {
                let regex = build(MAX_COMPILED_BYTES).map_err(|error| invalid(&error))?;
                Ok(Self { regex, heavy: true, cost })
            }
            Err(error) => Err(invalid(&error)),
        }
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    fn meter(&self, meter: &Meter, text: &str) -> Result<(), EvalError> {
        let ticks = if self.heavy {
            text.len().saturating_mul(HEAVY_TICKS_PER_BYTE)
        } else {
            text.len() / BYTES_PER_TICK
        };
        meter.tick(ticks as u64)
    }
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

/// Patterns made at run time, refused ones included.
#[derive(Debug, Default)]
pub(crate) struct PatternCache {
    patterns: HashMap<String, Result<Arc<Pattern>, EvalError>>,
}

impl PatternCache {
    fn get(&mut self, meter: &Meter, source: &str) -> Result<Arc<Pattern>, EvalError> {
        if let Some(pattern) = self.patterns.get(source) {
            return pattern.clone();
        }
        meter.tick(COMPILE_TICKS)?;
        let pattern = Pattern::compile(source).map(Arc::new);
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
