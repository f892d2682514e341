//! Points in time as Kubernetes writes them (RFC 3339), and what its API server says of others.

/// The parts of an instant: how a message calls them, and how many digits they have.
const PARTS: [(&str, usize, char); 6] =
    [("2006", 4, '-'), ("01", 2, '-'), ("02", 2, 'T'), ("15", 2, ':'), ("04", 2, ':'), ("05", 2, '\0')];

/// How exact an instant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// Decimals may be left out.
    Seconds,
    /// There are six decimals.
    Microseconds,
}

/// Checks an instant.
pub(crate) fn check(text: &str, precision: Precision) -> Result<(), String> {
    let micro = precision == Precision::Microseconds;
    let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    let failed = |rest: &str, part: &str| {
        Err(format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}"))
    };
    let out_of_range = |what: &str| Err(format!("parsing time {text:?}: {what} out of range"));
    let mut rest = text;
    let mut numbers = [0_u32; 6];
    for ((part, width, after), number) in PARTS.into_iter().zip(&mut numbers) {
        let digits = rest.get(..width).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(Ok(value)) = digits.map(str::parse) else { return failed(rest, part) };
        *number = value;
        rest = rest.get(width..).unwrap_or_default();
        if after != '\0' {
            match rest.strip_prefix(after) {
                Some(next) => rest = next,
                None => return failed(rest, &after.to_string()),
            }
        }
    }
    let [year, month, day, hour, minute, second] = numbers;
    let decimals = rest.strip_prefix('.').map(|rest| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest.split_at(digits)
    });
    match decimals {
        Some((digits, after)) if !digits.is_empty() && (!micro || digits.len() == 6) => rest = after,
        Some(_) => return failed(rest, if micro { ".000000" } else { "Z07:00" }),
        None if micro => return failed(rest, ".000000"),
        None => {}
    }
    if !is_zone(rest) {
        return failed(rest, "Z07:00");
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    match () {
        () if !(1..=12).contains(&month) => out_of_range("month"),
        () if !(1..=days).contains(&day) => out_of_range("day"),
        () if hour > 23 => out_of_range("hour"),
        () if minute > 59 => out_of_range("minute"),
        () if second > 59 => out_of_range("second"),
        () => Ok(()),
    }
}

fn is_zone(text: &str) -> bool {
    if text == "Z" {
        return true;
    }
    let Some((hours, minutes)) = text.strip_prefix(['+', '-']).and_then(|offset| offset.split_once(':'))
    else {
        return false;
    };
    let within = |digits: &str, limit: u32| {
        digits.len() == 2
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && digits.parse().is_ok_and(|it: u32| it <= limit)
    };
    within(hours, 24) && within(minutes, 60)
}

#[cfg(test)]
mod tests {
    use super::Precision::{Microseconds, Seconds};
    use super::check;

    #[test]
    fn instants_are_read_as_kubernetes_reads_them() {
        let rows = [
            ("2026-01-02T03:04:05Z", Seconds, ""),
            ("2026-01-02T03:04:05+02:00", Seconds, ""),
            ("2026-01-02T03:04:05.123Z", Seconds, ""),
            ("2026-01-02T03:04:05.123456Z", Microseconds, ""),
            ("2024-02-29T00:00:00Z", Seconds, ""),
            (
                "x",
                Seconds,
                "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"",
            ),
            (
                "2026-01-02",
                Seconds,
                "parsing time \"2026-01-02\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"T\"",
            ),
            ("2026-13-02T03:04:05Z", Seconds, "parsing time \"2026-13-02T03:04:05Z\": month out of range"),
            ("2026-02-29T03:04:05Z", Seconds, "parsing time \"2026-02-29T03:04:05Z\": day out of range"),
            (
                "2026-01-02T03:04:05",
                Seconds,
                "parsing time \"2026-01-02T03:04:05\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"Z07:00\"",
            ),
        ];
        for (text, precision, problem) in rows {
            assert_eq!(check(text, precision).err().unwrap_or_default(), problem, "{text}");
        }
    }
}
