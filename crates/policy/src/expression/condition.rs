//! matchConditions.

use sallyport_api::MatchCondition;
use sallyport_cel::{Activation, Budget, Type};

use crate::error::{DefinitionError, PolicyError};
use crate::expression::compiled::{Expression, Inputs, Uses};
use crate::expression::scope::condition_scope;
use crate::family::Family;

/// The matchConditions of one policy.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    family: Family,
    expressions: Vec<Expression>,
}

impl Conditions {
    /// Compiles conditions of a policy with or without `params`.
    pub(crate) fn compile(
        conditions: &[MatchCondition],
        params: bool,
        family: Family,
        uses: &mut Uses,
    ) -> Result<Self, DefinitionError> {
        let scope = condition_scope(params);
        let expressions = conditions
            .iter()
            .map(|condition| {
                let what = format!("matchConditions[{:?}]", condition.name);
                let wanted = [Type::Bool];
                let expression = Expression::compile_as(&wanted, what, &condition.expression, &scope, uses)?;
                Ok(expression.named_by(family))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { family, expressions })
    }

    /// Returns whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.expressions.is_empty()
    }

    /// Returns whether all are true. One that is false beats those that fail, wherever it stands. `activation` may be
    /// that of any scope of the policy; its budget is used up afterwards.
    pub(crate) fn hold<'a>(
        &self,
        inputs: &Inputs<'a>,
        activation: &mut Activation<'a>,
    ) -> Result<bool, PolicyError> {
        if self.is_empty() {
            return Ok(true);
        }
        let hidden = !self.family.shows_namespace_to_conditions();
        if hidden {
            inputs.show_namespace(false, activation);
        }
        activation.set_budget(Budget::MATCH_CONDITIONS);
        let held = self.evaluate_all(inputs, activation);
        if hidden {
            inputs.show_namespace(true, activation);
        }
        held
    }

    fn evaluate_all(&self, inputs: &Inputs<'_>, activation: &Activation<'_>) -> Result<bool, PolicyError> {
        let mut errors = Vec::new();
        for condition in &self.expressions {
            inputs.check_time(activation)?;
            match condition.evaluate_bool(activation) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) if error.is_out_of_budget() => return Err(error),
                Err(error) => errors.push(error),
            }
        }
        match errors.len() {
            0 => Ok(true),
            1 => Err(errors.remove(0)),
            _ => Err(PolicyError::Several(errors)),
        }
    }
}
