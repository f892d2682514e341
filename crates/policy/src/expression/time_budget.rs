//! How long the expressions and changes of one policy may take.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::error::PolicyError;

/// How long one policy may take for one review; each expression has its own bound besides.
const MAX_DURATION: Duration = Duration::from_secs(1);

/// Steps of evaluations between two looks at a clock: well below a millisecond.
const STEPS_BETWEEN_LOOKS: u64 = 20_000;
/// What one evaluation counts besides its own steps.
const STEPS_AROUND: u64 = 100;
/// What one change of an object counts: it may copy and compare all of it. So few changes take no look at all.
const STEPS_OF_A_CHANGE: u64 = STEPS_BETWEEN_LOOKS / 4;
/// What one operation of a patch counts besides what it handles: in a long list it moves all that follow.
const STEPS_OF_AN_OPERATION: u64 = STEPS_BETWEEN_LOOKS.div_ceil(64);
/// How much of a document is copied in about the time of a step.
const BYTES_OF_A_STEP: usize = 32;

/// How long one policy has taken for one review. Looking at a clock takes as long as a short expression, so that it
/// is looked at once there has been some work.
#[derive(Debug, Default)]
pub(crate) struct TimeBudget {
    /// Since the last look.
    steps: Cell<u64>,
    deadline: Cell<Option<Instant>>,
}

impl TimeBudget {
    fn spend(&self, steps: u64) -> Result<(), PolicyError> {
        let steps = self.steps.get().saturating_add(steps);
        self.steps.set(steps);
        if steps < STEPS_BETWEEN_LOOKS {
            return Ok(());
        }
        let now = Instant::now();
        match self.deadline.get() {
            None => self.deadline.set(Some(now + MAX_DURATION)),
            // The steps stay, so that whatever comes next for the policy looks at once.
            Some(deadline) if now > deadline => {
                return Err(PolicyError::TooLong(MAX_DURATION.as_millis()));
            }
            Some(_) => {}
        }
        self.steps.set(0);
        Ok(())
    }

    /// After an evaluation of so many steps: an error once the policy has taken too long.
    pub(crate) fn spend_evaluation(&self, steps: u64) -> Result<(), PolicyError> {
        self.spend(steps.saturating_add(STEPS_AROUND))
    }

    /// Before a change is carried out: an error once the policy has taken too long.
    pub(crate) fn spend_change(&self) -> Result<(), PolicyError> {
        self.spend(STEPS_OF_A_CHANGE)
    }

    /// Before an operation of a patch that copies or moves so many bytes, likewise.
    pub(crate) fn spend_operation(&self, bytes: usize) -> Result<(), PolicyError> {
        let copying = u64::try_from(bytes / BYTES_OF_A_STEP).unwrap_or(u64::MAX);
        self.spend(copying.saturating_add(STEPS_OF_AN_OPERATION))
    }

    /// That of a policy which has taken too long already, but has not looked yet.
    #[cfg(test)]
    pub(crate) fn exhausted() -> Self {
        let time = Self::default();
        time.deadline.set(Instant::now().checked_sub(MAX_DURATION));
        time
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{STEPS_BETWEEN_LOOKS, TimeBudget};
    use crate::error::PolicyError;

    #[test]
    fn a_policy_that_has_taken_too_long_is_stopped_once_it_has_worked() {
        let time = TimeBudget::default();
        assert!(time.spend(STEPS_BETWEEN_LOOKS - 1).is_ok());
        assert_eq!(time.deadline.get(), None);
        assert!(time.spend(1).is_ok());
        assert!(time.deadline.get().is_some());
        time.deadline.set(Instant::now().checked_sub(Duration::from_secs(1)));
        assert!(time.spend(STEPS_BETWEEN_LOOKS - 1).is_ok());
        assert!(matches!(time.spend(1), Err(PolicyError::TooLong(_))));
        assert!(matches!(time.spend(1), Err(PolicyError::TooLong(_))), "it stays so");
    }

    #[test]
    fn few_changes_and_small_patches_take_no_look_but_many_or_large_ones_do() {
        type Take = fn(&TimeBudget) -> Result<(), PolicyError>;
        let one = |take: Take, times: usize| {
            let time = TimeBudget::exhausted();
            (0..times).try_for_each(|_| take(&time)).is_err()
        };
        let rows: [(Take, usize, usize); 3] = [
            (TimeBudget::spend_change, 3, 4),
            (|time| time.spend_operation(0), 60, 64),
            (|time| time.spend_operation(16 * 1024 * 1024), 0, 1),
        ];
        for (take, few, many) in rows {
            assert!(!one(take, few), "{few}");
            assert!(one(take, many), "{many}");
        }
    }
}
