//! Timestamps and durations. Timestamps lie in the years 1 to 9999 and durations within 292 years, both to the
//! nanosecond. Time zones are `UTC` and fixed offsets (`-07:00`).

use std::sync::Arc;

use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};

use crate::error::EvalError;
use crate::functions::{Function, Outcome};
use crate::meter::Meter;
use crate::value::Val;

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::global("duration", 1, duration),
    Function::global("timestamp", 1, timestamp),
    Function::member("getFullYear", 1, |_, a| get("getFullYear", a)),
    Function::member("getFullYear", 2, |_, a| get("getFullYear", a)),
    Function::member("getMonth", 1, |_, a| get("getMonth", a)),
    Function::member("getMonth", 2, |_, a| get("getMonth", a)),
    Function::member("getDate", 1, |_, a| get("getDate", a)),
    Function::member("getDate", 2, |_, a| get("getDate", a)),
    Function::member("getDayOfMonth", 1, |_, a| get("getDayOfMonth", a)),
    Function::member("getDayOfMonth", 2, |_, a| get("getDayOfMonth", a)),
    Function::member("getDayOfWeek", 1, |_, a| get("getDayOfWeek", a)),
    Function::member("getDayOfWeek", 2, |_, a| get("getDayOfWeek", a)),
    Function::member("getDayOfYear", 1, |_, a| get("getDayOfYear", a)),
    Function::member("getDayOfYear", 2, |_, a| get("getDayOfYear", a)),
    Function::member("getHours", 1, |_, a| get("getHours", a)),
    Function::member("getHours", 2, |_, a| get("getHours", a)),
    Function::member("getMinutes", 1, |_, a| get("getMinutes", a)),
    Function::member("getMinutes", 2, |_, a| get("getMinutes", a)),
    Function::member("getSeconds", 1, |_, a| get("getSeconds", a)),
    Function::member("getSeconds", 2, |_, a| get("getSeconds", a)),
    Function::member("getMilliseconds", 1, |_, a| get("getMilliseconds", a)),
    Function::member("getMilliseconds", 2, |_, a| get("getMilliseconds", a)),
];

const MICROSECOND: i64 = 1_000;
const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// Longest text of a duration or a timestamp that is looked at.
const MAX_TEXT_BYTES: usize = 128;

/// Whether a timestamp is one of CEL's.
pub(crate) fn in_range(instant: &OffsetDateTime) -> bool {
    (1..=9999).contains(&instant.year())
}

fn duration<'a>(_: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    match arguments {
        [value @ Val::Duration(_)] => Ok(value.clone()),
        [Val::Str(text)] => parse_duration(text)
            .map(Val::Duration)
            .ok_or_else(|| EvalError::conversion("string", "google.protobuf.Duration", text)),
        _ => Err(EvalError::no_such_overload("duration", arguments)),
    }
}

fn timestamp<'a>(_: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    const TYPE: &str = "google.protobuf.Timestamp";
    let instant = match arguments {
        [value @ Val::Timestamp(_)] => return Ok(value.clone()),
        [Val::Int(seconds)] => OffsetDateTime::from_unix_timestamp(*seconds).ok(),
        [Val::Str(text)] if text.len() <= MAX_TEXT_BYTES => OffsetDateTime::parse(text, &Rfc3339).ok(),
        [Val::Str(_)] => None,
        _ => return Err(EvalError::no_such_overload("timestamp", arguments)),
    };
    instant
        .and_then(|instant| instant.checked_to_offset(UtcOffset::UTC))
        .filter(in_range)
        .map(|instant| Val::Timestamp(Arc::new(instant)))
        .ok_or_else(|| {
            let value = arguments.first().map(crate::conversions::display).unwrap_or_default();
            EvalError::conversion(arguments.first().map_or("", Val::type_name), TYPE, &value)
        })
}

