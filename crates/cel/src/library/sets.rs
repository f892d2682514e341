//! The sets library: lists taken as sets.

use crate::error::EvalError;
use crate::library::function::Function;
use crate::meter::Meter;
use crate::value::comparison;
use crate::value::{List, Outcome, Val};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::global("sets.contains", 2, |meter, arguments| {
        let (left, right) = lists("sets.contains", arguments)?;
        Ok(Val::Bool(contains(meter, &left, &right)?))
    }),
    Function::global("sets.equivalent", 2, |meter, arguments| {
        let (left, right) = lists("sets.equivalent", arguments)?;
        Ok(Val::Bool(contains(meter, &left, &right)? && contains(meter, &right, &left)?))
    }),
    Function::global("sets.intersects", 2, intersects),
];

fn lists<'a>(name: &'static str, arguments: &[Val<'a>]) -> Result<(List<'a>, List<'a>), EvalError> {
    if let [left, right] = arguments
        && let (Some(left), Some(right)) = (left.as_list(), right.as_list())
    {
        return Ok((left, right));
    }
    Err(EvalError::no_such_overload(name, arguments))
}

/// Whether all items of `right` are in `left`.
fn contains(meter: &Meter, left: &List<'_>, right: &List<'_>) -> Result<bool, EvalError> {
    for item in right.iter() {
        if !has(meter, left, &item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let (left, right) = lists("sets.intersects", arguments)?;
    for item in right.iter() {
        if has(meter, &left, &item)? {
            return Ok(Val::Bool(true));
        }
    }
    Ok(Val::Bool(false))
}

fn has(meter: &Meter, items: &List<'_>, item: &Val<'_>) -> Result<bool, EvalError> {
    for candidate in items.iter() {
        meter.count_steps(1)?;
        if comparison::equal(meter, &candidate, item)? {
            return Ok(true);
        }
    }
    Ok(false)
}
