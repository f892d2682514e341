//! How far a run is, for people who wait.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Shorter runs are not told of.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// A line on a terminal that is written over again and again.
pub(crate) struct Progress {
    is_terminal: bool,
    total: usize,
    done: usize,
    next: Instant,
    is_shown: bool,
}

impl Progress {
    /// For so many suites.
    pub(crate) fn new(total: usize) -> Self {
        let next = Instant::now() + PATIENCE;
        Self { is_terminal: io::stderr().is_terminal(), total, done: 0, next, is_shown: false }
    }

    /// A suite begins.
    pub(crate) fn step(&mut self) {
        self.done += 1;
        self.tick();
    }

    /// Something was done.
    pub(crate) fn tick(&mut self) {
        let now = Instant::now();
        if self.is_terminal && now >= self.next {
            self.next = now + INTERVAL;
            self.is_shown = true;
            let mut stderr = io::stderr().lock();
            // Nobody is hurt by a line that is not seen.
            let _ = write!(stderr, "\r\u{1b}[Ksuite {} of {}", self.done, self.total);
            let _ = stderr.flush();
        }
    }

    /// Takes the line away, before something else is written.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let mut stderr = io::stderr().lock();
            let _ = write!(stderr, "\r\u{1b}[K");
            let _ = stderr.flush();
        }
    }
}
