//! Evaluating `MutationPolicy` objects.

use std::sync::Arc;
use std::time::Instant;

use sallyport_api::{
    FailurePolicy, MatchConstraints, Mutation, MutationPolicy, MutationPolicySpec, OperationType, PatchType,
    ReinvocationPolicy,
};
use sallyport_cel::{Activation, Scope};
use serde_json::{Map, Value};

use crate::apply::apply_configuration;
use crate::condition::Conditions;
use crate::configuration::{self, Node};
use crate::diff::{MAX_PATCH_BYTES, diff};
use crate::documents::{Documents, set_api_version};
use crate::error::{DefinitionError, PolicyError};
use crate::expression::{Expression, Inputs, Loop, Uses, scope_with};
use crate::matcher::Matcher;
use crate::measure::{MAX_BYTES, Measure};
use crate::merge::merge;
use crate::namespaces::Namespaces;
use crate::outcome::{Gathering, Outcome, PolicyResult, PolicyStatus, ResultKind};
use crate::overlay::Overlay;
use crate::patch;
use crate::request::{GroupVersionKind, Request, Review};
use crate::safety;
use crate::schema::{Schema, Schemas};
use crate::set::{Definition, Match, Set};

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
        Self::compile_with(policies, namespaces, Arc::default(), previous)
    }

    /// The same with custom kinds, which then merge as their definitions say.
    pub fn compile_with(
        policies: Vec<MutationPolicy>,
        namespaces: Arc<Namespaces>,
        schemas: Arc<Schemas>,
        previous: Option<&Self>,
    ) -> Self {
        let policies = policies.into_iter().map(|policy| (policy.metadata.name, policy.spec));
        Self { set: Set::compile(policies, namespaces, schemas, previous.map(|previous| &previous.set)) }
    }

    /// The policies in the order of their names; results refer to them by index.
    pub fn policies(&self) -> &[PolicyStatus] {
        self.set.statuses()
    }

    /// Runs the policies with the failure policy `door` that match.
    pub fn review(&self, review: &Review<'_>, door: FailurePolicy) -> Outcome {
        let candidates = self.set.candidates(review.request, door);
        if candidates.is_empty() {
            return Gathering::default().finish(None);
        }
        let documents = Documents::new(review, self.set.namespaces());
        if matches!(safety::is_mirror_pod(&documents), Ok(true)) {
            return Gathering::default().finish(None);
        }
        let schemas = self.set.schemas();
        Run {
            documents: &documents,
            schemas,
            door,
            gathering: Gathering::default(),
            changes: 0,
            current: None,
        }
        .all(&self.set, &candidates)
    }
}

/// One compiled policy.
#[derive(Debug)]
pub(crate) struct CompiledMutations {
    conditions: Conditions,
    mutations: Vec<CompiledMutation>,
    uses: Uses,
    reinvoked: bool,
}

#[derive(Debug)]
struct CompiledMutation {
    field: String,
    scope: Scope,
    each: Option<Loop>,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Patch(Expression),
    Overlay(Overlay),
    Configuration(Expression),
}

impl Definition for CompiledMutations {
    type Spec = MutationPolicySpec;
    const OPERATIONS: &'static [OperationType] = &[OperationType::Create];

    fn constraints(spec: &Self::Spec) -> &MatchConstraints {
        &spec.match_constraints
    }

    fn failure_policy(spec: &Self::Spec) -> FailurePolicy {
        spec.failure_policy
    }

    fn compile(spec: &Self::Spec, matcher: &Matcher, schemas: &Schemas) -> Result<Self, DefinitionError> {
        if spec.mutations.is_empty() {
            return Err(DefinitionError::field("mutations", "must not be empty"));
        }
        let mut uses = Uses::default();
        let conditions = Conditions::compile(&spec.match_conditions, &mut uses)?;
        let scope = scope_with(&spec.variables, &mut uses)?;
        let schemas: Vec<Schema<'_>> = matcher.rules.iter().flat_map(|rule| rule.schemas(schemas)).collect();
        let mutations = spec
            .mutations
            .iter()
            .enumerate()
            .map(|(index, mutation)| CompiledMutation::compile(index, mutation, &scope, &schemas, &mut uses))
            .collect::<Result<_, _>>()?;
        let reinvoked = spec.reinvocation_policy == ReinvocationPolicy::IfNeeded;
        Ok(Self { conditions, mutations, uses, reinvoked })
    }
}

