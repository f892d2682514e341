//! Expressions of a policy, each with the name that messages give it, and what they are evaluated over.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sallyport_api::{ForEach, Variable};
use sallyport_cel::{Activation, Authorizer, Budget, Limits, Program, Resource, Scope, Type, Value as Cel};
use sallyport_document::Node;
use serde_json::Value;

use crate::documents::Documents;
use crate::error::{DefinitionError, PolicyError};
use crate::family::Family;
use crate::request::Request;

/// What every expression may use.
const VARIABLES: [&str; 5] = ["object", "oldObject", "request", NAMESPACE_OBJECT, AUTHORIZER];
/// The Namespace of the request.
const NAMESPACE_OBJECT: &str = "namespaceObject";
/// What the user who asks may do.
const AUTHORIZER: &str = "authorizer";
/// The same, with what is asked filled in from the request.
const REQUEST_RESOURCE: &str = "authorizer.requestResource";
/// The settings of a policy, where it has any.
const PARAMS: &str = "params";
/// Most elements of a `forEach`.
const MAX_ELEMENTS: usize = 1000;
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

/// A compiled expression.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    what: String,
    program: Program,
}

impl Expression {
    /// Compiles `source`; `what` names it in messages.
    pub(crate) fn compile(
        what: impl Into<String>,
        source: &str,
        scope: &Scope,
        uses: &mut Uses,
    ) -> Result<Self, DefinitionError> {
        let what = what.into();
        match Program::compile(source, scope) {
            Ok(program) => {
                uses.note(&program);
                Ok(Self { what, program })
            }
            Err(error) => Err(DefinitionError::Expression(what, error)),
        }
    }

    /// The same, named in messages as policies of this family name theirs.
    pub(crate) fn named_by(self, family: Family) -> Self {
        if family.names_expressions_by_field() {
            return self;
        }
        let what = format!("expression '{}' resulted in error", self.program.source());
        Self { what, ..self }
    }

    /// Compiles `source`, whose result must have one of these types. What is only known when evaluated has none
    /// of them, as in Kubernetes: `object.spec.flag` is no bool, `object.spec.flag == true` is one.
    pub(crate) fn compile_as(
        wanted: &[Type],
        what: impl Into<String>,
        source: &str,
        scope: &Scope,
        uses: &mut Uses,
    ) -> Result<Self, DefinitionError> {
        let expression = Self::compile(what, source, scope, uses)?;
        match expression.program.demand(wanted) {
            Ok(()) => Ok(expression),
            Err(error) => Err(DefinitionError::Expression(expression.what, error)),
        }
    }

    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// Whether it, or a variable that it uses, asks what somebody may do.
    pub(crate) fn asks_authorizer(&self) -> bool {
        asks_authorizer(&self.program)
    }

    pub(crate) fn source(&self) -> &str {
        self.program.source()
    }

    pub(crate) fn evaluate<'a>(&self, activation: &Activation<'a>) -> Result<Cel<'a>, PolicyError> {
        self.program.evaluate(activation).map_err(|error| PolicyError::Evaluation(self.what.clone(), error))
    }

    pub(crate) fn evaluate_bool(&self, activation: &Activation<'_>) -> Result<bool, PolicyError> {
        let value = self.evaluate(activation)?;
        value.as_bool().ok_or_else(|| self.mistyped("a bool", &value))
    }

    pub(crate) fn to_json(&self, value: &Cel<'_>) -> Result<Value, PolicyError> {
        value.to_json().map_err(|error| PolicyError::Evaluation(self.what.clone(), error))
    }

    pub(crate) fn mistyped(&self, expected: &'static str, value: &Cel<'_>) -> PolicyError {
        PolicyError::Type { what: self.what.clone(), expected, found: value.type_name().to_owned() }
    }
}

/// Which of the costlier variables the expressions of a policy use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Uses {
    object: bool,
    old_object: bool,
    request: bool,
    namespace_object: bool,
    authorizer: bool,
}

impl Uses {
    /// Whether one of them asks what somebody may do.
    pub(crate) fn authorizer(self) -> bool {
        self.authorizer
    }

    fn note(&mut self, program: &Program) {
        self.object |= program.uses("object");
        self.old_object |= program.uses("oldObject");
        self.request |= program.uses("request");
        self.namespace_object |= program.uses(NAMESPACE_OBJECT);
        self.authorizer |= asks_authorizer(program);
    }
}

fn asks_authorizer(program: &Program) -> bool {
    program.uses(AUTHORIZER) || program.uses(REQUEST_RESOURCE)
}

/// What the expressions of a policy are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Mutation,
    Validation,
}

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
pub(crate) fn scope_with(
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
        uses.note(&program);
        scope.define(&variable.name, program);
    }
    Ok(scope)
}

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
        let element = match list.program.result_type() {
            Type::List(element) => Type::clone(element),
            Type::Dyn => Type::Dyn,
            other => {
                let problem = format!("must evaluate to list but got {other}");
                return Err(DefinitionError::field(list.what, problem));
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
                what: self.list.what.clone(),
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

/// What the expressions of one policy see in one review, and until when they may run.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) object: Option<Node<'a>>,
    old_object: Option<Node<'a>>,
    request: Option<Node<'a>>,
    namespace_object: Option<Node<'a>>,
    params: Option<Node<'a>>,
    /// The request, when the policy asks what its user may do.
    asking: Option<(&'a Request, &'a dyn Authorizer)>,
    uses: Uses,
    pub(crate) patience: &'a Patience,
}

/// How long one policy has taken for one review. Looking at a clock takes as long as a short expression, so that it
/// is looked at once there has been some work.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// Since the last look.
    steps: Cell<u64>,
    deadline: Cell<Option<Instant>>,
}

