//! The semver library: `semver('1.2.3')` and the order of versions.

use std::sync::Arc;

use crate::error::EvalError;
use crate::library::function::Function;
use crate::meter::Meter;
use crate::value::version::{Version, read};
use crate::value::{Outcome, Val};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::global("semver", 1, semver),
    Function::global("semver", 2, semver),
    Function::global("isSemver", 1, is_semver),
    Function::global("isSemver", 2, is_semver),
    Function::member("major", 1, |_, a| number("major", a, |version| version.major)),
    Function::member("minor", 1, |_, a| number("minor", a, |version| version.minor)),
    Function::member("patch", 1, |_, a| number("patch", a, |version| version.patch)),
];

/// The text and whether to normalise it.
fn source<'v>(
    name: &'static str,
    meter: &Meter,
    arguments: &'v [Val<'_>],
) -> Result<(&'v str, bool), EvalError> {
    let (text, normalise) = match arguments {
        [Val::Str(text)] => (text, false),
        [Val::Str(text), Val::Bool(normalise)] => (text, *normalise),
        _ => return Err(EvalError::no_such_overload(name, arguments)),
    };
    // Identifiers of one letter take most room for what they say.
    meter.produce_items(text.len())?;
    Ok((text, normalise))
}

fn semver<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let (text, normalise) = source("semver", meter, arguments)?;
    match read(text, normalise) {
        Ok(version) => Ok(Val::Version(Arc::new(version))),
        Err(reason) => Err(EvalError::invalid("semver", reason)),
    }
}

fn is_semver<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let (text, normalise) = source("isSemver", meter, arguments)?;
    Ok(Val::Bool(read(text, normalise).is_ok()))
}

/// Numbers beyond `int` wrap around, as in Kubernetes.
fn number<'a>(name: &'static str, arguments: &[Val<'a>], of: fn(&Version) -> u64) -> Outcome<'a> {
    match arguments {
        [Val::Version(version)] => Ok(Val::Int(of(version).cast_signed())),
        _ => Err(EvalError::no_such_overload(name, arguments)),
    }
}
