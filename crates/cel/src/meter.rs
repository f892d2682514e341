//! What an evaluation may cost and take, and the meter that counts it.
//!
//! Two things are counted. The cost is the API server's, to the last unit, so that an expression is refused here
//! when it is refused there. Steps and bytes are our own: what the cost leaves out may take long all the same.

use std::cell::{Cell, RefCell};

use crate::error::EvalError;
use crate::regex::PatternCache;

/// What an item of a list counts, in bytes.
pub(crate) const ITEM_BYTES: usize = 32;

/// Bytes of bulk work (comparing, searching, copying) that count as one step.
const BYTES_PER_STEP: usize = 64;

/// Bounds of one evaluation. Those on steps and bytes hold for it and the definitions (`variables.x`) that it
/// evaluates together, that on cost for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Cost as the API server counts it.
    pub cost: u64,
    /// Steps: one for every node visited and every 64 bytes of bulk work, what costs nothing included, and more for
    /// what takes longer. Two million take some 40 ms; where a text is made for a pattern, several times that.
    pub steps: u64,
    /// Bytes of strings, lists and maps made, whether kept or not.
    pub bytes: u64,
}

impl Default for Limits {
    /// The API server's limit on cost for an expression.
    fn default() -> Self {
        Self { cost: 1_000_000, steps: 2_000_000, bytes: 4 << 20 }
    }
}

/// What several evaluations may cost together, definitions included. It is handed from one activation to the
/// next, until it is spent: whatever is evaluated then is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    left: Option<u64>,
}

impl Budget {
    /// The API server's budget for the expressions of a policy.
    pub const POLICY: Self = Self { left: Some(10_000_000) };
    /// The API server's budget for the match conditions of a policy.
    pub const MATCH_CONDITIONS: Self = Self { left: Some(2_500_000) };

    /// A budget of this much.
    pub const fn new(cost: u64) -> Self {
        Self { left: Some(cost) }
    }

    /// What is left; nothing when it is spent.
    pub fn left(&self) -> u64 {
        self.left.unwrap_or(0)
    }

    /// Takes a cost. One that is more than what is left spends it for good.
    pub(crate) fn take(&mut self, cost: u64) -> Result<(), EvalError> {
        self.left = self.left.and_then(|left| left.checked_sub(cost));
        self.left.map(|_| ()).ok_or(EvalError::BudgetExceeded)
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.left.is_none()
    }
}

/// Counts what an evaluation costs and counts down what else is limited.
#[derive(Debug)]
pub(crate) struct Meter {
    limit: Cell<u64>,
    /// Of the expression at hand, or the definition.
    cost: Cell<u64>,
    /// Of the definitions that were evaluated.
    definitions: Cell<u64>,
    steps: Cell<u64>,
    bytes: Cell<u64>,
    pub(crate) patterns: RefCell<PatternCache>,
}

impl Meter {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limit: Cell::new(limits.cost),
            cost: Cell::new(0),
            definitions: Cell::new(0),
            steps: Cell::new(limits.steps),
            bytes: Cell::new(limits.bytes),
            patterns: RefCell::new(PatternCache::default()),
        }
    }

    pub(crate) fn reset(&self, limits: Limits) {
        self.limit.set(limits.cost);
        self.cost.set(0);
        self.definitions.set(0);
        self.steps.set(limits.steps);
        self.bytes.set(limits.bytes);
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost.get()
    }

    pub(crate) fn definitions_cost(&self) -> u64 {
        self.definitions.get()
    }

    pub(crate) fn steps_left(&self) -> u64 {
        self.steps.get()
    }

    /// Counts what the API server counts.
    #[inline]
    pub(crate) fn charge(&self, cost: u64) -> Result<(), EvalError> {
        let cost = self.cost.get().saturating_add(cost);
        self.cost.set(cost);
        if cost > self.limit.get() { Err(EvalError::CostExceeded) } else { Ok(()) }
    }

    /// Takes back what was counted too much.
    pub(crate) fn refund(&self, cost: u64) {
        self.cost.set(self.cost.get().saturating_sub(cost));
    }

    /// An error when a cost that is going to be counted is beyond the limit.
    pub(crate) fn afford(&self, cost: u64) -> Result<(), EvalError> {
        if self.cost.get().saturating_add(cost) > self.limit.get() {
            Err(EvalError::CostExceeded)
        } else {
            Ok(())
        }
    }

    /// Runs something whose cost is counted apart, as that of a definition.
    pub(crate) fn apart<T>(&self, run: impl FnOnce() -> T) -> T {
        let around = self.cost.replace(0);
        let result = run();
        self.definitions.set(self.definitions.get().saturating_add(self.cost.replace(around)));
        result
    }

    /// Counts steps.
    #[inline]
    pub(crate) fn count_steps(&self, steps: u64) -> Result<(), EvalError> {
        match self.steps.get().checked_sub(steps) {
            Some(left) => {
                self.steps.set(left);
                Ok(())
            }
            None => Err(EvalError::WorkExceeded),
        }
    }

    /// Counts work proportional to `bytes`.
    pub(crate) fn work(&self, bytes: usize) -> Result<(), EvalError> {
        self.count_steps((bytes / BYTES_PER_STEP) as u64)
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
        self.produce(items.saturating_mul(ITEM_BYTES))
    }
}
