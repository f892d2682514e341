//! Timestamps and durations. Time zones are fixed offsets (`-07:00`) and those of the IANA database, which is linked
//! in: images have none.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;
use time::{Duration, OffsetDateTime, UtcOffset};

use crate::error::{EvalError, shorten};
use crate::library::function::Function;
use crate::meter::Meter;
use crate::value::temporal::{
    HOUR, MAX_TEXT_BYTES, MILLISECOND, MINUTE, SECOND, in_range, parse_duration, parse_timestamp,
};
use crate::value::{Outcome, Val};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::global("duration", 1, duration),
    Function::global("timestamp", 1, timestamp),
    Function::member("getFullYear", 1, |_, a| get("getFullYear", a)),
    Function::member("getFullYear", 2, |meter, a| get_in_zone("getFullYear", meter, a)),
    Function::member("getMonth", 1, |_, a| get("getMonth", a)),
    Function::member("getMonth", 2, |meter, a| get_in_zone("getMonth", meter, a)),
    Function::member("getDate", 1, |_, a| get("getDate", a)),
    Function::member("getDate", 2, |meter, a| get_in_zone("getDate", meter, a)),
    Function::member("getDayOfMonth", 1, |_, a| get("getDayOfMonth", a)),
    Function::member("getDayOfMonth", 2, |meter, a| get_in_zone("getDayOfMonth", meter, a)),
    Function::member("getDayOfWeek", 1, |_, a| get("getDayOfWeek", a)),
    Function::member("getDayOfWeek", 2, |meter, a| get_in_zone("getDayOfWeek", meter, a)),
    Function::member("getDayOfYear", 1, |_, a| get("getDayOfYear", a)),
    Function::member("getDayOfYear", 2, |meter, a| get_in_zone("getDayOfYear", meter, a)),
    Function::member("getHours", 1, |_, a| get("getHours", a)),
    Function::member("getHours", 2, |meter, a| get_in_zone("getHours", meter, a)),
    Function::member("getMinutes", 1, |_, a| get("getMinutes", a)),
    Function::member("getMinutes", 2, |meter, a| get_in_zone("getMinutes", meter, a)),
    Function::member("getSeconds", 1, |_, a| get("getSeconds", a)),
    Function::member("getSeconds", 2, |meter, a| get_in_zone("getSeconds", meter, a)),
    Function::member("getMilliseconds", 1, |_, a| get("getMilliseconds", a)),
    Function::member("getMilliseconds", 2, |meter, a| get_in_zone("getMilliseconds", meter, a)),
];

fn duration<'a>(_: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    match arguments {
        [value @ Val::Duration(_)] => Ok(value.clone()),
        [Val::Str(text)] => parse_duration(text)
            .map(Val::Duration)
            .ok_or(EvalError::conversion("string", "google.protobuf.Duration")),
        _ => Err(EvalError::no_such_overload("duration", arguments)),
    }
}

fn timestamp<'a>(_: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    const TYPE: &str = "google.protobuf.Timestamp";
    let instant = match arguments {
        [value @ Val::Timestamp(_)] => return Ok(value.clone()),
        [Val::Int(seconds)] => OffsetDateTime::from_unix_timestamp(*seconds).ok(),
        [Val::Str(text)] if text.len() <= MAX_TEXT_BYTES => parse_timestamp(text),
        [Val::Str(_)] => None,
        _ => return Err(EvalError::no_such_overload("timestamp", arguments)),
    };
    instant.filter(in_range).map(|instant| Val::Timestamp(Arc::new(instant))).ok_or(match arguments {
        [Val::Str(_)] => EvalError::conversion("string", TYPE),
        _ => EvalError::Overflow("timestamp"),
    })
}

/// After 400 years the calendar repeats. Dates are looked at so much earlier, as the last ones can be in the year
/// 10,000 of a zone.
const CYCLE: Duration = Duration::days(146_097);
const CYCLE_YEARS: i64 = 400;
/// Steps of looking a zone up, whether it is known or not.
const ZONE_STEPS: u64 = 40;

fn get_in_zone<'a>(name: &'static str, meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    meter.count_steps(ZONE_STEPS)?;
    get(name, arguments)
}

fn get<'a>(name: &'static str, arguments: &[Val<'a>]) -> Outcome<'a> {
    let instant = match arguments {
        [Val::Duration(nanoseconds)] => return of_duration(name, *nanoseconds, arguments),
        [Val::Timestamp(instant)] => instant.to_offset(UtcOffset::UTC) - CYCLE,
        [Val::Timestamp(instant), Val::Str(zone)] => zone_offset(zone, instant)
            .and_then(|offset| (instant.to_offset(UtcOffset::UTC) - CYCLE).checked_add(offset))
            .ok_or_else(|| EvalError::invalid(name, format!("unknown time zone {}", shorten(zone))))?,
        _ => return Err(EvalError::no_such_overload(name, arguments)),
    };
    Ok(Val::Int(match name {
        "getFullYear" => i64::from(instant.year()) + CYCLE_YEARS,
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

/// How many whole units a duration has. The API server adds the rest as a fraction of a double, and cuts that off
/// again: far from zero, a rest that is almost a unit makes one.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // as it is meant
fn whole(nanoseconds: i64, unit: i64) -> i64 {
    let (units, rest) = (nanoseconds / unit, nanoseconds % unit);
    (units as f64 + rest as f64 / unit as f64) as i64
}

/// The whole of a duration in a unit.
fn of_duration<'a>(name: &'static str, nanoseconds: i64, arguments: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Int(match name {
        "getHours" => whole(nanoseconds, HOUR),
        "getMinutes" => whole(nanoseconds, MINUTE),
        "getSeconds" => whole(nanoseconds, SECOND),
        "getMilliseconds" => nanoseconds / MILLISECOND,
        _ => return Err(EvalError::no_such_overload(name, arguments)),
    }))
}

/// Longest name or offset of a time zone: names have some thirty bytes.
const MAX_ZONE_BYTES: usize = 128;

/// What a zone adds to UTC at an instant. `Local` is the process's own: UTC, as in the API server's container. An
/// offset is two numbers around a colon, each as it likes.
fn zone_offset(zone: &str, instant: &OffsetDateTime) -> Option<Duration> {
    if matches!(zone, "" | "UTC" | "Local") {
        return Some(Duration::ZERO);
    }
    if zone.len() > MAX_ZONE_BYTES {
        return None;
    }
    let Some((hours, minutes)) = zone.split_once(':') else {
        return named_offset(zone, instant);
    };
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let minutes = if zone.starts_with('-') { minutes.checked_neg()? } else { minutes };
    let seconds = hours.checked_mul(60)?.checked_add(minutes)?.checked_mul(60)?;
    Some(Duration::seconds(seconds))
}

fn named_offset(zone: &str, instant: &OffsetDateTime) -> Option<Duration> {
    static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
    let found = ZONES.get(zone).ok()?;
    // The API server finds zones as files, whose names have a case.
    found.iana_name().filter(|name| *name == zone)?;
    // Which leaves out the last day of the year 9999.
    let (least, most) = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    let instant = Timestamp::from_second(instant.unix_timestamp().clamp(least, most)).ok()?;
    Some(Duration::seconds(i64::from(found.to_offset(instant).seconds())))
}
