//! Patience with another writer: each repair that comes soon after the last waits twice as long.

use std::time::{Duration, Instant};

/// The wait before the second of two repairs in a row.
const FIRST: Duration = Duration::from_secs(2);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(5 * 60);
/// As long without a repair forgets the ones before, on top of the wait that was reached.
const QUIET: Duration = Duration::from_secs(2 * 60);

/// When the next write to one object may be made. The first is free.
#[derive(Debug, Clone, Copy, Default)]
pub struct Backoff {
    last: Option<Instant>,
    wait: Duration,
}

impl Backoff {
    /// How long to wait from `now` until a write may be made; zero when it may be made at once.
    pub fn remaining(&self, now: Instant) -> Duration {
        let Some(last) = self.last else { return Duration::ZERO };
        self.wait.saturating_sub(now.saturating_duration_since(last))
    }

    /// Notes a write at `now`.
    pub fn written(&mut self, now: Instant) {
        let quiet = self.last.is_none_or(|last| now.saturating_duration_since(last) > self.wait + QUIET);
        self.wait = if quiet { FIRST } else { (self.wait * 2).min(LONGEST) };
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fighting_writer_meets_ever_longer_waits_r05() {
        let start = Instant::now();
        let mut now = start;
        let mut backoff = Backoff::default();
        assert_eq!(backoff.remaining(now), Duration::ZERO, "the first repair is immediate");
        let mut writes = 0;
        // The other side undoes every write at once, for an hour.
        while now.duration_since(start) < Duration::from_hours(1) {
            backoff.written(now);
            writes += 1;
            now += backoff.remaining(now);
        }
        assert!((10..30).contains(&writes), "{writes} writes in an hour");
    }

    #[test]
    fn quiet_forgets() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        backoff.written(start);
        backoff.written(start + Duration::from_secs(3));
        assert_eq!(backoff.remaining(start + Duration::from_secs(3)), FIRST * 2);
        let later = start + Duration::from_mins(10);
        backoff.written(later);
        assert_eq!(backoff.remaining(later), FIRST);
    }
}
