//! What an evaluation may cost, and the meter that counts it.

use std::cell::{Cell, RefCell};

use crate::error::EvalError;
use crate::regexes::PatternCache;

/// Bytes of bulk work (comparing, searching, copying) that count as one tick.
const BYTES_PER_TICK: usize = 64;

/// Bounds of one evaluation, including the definitions (`variables.x`) that it evaluates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Steps: one for every node visited and every 64 bytes of bulk work. A million take some 10 ms.
    pub ticks: u64,
    /// Bytes of strings, lists and maps made, whether kept or not.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { ticks: 1_000_000, bytes: 4 << 20 }
    }
}

/// Counts down what is left of the limits.
#[derive(Debug)]
pub(crate) struct Meter {
    ticks: Cell<u64>,
    bytes: Cell<u64>,
    pub(crate) patterns: RefCell<PatternCache>,
}

impl Meter {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            ticks: Cell::new(limits.ticks),
            bytes: Cell::new(limits.bytes),
            patterns: RefCell::new(PatternCache::default()),
        }
    }

    pub(crate) fn reset(&self, limits: Limits) {
        self.ticks.set(limits.ticks);
        self.bytes.set(limits.bytes);
    }

    /// Counts `ticks` steps.
    pub(crate) fn tick(&self, ticks: u64) -> Result<(), EvalError> {
        match self.ticks.get().checked_sub(ticks) {
            Some(left) => {
                self.ticks.set(left);
                Ok(())
            }
            None => Err(EvalError::CostExceeded),
        }
    }

    /// Counts work proportional to `bytes`.
    pub(crate) fn work(&self, bytes: usize) -> Result<(), EvalError> {
        self.tick((bytes / BYTES_PER_TICK) as u64)
    }

    /// Counts `bytes` about to be allocated, and the work of filling them.
    pub(crate) fn produce(&self, bytes: usize) -> Result<(), EvalError> {
        match self.bytes.get().checked_sub(bytes as u64) {
            Some(left) => self.bytes.set(left),
            None => return Err(EvalError::SizeExceeded),
        }
        self.work(bytes)
    }

    /// Counts a list of `items` about to be allocated.
    pub(crate) fn produce_items(&self, items: usize) -> Result<(), EvalError> {
        self.produce(items.saturating_mul(crate::value::ITEM_BYTES))
    }
}