impl CompiledMutation {
    fn compile(
        index: usize,
        mutation: &Mutation,
        scope: &Scope,
        schemas: &[Schema<'_>],
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
                Action::Configuration(Expression::compile(what, &configuration.expression, &scope, uses)?)
            }
            (Some(patch), None, None) => {
                let what = format!("{field}.jsonPatch.expression");
                Action::Patch(Expression::compile(what, &patch.expression, &scope, uses)?)
            }
            (None, Some(overlay), None) => {
                let at = format!("{field}.overlay");
                Action::Overlay(Overlay::compile(&at, overlay, schemas, &scope, uses)?)
            }
            _ => return Err(DefinitionError::field(field, one_of)),
        };
        let agrees = match mutation.patch_type {
            None => true,
            Some(PatchType::JSONPatch) => matches!(action, Action::Patch(_)),
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
enum Change {
    Patch(Vec<json_patch::PatchOperation>),
    Overlay(Map<String, Value>),
    /// The fields of a partial object.
    Configuration(Vec<(String, Node)>),
}

/// One review's way through the policies.
struct Run<'r> {
    documents: &'r Documents<'r>,
    schemas: &'r Schemas,
    door: FailurePolicy,
    gathering: Gathering,
    /// How often the object has changed.
    changes: usize,
    /// The object as it is now; `None` as long as it is the one received.
    current: Option<Value>,
}

/// A policy that may run once more.
struct Again<'s> {
    policy: &'s CompiledMutations,
    name: &'s str,
    request: Option<Request>,
    /// Its place in the results.
    result: usize,
    /// What `Run::changes` was when it had run.
    seen: usize,
}

