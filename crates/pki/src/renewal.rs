//! When a certificate is renewed.

use std::time::{Duration, SystemTime};

use crate::authority::BACKDATE;
use crate::certificate::Certificate;

/// The rule by which a certificate is due for renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Renewal {
    /// Between three fifths and two thirds of its life, spread by [`Certificate::jitter`].
    #[default]
    TwoThirds,
    /// When less than this is left, or by the rule of two thirds for a certificate that lives no longer.
    Before(Duration),
    /// Never: only the checks of the present are made.
    Never,
}

impl Renewal {
    /// The instant from which `certificate` is due, if there is one.
    pub fn due(self, certificate: &Certificate) -> Option<SystemTime> {
        let (start, end) = (issued(certificate), certificate.not_after());
        match self {
            Self::TwoThirds => Some(two_thirds(start, end, certificate.jitter())),
            Self::Before(ahead) => Some(
                end.checked_sub(ahead)
                    .filter(|due| *due > start)
                    .unwrap_or_else(|| two_thirds(start, end, certificate.jitter())),
            ),
            Self::Never => None,
        }
    }
}

/// When a certificate was made. Dates begin [`BACKDATE`] earlier, which must not count as life that has passed:
/// one that lives for seconds would be due as soon as it is made.
fn issued(certificate: &Certificate) -> SystemTime {
    let start = certificate.not_before();
    start.checked_add(BACKDATE).filter(|issued| *issued < certificate.not_after()).unwrap_or(start)
}

/// An instant between three fifths (`jitter` 1) and two thirds (`jitter` 0) of the way from `start` to `end`.
pub fn two_thirds(start: SystemTime, end: SystemTime, jitter: f64) -> SystemTime {
    let life = end.duration_since(start).unwrap_or_default();
    let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 };
    let part = 2.0 / 3.0 - jitter * (2.0 / 3.0 - 3.0 / 5.0);
    start.checked_add(life.mul_f64(part)).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn renewal_is_before_two_thirds_of_life_have_passed_r03() {
        let end = UNIX_EPOCH + Duration::from_secs(900);
        for (jitter, seconds) in [(0.0, 600.0), (1.0, 540.0), (0.5, 570.0), (f64::NAN, 600.0), (7.0, 540.0)] {
            let due = two_thirds(UNIX_EPOCH, end, jitter).duration_since(UNIX_EPOCH).unwrap();
            assert!((due.as_secs_f64() - seconds).abs() < 0.01, "jitter {jitter}");
        }
    }

    #[test]
    fn a_life_that_ends_before_it_starts_is_due_at_once() {
        let start = UNIX_EPOCH + Duration::from_secs(900);
        assert_eq!(two_thirds(start, UNIX_EPOCH, 0.3), start);
    }
}
