//! Instants and spans as the API server writes them and as people read them.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Reads an instant such as `2026-11-21T10:43:01Z`.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    text.parse::<Timestamp>().ok().map(SystemTime::from)
}

/// Reads a `Date` header.
pub(crate) fn parse_http_date(text: &str) -> Option<SystemTime> {
    DateTimeParser::new().parse_timestamp(text).ok().map(SystemTime::from)
}

/// The instant to the second, as Kubernetes writes it; empty beyond the years that the form has.
pub(crate) fn format_instant(time: SystemTime) -> String {
    Timestamp::try_from(time).map(|time| format!("{time:.0}")).unwrap_or_default()
}

/// A span with the one unit that says enough: `45 s`, `12 min`, `5 h`, `89 d`.
pub(crate) fn format_span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / MINUTE),
        7200..172_800 => format!("{} h", seconds / HOUR),
        _ => format!("{} d", seconds / DAY),
    }
}

/// How far an instant is from `now`: `in 89 d`, or `5 min ago`.
pub(crate) fn format_relative(time: SystemTime, now: SystemTime) -> String {
    match time.duration_since(now) {
        Ok(ahead) => format!("in {}", format_span(ahead)),
        Err(behind) => format!("{} ago", format_span(behind.duration())),
    }
}

/// How long ago it was; nothing if it is yet to come.
pub(crate) fn since(time: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_in_both_notations() {
        let wanted = SystemTime::UNIX_EPOCH + Duration::from_secs(784_887_151);
        assert_eq!(parse_http_date("Tue, 15 Nov 1994 08:12:31 GMT"), Some(wanted));
        assert_eq!(parse("1994-11-15T08:12:31Z"), Some(wanted));
        assert_eq!(parse("1994-11-15T08:12:31.000000Z"), Some(wanted), "a Lease has microseconds");
        assert_eq!(format_instant(wanted + Duration::from_millis(700)), "1994-11-15T08:12:31Z");
        for text in ["", "yesterday", "1994-11-15"] {
            assert_eq!((parse(text), parse_http_date(text)), (None, None), "{text}");
        }
    }

    #[test]
    fn spans_have_one_unit() {
        for (seconds, text) in [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172_800, "2 d")] {
            assert_eq!(format_span(Duration::from_secs(seconds)), text);
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        assert_eq!(format_relative(now + Duration::from_secs(90), now), "in 90 s");
        assert_eq!(format_relative(now - Duration::from_secs(90), now), "90 s ago");
    }
}
