//! Measuring, and the table of what was measured.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// How long a round takes at least.
const ROUND: Duration = Duration::from_millis(2);
/// How many rounds there are.
const ROUNDS: usize = 250;

/// What one run takes: the mean of the best round, whose runs nothing has interrupted.
pub fn shortest(mut run: impl FnMut()) -> Duration {
    let mut runs = 1;
    let mut round = |runs: u32| {
        let began = Instant::now();
        (0..runs).for_each(|_| run());
        began.elapsed()
    };
    while round(runs) < ROUND {
        runs *= 2;
    }
    (0..ROUNDS).map(|_| round(runs)).min().unwrap() / runs
}

/// Rows of figures, some with an aim.
#[derive(Default)]
pub struct Table {
    missed: String,
}

impl Table {
    /// Prints a row; `aim` is in nanoseconds.
    pub fn row(&mut self, name: &str, took: Duration, aim: Option<u32>) {
        let aim = aim.map(|aim| Duration::from_nanos(aim.into()));
        let text = aim.map(|aim| format!("aim {}", micros(aim))).unwrap_or_default();
        println!("{name:<62} {:>12} {text:>18}", micros(took));
        if aim.is_some_and(|aim| took > aim) {
            let _ = write!(self.missed, "\n{name}: {} ({text})", micros(took));
        }
    }

    /// Fails if an aim was missed.
    pub fn finish(self) {
        assert!(self.missed.is_empty(), "{}", self.missed);
    }
}

fn micros(time: Duration) -> String {
    format!("{:.3} µs", time.as_secs_f64() * 1e6)
}
