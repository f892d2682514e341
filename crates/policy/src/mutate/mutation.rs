//! `MutationPolicy` objects and the API server's own `MutatingAdmissionPolicy` objects, compiled. `round` runs them.

use std::sync::Arc;

use sallyport_api::{
    FailurePolicy, MatchConstraints, MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, Mutation,
    MutationPolicy, MutationPolicySpec, OperationType, ParamKind, PatchType, ReinvocationPolicy,
};
use sallyport_cel::{Activation, Scope, Type};
use serde_json::{Map, Value};

use crate::error::{DefinitionError, PolicyError};
use crate::expression::compiled::{Expression, Inputs, Loop, Purpose, Uses, scope_with};
use crate::expression::condition::Conditions;
use crate::family::Family;
use crate::matching::matcher::Matcher;
use crate::mutate::configuration::value::{self, Node};
use crate::mutate::measure::{MAX_BYTES, Measure};
use crate::mutate::overlay::Overlay;
use crate::mutate::patch;
use crate::mutate::patch::library::{self, Operation};
use crate::mutate::round::Run;
use crate::outcome::{Gathering, Outcome, PolicyStatus};
use crate::request::Review;
use crate::review::documents::Documents;
use crate::review::namespaces::Namespaces;
use crate::review::safety;
use crate::schema::{Schema, Schemas};
use crate::set::admission_policy;
use crate::set::binding::{self, Binding, BindingSource};
use crate::set::objects::Objects;
use crate::set::{Definition, Set};

/// What a mutation set is compiled from: our policies, and the API server's own with their bindings.
#[derive(Clone, Debug, Default)]
pub struct Mutations {
    /// Our policies.
    pub policies: Vec<MutationPolicy>,
    /// The API server's own.
    pub admission_policies: Vec<MutatingAdmissionPolicy>,
    /// What puts those in force. A binding without its policy has no effect.
    pub bindings: Vec<MutatingAdmissionPolicyBinding>,
}

/// A compiled set of mutation policies.
///
/// They run in the order of their names, each on the result of the one before. A policy under `Fail` that
/// cannot be evaluated refuses the request; one under `Ignore` leaves no trace.
#[derive(Debug)]
pub struct MutationSet {
    set: Set<CompiledMutations>,
}

impl MutationSet {
    /// Compiles policies. This cannot fail: a policy that is wrong stays in force as it is in `previous`, or
    /// is an error for the requests it matches, as [`MutationSet::policies`] says.
    pub fn compile(
        policies: Vec<MutationPolicy>,
        namespaces: Arc<Namespaces>,
        previous: Option<&Self>,
    ) -> Self {
        let mutations = Mutations { policies, ..Mutations::default() };
        Self::build(mutations, Arc::new(Objects::new(namespaces, [])), previous)
    }

    /// Compiles policies of all kinds, with the objects that they may see, likewise.
    pub fn build(mutations: Mutations, objects: Arc<Objects>, previous: Option<&Self>) -> Self {
        let Mutations { policies, admission_policies, bindings } = mutations;
        let ours = policies
            .into_iter()
            .map(|policy| (policy.metadata.name, MutationSource::of_sallyport(policy.spec)));
        let theirs = admission_policy::mutations(admission_policies, bindings);
        Self { set: Set::compile(ours.chain(theirs), objects, previous.map(|previous| &previous.set)) }
    }

    /// The policies in the order of their names; results refer to them by index.
    pub fn policies(&self) -> &[PolicyStatus] {
        self.set.statuses()
    }

    /// The objects that they may see.
    pub fn objects(&self) -> &Objects {
        self.set.objects()
    }

    /// Runs the policies with the failure policy `door` that match.
    pub fn review(&self, review: &Review<'_>, door: FailurePolicy) -> Outcome {
        let candidates = self.set.candidates(review.request, door);
        if candidates.is_empty() {
            return Gathering::default().finish(None);
        }
        let documents = Documents::new(review, self.set.objects().namespaces());
        if matches!(safety::is_mirror_pod(&documents), Ok(true)) {
            return Gathering::default().finish(None);
        }
        Run::new(&self.set, &documents, door).all(&candidates)
    }
}

/// A policy as written, with what puts it in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MutationSource {
    family: Family,
    spec: MutationPolicySpec,
    bindings: Vec<BindingSource>,
}

