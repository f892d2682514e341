//! What a function of a library is.

use crate::meter::Meter;
use crate::value::{Outcome, Val};

/// Most arguments of a function, the receiver counted.
pub(crate) const MAX_ARGUMENTS: usize = 4;

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

    pub(crate) fn takes(&self, member: bool) -> bool {
        match self.style {
            Style::Either => true,
            Style::Member => member,
            Style::Global => !member,
        }
    }
}
