//! Timestamps and durations as text.
//!
//! Timestamps lie in the years 1 to 9999 and durations within 292 years, both to the nanosecond. A timestamp keeps
//! the offset it was written with, which only its text shows.

use std::fmt::Write as _;
use std::str::FromStr;

use time::{Date, Month, OffsetDateTime, Time, UtcOffset};

use crate::error::EvalError;

const MICROSECOND: i64 = 1_000;
pub(crate) const MILLISECOND: i64 = 1_000_000;
pub(crate) const SECOND: i64 = 1_000_000_000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
pub(crate) const HOUR: i64 = 60 * MINUTE;
/// Longest text of a duration or a timestamp that is looked at.
pub(crate) const MAX_TEXT_BYTES: usize = 128;
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

/// RFC 3339 as Go reads it: the hour may have one digit, decimals may follow a comma, and more than nine of them are
/// cut off; letters must be capital, and an offset may be of 24 hours or have 60 minutes.
pub(crate) fn parse_timestamp(text: &str) -> Option<OffsetDateTime> {
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
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
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
