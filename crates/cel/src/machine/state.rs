//! What the machine keeps while it runs a plan, and counts.

use crate::check::Slot;
use crate::error::EvalError;
use crate::machine::activation::Activation;
use crate::meter::Meter;
use crate::value::{Outcome, Val};

/// Deepest nesting of steps, those of definitions included: in a debug build 2 MiB of stack hold twice as many.
const MAX_DEPTH: usize = 256;

pub(super) struct Machine<'e, 'a> {
    pub(super) activation: &'e Activation<'a>,
    /// Variables of the comprehensions under way.
    pub(super) locals: Vec<Val<'a>>,
    /// Where the locals of the program at hand begin.
    pub(super) first_local: usize,
    pub(super) depth: usize,
    pub(super) deferred: Vec<Deferred>,
    /// What deferred costs of locals that are still there have come to.
    pub(super) deferred_cost: u64,
}

/// What the first use of a local costs.
pub(super) struct Deferred {
    pub(super) local: usize,
    pub(super) cost: u64,
}

impl<'e, 'a> Machine<'e, 'a> {
    pub(super) fn new(activation: &'e Activation<'a>) -> Self {
        Self {
            activation,
            locals: activation.take_locals(),
            first_local: 0,
            depth: 0,
            deferred: Vec::new(),
            deferred_cost: 0,
        }
    }

    #[inline]
    pub(super) fn meter(&self) -> &'e Meter {
        &self.activation.meter
    }

    /// Counts a step, and its depth until it is left.
    #[inline]
    pub(super) fn enter(&mut self) -> Result<(), EvalError> {
        if self.depth >= MAX_DEPTH {
            return Err(EvalError::TooDeep);
        }
        self.meter().count_steps(1)?;
        self.depth += 1;
        Ok(())
    }

    #[inline]
    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Runs something that is so many steps deeper, which count too.
    pub(super) fn deeper<T>(
        &mut self,
        steps: usize,
        run: impl FnOnce(&mut Self) -> Result<T, EvalError>,
    ) -> Result<T, EvalError> {
        if self.depth + steps >= MAX_DEPTH {
            return Err(EvalError::TooDeep);
        }
        self.meter().count_steps(steps as u64)?;
        self.depth += steps;
        let result = run(self);
        self.depth -= steps;
        result
    }

    #[inline]
    pub(super) fn charge(&self, cost: u64) -> Result<(), EvalError> {
        self.activation.meter.charge(cost)
    }

    pub(super) fn variable(&self, slot: Slot, cost: u64) -> Outcome<'a> {
        self.charge(cost)?;
        self.activation.variable(slot)
    }

    pub(super) fn local(&mut self, index: usize, cost: u64) -> Outcome<'a> {
        let index = self.first_local + index;
        if !self.deferred.is_empty() {
            self.pay_deferred(index)?;
        }
        self.charge(cost)?;
        self.locals.get(index).cloned().ok_or_else(|| EvalError::Unbound(String::new()))
    }

    /// Counts what a local costs when it is first used.
    #[cold]
    fn pay_deferred(&mut self, index: usize) -> Result<(), EvalError> {
        let Some(found) = self.deferred.iter().position(|deferred| deferred.local == index) else {
            return Ok(());
        };
        let cost = self.deferred.swap_remove(found).cost;
        self.deferred_cost = self.deferred_cost.saturating_add(cost);
        self.charge(cost)
    }
}
