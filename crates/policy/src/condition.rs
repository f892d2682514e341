//! matchConditions.

use sallyport_api::MatchCondition;
use sallyport_cel::{Scope, Type};

use crate::error::{DefinitionError, PolicyError};
use crate::expression::{Expression, Inputs, Uses, condition_scope};

/// The matchConditions of one policy.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    conditions: Vec<Expression>,
    scope: Scope,
}

impl Conditions {
    pub(crate) fn compile(conditions: &[MatchCondition], uses: &mut Uses) -> Result<Self, DefinitionError> {
        let scope = condition_scope();
        let conditions = conditions
            .iter()
            .map(|condition| {
                let what = format!("matchConditions[{:?}]", condition.name);
                Expression::compile_as(&[Type::Bool], what, &condition.expression, &scope, uses)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { conditions, scope })
    }

    /// Whether all are true. One that is false beats those that err, wherever it stands.
    pub(crate) fn hold(&self, inputs: &Inputs<'_>) -> Result<bool, PolicyError> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let activation = inputs.activate(&self.scope);
        let mut errors = Vec::new();
        for condition in &self.conditions {
            inputs.check_time()?;
            match condition.evaluate_bool(&activation) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
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
