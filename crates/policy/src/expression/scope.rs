//! What expressions are compiled against.

use sallyport_api::Variable;
use sallyport_cel::{Program, Scope};

use crate::error::DefinitionError;
use crate::expression::compiled::Uses;
use crate::expression::variables::is_identifier;
use crate::purpose::Purpose;

/// What all expressions of a policy see, which comes first in every scope: programs of matchConditions run in the
/// activations of all other scopes of their policy.
fn common_scope(params: bool) -> Scope {
    let mut scope = Scope::admission();
    scope.declare_authorizer();
    if params {
        scope.declare_params();
    }
    scope
}

/// The scope of matchConditions: no variables, and nothing to make patches with.
pub(crate) fn condition_scope(params: bool) -> Scope {
    let mut scope = common_scope(params);
    scope.forbid_patches();
    scope
}

/// The scope of a policy's other expressions, with its variables; each sees those before it.
pub(crate) fn compile_scope(
    variables: &[Variable],
    params: bool,
    purpose: Purpose,
    uses: &mut Uses,
) -> Result<Scope, DefinitionError> {
    let mut scope = common_scope(params);
    if purpose == Purpose::Validation {
        scope.forbid_patches();
    }
    scope.compose();
    for (index, variable) in variables.iter().enumerate() {
        if !is_identifier(&variable.name) {
            return Err(DefinitionError::field(
                format!("variables[{index}].name"),
                format!("{:?} is not an identifier of CEL", variable.name),
            ));
        }
        if variables.iter().take(index).any(|other| other.name == variable.name) {
            return Err(DefinitionError::field(
                format!("variables[{index}].name"),
                format!("{} is defined twice", variable.name),
            ));
        }
        let what = format!("variables.{}", variable.name);
        let program = Program::compile(&variable.expression, &scope)
            .map_err(|error| DefinitionError::Expression(what, error))?;
        uses.add_program(&program);
        scope.define(&variable.name, program);
    }
    Ok(scope)
}
