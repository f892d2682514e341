//! `+ - * / %` and negation.

use std::sync::Arc;

use time::OffsetDateTime;

use crate::error::EvalError;
use crate::meter::Meter;
use crate::value::temporal;
use crate::value::{Operator, Outcome, Val};

const INT: EvalError = EvalError::Overflow("integer");
const UINT: EvalError = EvalError::Overflow("unsigned integer");
/// Durations are integers to Kubernetes.
const DURATION: EvalError = INT;

pub(crate) fn negate<'a>(value: &Val<'a>) -> Outcome<'a> {
    match value {
        Val::Int(value) => value.checked_neg().map(Val::Int).ok_or(INT),
        Val::Double(value) => Ok(Val::Double(-value)),
        // No checker takes this: the duration has to be dyn.
        Val::Duration(value) => value.checked_neg().map(Val::Duration).ok_or(DURATION),
        other => Err(EvalError::no_such_overload("-_", std::slice::from_ref(other))),
    }
}

pub(crate) fn apply<'a>(meter: &Meter, operator: Operator, left: Val<'a>, right: &Val<'a>) -> Outcome<'a> {
    match (&left, right) {
        (Val::Int(left), Val::Int(right)) => int(operator, *left, *right),
        (Val::Uint(left), Val::Uint(right)) => uint(operator, *left, *right),
        (Val::Double(left), Val::Double(right)) => double(operator, *left, *right),
        (_, right) => match operator {
            Operator::Add => add(meter, left, right),
            Operator::Subtract => subtract(&left, right),
            _ => Err(mismatch(operator, &left, right)),
        },
    }
}

fn mismatch<'a>(operator: Operator, left: &Val<'a>, right: &Val<'a>) -> EvalError {
    EvalError::no_such_overload(operator.name(), &[left.clone(), right.clone()])
}

fn int<'a>(operator: Operator, left: i64, right: i64) -> Outcome<'a> {
    match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide if right == 0 => return Err(EvalError::DivisionByZero),
        Operator::Divide => left.checked_div(right),
        Operator::Modulo if right == 0 => return Err(EvalError::ModulusByZero),
        Operator::Modulo => left.checked_rem(right),
        _ => return Err(mismatch(operator, &Val::Int(left), &Val::Int(right))),
    }
    .map(Val::Int)
    .ok_or(INT)
}

fn uint<'a>(operator: Operator, left: u64, right: u64) -> Outcome<'a> {
    match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide => return left.checked_div(right).map(Val::Uint).ok_or(EvalError::DivisionByZero),
        Operator::Modulo => return left.checked_rem(right).map(Val::Uint).ok_or(EvalError::ModulusByZero),
        _ => return Err(mismatch(operator, &Val::Uint(left), &Val::Uint(right))),
    }
    .map(Val::Uint)
    .ok_or(UINT)
}

fn double<'a>(operator: Operator, left: f64, right: f64) -> Outcome<'a> {
    Ok(Val::Double(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        _ => return Err(mismatch(operator, &Val::Double(left), &Val::Double(right))),
    }))
}

fn add<'a>(meter: &Meter, left: Val<'a>, right: &Val<'a>) -> Outcome<'a> {
    match (&left, right) {
        (Val::Str(first), Val::Str(second)) => {
            meter.produce(first.len() + second.len())?;
            let mut text = String::with_capacity(first.len() + second.len());
            text.push_str(first);
            text.push_str(second);
            Ok(Val::text(text))
        }
        (Val::Bytes(first), Val::Bytes(second)) => {
            meter.produce(first.len() + second.len())?;
            Ok(Val::Bytes([&**first, &**second].concat().into()))
        }
        (Val::Duration(first), Val::Duration(second)) => {
            first.checked_add(*second).map(Val::Duration).ok_or(DURATION)
        }
        (Val::Timestamp(instant), Val::Duration(duration))
        | (Val::Duration(duration), Val::Timestamp(instant)) => shift(instant, i128::from(*duration)),
        _ => {
            let (Some(first), Some(second)) = (left.list_len(), right.list_len()) else {
                return Err(mismatch(Operator::Add, &left, right));
            };
            meter.produce_items(first + second)?;
            left.extended(right)
        }
    }
}

fn subtract<'a>(left: &Val<'a>, right: &Val<'a>) -> Outcome<'a> {
    match (left, right) {
        (Val::Duration(first), Val::Duration(second)) => {
            first.checked_sub(*second).map(Val::Duration).ok_or(DURATION)
        }
        (Val::Timestamp(instant), Val::Duration(duration)) => shift(instant, -i128::from(*duration)),
        (Val::Timestamp(first), Val::Timestamp(second)) => {
            let nanoseconds = first.unix_timestamp_nanos() - second.unix_timestamp_nanos();
            i64::try_from(nanoseconds).map(Val::Duration).map_err(|_| DURATION)
        }
        _ => Err(mismatch(Operator::Subtract, left, right)),
    }
}

fn shift<'a>(instant: &OffsetDateTime, nanoseconds: i128) -> Outcome<'a> {
    OffsetDateTime::from_unix_timestamp_nanos(instant.unix_timestamp_nanos() + nanoseconds)
        .ok()
        .filter(temporal::in_range)
        // Beyond the year 9999 there is no offset.
        .map(|shifted| shifted.checked_to_offset(instant.offset()).unwrap_or(shifted))
        .map(|shifted| Val::Timestamp(Arc::new(shifted)))
        .ok_or(EvalError::Overflow("timestamp"))
}
