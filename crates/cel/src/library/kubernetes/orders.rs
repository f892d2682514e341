//! `compareTo`, `isLessThan` and `isGreaterThan`, which quantities and versions share.

use std::cmp::Ordering;

use crate::error::EvalError;
use crate::library::function::Function;
use crate::meter::Meter;
use crate::value::{Outcome, Val};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::member("compareTo", 2, |meter, a| {
        compare("compareTo", meter, a, |order| Val::Int(order as i64))
    }),
    Function::member("isLessThan", 2, |meter, a| {
        compare("isLessThan", meter, a, |order| Val::Bool(order.is_lt()))
    }),
    Function::member("isGreaterThan", 2, |meter, a| {
        compare("isGreaterThan", meter, a, |order| Val::Bool(order.is_gt()))
    }),
];

fn compare<'a>(
    name: &'static str,
    meter: &Meter,
    arguments: &[Val<'a>],
    result: fn(Ordering) -> Val<'a>,
) -> Outcome<'a> {
    match arguments {
        [Val::Quantity(left), Val::Quantity(right)] => Ok(result(left.compare(right))),
        [Val::Version(left), Val::Version(right)] => Ok(result(left.compare(meter, right)?)),
        _ => Err(EvalError::no_such_overload(name, arguments)),
    }
}
