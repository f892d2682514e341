//! Conversions between types, and the text of values.

use std::sync::Arc;

use crate::compare::truncate;
use crate::error::EvalError;
use crate::functions::{Function, Outcome};
use crate::meter::Meter;
use crate::temporal;
use crate::value::Val;

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::global("int", 1, int),
    Function::global("uint", 1, uint),
    Function::global("double", 1, double),
    Function::global("bool", 1, bool),
    Function::global("string", 1, string),
    Function::global("bytes", 1, bytes),
];

/// A short text of any value, for messages.
pub(crate) fn display(value: &Val<'_>) -> String {
    match value {
        Val::Null => "null".to_owned(),
        Val::Bool(value) => value.to_string(),
        Val::Int(value) => value.to_string(),
        Val::Uint(value) => value.to_string(),
        Val::Double(value) => double_text(*value),
        Val::Str(text) => crate::error::shorten(text),
        Val::Duration(nanoseconds) => temporal::duration_text(*nanoseconds),
        Val::Version(version) => crate::error::shorten(&version.text),
        Val::Url(url) => crate::error::shorten(&url.text),
        Val::Ip(address) => address.to_string(),
        Val::Cidr(network) => network.to_string(),
        other => other.type_name().to_owned(),
    }
}

fn refused(value: &Val<'_>, to: &'static str) -> EvalError {
    EvalError::conversion(value.type_name(), to, &display(value))
}

fn int<'a>(_: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let [value] = arguments else { return Err(EvalError::no_such_overload("int", arguments)) };
    let converted = match value {
        Val::Int(value) => Some(*value),
        Val::Uint(value) => return i64::try_from(*value).map(Val::Int).map_err(|_| INT_RANGE),
        Val::Double(value) => return integer(*value).map(Val::Int).ok_or(INT_RANGE),
        Val::Str(text) => text.parse().ok(),
        Val::Timestamp(instant) => Some(instant.unix_timestamp()),
        _ => return Err(EvalError::no_such_overload("int", arguments)),
    };
    converted.map(Val::Int).ok_or_else(|| refused(value, "int"))
}

const INT_RANGE: EvalError = EvalError::Overflow("integer");
const UINT_RANGE: EvalError = EvalError::Overflow("unsigned integer");

/// Cuts off the fraction. The ends of the range are refused too, since doubles near them are not exact.
fn integer(double: f64) -> Option<i64> {
    let whole = double.is_finite().then(|| truncate(double))?;
    i64::try_from(whole).ok().filter(|whole| *whole != i64::MAX && *whole != i64::MIN)
}

fn uint<'a>(_: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let [value] = arguments else { return Err(EvalError::no_such_overload("uint", arguments)) };
    let converted = match value {
        Val::Uint(value) => Some(*value),
        Val::Int(value) => return u64::try_from(*value).map(Val::Uint).map_err(|_| UINT_RANGE),
        Val::Double(value) => {
            let whole = if value.is_finite() && *value >= 0.0 { truncate(*value) } else { -1 };
            return u64::try_from(whole).map(Val::Uint).map_err(|_| UINT_RANGE);
        }
        Val::Str(text) => text.parse().ok(),
        _ => return Err(EvalError::no_such_overload("uint", arguments)),
    };
    converted.map(Val::Uint).ok_or_else(|| refused(value, "uint"))
}

#[allow(clippy::cast_precision_loss)] // CEL rounds to the nearest double, as `as` does
fn double<'a>(_: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let [value] = arguments else { return Err(EvalError::no_such_overload("double", arguments)) };
    let converted = match value {
        Val::Double(value) => Some(*value),
        Val::Int(value) => Some(*value as f64),
        Val::Uint(value) => Some(*value as f64),
        Val::Str(text) => text.parse().ok(),
        _ => return Err(EvalError::no_such_overload("double", arguments)),
    };
    converted.map(Val::Double).ok_or_else(|| refused(value, "double"))
}

fn bool<'a>(_: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    match arguments {
        [Val::Bool(value)] => Ok(Val::Bool(*value)),
        [value @ Val::Str(text)] => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Val::Bool(false)),
            _ => Err(refused(value, "bool")),
        },
        _ => Err(EvalError::no_such_overload("bool", arguments)),
    }
}

fn string<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let text = match arguments {
        [value @ Val::Str(_)] => return Ok(value.clone()),
        [Val::Bool(value)] => value.to_string(),
        [Val::Int(value)] => value.to_string(),
        [Val::Uint(value)] => value.to_string(),
        [Val::Double(value)] => double_text(*value),
        [value @ Val::Bytes(bytes)] => {
            meter.produce(bytes.len())?;
            std::str::from_utf8(bytes).map_err(|_| refused(value, "string"))?.to_owned()
        }
        [Val::Timestamp(instant)] => temporal::timestamp_text(instant)?,
        [Val::Duration(nanoseconds)] => temporal::duration_text(*nanoseconds),
        [Val::Ip(address)] => address.to_string(),
        [Val::Cidr(network)] => network.to_string(),
        _ => return Err(EvalError::no_such_overload("string", arguments)),
    };
    meter.produce(text.len())?;
    Ok(Val::text(text))
}

fn bytes<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    match arguments {
        [value @ Val::Bytes(_)] => Ok(value.clone()),
        [Val::Str(text)] => {
            meter.produce(text.len())?;
            Ok(Val::Bytes(Arc::from(text.as_bytes())))
        }
        _ => Err(EvalError::no_such_overload("bytes", arguments)),
    }
}

/// Go's `%g` writes an exponent from this one up, and below -4.
const EXPONENT_FROM: i32 = 6;

/// The shortest text that reads back as the same double, in Go's `%g` form: an exponent from a million up and
/// below a ten thousandth.
pub(crate) fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    // Rust writes the shortest digits, with the exponent of the first one.
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..EXPONENT_FROM).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.unsigned_abs());
    }
    format!("{value}")
}
