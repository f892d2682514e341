//! The quantity library: `quantity('1.5Gi')`, arithmetic and comparison.

use std::sync::Arc;

use crate::error::EvalError;
use crate::library::function::Function;
use crate::meter::Meter;
use crate::value::quantity::{self, Quantity};
use crate::value::{Outcome, Val};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::global("quantity", 1, |meter, arguments| match arguments {
        [Val::Str(text)] => {
            meter.produce(text.len())?;
            let quantity = quantity::parse(text).map_err(|reason| EvalError::invalid("quantity", reason))?;
            Ok(Val::Quantity(Arc::new(quantity)))
        }
        _ => Err(EvalError::no_such_overload("quantity", arguments)),
    }),
    Function::global("isQuantity", 1, |meter, arguments| match arguments {
        [Val::Str(text)] => {
            meter.produce(text.len())?;
            Ok(Val::Bool(quantity::parse(text).is_ok()))
        }
        _ => Err(EvalError::no_such_overload("isQuantity", arguments)),
    }),
    // A function and not a method, unlike all others.
    Function::global("sign", 1, |_, a| Ok(Val::Int(only("sign", a)?.sign()))),
    Function::member("isInteger", 1, |_, a| Ok(Val::Bool(only("isInteger", a)?.integer().is_some()))),
    Function::member("asInteger", 1, |_, a| {
        let integer = only("asInteger", a)?.integer();
        integer
            .map(Val::Int)
            .ok_or_else(|| EvalError::invalid("asInteger", "cannot convert value to integer"))
    }),
    Function::member("asApproximateFloat", 1, |meter, a| {
        let quantity = only("asApproximateFloat", a)?;
        meter.count_steps(quantity.digits() as u64 / DIGITS_PER_STEP)?;
        Ok(Val::Double(quantity.approximate()))
    }),
    Function::member("add", 2, |meter, a| combine("add", false, meter, a)),
    Function::member("sub", 2, |meter, a| combine("sub", true, meter, a)),
];

/// Steps of a sum, besides those of its digits.
const SUM_STEPS: u64 = 16;
/// Digits that are gone through in a step.
const DIGITS_PER_STEP: u64 = 4;

fn only<'v>(name: &'static str, arguments: &'v [Val<'_>]) -> Result<&'v Quantity, EvalError> {
    match arguments {
        [Val::Quantity(quantity)] => Ok(quantity),
        _ => Err(EvalError::no_such_overload(name, arguments)),
    }
}

/// `add` and `sub` take a quantity or an `int`.
fn combine<'a>(name: &'static str, subtract: bool, meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let (left, right) = match arguments {
        [Val::Quantity(left), Val::Quantity(right)] => (left, Quantity::clone(right)),
        [Val::Quantity(left), Val::Int(right)] => (left, Quantity::from(*right)),
        _ => return Err(EvalError::no_such_overload(name, arguments)),
    };
    meter.produce(left.digits() + right.digits())?;
    meter.count_steps(SUM_STEPS + left.digits_of_sum(&right) / DIGITS_PER_STEP)?;
    let sum = if subtract { left.plus(&right.negated())? } else { left.plus(&right)? };
    Ok(Val::Quantity(Arc::new(sum)))
}
