//! What a chain of lookups has come to.
//!
//! What an optional holds is passed on by itself along a chain such as `o.?a.b.orValue(1)`, and becomes an optional
//! only for those who ask for one.

use crate::value::{Outcome, Val};

/// What a chain of lookups has come to.
pub(crate) enum Found<'a> {
    /// What is no optional.
    Plain(Val<'a>),
    /// What an optional holds.
    Held(Val<'a>),
    /// An empty optional.
    Nothing,
}

impl<'a> Found<'a> {
    pub(crate) fn of(value: Val<'a>) -> Self {
        match value {
            Val::Optional(Some(optional)) => Self::Held(optional.value.clone()),
            Val::Optional(None) => Self::Nothing,
            value => Self::Plain(value),
        }
    }

    pub(crate) fn into_value(self) -> Outcome<'a> {
        match self {
            Self::Plain(value) => Ok(value),
            Self::Held(value) => Val::optional(value),
            Self::Nothing => Ok(Val::Optional(None)),
        }
    }
}
