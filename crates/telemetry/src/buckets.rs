//! Upper bounds of histogram buckets, in seconds. The same everywhere, so that panels can be added up.

/// For whole reviews and calls: from 100 µs, below which nothing over a network ends, to 30 s, the
/// longest `timeoutSeconds` that Kubernetes allows (C-60).
pub const LATENCY: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0,
];

/// For the evaluation of one policy: from 1 µs to 1 s.
pub const EVALUATION: &[f64] = &[
    0.000_001,
    0.000_002_5,
    0.000_005,
    0.000_01,
    0.000_025,
    0.000_05,
    0.000_1,
    0.000_25,
    0.000_5,
    0.001,
    0.002_5,
    0.005,
    0.01,
    0.025,
    0.1,
    1.0,
];

#[cfg(test)]
mod tests {
    use super::{EVALUATION, LATENCY};

    /// prometheus refuses unordered bounds only when a histogram is made, which is at run time.
    #[test]
    fn bounds_rise_from_the_smallest_to_the_largest_duration_of_interest() {
        for (bounds, first, last) in [(LATENCY, 0.000_1, 30.0), (EVALUATION, 0.000_001, 1.0)] {
            assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]), "{bounds:?}");
            let ends = [bounds[0], bounds[bounds.len() - 1]];
            assert!(ends.iter().zip([first, last]).all(|(a, b)| (a - b).abs() < f64::EPSILON), "{ends:?}");
        }
    }
}
