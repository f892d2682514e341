//! Expressions of a policy, each with the name that messages give it, and what they are evaluated over.

use std::sync::Arc;

use sallyport_cel::{Activation, Authorizer, Budget, Limits, Program, Resource, Scope, Type, Value as Cel};
use sallyport_document::Node;
use serde_json::Value;

use crate::error::{DefinitionError, PolicyError};
use crate::expression::time_budget::TimeBudget;
use crate::expression::variables::{AUTHORIZER, NAMESPACE_OBJECT, PARAMS, REQUEST_RESOURCE};
use crate::family::Family;
use crate::request::Request;
use crate::review::documents::Documents;

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
                uses.add_program(&program);
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

    pub(super) fn result_type(&self) -> &Type {
        self.program.result_type()
    }

    /// Returns whether it, or a variable that it uses, asks what somebody may do.
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
    /// Returns whether one of them asks what somebody may do.
    pub(crate) fn authorizer(self) -> bool {
        self.authorizer
    }

    /// Adds what a program uses.
    pub(super) fn add_program(&mut self, program: &Program) {
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
    pub(crate) time: &'a TimeBudget,
}

impl<'a> Inputs<'a> {
    /// Fetches what a policy of this family uses, and no more.
    pub(crate) fn fetch(
        documents: &'a Documents<'_>,
        uses: Uses,
        family: Family,
        time: &'a TimeBudget,
    ) -> Result<Self, PolicyError> {
        Ok(Self {
            object: if uses.object { documents.object()? } else { None },
            old_object: if uses.old_object { documents.old_object()? } else { None },
            request: if uses.request { Some(documents.request(family)?) } else { None },
            namespace_object: if uses.namespace_object { documents.namespace_object()? } else { None },
            params: None,
            asking: uses.authorizer.then_some((documents.review.request, documents.review.authorizer)),
            uses,
            time,
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
        self.time.spend_evaluation(activation.take_steps())
    }
}

fn cel(value: Option<Node<'_>>) -> Cel<'_> {
    value.map_or_else(Cel::null, Cel::from)
}
