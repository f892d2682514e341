//! How long a review may take: what the API server grants, less a margin in
//! which the answer travels back (C-60, C-61).

use std::time::Duration;

/// The API server's own bounds of `timeoutSeconds`.
const LONGEST: Duration = Duration::from_secs(30);

/// The time that `?timeout=` grants, less the margin. Leniently read: what is
/// missing, zero or garbage is the default.
pub(crate) fn granted(query: Option<&str>, default: Duration) -> Duration {
    let named = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .find_map(|pair| pair.strip_prefix("timeout="))
        .and_then(|text| go_duration(text).ok())
        .filter(|timeout| !timeout.is_zero());
    let timeout = named.unwrap_or(default).min(LONGEST);
    let margin = (timeout / 10).max(Duration::from_millis(100));
    // Of less than twice the margin, half is left for the backend.
    timeout.checked_sub(margin).unwrap_or_default().max(timeout / 2)
}

/// A duration as Go writes it: `10s`, `500ms`, `1m0s`, `1.5h`.
pub(crate) fn go_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 500ms, 10s or 1m30s");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(digits);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let (unit, seconds) =
            [("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("ns", 1e-9), ("s", 1.0), ("m", 60.0), ("h", 3600.0)]
                .into_iter()
                .find(|(unit, _)| tail.starts_with(unit))
                .ok_or_else(wrong)?;
        total += number * seconds;
        rest = &tail[unit.len()..];
    }
    if text.is_empty() {
        return Err(wrong());
    }
    Duration::try_from_secs_f64(total).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{go_duration, granted};

    #[test]
    fn gos_durations_are_read_c61() {
        for (text, milliseconds) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("500ms", Some(500)),
            ("5s", Some(5_000)),
            ("1m0s", Some(60_000)),
            ("1.5h", Some(5_400_000)),
            ("1500us", Some(1)),
            ("", None),
            ("10", None),
            ("s", None),
            ("-1s", None),
            ("1x", None),
            ("1..2s", None),
            ("99999999999999999999h", None),
        ] {
            let read = go_duration(text).ok().map(|duration| duration.as_millis());
            assert_eq!(read, milliseconds, "{text:?}");
        }
    }

    #[test]
    fn the_backend_gets_what_is_granted_less_a_margin_c60_c61() {
        let default = Duration::from_secs(10);
        for (query, milliseconds) in [
            (None, 9_000),
            (Some(""), 9_000),
            (Some("timeout=10s"), 9_000),
            (Some("timeout=1s"), 900),
            (Some("timeout=500ms"), 400),
            (Some("timeout=100ms"), 50),
            (Some("timeout=30s"), 27_000),
            (Some("timeout=1m0s"), 27_000),
            (Some("timeout=0s"), 9_000),
            (Some("timeout=garbage"), 9_000),
            (Some("a=b&timeout=2s&timeout=9s"), 1_800),
        ] {
            assert_eq!(granted(query, default).as_millis(), milliseconds, "{query:?}");
        }
    }
}