impl MutationSource {
    fn of_sallyport(spec: MutationPolicySpec) -> Self {
        let binding = BindingSource::own(&[], spec.param_ref.as_ref(), spec.params.as_ref());
        Self { family: Family::Sallyport, spec, bindings: vec![binding] }
    }

    pub(crate) fn of_kubernetes(spec: MutationPolicySpec, bindings: Vec<BindingSource>) -> Self {
        Self { family: Family::Kubernetes, spec, bindings }
    }
}

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

#[derive(Debug)]
pub(crate) struct CompiledMutation {
    pub(crate) field: String,
    scope: Scope,
    each: Option<Loop>,
    pub(crate) action: Action,
}

#[derive(Debug)]
pub(crate) enum Action {
    Patch(Expression),
    /// A JSON patch as the API server reads it.
    LibraryPatch(Expression),
    Overlay(Overlay),
    Configuration(Expression),
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
        match family {
            Family::Sallyport => binding::check_params(spec.param_kind.as_ref(), spec.param_ref.as_ref())?,
            Family::Kubernetes => admission_policy::check_mutation(spec, bindings)?,
        }
        let bindings = binding::compile(bindings, spec.param_kind.as_ref(), Self::OPERATIONS)?;
        let mut uses = Uses::default();
        let params = spec.param_kind.is_some() || spec.params.is_some();
        let conditions = Conditions::compile(&spec.match_conditions, params, *family, &mut uses)?;
        let scope = scope_with(&spec.variables, params, Purpose::Mutation, &mut uses)?;
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
    /// Whether the matchConditions are true.
    pub(crate) fn hold(&self, inputs: &Inputs<'_>) -> Result<bool, PolicyError> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        self.conditions.hold(inputs, &mut inputs.activate(&self.scope))
    }
}

impl CompiledMutation {
    fn compile(
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
                let expression = expression.named_by(family);
                if family.reads_patches_strictly() {
                    Action::Patch(expression)
                } else {
                    Action::LibraryPatch(expression)
                }
            }
            (None, Some(overlay), None) => {
                let at = format!("{field}.overlay");
                Action::Overlay(Overlay::compile(&at, overlay, schemas, &scope, uses)?)
            }
            _ => return Err(DefinitionError::field(field, one_of)),
        };
        let agrees = match mutation.patch_type {
            None => true,
            Some(PatchType::JSONPatch) => matches!(action, Action::Patch(_) | Action::LibraryPatch(_)),
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
    Patch(Vec<json_patch::PatchOperation>),
    LibraryPatch(Vec<Operation>),
    Overlay(Map<String, Value>),
    /// The fields of a partial object.
    Configuration(Vec<(String, Node)>),
}

impl CompiledMutation {
    /// What is to be done to the object. With `forEach` every element sees the object as it was before.
    pub(crate) fn evaluate(&self, inputs: &Inputs<'_>) -> Result<Vec<Change>, PolicyError> {
        let mut activation = inputs.activate(&self.scope);
        let Some(each) = &self.each else {
            return Ok(vec![self.change(&activation, &mut { MAX_BYTES })?]);
        };
        let mut changes = Vec::new();
        let mut room = MAX_BYTES;
        for element in each.elements(&activation)? {
            inputs.check_time(&activation)?;
            each.bind(&mut activation, element);
            changes.push(self.change(&activation, &mut room)?);
        }
        Ok(changes)
    }

    /// What is to be done for one element; takes its size from `room`.
    fn change(&self, activation: &Activation<'_>, room: &mut usize) -> Result<Change, PolicyError> {
        let (change, bytes) = match &self.action {
            Action::Overlay(overlay) => {
                let rendered = overlay.render(activation)?;
                let bytes = rendered.values().map(|value| Measure::of(value).bytes).sum();
                (Change::Overlay(rendered), bytes)
            }
            Action::Patch(expression) => {
                let (operations, bytes) = patch::operations(expression, &expression.evaluate(activation)?)?;
                (Change::Patch(operations), bytes)
            }
            Action::LibraryPatch(expression) => {
                let value = expression.evaluate(activation)?;
                let (operations, bytes) = library::operations(expression, &value)?;
                (Change::LibraryPatch(operations), bytes)
            }
            Action::Configuration(expression) => {
                let fields = value::fields(&expression.evaluate(activation)?)
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
