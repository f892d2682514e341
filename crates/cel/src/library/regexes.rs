//! `matches`, `find` and `findAll`.
//!
//! Literal patterns are compiled with the expression; others once an activation, as far as a small cache goes.

use std::sync::Arc;

use crate::error::EvalError;
use crate::library::function::Function;
use crate::meter::Meter;
use crate::regex::{Pattern, translate};
use crate::value::{Outcome, Text, Val};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::either("matches", 2, |meter, arguments| dynamic(meter, PatternUse::Matches, arguments)),
    Function::member("find", 2, |meter, arguments| dynamic(meter, PatternUse::Find, arguments)),
    Function::member("findAll", 2, |meter, arguments| dynamic(meter, PatternUse::FindAll, arguments)),
    Function::member("findAll", 3, |meter, arguments| dynamic(meter, PatternUse::FindAll, arguments)),
];

/// Steps that compiling a pattern counts: it takes up to some milliseconds, so that few are enough. Where upper and
/// lower case are the same, wide sets take more, so many of their characters a step.
const COMPILE_STEPS: u64 = 100_000;
const FOLDED_PER_STEP: u64 = 16;
/// How often the hash of a pattern made at run time, and comparing it, go through its text.
const LOOK_UP_PASSES: usize = 4;

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

/// A pattern made at run time.
fn compiled(meter: &Meter, source: &str) -> Result<Arc<Pattern>, EvalError> {
    meter.work(source.len().saturating_mul(LOOK_UP_PASSES))?;
    let mut patterns = meter.patterns.borrow_mut();
    if let Some(pattern) = patterns.get(source) {
        return pattern;
    }
    meter.count_steps(COMPILE_STEPS)?;
    let pattern = match translate(source) {
        Ok(translated) => {
            meter.count_steps(translated.folded / FOLDED_PER_STEP)?;
            Pattern::build(source, &translated).map(Arc::new)
        }
        Err(error) => Err(error),
    };
    patterns.keep(source, pattern.clone());
    pattern
}

fn dynamic<'a>(meter: &Meter, usage: PatternUse, arguments: &[Val<'a>]) -> Outcome<'a> {
    let [text @ Val::Str(_), Val::Str(pattern), rest @ ..] = arguments else {
        return Err(EvalError::no_such_overload(usage.name(), arguments));
    };
    let pattern = compiled(meter, pattern)?;
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
    meter.count_steps(pattern.steps(text.len()))?;
    match usage {
        PatternUse::Matches => Ok(Val::Bool(pattern.regex().is_match(text))),
        PatternUse::Find => {
            let found = pattern.regex().find(text).map_or("", |found| found.as_str());
            copy(meter, found)
        }
        PatternUse::FindAll => {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let mut all = Vec::new();
            for found in pattern.regex().find_iter(text).take(limit) {
                meter.count_steps(pattern.match_steps(text.len().saturating_sub(found.end())))?;
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
