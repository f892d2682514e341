//! `compareTo`, `isLessThan` and `isGreaterThan`, which quantities and versions share.

use std::cmp::Ordering;

use crate::error::EvalError;
use crate::functions::{Function, Outcome};
use crate::value::Val;

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::member("compareTo", 2, |_, a| compare("compareTo", a, |order| Val::Int(order as i64))),
    Function::member("isLessThan", 2, |_, a| compare("isLessThan", a, |order| Val::Bool(order.is_lt()))),
    Function::member("isGreaterThan", 2, |_, a| {
        compare("isGreaterThan", a, |order| Val::Bool(order.is_gt()))
    }),
];

fn compare<'a>(name: &'static str, arguments: &[Val<'a>], result: fn(Ordering) -> Val<'a>) -> Outcome<'a> {
    match arguments {
        [Val::Quantity(left), Val::Quantity(right)] => Ok(result(left.compare(right))),
        [Val::Version(left), Val::Version(right)] => Ok(result(left.compare(right))),
        _ => Err(EvalError::no_such_overload(name, arguments)),
    }
}
