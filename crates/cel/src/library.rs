//! The table of functions: from a name and a number of arguments to what runs.

pub(crate) mod conversions;
pub(crate) mod format;
pub(crate) mod kubernetes;
pub(crate) mod lists;
pub(crate) mod optionals;
mod sets;
mod strings;
pub(crate) mod temporal;

use std::sync::Arc;

use crate::authorizer;
use crate::error::EvalError;
use crate::library::kubernetes::{addresses, networks, orders, patches};
use crate::meter::Meter;
use crate::regex::pattern;
use crate::value::Val;
use crate::value::{named_format, quantity, url, version};

/// Most arguments of a function, the receiver counted.
pub(crate) const MAX_ARGUMENTS: usize = 4;

pub(crate) type Outcome<'a> = Result<Val<'a>, EvalError>;
pub(crate) type Body = for<'a> fn(&Meter, &[Val<'a>]) -> Outcome<'a>;

/// How a function may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `f(x)`
    Global,
    /// `x.f()`
    Member,
    /// Both.
    Either,
}

/// A function for one number of arguments.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    /// Arguments, the receiver counted.
    pub(crate) arity: usize,
    pub(crate) style: Style,
    pub(crate) body: Body,
}

impl Function {
    pub(crate) const fn global(name: &'static str, arity: usize, body: Body) -> Self {
        Self { name, arity, style: Style::Global, body }
    }

    pub(crate) const fn member(name: &'static str, arity: usize, body: Body) -> Self {
        Self { name, arity, style: Style::Member, body }
    }

    pub(crate) const fn either(name: &'static str, arity: usize, body: Body) -> Self {
        Self { name, arity, style: Style::Either, body }
    }

    fn takes(&self, member: bool) -> bool {
        match self.style {
            Style::Either => true,
            Style::Member => member,
            Style::Global => !member,
        }
    }
}

/// The libraries of the environment. A new library is one more line here.
const LIBRARIES: &[&[Function]] = &[
    CORE,
    conversions::FUNCTIONS,
    temporal::FUNCTIONS,
    strings::FUNCTIONS,
    format::FUNCTIONS,
    lists::FUNCTIONS,
    sets::FUNCTIONS,
    pattern::FUNCTIONS,
    optionals::FUNCTIONS,
    quantity::FUNCTIONS,
    version::FUNCTIONS,
    orders::FUNCTIONS,
    url::FUNCTIONS,
    addresses::FUNCTIONS,
    networks::FUNCTIONS,
    named_format::FUNCTIONS,
    patches::FUNCTIONS,
    authorizer::FUNCTIONS,
];

/// What a call of `name` with `arity` arguments (receiver counted) means, or what to tell the user.
pub(crate) fn find(name: &str, member: bool, arity: usize) -> Result<&'static Function, String> {
    let mut known = false;
    for function in LIBRARIES.iter().copied().flatten().filter(|function| function.name == name) {
        if function.takes(member) && function.arity == arity {
            return Ok(function);
        }
        known = true;
    }
    Err(if known {
        let arguments = if member { arity.saturating_sub(1) } else { arity };
        let way = if member { "a receiver and " } else { "" };
        format!("found no matching overload for '{name}' applied to {way}{arguments} argument(s)")
    } else {
        format!("undeclared reference to '{name}'")
    })
}

/// Every function of every library.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = &'static Function> {
    LIBRARIES.iter().copied().flatten()
}

/// Whether any library has a function of this name, such as `sets.contains`.
pub(crate) fn is_known(name: &str) -> bool {
    LIBRARIES.iter().copied().flatten().any(|function| function.name == name)
}

const CORE: &[Function] = &[
    Function::either("size", 1, size),
    Function::global("type", 1, type_of),
    Function::global("dyn", 1, |_, arguments| match arguments {
        [value] => Ok(value.clone()),
        _ => Err(EvalError::no_such_overload("dyn", arguments)),
    }),
];

fn size<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::size(match arguments {
        [Val::Str(text)] => {
            meter.work(text.len())?;
            text.chars().count()
        }
        [Val::Bytes(bytes)] => bytes.len(),
        [Val::JsonList(items)] => items.len(),
        [Val::List(items)] => items.items.len(),
        [Val::JsonMap(entries)] => entries.len(),
        [Val::Map(entries)] => entries.entries.len(),
        _ => return Err(EvalError::no_such_overload("size", arguments)),
    }))
}

fn type_of<'a>(_: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    match arguments {
        [Val::Struct(made)] => Ok(Val::Type(Arc::clone(&made.type_name))),
        [value] => Ok(Val::Type(value.type_name().into())),
        _ => Err(EvalError::no_such_overload("type", arguments)),
    }
}
