//! The values that one evaluation, or a series of them, works with.

use std::cell::{Cell, RefCell};

use crate::check::Slot;
use crate::error::EvalError;
use crate::meter::{Budget, Limits, Meter};
use crate::scope::Scope;
use crate::value::{Val, Value};

/// Values for the variables of a [`Scope`], and the results of its definitions as far as they were needed.
///
/// Make one for an object under review and evaluate many programs with it. The limits hold for each of these
/// evaluations on its own.
#[derive(Debug)]
pub struct Activation<'a> {
    pub(crate) scope: Scope,
    pub(crate) limits: Limits,
    pub(crate) meter: Meter,
    budget: Cell<Option<Budget>>,
    steps: Cell<u64>,
    variables: Vec<Option<Val<'a>>>,
    definitions: RefCell<Vec<Option<Result<Val<'a>, EvalError>>>>,
    /// Memory for the variables of comprehensions, empty between evaluations.
    locals: RefCell<Vec<Val<'a>>>,
}

impl<'a> Activation<'a> {
    /// An activation with nothing bound.
    pub fn new(scope: &Scope, limits: Limits) -> Self {
        Self {
            scope: scope.clone(),
            limits,
            meter: Meter::new(limits),
            budget: Cell::new(None),
            steps: Cell::new(0),
            variables: vec![None; scope.names().variables.len()],
            definitions: RefCell::new(vec![None; scope.definitions().len()]),
            locals: RefCell::default(),
        }
    }

    /// Gives a variable its value, in place of an earlier one. A name that the scope does not declare is
    /// ignored, since no program can use it. Results of definitions are kept: a definition cannot see a
    /// variable declared after it, such as that of a `forEach`.
    pub fn bind(&mut self, name: &str, value: Value<'a>) {
        if let Some(slot) = self.scope.names().slot(name)
            && let Some(variable) = self.variables.get_mut(slot.0)
        {
            *variable = Some(value.0);
        }
    }

    /// Makes the evaluations from now on share a budget. Without one each has its limits alone.
    pub fn set_budget(&self, budget: Budget) {
        self.budget.set(Some(budget));
    }

    /// What the evaluations have left of their budget, to be handed to another activation.
    pub fn budget(&self) -> Option<Budget> {
        self.budget.get()
    }

    /// What the last evaluation cost in the API server's units, without the definitions.
    pub fn cost(&self) -> u64 {
        self.meter.cost()
    }

    /// What the definitions cost that the last evaluation was the first to use.
    pub fn definitions_cost(&self) -> u64 {
        self.meter.definitions_cost()
    }

    /// Steps of the evaluations since this was last asked, definitions included: a measure of the time they took.
    pub fn take_steps(&self) -> u64 {
        self.steps.replace(0)
    }

    /// An error when the budget is spent already.
    pub(crate) fn check_budget(&self) -> Result<(), EvalError> {
        match self.budget.get() {
            Some(budget) if budget.is_spent() => Err(EvalError::BudgetExceeded),
            _ => Ok(()),
        }
    }

    /// Takes what the last evaluation cost out of the budget, and counts its steps.
    pub(crate) fn pay(&self) -> Result<(), EvalError> {
        let steps = self.limits.steps.saturating_sub(self.meter.steps_left());
        self.steps.set(self.steps.get().saturating_add(steps));
        let Some(mut budget) = self.budget.get() else { return Ok(()) };
        let paid = budget.take(self.cost().saturating_add(self.definitions_cost()));
        self.budget.set(Some(budget));
        paid
    }

    pub(crate) fn variable(&self, slot: Slot) -> Result<Val<'a>, EvalError> {
        if let Some(Some(value)) = self.variables.get(slot.0) {
            return Ok(value.clone());
        }
        let name = self.scope.names().variables.get(slot.0).map_or("", |variable| &variable.name);
        Err(EvalError::Unbound(name.to_owned()))
    }

    /// Memory for one evaluation, to be given back.
    pub(crate) fn take_locals(&self) -> Vec<Val<'a>> {
        self.locals.take()
    }

    pub(crate) fn give_locals(&self, mut locals: Vec<Val<'a>>) {
        locals.clear();
        self.locals.replace(locals);
    }

    pub(crate) fn cached(&self, definition: usize) -> Option<Result<Val<'a>, EvalError>> {
        self.definitions.borrow().get(definition).cloned().flatten()
    }

    pub(crate) fn cache(&self, definition: usize, result: &Result<Val<'a>, EvalError>) {
        // A definition that ran into the limits of the expression at hand may do better in the next one; its own
        // limit on cost it would reach again.
        if result.as_ref().is_err_and(EvalError::is_limit) {
            return;
        }
        if let Some(cached) = self.definitions.borrow_mut().get_mut(definition) {
            *cached = Some(result.clone());
        }
    }
}
