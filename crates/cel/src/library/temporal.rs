//! Timestamps and durations. Timestamps lie in the years 1 to 9999 and durations within 292 years, both to the
//! nanosecond. A timestamp keeps the offset it was written with, which only its text shows. Time zones are fixed
//! offsets (`-07:00`) and those of the IANA database, which is linked in: images have none.

use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;
use time::{Date, Duration, Month, OffsetDateTime, Time, UtcOffset};

use crate::error::EvalError;
use crate::library::{Function, Outcome};
use crate::meter::Meter;
use crate::value::Val;

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

const MICROSECOND: i64 = 1_000;
const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// Longest text of a duration or a timestamp that is looked at.
const MAX_TEXT_BYTES: usize = 128;

/// The seconds of the years 1 and 9999, in UTC.
const FIRST_SECOND: i64 = -62_135_596_800;
const LAST_SECOND: i64 = 253_402_300_799;

/// Whether it is what Go takes for no time: the beginning of the year 1.
pub(crate) fn is_zero(instant: &OffsetDateTime) -> bool {
    instant.unix_timestamp() == FIRST_SECOND && instant.nanosecond() == 0
}

/// Whether a timestamp is one of CEL's.
pub(crate) fn in_range(instant: &OffsetDateTime) -> bool {
    (FIRST_SECOND..=LAST_SECOND).contains(&instant.unix_timestamp())
}

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

/// RFC 3339 as Go reads it: the hour may have one digit, decimals may follow a comma, and more than nine of them are
/// cut off; letters must be capital, and an offset may be of 24 hours or have 60 minutes.
fn parse_timestamp(text: &str) -> Option<OffsetDateTime> {
    let mut rest = text;
    let year: i32 = digits(&mut rest, 4)?;
    let month: u8 = literal(&mut rest, '-').and_then(|()| digits(&mut rest, 2))?;
    let day: u8 = literal(&mut rest, '-').and_then(|()| digits(&mut rest, 2))?;
    literal(&mut rest, 'T')?;
    let hour: u8 = digits(&mut rest, 2).or_else(|| digits(&mut rest, 1))?;
    let minute: u8 = literal(&mut rest, ':').and_then(|()| digits(&mut rest, 2))?;
    let second: u8 = literal(&mut rest, ':').and_then(|()| digits(&mut rest, 2))?;
    let mut nanosecond = 0;
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
        let (decimals, after) = fraction.split_at(end);
        if decimals.is_empty() {
            return None;
        }
        let decimals = decimals.get(..9).unwrap_or(decimals);
        nanosecond = format!("{decimals:0<9}").parse().ok()?;
        rest = after;
    }
    let offset = if rest == "Z" {
        UtcOffset::UTC
    } else {
        let sign = if rest.starts_with('-') { -1 } else { 1 };
        rest = rest.strip_prefix(['+', '-'])?;
        let hours: i32 = digits(&mut rest, 2)?;
        let minutes: i32 = literal(&mut rest, ':').and_then(|()| digits(&mut rest, 2))?;
        if !rest.is_empty() || hours > 24 || minutes > 60 {
            return None;
        }
        UtcOffset::from_whole_seconds(sign * (hours * 3_600 + minutes * 60)).ok()?
    };
    let date = Date::from_calendar_date(year, Month::try_from(month).ok()?, day).ok()?;
    let time = Time::from_hms_nano(hour, minute, second, nanosecond).ok()?;
    Some(date.with_time(time).assume_offset(offset))
}

/// Takes so many digits off the beginning.
fn digits<T: FromStr>(rest: &mut &str, count: usize) -> Option<T> {
    let (number, after) = rest.split_at_checked(count)?;
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    *rest = after;
    number.parse().ok()
}

fn literal(rest: &mut &str, expected: char) -> Option<()> {
    *rest = rest.strip_prefix(expected)?;
    Some(())
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

/// Seconds as CEL writes them: through a double, so that long durations lose their last decimals.
#[allow(clippy::cast_precision_loss)] // as Kubernetes does
pub(crate) fn seconds_text(nanoseconds: i64) -> String {
    let seconds = (nanoseconds / SECOND) as f64 + (nanoseconds % SECOND) as f64 / 1e9;
    format!("{seconds}s")
}

/// RFC 3339 with the offset that the timestamp was written with and as many decimals as needed.
pub(crate) fn timestamp_text(instant: &OffsetDateTime) -> Result<String, EvalError> {
    let (date, time, offset) = (instant.date(), instant.time(), instant.offset().whole_minutes());
    let mut text = format!("{:04}-{:02}-{:02}", date.year(), u8::from(date.month()), date.day());
    let mut write = || {
        write!(text, "T{:02}:{:02}:{:02}", time.hour(), time.minute(), time.second())?;
        if time.nanosecond() > 0 {
            text.push('.');
            text.push_str(format!("{:09}", time.nanosecond()).trim_end_matches('0'));
        }
        if offset == 0 {
            text.push('Z');
            return Ok(());
        }
        let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs());
        write!(text, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    };
    match write() {
        Ok(()) => Ok(text),
        Err(std::fmt::Error) => Err(EvalError::Overflow("timestamp")),
    }
}

/// After 400 years the calendar repeats. Dates are looked at so much earlier, as the last ones can be in the year
/// 10,000 of a zone.
const CYCLE: Duration = Duration::days(146_097);
const CYCLE_YEARS: i64 = 400;

/// Ticks of looking a zone up, whether it is known or not.
const ZONE_TICKS: u64 = 40;

fn get_in_zone<'a>(name: &'static str, meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    meter.tick(ZONE_TICKS)?;
    get(name, arguments)
}

fn get<'a>(name: &'static str, arguments: &[Val<'a>]) -> Outcome<'a> {
    let instant = match arguments {
        [Val::Duration(nanoseconds)] => return of_duration(name, *nanoseconds, arguments),
        [Val::Timestamp(instant)] => instant.to_offset(UtcOffset::UTC) - CYCLE,
        [Val::Timestamp(instant), Val::Str(zone)] => zone_offset(zone, instant)
            .and_then(|offset| (instant.to_offset(UtcOffset::UTC) - CYCLE).checked_add(offset))
            .ok_or_else(|| {
                EvalError::invalid(name, format!("unknown time zone {}", crate::error::shorten(zone)))
            })?,
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