/// Go's form: an optional sign and numbers with units, such as `1h30m` or `-1.5s`.
fn parse_duration(text: &str) -> Option<i64> {
    if text.len() > MAX_TEXT_BYTES {
        return None;
    }
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let whole_end = rest.find(|c: char| !c.is_ascii_digit())?;
        let (whole, after) = rest.split_at(whole_end);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(after.find(|c: char| !c.is_ascii_digit())?),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let unit_end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let scale = i128::from(match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => MICROSECOND,
            "ms" => MILLISECOND,
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            _ => return None,
        });
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.into() };
        total = total.checked_add(whole.checked_mul(scale)?)?;
        // Digits below a nanosecond are cut off.
        let mut part = scale;
        for digit in fraction.bytes() {
            part /= 10;
            total += part * i128::from(digit - b'0');
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Seconds with as many decimals as needed: `5400s`, `1.5s`.
pub(crate) fn duration_text(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let (seconds, rest) =
        (nanoseconds.unsigned_abs() / 1_000_000_000, nanoseconds.unsigned_abs() % 1_000_000_000);
    if rest == 0 {
        return format!("{sign}{seconds}s");
    }
    let fraction = format!("{rest:09}");
    format!("{sign}{seconds}.{}s", fraction.trim_end_matches('0'))
}

/// RFC 3339 in UTC, with as many decimals as needed.
pub(crate) fn timestamp_text(instant: &OffsetDateTime) -> Result<String, EvalError> {
    instant.format(&Rfc3339).map_err(|_| EvalError::Overflow("timestamp"))
}

fn get<'a>(name: &'static str, arguments: &[Val<'a>]) -> Outcome<'a> {
    let instant = match arguments {
        [Val::Duration(nanoseconds)] => return of_duration(name, *nanoseconds, arguments),
        [Val::Timestamp(instant)] => **instant,
        [Val::Timestamp(instant), Val::Str(zone)] => {
            zone_offset(zone).and_then(|offset| instant.checked_to_offset(offset)).ok_or_else(|| {
                EvalError::invalid(name, format!("unknown time zone {}", crate::error::shorten(zone)))
            })?
        }
        _ => return Err(EvalError::no_such_overload(name, arguments)),
    };
    Ok(Val::Int(match name {
        "getFullYear" => i64::from(instant.year()),
        "getMonth" => i64::from(u8::from(instant.month())) - 1,
        "getDate" => i64::from(instant.day()),
        "getDayOfMonth" => i64::from(instant.day()) - 1,
        "getDayOfWeek" => i64::from(instant.weekday().number_days_from_sunday()),
        "getDayOfYear" => i64::from(instant.ordinal()) - 1,
        "getHours" => i64::from(instant.hour()),
        "getMinutes" => i64::from(instant.minute()),
        "getSeconds" => i64::from(instant.second()),
        _ => i64::from(instant.millisecond()),
    }))
}

/// The whole of a duration in a unit; only milliseconds are those within the second.
fn of_duration<'a>(name: &'static str, nanoseconds: i64, arguments: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Int(match name {
        "getHours" => nanoseconds / HOUR,
        "getMinutes" => nanoseconds / MINUTE,
        "getSeconds" => nanoseconds / SECOND,
        "getMilliseconds" => nanoseconds % SECOND / MILLISECOND,
        _ => return Err(EvalError::no_such_overload(name, arguments)),
    }))
}

/// `UTC`, or `[+-]HH:MM`.
fn zone_offset(zone: &str) -> Option<UtcOffset> {
    if matches!(zone, "" | "UTC" | "Z") {
        return Some(UtcOffset::UTC);
    }
    let (sign, rest) = match zone.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, zone.strip_prefix('+').unwrap_or(zone)),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let number = |text: &str| -> Option<i8> {
        if text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit()) {
            text.parse().ok()
        } else {
            None
        }
    };
    UtcOffset::from_hms(sign * number(hours)?, sign * number(minutes)?, 0).ok()
}
