//! How loaded an endpoint is, as told by the calls made there.

use std::time::Duration;

use tokio::time::Instant;

/// An endpoint that has not answered yet counts as this slow, so that it is not
/// taken for free (linkerd floors its estimate likewise).
const INITIAL_LATENCY: Duration = Duration::from_millis(1);

/// Endpoints that answer faster than this are equally fast. Nobody waits noticeably for so little, and differences
/// below it are noise, which would leave the unlucky ones idle.
const EQUALLY_FAST: Duration = Duration::from_millis(10);

/// How fast an old latency peak is forgotten.
const DECAY: Duration = Duration::from_secs(2);

/// Exponentially weighted latency that follows peaks at once.
#[derive(Clone, Copy, Debug)]
struct PeakEwma {
    seconds: f64,
    updated: Instant,
}

impl PeakEwma {
    fn new(now: Instant) -> Self {
        Self { seconds: INITIAL_LATENCY.as_secs_f64(), updated: now }
    }

    fn decayed(&self, now: Instant) -> f64 {
        let elapsed = now.saturating_duration_since(self.updated).as_secs_f64();
        self.seconds * (-elapsed / DECAY.as_secs_f64()).exp()
    }

    fn observe(&mut self, latency: Duration, now: Instant) {
        let (sample, current) = (latency.as_secs_f64(), self.decayed(now));
        // A peak counts in full; below it, each sample moves the estimate a tenth of the way.
        self.seconds = if sample > current { sample } else { current + (sample - current) / 10.0 };
        self.updated = now;
    }
}

/// The load of one endpoint. Plain data: the clock is an argument.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    latency: PeakEwma,
    in_flight: usize,
    /// The number of the last pick that chose it; 0 if none has.
    last_pick: u64,
}

impl Load {
    /// The load of an endpoint that was never called.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { latency: PeakEwma::new(now), in_flight: 0, last_pick: 0 }
    }

    /// Records that the pick with this number chose the endpoint. Numbers rise.
    pub fn record_pick(&mut self, number: u64) {
        self.last_pick = number;
    }

    /// Counts a call that begins.
    pub fn begin_call(&mut self) {
        self.in_flight += 1;
    }

    /// Counts a call that has ended, however it did.
    pub fn end_call(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Records the latency of a call that was answered, or a penalty for one that failed: failing fast must not look
    /// like being fast.
    pub fn record_latency(&mut self, latency: Duration, now: Instant) {
        self.latency.observe(latency, now);
    }

    /// Forgets all latencies: the endpoint is another process now.
    pub fn reset_latency(&mut self, now: Instant) {
        self.latency = PeakEwma::new(now);
    }

    /// What another call would cost here, in seconds: latency times the calls that it would share it with.
    pub fn cost(&self, now: Instant) -> f64 {
        let latency = self.latency.decayed(now).max(EQUALLY_FAST.as_secs_f64());
        #[expect(clippy::cast_precision_loss, reason = "counts of calls, far below 2^52")]
        let calls = (self.in_flight + 1) as f64;
        latency * calls
    }

    /// Returns whether a call is better made here than there: for less, or, at the same cost, where the last pick was
    /// longer ago.
    pub fn is_better_than(&self, other: &Self, now: Instant) -> bool {
        let order = self.cost(now).total_cmp(&other.cost(now));
        order.then_with(|| self.last_pick.cmp(&other.last_pick)).is_lt()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{DECAY, EQUALLY_FAST, INITIAL_LATENCY, Load, PeakEwma};

    #[tokio::test(start_paused = true)]
    async fn a_peak_counts_at_once_and_is_forgotten_with_time() {
        let mut latency = PeakEwma::new(Instant::now());
        latency.observe(Duration::from_secs(1), Instant::now());
        assert!((latency.decayed(Instant::now()) - 1.0).abs() < 1e-9);
        latency.observe(Duration::from_millis(1), Instant::now());
        assert!(latency.decayed(Instant::now()) > 0.8, "one fast answer does not hide a peak");
        tokio::time::advance(DECAY * 10).await;
        assert!(latency.decayed(Instant::now()) < 0.001, "time does");
    }

    /// Whatever is observed and whenever: the estimate stays between nothing and the largest sample, and only
    /// falls while nothing is observed.
    #[test]
    fn an_estimate_never_leaves_the_range_of_its_samples() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let mut now = Instant::now();
            let mut latency = PeakEwma::new(now);
            let mut largest = INITIAL_LATENCY.as_secs_f64();
            for _ in 0..random.usize(1..50) {
                now += Duration::from_micros(random.u64(..5_000_000));
                let sample = Duration::from_micros(random.u64(..30_000_000));
                let before = latency.decayed(now);
                latency.observe(sample, now);
                largest = largest.max(sample.as_secs_f64());
                let after = latency.decayed(now);
                let (low, high) = (before.min(sample.as_secs_f64()), before.max(sample.as_secs_f64()));
                assert!((low..=high).contains(&after), "{before} and {sample:?} made {after}");
                assert!(after <= largest);
                assert!(latency.decayed(now + Duration::from_millis(random.u64(1..5000))) <= after);
            }
        }
    }

    #[test]
    fn cost_rises_with_latency_and_with_calls_in_flight_and_falls_when_they_end() {
        let now = Instant::now();
        let mut load = Load::new(now);
        let idle = load.cost(now);
        assert!((idle - EQUALLY_FAST.as_secs_f64()).abs() < 1e-9, "nobody is faster than the floor");
        load.begin_call();
        assert!((load.cost(now) - 2.0 * idle).abs() < 1e-9);
        load.record_latency(EQUALLY_FAST * 3, now);
        assert!((load.cost(now) - 6.0 * idle).abs() < 1e-9);
        load.end_call();
        assert!((load.cost(now) - 3.0 * idle).abs() < 1e-9);
        load.reset_latency(now);
        assert!((load.cost(now) - idle).abs() < 1e-9);
    }

    #[test]
    fn at_equal_cost_the_one_picked_longer_ago_is_better() {
        let now = Instant::now();
        let (mut one, mut other) = (Load::new(now), Load::new(now));
        assert!(!one.is_better_than(&other, now) && !other.is_better_than(&one, now));
        one.record_pick(1);
        assert!(other.is_better_than(&one, now));
        other.record_pick(2);
        assert!(one.is_better_than(&other, now));
        one.begin_call();
        assert!(other.is_better_than(&one, now), "cost comes first");
    }
}
