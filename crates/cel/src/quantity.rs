//! Kubernetes' quantities: `quantity('1.5Gi')`, arithmetic and comparison.
//!
//! A quantity is kept in billionths, which is the precision that Kubernetes keeps; finer ones are rounded up,
//! away from zero, as there.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::EvalError;
use crate::functions::{Function, Outcome};
use crate::meter::Meter;
use crate::value::Val;

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::global("quantity", 1, quantity),
    Function::global("isQuantity", 1, |_, arguments| match arguments {
        [Val::Str(text)] => Ok(Val::Bool(parse(text).is_some())),
        _ => Err(EvalError::no_such_overload("isQuantity", arguments)),
    }),
    Function::member("sign", 1, |_, a| number("sign", a, |nanos| Ok(Val::Int(sign(nanos))))),
    Function::member("isInteger", 1, |_, a| {
        number("isInteger", a, |nanos| Ok(Val::Bool(integer(nanos).is_some())))
    }),
    Function::member("asInteger", 1, |_, a| {
        number("asInteger", a, |nanos| {
            integer(nanos)
                .map(Val::Int)
                .ok_or_else(|| EvalError::invalid("asInteger", "cannot convert value to integer"))
        })
    }),
    Function::member("asApproximateFloat", 1, |_, a| {
        number("asApproximateFloat", a, |nanos| Ok(Val::Double(approximate(nanos))))
    }),
    Function::member("add", 2, |_, a| combine("add", a, i128::checked_add)),
    Function::member("sub", 2, |_, a| combine("sub", a, i128::checked_sub)),
    Function::member("compareTo", 2, |_, a| compare("compareTo", a, |order| Val::Int(order as i64))),
    Function::member("isLessThan", 2, |_, a| compare("isLessThan", a, |order| Val::Bool(order.is_lt()))),
    Function::member("isGreaterThan", 2, |_, a| {
        compare("isGreaterThan", a, |order| Val::Bool(order.is_gt()))
    }),
];

const ONE: i128 = 1_000_000_000;
/// Digits looked at. Kubernetes takes numbers up to 2^63; this is far more.
const MAX_DIGITS: usize = 24;

/// A quantity in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quantity(i128);

impl Quantity {
    /// Kubernetes' decimal form: a whole number with the largest suffix that leaves it whole. The binary
    /// suffixes of the text that it was made from are not kept.
    pub(crate) fn text(self) -> String {
        const SUFFIXES: [&str; 9] = ["n", "u", "m", "", "k", "M", "G", "T", "P"];
        if self.0 == 0 {
            return "0".to_owned();
        }
        let mut number = self.0;
        for suffix in SUFFIXES {
            if number % 1000 != 0 {
                return format!("{number}{suffix}");
            }
            number /= 1000;
        }
        format!("{number}E")
    }
}

fn quantity<'a>(_: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    match arguments {
        [value @ Val::Quantity(_)] => Ok(value.clone()),
        [Val::Str(text)] => parse(text)
            .map(|quantity| Val::Quantity(Arc::new(quantity)))
            .ok_or_else(|| EvalError::conversion("string", "kubernetes.Quantity", text)),
        _ => Err(EvalError::no_such_overload("quantity", arguments)),
    }
}

/// A decimal number with a suffix: `m`, `k`, `Ki`, … or an exponent. `None` for what is no quantity and for
/// what is beyond 2^63.
fn parse(text: &str) -> Option<Quantity> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (digits, suffix) = unsigned.split_at(end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    if whole.len() + fraction.len() > MAX_DIGITS {
        return None;
    }
    let mut mantissa: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        mantissa = mantissa * 10 + i128::from(digit - b'0');
    }
    let (binary, decimal) = scale(suffix)?;
    let mantissa = mantissa.checked_mul(1_i128.checked_shl(binary)?)?;
    let exponent = decimal + 9 - i32::try_from(fraction.len()).ok()?;
    let nanos = if exponent >= 0 {
        mantissa.checked_mul(10_i128.checked_pow(exponent.unsigned_abs())?)?
    } else {
        let divisor = 10_i128.checked_pow(exponent.unsigned_abs())?;
        mantissa / divisor + i128::from(mantissa % divisor != 0)
    };
    if nanos > ONE.checked_mul(i128::from(i64::MAX))? {
        return None;
    }
    Some(Quantity(if negative { -nanos } else { nanos }))
}

/// What a suffix multiplies by: a power of two and a power of ten.
fn scale(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || digits.len() > 2 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            (0, exponent.parse().ok()?)
        }
    })
}

fn number<'a>(
    name: &'static str,
    arguments: &[Val<'a>],
    of: impl FnOnce(i128) -> Outcome<'a>,
) -> Outcome<'a> {
    match arguments {
        [Val::Quantity(quantity)] => of(quantity.0),
        _ => Err(EvalError::no_such_overload(name, arguments)),
    }
}

fn sign(nanos: i128) -> i64 {
    match nanos.cmp(&0) {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }
}

fn integer(nanos: i128) -> Option<i64> {
    if nanos % ONE == 0 { i64::try_from(nanos / ONE).ok() } else { None }
}

#[allow(clippy::cast_precision_loss)] // the function's name says so
fn approximate(nanos: i128) -> f64 {
    nanos as f64 / ONE as f64
}

/// `add` and `sub` take a quantity or an `int`.
fn combine<'a>(
    name: &'static str,
    arguments: &[Val<'a>],
    combine: fn(i128, i128) -> Option<i128>,
) -> Outcome<'a> {
    let (left, right) = match arguments {
        [Val::Quantity(left), Val::Quantity(right)] => (left.0, right.0),
        [Val::Quantity(left), Val::Int(right)] => (left.0, i128::from(*right) * ONE),
        _ => return Err(EvalError::no_such_overload(name, arguments)),
    };
    combine(left, right)
        .map(|nanos| Val::Quantity(Arc::new(Quantity(nanos))))
        .ok_or(EvalError::Overflow("quantity"))
}

fn compare<'a>(name: &'static str, arguments: &[Val<'a>], result: fn(Ordering) -> Val<'a>) -> Outcome<'a> {
    match arguments {
        [Val::Quantity(left), Val::Quantity(right)] => Ok(result(left.cmp(right))),
        _ => Err(EvalError::no_such_overload(name, arguments)),
    }
}
