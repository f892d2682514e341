//! Spans of time as flags have them: a whole number with its unit.

use std::time::Duration;

use sallyport_pki::authority::MAX_LIFE;

/// Why a string is no lifetime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LifetimeError {
    /// It is not of the form.
    #[error("{0:?} is not a time such as 90d, 24h, 30m or 60s")]
    Malformed(String),
    /// It is zero.
    #[error("it must be longer than nothing")]
    Zero,
    /// It is longer than any certificate may live.
    #[error("it must not be longer than {} days", MAX_LIFE.as_secs() / 86_400)]
    TooLong,
}

/// Parses a whole number with `s`, `m`, `h` or `d`.
pub(crate) fn parse_lifetime(text: &str) -> Result<Duration, LifetimeError> {
    let malformed = || LifetimeError::Malformed(text.to_owned());
    let (number, unit) =
        text.char_indices().next_back().map(|(end, _)| text.split_at(end)).ok_or_else(malformed)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(malformed()),
    };
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed());
    }
    let number: u64 = number.parse().map_err(|_| malformed())?;
    let lifetime = Duration::from_secs(number.saturating_mul(seconds));
    if lifetime.is_zero() {
        return Err(LifetimeError::Zero);
    }
    if lifetime > MAX_LIFE {
        return Err(LifetimeError::TooLong);
    }
    Ok(lifetime)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse_lifetime;

    #[test]
    fn lives_have_a_unit_and_bounds_sys7() {
        for (text, seconds) in [("60s", 60), ("30m", 1800), ("24h", 86_400), ("90d", 7_776_000)] {
            assert_eq!(parse_lifetime(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in
            ["", "d", "90", "0d", "-1d", "1.5d", "1w", "+1d", "1é", "99999999999999999999d", "9999999d"]
        {
            assert!(parse_lifetime(text).is_err(), "{text:?}");
        }
    }
}
