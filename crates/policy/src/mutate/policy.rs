//! One mutation policy, compiled.

use sallyport_api::{FailurePolicy, MatchConstraints, OperationType, ParamKind, ReinvocationPolicy};
use sallyport_cel::Scope;

use crate::error::{DefinitionError, PolicyError};
use crate::expression::compiled::{Inputs, Uses};
use crate::expression::condition::Conditions;
use crate::expression::scope::compile_scope;
use crate::family::Family;
use crate::matching::matcher::Matcher;
use crate::mutate::mutation::CompiledMutation;
use crate::mutate::source::MutationSource;
use crate::purpose::Purpose;
use crate::schema::{Schema, Schemas};
use crate::set::Definition;
use crate::set::binding::{self, Binding};

/// One compiled policy.
#[derive(Debug)]
pub(crate) struct CompiledMutations {
    conditions: Conditions,
    scope: Scope,
    pub(crate) mutations: Vec<CompiledMutation>,
    pub(crate) param_kind: Option<ParamKind>,
    pub(crate) bindings: Vec<Binding>,
    pub(crate) uses: Uses,
    pub(crate) reinvoked: bool,
}

impl Definition for CompiledMutations {
    type Spec = MutationSource;
    const OPERATIONS: &'static [OperationType] = &[OperationType::Create];

    fn family(source: &Self::Spec) -> Family {
        source.family
    }

    fn is_unbound(source: &Self::Spec) -> bool {
        source.bindings.is_empty()
    }

    fn constraints(source: &Self::Spec) -> &MatchConstraints {
        &source.spec.match_constraints
    }

    fn failure_policy(source: &Self::Spec) -> FailurePolicy {
        source.spec.failure_policy
    }

    fn compile(source: &Self::Spec, matcher: &Matcher, schemas: &Schemas) -> Result<Self, DefinitionError> {
        let MutationSource { family, spec, bindings } = source;
        if spec.mutations.is_empty() {
            return Err(DefinitionError::field("mutations", "must not be empty"));
        }
        source.check()?;
        let bindings = binding::compile(bindings, spec.param_kind.as_ref(), Self::OPERATIONS)?;
        let mut uses = Uses::default();
        let params = spec.param_kind.is_some() || spec.params.is_some();
        let conditions = Conditions::compile(&spec.match_conditions, params, *family, &mut uses)?;
        let scope = compile_scope(&spec.variables, params, Purpose::Mutation, &mut uses)?;
        let schemas: Vec<Schema<'_>> =
            matcher.rules.included.iter().flat_map(|rule| rule.schemas(schemas)).collect();
        let mutations = spec
            .mutations
            .iter()
            .enumerate()
            .map(|(index, mutation)| {
                CompiledMutation::compile(index, mutation, &scope, &schemas, *family, &mut uses)
            })
            .collect::<Result<_, _>>()?;
        let reinvoked = spec.reinvocation_policy == ReinvocationPolicy::IfNeeded;
        let param_kind = spec.param_kind.clone();
        Ok(Self { conditions, scope, mutations, param_kind, bindings, uses, reinvoked })
    }

    fn asks_authorizer(&self) -> bool {
        self.uses.authorizer()
    }
}

impl CompiledMutations {
    /// Returns whether the matchConditions are true.
    pub(crate) fn hold(&self, inputs: &Inputs<'_>) -> Result<bool, PolicyError> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        self.conditions.hold(inputs, &mut inputs.activate(&self.scope))
    }
}
