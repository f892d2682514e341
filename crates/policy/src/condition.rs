//! matchConditions.

use sallyport_api::MatchCondition;
use sallyport_cel::{Budget, Scope, Type};

use crate::error::{DefinitionError, PolicyError};
use crate::expression::{Expression, Inputs, Uses, condition_scope};
use crate::family::Family;

/// The matchConditions of one policy.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    scope: Scope,
    family: Family,
    all: Vec<Expression>,
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
        let all = conditions
            .iter()
            .map(|condition| {
                let what = format!("matchConditions[{:?}]", condition.name);
                let wanted = [Type::Bool];
                let expression = Expression::compile_as(&wanted, what, &condition.expression, &scope, uses)?;
                Ok(expression.named_by(family))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { scope, family, all })
    }

    /// Whether all are true. One that is false beats those that err, wherever it stands.
    pub(crate) fn hold(&self, inputs: &Inputs<'_>) -> Result<bool, PolicyError> {
        if self.all.is_empty() {
            return Ok(true);
        }
        let activation = inputs.for_conditions(self.family).activate(&self.scope);
        activation.set_budget(Budget::MATCH_CONDITIONS);
        let mut errors = Vec::new();
        for condition in &self.all {
            inputs.check_time()?;
            match condition.evaluate_bool(&activation) {
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
