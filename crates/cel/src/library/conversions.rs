//! Conversions between types, and the text of values.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::EvalError;
use crate::library::function::Function;
use crate::meter::Meter;
use crate::value::number::truncate;
use crate::value::temporal;
use crate::value::{Outcome, Val};

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

/// Digits of an integer that are read in a step: there may be any number of leading zeros.
const DIGITS_PER_STEP: u64 = 8;

fn refused(value: &Val<'_>, to: &'static str) -> EvalError {
    EvalError::conversion(value.type_name(), to)
}

fn int<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let [value] = arguments else { return Err(EvalError::no_such_overload("int", arguments)) };
    let converted = match value {
        Val::Int(value) => Some(*value),
        Val::Uint(value) => return i64::try_from(*value).map(Val::Int).map_err(|_| INT_RANGE),
        Val::Double(value) => return integer(*value).map(Val::Int).ok_or(INT_RANGE),
        Val::Str(text) => {
            meter.count_steps(text.len() as u64 / DIGITS_PER_STEP)?;
            text.parse().ok()
        }
        Val::Timestamp(instant) => Some(instant.unix_timestamp()),
        Val::Duration(nanoseconds) => Some(*nanoseconds),
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

fn uint<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let [value] = arguments else { return Err(EvalError::no_such_overload("uint", arguments)) };
    let converted = match value {
        Val::Uint(value) => Some(*value),
        Val::Int(value) => return u64::try_from(*value).map(Val::Uint).map_err(|_| UINT_RANGE),
        Val::Double(value) => {
            let whole = if value.is_finite() && *value >= 0.0 { truncate(*value) } else { -1 };
            return u64::try_from(whole).map(Val::Uint).map_err(|_| UINT_RANGE);
        }
        // Unlike an int's, this text has no sign.
        Val::Str(text) if text.starts_with('+') => None,
        Val::Str(text) => {
            meter.count_steps(text.len() as u64 / DIGITS_PER_STEP)?;
            text.parse().ok()
        }
        _ => return Err(EvalError::no_such_overload("uint", arguments)),
    };
    converted.map(Val::Uint).ok_or_else(|| refused(value, "uint"))
}

#[allow(clippy::cast_precision_loss)] // CEL rounds to the nearest double, as `as` does
fn double<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let [value] = arguments else { return Err(EvalError::no_such_overload("double", arguments)) };
    let converted = match value {
        Val::Double(value) => Some(*value),
        Val::Int(value) => Some(*value as f64),
        Val::Uint(value) => Some(*value as f64),
        Val::Str(text) => {
            // Every digit counts, also one that changes nothing.
            meter.count_steps(text.len() as u64)?;
            parse_double(text)
        }
        _ => return Err(EvalError::no_such_overload("double", arguments)),
    };
    converted.map(Val::Double).ok_or_else(|| refused(value, "double"))
}

/// A double as Go reads it: with underscores between digits, and in hexadecimal with a binary exponent. Text whose
/// number is too large is refused.
fn parse_double(text: &str) -> Option<f64> {
    let (negative, magnitude) = match text.strip_prefix('-') {
        Some(magnitude) => (true, magnitude),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if ["inf", "infinity"].iter().any(|name| magnitude.eq_ignore_ascii_case(name)) {
        return Some(if negative { f64::NEG_INFINITY } else { f64::INFINITY });
    }
    if text.eq_ignore_ascii_case("nan") {
        return Some(f64::NAN);
    }
    let hexadecimal = magnitude.strip_prefix("0x").or_else(|| magnitude.strip_prefix("0X"));
    let digits = without_underscores(hexadecimal.unwrap_or(magnitude), hexadecimal.is_some())?;
    let number = match hexadecimal {
        Some(_) => parse_hexadecimal(&digits)?,
        None if digits.starts_with(|c: char| c == '.' || c.is_ascii_digit()) => digits.parse().ok()?,
        None => return None,
    };
    number.is_finite().then_some(if negative { -number } else { number })
}

/// An underscore stands between digits, or after the prefix.
fn without_underscores(text: &str, prefixed: bool) -> Option<Cow<'_, str>> {
    if !text.contains('_') {
        return Some(Cow::Borrowed(text));
    }
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    for (index, _) in text.match_indices('_') {
        let before = match index.checked_sub(1) {
            Some(before) => is_digit(bytes.get(before)),
            None => prefixed,
        };
        if !before || !is_digit(bytes.get(index + 1)) {
            return None;
        }
    }
    Some(Cow::Owned(text.replace('_', "")))
}

/// Hexadecimal digits with a binary exponent, such as `1.8p3`.
#[allow(clippy::cast_precision_loss)] // rounds to the nearest double
fn parse_hexadecimal(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once(['p', 'P'])?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (mut mantissa, mut power) = (0_u64, exponent.clamp(-100_000, 100_000));
    for (index, digit) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = u64::from(digit.to_digit(16)?);
        let is_fraction = index >= whole.len();
        if mantissa >> 59 == 0 {
            mantissa = mantissa << 4 | digit;
            power = power.saturating_sub(if is_fraction { 4 } else { 0 });
        } else {
            // Beyond what counts, save that something follows.
            mantissa |= u64::from(digit != 0);
            power = power.saturating_add(if is_fraction { 0 } else { 4 });
        }
    }
    let mut number = mantissa as f64;
    // In steps that neither overflow nor vanish while the result does not.
    while power != 0 && number != 0.0 && number.is_finite() {
        let step = power.clamp(-1_000, 1_000);
        number *= 2_f64.powi(step);
        power -= step;
    }
    Some(number)
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
        [Val::Duration(nanoseconds)] => temporal::seconds_text(*nanoseconds),
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
