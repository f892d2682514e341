//! `forEach`: what a mutation or a validation is repeated over.

use sallyport_api::ForEach;
use sallyport_cel::{Activation, Scope, Type, Value as Cel};

use crate::error::{DefinitionError, PolicyError};
use crate::expression::compiled::{Expression, Uses};
use crate::expression::variables::{PARAMS, VARIABLES, is_identifier};

/// Most elements of a `forEach`.
const MAX_ELEMENTS: usize = 1000;

/// What a mutation or validation is repeated over.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    list: Expression,
    name: String,
}

impl Loop {
    /// Compiles a `forEach` at `field` and gives the scope in which its element has its name.
    pub(crate) fn compile(
        field: &str,
        each: &ForEach,
        scope: &Scope,
        uses: &mut Uses,
    ) -> Result<(Self, Scope), DefinitionError> {
        let taken = [PARAMS, "variables"].contains(&each.name.as_str());
        if !is_identifier(&each.name) || taken || VARIABLES.contains(&each.name.as_str()) {
            return Err(DefinitionError::field(
                format!("{field}.forEach.as"),
                format!("{:?} is not a free identifier of CEL", each.name),
            ));
        }
        let list = Expression::compile(format!("{field}.forEach.list"), &each.list, scope, uses)?;
        let element = match list.result_type() {
            Type::List(element) => Type::clone(element),
            Type::Dyn => Type::Dyn,
            other => {
                let problem = format!("must evaluate to list but got {other}");
                return Err(DefinitionError::field(list.what(), problem));
            }
        };
        let mut inner = scope.clone();
        inner.declare(&each.name, element);
        Ok((Self { list, name: each.name.clone() }, inner))
    }

    /// The elements. Null and an absent optional are no list: the expression has to give an empty one.
    pub(crate) fn elements<'a>(&self, activation: &Activation<'a>) -> Result<Vec<Cel<'a>>, PolicyError> {
        let value = self.list.evaluate(activation)?;
        let elements: Vec<Cel<'a>> = match value.as_list() {
            Some(items) => items.collect(),
            None => return Err(self.list.mistyped("a list", &value)),
        };
        if elements.len() > MAX_ELEMENTS {
            return Err(PolicyError::TooMany {
                what: self.list.what().to_owned(),
                found: elements.len(),
                limit: MAX_ELEMENTS,
            });
        }
        Ok(elements)
    }

    pub(crate) fn bind<'a>(&self, activation: &mut Activation<'a>, element: Cel<'a>) {
        activation.bind(&self.name, element);
    }
}
