//! One mutation of a policy: how it is compiled, and which changes it makes. `round` carries them out.

use sallyport_api::{Mutation, PatchType};
use sallyport_cel::{Activation, Scope, Type};
use serde_json::{Map, Value};

use crate::error::{DefinitionError, PolicyError};
use crate::expression::compiled::{Expression, Inputs, Uses};
use crate::expression::for_each::Loop;
use crate::family::Family;
use crate::mutate::configuration::value::{self, Node};
use crate::mutate::measure::{MAX_BYTES, Measure};
use crate::mutate::overlay::Overlay;
use crate::mutate::patch::dialect::Dialect;
use crate::mutate::patch::operation::{Operation, read_operations};
use crate::schema::Schema;

/// A compiled mutation.
#[derive(Debug)]
pub(crate) struct CompiledMutation {
    pub(crate) field: String,
    scope: Scope,
    each: Option<Loop>,
    pub(crate) action: Action,
}

#[derive(Debug)]
pub(crate) enum Action {
    Patch(Expression, Dialect),
    Overlay(Overlay),
    Configuration(Expression),
}

impl CompiledMutation {
    /// Compiles the mutation with this index, for objects of any of these schemas.
    pub(crate) fn compile(
        index: usize,
        mutation: &Mutation,
        scope: &Scope,
        schemas: &[Schema<'_>],
        family: Family,
        uses: &mut Uses,
    ) -> Result<Self, DefinitionError> {
        let field = format!("mutations[{index}]");
        let (each, scope) = match &mutation.for_each {
            Some(each) => {
                let (each, scope) = Loop::compile(&field, each, scope, uses)?;
                (Some(each), scope)
            }
            None => (None, scope.clone()),
        };
        let one_of = "exactly one of jsonPatch, applyConfiguration and overlay must be set";
        let action = match (&mutation.json_patch, &mutation.overlay, &mutation.apply_configuration) {
            (None, None, Some(configuration)) => {
                let what = format!("{field}.applyConfiguration.expression");
                let wanted = [Type::apply_configuration()];
                let expression =
                    Expression::compile_as(&wanted, what, &configuration.expression, &scope, uses)?;
                Action::Configuration(expression.named_by(family))
            }
            (Some(patch), None, None) => {
                let what = format!("{field}.jsonPatch.expression");
                let wanted = [Type::list(Type::json_patch())];
                let expression = Expression::compile_as(&wanted, what, &patch.expression, &scope, uses)?;
                let strictly = family.reads_patches_strictly();
                let dialect = if strictly { Dialect::Rfc6902 } else { Dialect::ApiServer };
                Action::Patch(expression.named_by(family), dialect)
            }
            (None, Some(overlay), None) => {
                let at = format!("{field}.overlay");
                Action::Overlay(Overlay::compile(&at, overlay, schemas, &scope, uses)?)
            }
            _ => return Err(DefinitionError::field(field, one_of)),
        };
        let agrees = match mutation.patch_type {
            None => true,
            Some(PatchType::JSONPatch) => matches!(action, Action::Patch(..)),
            Some(PatchType::Overlay) => matches!(action, Action::Overlay(_)),
            Some(PatchType::ApplyConfiguration) => matches!(action, Action::Configuration(_)),
        };
        if !agrees {
            let problem = "does not agree with the member that is set; it may be left out";
            return Err(DefinitionError::field(format!("{field}.patchType"), problem));
        }
        Ok(Self { field, scope, each, action })
    }
}

/// What a mutation is going to do, evaluated but not yet carried out.
pub(crate) enum Change {
    Patch(Vec<Operation>),
    Overlay(Map<String, Value>),
    /// The fields of a partial object.
    Configuration(Vec<(String, Node)>),
}

impl CompiledMutation {
    /// What is to be done to the object. With `forEach` every element sees the object as it was before.
    pub(crate) fn evaluate(&self, inputs: &Inputs<'_>) -> Result<Vec<Change>, PolicyError> {
        let mut activation = inputs.activate(&self.scope);
        let Some(each) = &self.each else {
            return Ok(vec![self.evaluate_once(&activation, &mut { MAX_BYTES })?]);
        };
        let mut changes = Vec::new();
        let mut room = MAX_BYTES;
        for element in each.elements(&activation)? {
            inputs.check_time(&activation)?;
            each.bind(&mut activation, element);
            changes.push(self.evaluate_once(&activation, &mut room)?);
        }
        Ok(changes)
    }

    /// What is to be done for one element; takes its size from `room`.
    fn evaluate_once(&self, activation: &Activation<'_>, room: &mut usize) -> Result<Change, PolicyError> {
        let (change, bytes) = match &self.action {
            Action::Overlay(overlay) => {
                let rendered = overlay.render(activation)?;
                let bytes = rendered.values().map(|value| Measure::of(value).bytes).sum();
                (Change::Overlay(rendered), bytes)
            }
            Action::Patch(expression, dialect) => {
                let value = expression.evaluate(activation)?;
                let (operations, bytes) = read_operations(expression, &value, *dialect)?;
                (Change::Patch(operations), bytes)
            }
            Action::Configuration(expression) => {
                let fields = value::read_fields(&expression.evaluate(activation)?)
                    .map_err(|error| PolicyError::Configuration(expression.what().to_owned(), error))?;
                let bytes = fields.iter().map(|(name, node)| name.len() + node.bytes()).sum();
                (Change::Configuration(fields), bytes)
            }
        };
        *room = room
            .checked_sub(bytes)
            .ok_or_else(|| PolicyError::TooLarge { what: self.field.clone(), limit: MAX_BYTES })?;
        Ok(change)
    }
}
