//! How many calls may be made a second time.

use std::sync::atomic::{AtomicU32, Ordering};

/// Tenths of a retry: what each call earns, what a retry costs, and the most that
/// can be saved up: enough for every call in flight on a replica that dies.
const EARNED_PER_CALL: u32 = 1;
const COST_OF_RETRY: u32 = 10;
const MOST_SAVED: u32 = 10_000;

/// Retries saved up: a tenth of the calls, lest an outage be doubled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RetryBudget {
    tenths: u32,
}

impl RetryBudget {
    const FULL: Self = Self { tenths: MOST_SAVED };

    /// The budget after a call; `None` when it is full and stays as it is.
    fn deposit(self) -> Option<Self> {
        (self.tenths < MOST_SAVED).then(|| Self { tenths: self.tenths + EARNED_PER_CALL })
    }

    /// The budget after a retry; `None` when it does not allow one.
    fn withdraw(self) -> Option<Self> {
        self.tenths.checked_sub(COST_OF_RETRY).map(|tenths| Self { tenths })
    }
}

/// A [`RetryBudget`] that all calls to a backend share.
#[derive(Debug)]
pub(super) struct SharedBudget(AtomicU32);

impl SharedBudget {
    pub(super) fn full() -> Self {
        Self(AtomicU32::new(RetryBudget::FULL.tenths))
    }

    /// Earns for a call.
    pub(super) fn deposit(&self) {
        self.update(RetryBudget::deposit);
    }

    /// Pays for a retry. Returns whether the budget allows it.
    pub(super) fn withdraw(&self) -> bool {
        self.update(RetryBudget::withdraw)
    }

    fn update(&self, next: impl Fn(RetryBudget) -> Option<RetryBudget>) -> bool {
        let next = |tenths| next(RetryBudget { tenths }).map(|budget| budget.tenths);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::{COST_OF_RETRY, MOST_SAVED, RetryBudget, SharedBudget};

    #[test]
    fn a_full_budget_allows_a_thousand_retries_and_then_one_for_ten_calls() {
        let budget = SharedBudget::full();
        budget.deposit();
        for _ in 0..1000 {
            assert!(budget.withdraw());
        }
        for _ in 0..3 {
            assert!(!budget.withdraw());
            (0..9).for_each(|_| budget.deposit());
            assert!(!budget.withdraw());
            budget.deposit();
            assert!(budget.withdraw());
        }
    }

    /// Whatever the order of calls and retries: never more than what was saved at first and a tenth of the calls, and
    /// never fewer than a tenth of the calls since the budget was last full.
    #[test]
    fn retries_are_a_tenth_of_the_calls() {
        let mut random = fastrand::Rng::with_seed(6);
        for _ in 0..200 {
            let mut budget = RetryBudget { tenths: random.u32(..=MOST_SAVED) };
            let start = budget.tenths;
            let (mut calls, mut retries) = (0, 0);
            let failing = random.f64();
            for _ in 0..random.usize(..5000) {
                calls += 1;
                budget = budget.deposit().unwrap_or(budget);
                if random.f64() < failing {
                    match budget.withdraw() {
                        Some(next) => (budget, retries) = (next, retries + 1),
                        None => assert!(budget.tenths < COST_OF_RETRY),
                    }
                }
                assert!(budget.tenths <= MOST_SAVED);
                assert!(retries * COST_OF_RETRY <= start + calls);
            }
        }
    }
}
