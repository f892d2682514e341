//! `size`, `type` and `dyn`.

use std::sync::Arc;

use crate::error::EvalError;
use crate::library::function::Function;
use crate::meter::Meter;
use crate::value::{Outcome, Val};

pub(crate) const FUNCTIONS: &[Function] = &[
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