impl Patience {
    fn take(&self, steps: u64) -> Result<(), PolicyError> {
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

    /// Before a change is carried out: an error once the policy has taken too long.
    pub(crate) fn take_change(&self) -> Result<(), PolicyError> {
        self.take(STEPS_OF_A_CHANGE)
    }

    /// Before an operation of a patch that copies or moves so many bytes, likewise.
    pub(crate) fn take_operation(&self, bytes: usize) -> Result<(), PolicyError> {
        let copying = u64::try_from(bytes / BYTES_OF_A_STEP).unwrap_or(u64::MAX);
        self.take(copying.saturating_add(STEPS_OF_AN_OPERATION))
    }

    /// That of a policy which has taken too long already, but has not looked yet.
    #[cfg(test)]
    pub(crate) fn spent() -> Self {
        let patience = Self::default();
        patience.deadline.set(Instant::now().checked_sub(MAX_DURATION));
        patience
    }
}

impl<'a> Inputs<'a> {
    /// Fetches what a policy of this family uses, and no more.
    pub(crate) fn fetch(
        documents: &'a Documents<'_>,
        uses: Uses,
        family: Family,
        patience: &'a Patience,
    ) -> Result<Self, PolicyError> {
        Ok(Self {
            object: if uses.object { documents.object()? } else { None },
            old_object: if uses.old_object { documents.old_object()? } else { None },
            request: if uses.request { Some(documents.request(family)?) } else { None },
            namespace_object: if uses.namespace_object { documents.namespace_object()? } else { None },
            params: None,
            asking: uses.authorizer.then_some((documents.review.request, documents.review.authorizer)),
            uses,
            patience,
        })
    }

    /// The same with another object.
    pub(crate) fn with_object<'b>(&self, object: Node<'b>) -> Inputs<'b>
    where
        'a: 'b,
    {
        Inputs { object: Some(object), ..*self }
    }

    /// The same with these settings.
    pub(crate) fn with_params(self, params: Option<Node<'a>>) -> Self {
        Self { params, ..self }
    }

    /// The same without an authorizer.
    pub(crate) fn without_authorizer(self) -> Self {
        Self { asking: None, ..self }
    }

    /// Shows `namespaceObject`, or null in its place.
    pub(crate) fn show_namespace(&self, shown: bool, activation: &mut Activation<'a>) {
        activation.bind(NAMESPACE_OBJECT, cel(self.namespace_object.filter(|_| shown)));
    }

    /// Expressions evaluated with the same activation share the API server's budget for a policy.
    pub(crate) fn activate(&self, scope: &Scope) -> Activation<'a> {
        let mut activation = Activation::new(scope, Limits::default());
        activation.set_budget(Budget::POLICY);
        for (name, value, used) in [
            ("object", self.object, self.uses.object),
            ("oldObject", self.old_object, self.uses.old_object),
            ("request", self.request, self.uses.request),
            (NAMESPACE_OBJECT, self.namespace_object, self.uses.namespace_object),
            (PARAMS, self.params, true),
        ] {
            if used {
                activation.bind(name, cel(value));
            }
        }
        if let Some((request, authorizer)) = self.asking {
            let user = Arc::new(request.user_info.clone());
            let resource = Resource {
                group: request.resource.group.clone(),
                resource: request.resource.resource.clone(),
                subresource: request.sub_resource.clone(),
                namespace: request.namespace.clone(),
                name: request.name.clone(),
                ..Resource::default()
            };
            activation.bind(AUTHORIZER, Cel::authorizer(authorizer, Arc::clone(&user)));
            activation.bind(REQUEST_RESOURCE, Cel::resource_authorizer(authorizer, user, resource));
        }
        activation
    }

    /// An error once the policy has taken too long.
    pub(crate) fn check_time(&self, activation: &Activation<'_>) -> Result<(), PolicyError> {
        self.patience.take(activation.take_steps().saturating_add(STEPS_AROUND))
    }
}

fn cel(value: Option<Node<'_>>) -> Cel<'_> {
    value.map_or_else(Cel::null, Cel::from)
}

fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|other| other.is_ascii_alphanumeric() || other == '_')
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Patience, STEPS_BETWEEN_LOOKS};
    use crate::error::PolicyError;

    #[test]
    fn a_policy_that_has_taken_too_long_is_stopped_once_it_has_worked() {
        let patience = Patience::default();
        assert!(patience.take(STEPS_BETWEEN_LOOKS - 1).is_ok());
        assert_eq!(patience.deadline.get(), None);
        assert!(patience.take(1).is_ok());
        assert!(patience.deadline.get().is_some());
        patience.deadline.set(Instant::now().checked_sub(Duration::from_secs(1)));
        assert!(patience.take(STEPS_BETWEEN_LOOKS - 1).is_ok());
        assert!(matches!(patience.take(1), Err(PolicyError::TooLong(_))));
        assert!(matches!(patience.take(1), Err(PolicyError::TooLong(_))), "it stays so");
    }

    #[test]
    fn few_changes_and_small_patches_take_no_look_but_many_or_large_ones_do() {
        type Take = fn(&Patience) -> Result<(), PolicyError>;
        let one = |take: Take, times: usize| {
            let patience = Patience::spent();
            (0..times).try_for_each(|_| take(&patience)).is_err()
        };
        let rows: [(Take, usize, usize); 3] = [
            (Patience::take_change, 3, 4),
            (|patience| patience.take_operation(0), 60, 64),
            (|patience| patience.take_operation(16 * 1024 * 1024), 0, 1),
        ];
        for (take, few, many) in rows {
            assert!(!one(take, few), "{few}");
            assert!(one(take, many), "{many}");
        }
    }
}