impl Run<'_> {
    fn all(mut self, set: &Set<CompiledMutations>, candidates: &[usize]) -> Outcome {
        let mut again = Vec::new();
        for candidate in candidates {
            let started = Instant::now();
            let Some(Match { index, name, request, policy }) = set.select(*candidate, self.documents) else {
                continue;
            };
            let (outcome, good) = match policy {
                Ok(policy) => (self.policy(name, policy, request.as_ref()), Some(policy)),
                Err(error) => (Err(error), None),
            };
            let result = self.note(name, outcome);
            self.gathering.results.push(PolicyResult { policy: index, result, duration: started.elapsed() });
            if self.gathering.refused() {
                return self.gathering.finish(None);
            }
            let ran = matches!(result, ResultKind::Applied | ResultKind::Unchanged);
            if let Some(policy) = good.filter(|policy| ran && policy.reinvoked) {
                let result = self.gathering.results.len() - 1;
                again.push(Again { policy, name, request, result, seen: self.changes });
            }
        }
        for Again { policy, name, request, result, seen } in again {
            if self.changes == seen {
                continue;
            }
            let started = Instant::now();
            let outcome = self.policy(name, policy, request.as_ref());
            let second = self.note(name, outcome);
            if let Some(first) = self.gathering.results.get_mut(result) {
                first.duration += started.elapsed();
                if matches!(second, ResultKind::Applied | ResultKind::Error) {
                    first.result = second;
                }
            }
            if self.gathering.refused() {
                break;
            }
        }
        self.finish()
    }

    /// Turns an error into a refusal or, under `Ignore`, into nothing.
    fn note(&mut self, name: &str, outcome: Result<ResultKind, PolicyError>) -> ResultKind {
        outcome.unwrap_or_else(|error| {
            if self.door == FailurePolicy::Fail {
                self.gathering.refuse_error(name, &error);
            }
            ResultKind::Error
        })
    }

    /// Runs one policy, on the object in another version if its rules name that.
    fn policy(
        &mut self,
        name: &str,
        policy: &CompiledMutations,
        request: Option<&Request>,
    ) -> Result<ResultKind, PolicyError> {
        let Some(request) = request else { return self.policy_on(name, policy, self.documents) };
        let documents = self.documents.converted(request);
        if let Some(current) = &mut self.current {
            set_api_version(current, &request.kind.api_version());
        }
        let outcome = self.policy_on(name, policy, &documents);
        if let Some(current) = &mut self.current {
            set_api_version(current, &self.documents.review.request.kind.api_version());
        }
        outcome
    }

    fn policy_on(
        &mut self,
        name: &str,
        policy: &CompiledMutations,
        documents: &Documents<'_>,
    ) -> Result<ResultKind, PolicyError> {
        let received = Inputs::fetch(documents, policy.uses)?;
        let Some(original) = received.object else { return Ok(ResultKind::Unchanged) };
        let inputs = received.with_object(self.current.as_ref().unwrap_or(original));
        if !policy.conditions.hold(&inputs)? {
            return Ok(ResultKind::Skipped);
        }
        // A refused request needs nothing taken back.
        let snapshot = if self.door == FailurePolicy::Ignore { self.current.clone() } else { None };
        let immutable = safety::is_immutable(self.documents.review.request);
        let before = if immutable { self.current.clone() } else { None };
        let kind = &documents.review.request.kind;
        let mut changed = match self.mutations(policy, &received, original, kind) {
            Ok(changed) => changed,
            Err(error) => {
                if self.door == FailurePolicy::Ignore {
                    self.current = snapshot;
                }
                return Err(error);
            }
        };
        if changed
            && immutable
            && let Some(current) = &mut self.current
        {
            let before = before.as_ref().unwrap_or(original);
            let restored = safety::restore_immutable(before, current);
            if !restored.is_empty() {
                let fields = restored.join(", ");
                self.gathering.warn(&format!(
                    "policy {name}: changes to {fields} were left out, because an existing pod cannot be changed there"
                ));
                changed = current != before;
            }
        }
        if !changed {
            return Ok(ResultKind::Unchanged);
        }
        self.changes += 1;
        Ok(ResultKind::Applied)
    }

    /// Carries out the mutations, each on the result of the one before; whether they changed anything.
    fn mutations(
        &mut self,
        policy: &CompiledMutations,
        received: &Inputs<'_>,
        original: &Value,
        kind: &GroupVersionKind,
    ) -> Result<bool, PolicyError> {
        let mut changed = false;
        for mutation in &policy.mutations {
            let steps = {
                let object = self.current.as_ref().unwrap_or(original);
                mutation.evaluate(&received.with_object(object))?
            };
            for change in steps {
                changed |= self.carry_out(mutation, change, original, kind)?;
            }
        }
        Ok(changed)
    }

    fn carry_out(
        &mut self,
        mutation: &CompiledMutation,
        change: Change,
        original: &Value,
        kind: &GroupVersionKind,
    ) -> Result<bool, PolicyError> {
        match (change, &mutation.action) {
            (Change::Patch(operations), Action::Patch(expression)) => {
                if operations.is_empty() {
                    return Ok(false);
                }
                let target = self.current.as_ref().unwrap_or(original);
                let Some(patched) = patch::apply(expression, target, &operations)? else { return Ok(false) };
                if !patched.is_object() {
                    return Err(PolicyError::Patch {
                        what: expression.what().to_owned(),
                        problem: "the result is not an object".to_owned(),
                    });
                }
                let changed = patched != *target;
                if changed {
                    self.current = Some(patched);
                }
                Ok(changed)
            }
            (Change::Overlay(overlay), _) => {
                let target = self.current.get_or_insert_with(|| original.clone());
                merge(target, overlay, self.schemas.of_kind_or_other(kind))
                    .map_err(|error| PolicyError::Merge(format!("{}.overlay", mutation.field), error))
            }
            (Change::Configuration(fields), Action::Configuration(expression)) => {
                let target = self.current.get_or_insert_with(|| original.clone());
                apply_configuration(target, fields, kind, self.schemas)
                    .map_err(|error| PolicyError::Configuration(expression.what().to_owned(), error))
            }
            (Change::Patch(_) | Change::Configuration(_), _) => Ok(false),
        }
    }

    fn finish(self) -> Outcome {
        let Self { documents, mut gathering, current, door, .. } = self;
        let patch = match (documents.object(), &current) {
            (Ok(Some(original)), Some(current)) => diff(original, current),
            _ => None,
        };
        if let Some(patch) = patch.as_ref().filter(|patch| patch.len() > MAX_PATCH_BYTES) {
            let message =
                format!("the policies' patch of {} bytes is larger than {MAX_PATCH_BYTES}", patch.len());
            if door == FailurePolicy::Fail {
                gathering.fail(message);
            } else {
                gathering.warn(&message);
            }
            return gathering.finish(None);
        }
        gathering.finish(patch)
    }
}

impl CompiledMutation {
    /// What is to be done to the object. With `forEach` every element sees the object as it was before.
    fn evaluate(&self, inputs: &Inputs<'_>) -> Result<Vec<Change>, PolicyError> {
        let mut activation = inputs.activate(&self.scope);
        let Some(each) = &self.each else {
            return Ok(vec![self.change(&activation, &mut { MAX_BYTES })?]);
        };
        let mut changes = Vec::new();
        let mut room = MAX_BYTES;
        for element in each.elements(&activation)? {
            inputs.check_time()?;
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
            Action::Configuration(expression) => {
                let fields = configuration::fields(&expression.evaluate(activation)?)
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
