//! One review's way through the mutation policies: each runs on the result of the one before, then those that
//! ask for it once more.

use std::time::Instant;

use sallyport_api::FailurePolicy;
use sallyport_document::{Node, Tree};

use crate::error::PolicyError;
use crate::expression::compiled::Inputs;
use crate::expression::time_budget::TimeBudget;
use crate::family::{self, Family};
use crate::matching::index::Candidates;
use crate::mutate::configuration::apply::apply_configuration;
use crate::mutate::current::Current;
use crate::mutate::diff::{MAX_PATCH_BYTES, diff};
use crate::mutate::measure::MAX_BYTES;
use crate::mutate::merge::merge;
use crate::mutate::mutation::{Action, Change, CompiledMutation};
use crate::mutate::patch::apply::apply;
use crate::mutate::patch::decoding::decode;
use crate::mutate::patch::dialect::Dialect;
use crate::mutate::policy::CompiledMutations;
use crate::outcome::{Gathering, Outcome, PolicyResult, ResultKind};
use crate::request::Request;
use crate::review::documents::{Documents, set_api_version};
use crate::review::safety;
use crate::set::binding::{self, Binding};
use crate::set::{Match, Set};

/// One review's way through the policies.
pub(crate) struct Run<'r> {
    set: &'r Set<CompiledMutations>,
    documents: &'r Documents<'r>,
    door: FailurePolicy,
    gathering: Gathering,
    /// How often the object has changed.
    changes: usize,
    /// Whether a mutation of one of the API server's own policies has succeeded.
    succeeded: bool,
    current: Current<'r>,
}

/// A policy, what puts it in force, and its settings.
#[derive(Clone, Copy)]
struct Invocation<'r> {
    policy: &'r CompiledMutations,
    name: &'r str,
    family: Family,
    binding: &'r Binding,
    params: Option<Node<'r>>,
}

/// An invocation that may run once more.
struct Reinvocation<'r> {
    invocation: Invocation<'r>,
    request: Option<Request>,
    /// Its place in the results.
    result: usize,
    /// What `Run::changes` was when it had run.
    seen: usize,
}

/// What the mutations of a policy did.
#[derive(Default)]
struct Effect {
    /// The object is another.
    changed: bool,
    /// One of those failed that do not keep the others from running.
    failed: bool,
}

impl<'r> Run<'r> {
    pub(crate) fn new(
        set: &'r Set<CompiledMutations>,
        documents: &'r Documents<'r>,
        door: FailurePolicy,
    ) -> Self {
        Self {
            set,
            documents,
            door,
            gathering: Gathering::default(),
            changes: 0,
            succeeded: false,
            current: Current::default(),
        }
    }

    /// Runs the candidates that match, then again those that ask for it.
    pub(crate) fn evaluate(mut self, candidates: &[Candidates<'_>]) -> Outcome {
        let mut reinvocations = Vec::new();
        let mut started = Instant::now();
        for Match { index, name, family, request, policy } in self.set.select(candidates, self.documents) {
            // The API server's own go on, so that all of their errors are causes.
            if self.gathering.refused() && family == Family::Sallyport {
                continue;
            }
            let place = self.gathering.results.len();
            let result = match policy {
                Ok(policy) => {
                    self.run_policy(name, family, policy, request.as_deref(), place, &mut reinvocations)
                }
                Err(error) => Some(self.report_misconfiguration(name, family, None, &error)),
            };
            let Some(result) = result else { continue };
            // The end of one is the beginning of the next.
            let ended = Instant::now();
            let duration = ended.duration_since(std::mem::replace(&mut started, ended));
            self.gathering.results.push(PolicyResult { policy: index, result, duration });
            if self.gathering.refused() && !self.gathering.denied() {
                return self.gathering.finish(None);
            }
        }
        if !self.gathering.refused() {
            self.reinvoke(reinvocations);
        }
        self.finish()
    }

    fn reinvoke(&mut self, reinvocations: Vec<Reinvocation<'r>>) {
        let succeeded = self.succeeded;
        let (mut time, mut last) = (TimeBudget::default(), None);
        for Reinvocation { invocation, request, result, seen } in reinvocations {
            if self.changes == seen && (invocation.family.ignores_own_changes() || !succeeded) {
                continue;
            }
            // One policy's invocations follow each other and share its time.
            if last.replace(result) != Some(result) {
                time = TimeBudget::default();
            }
            let started = Instant::now();
            let outcome = self.invoke(invocation, request.as_ref(), &time);
            let second = self.settle_outcome(invocation, outcome);
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
    }

    /// Runs a policy for each binding that covers the request; `None` if none does.
    fn run_policy(
        &mut self,
        name: &'r str,
        family: Family,
        policy: &'r CompiledMutations,
        request: Option<&Request>,
        place: usize,
        reinvocations: &mut Vec<Reinvocation<'r>>,
    ) -> Option<ResultKind> {
        let unknown =
            policy.param_kind.as_ref().and_then(|kind| binding::find_kind(kind, self.set.objects()).err());
        if let Some(error) = unknown {
            return Some(self.report_misconfiguration(name, family, None, &error.into()));
        }
        let time = TimeBudget::default();
        let first = reinvocations.len();
        let mut verdict = None;
        for binding in &policy.bindings {
            let params = match binding.select(self.documents, self.set.objects()) {
                Ok(None) => continue,
                Ok(Some(params)) => params,
                Err(error) => {
                    verdict = Some(self.report_misconfiguration(name, family, Some(binding), &error));
                    continue;
                }
            };
            verdict = verdict.or(Some(ResultKind::Skipped));
            for params in params.iter().copied() {
                if self.gathering.refused() && !self.gathering.denied() {
                    return verdict;
                }
                let invocation = Invocation { policy, name, family, binding, params };
                let outcome = self.invoke(invocation, request, &time);
                // One whose conditions were false, or failed, is never run again.
                let ran = !matches!(outcome, Ok(ResultKind::Skipped) | Err(_));
                let result = self.settle_outcome(invocation, outcome);
                if ran && policy.reinvoked {
                    reinvocations.push(Reinvocation {
                        invocation,
                        request: request.cloned(),
                        result: place,
                        seen: self.changes,
                    });
                }
                verdict = ResultKind::graver(verdict, result);
            }
        }
        if family.ignores_own_changes() {
            // What it did with its other settings is its own change too.
            for invocation in reinvocations.iter_mut().skip(first) {
                invocation.seen = self.changes;
            }
        }
        verdict
    }

    /// Turns an error into a refusal or, under `Ignore`, into nothing.
    fn settle_outcome(
        &mut self,
        invocation: Invocation<'_>,
        outcome: Result<ResultKind, PolicyError>,
    ) -> ResultKind {
        outcome.unwrap_or_else(|error| {
            self.report_failure(invocation, &error);
            ResultKind::Error
        })
    }

    /// Reports an error that ends a policy, or one of its mutations.
    fn report_failure(&mut self, invocation: Invocation<'_>, error: &PolicyError) {
        let bound = invocation.family.is_bound_by_failure_policy();
        if let Some(message) = error.in_place_of_policies().filter(|_| !bound) {
            let (code, reason) = error.status();
            self.gathering.abort(code, reason, message);
            return;
        }
        if self.door == FailurePolicy::Ignore {
            return;
        }
        match invocation.family {
            Family::Sallyport => self.gathering.refuse_error(invocation.name, error),
            Family::Kubernetes => {
                let binding = invocation.binding.name.as_deref();
                let message =
                    family::denied_by_mutation(invocation.name, binding, &error.explain_as_upstream());
                self.add_denial("Invalid", &message);
            }
        }
    }

    /// A policy, or one of its bindings, that cannot be used.
    fn report_misconfiguration(
        &mut self,
        name: &str,
        family: Family,
        binding: Option<&Binding>,
        error: &PolicyError,
    ) -> ResultKind {
        if self.door == FailurePolicy::Fail {
            match family {
                Family::Sallyport => self.gathering.refuse_error(name, error),
                Family::Kubernetes => {
                    let binding = binding.and_then(|binding| binding.name.as_deref());
                    let text = family::misconfigured(binding, &error.explain());
                    self.add_denial("Forbidden", &family::denied_by_mutation(name, binding, &text));
                }
            }
        }
        ResultKind::Error
    }

    /// The first error gives the message, all are causes.
    fn add_denial(&mut self, reason: &str, message: &str) {
        if self.gathering.denied() {
            self.gathering.blame(message);
        } else {
            self.gathering.deny(403, reason, message);
        }
    }

    /// Runs a policy, on the object in another version if its rules name that.
    fn invoke(
        &mut self,
        invocation: Invocation<'_>,
        request: Option<&Request>,
        time: &TimeBudget,
    ) -> Result<ResultKind, PolicyError> {
        let Some(request) = request else { return self.invoke_on(invocation, self.documents, time) };
        let documents = self.documents.converted(request);
        self.set_version(&request.kind.api_version());
        let outcome = self.invoke_on(invocation, &documents, time);
        self.set_version(&self.documents.review.request.kind.api_version());
        outcome
    }

    /// Makes the object say that it is of another version, unless it is still the one received.
    fn set_version(&mut self, version: &str) {
        if let Some(mut tree) = self.current.take() {
            set_api_version(&mut tree, version);
            self.current.set(Some(tree));
        }
    }

    fn invoke_on(
        &mut self,
        invocation: Invocation<'_>,
        documents: &Documents<'_>,
        time: &TimeBudget,
    ) -> Result<ResultKind, PolicyError> {
        let Invocation { policy, name, family, params, .. } = invocation;
        let received = Inputs::fetch(documents, policy.uses, family, time)?.with_params(params);
        let Some(original) = documents.object()? else { return Ok(ResultKind::Unchanged) };
        let inputs = received.with_object(self.current.node()?.unwrap_or(original));
        if !policy.hold(&inputs)? {
            return Ok(ResultKind::Skipped);
        }
        // A refused request needs nothing taken back.
        let rolls_back = family.rolls_back() && self.door == FailurePolicy::Ignore;
        let immutable =
            family.keeps_immutable_fields() && safety::is_immutable(self.documents.review.request);
        let before = if rolls_back || immutable { self.current.tree().cloned() } else { None };
        let Effect { mut changed, failed } = match self.run_mutations(invocation, &received, documents) {
            Ok(result) => result,
            Err(error) => {
                if rolls_back {
                    self.current.set(before);
                }
                return Err(error);
            }
        };
        if changed
            && immutable
            && let Some(current) = self.current.tree()
        {
            let was = before.as_ref().map_or_else(|| original.to_value(), |before| before.part().to_value());
            let mut current = current.part().to_value();
            let restored = safety::restore_immutable(&was, &mut current);
            if !restored.is_empty() {
                let fields = restored.join(", ");
                self.gathering.warn(&format!(
                    "policy {name}: changes to {fields} were left out, because an existing pod cannot be changed there"
                ));
                changed = current != was;
                self.current.set(if changed { Some(Tree::Made(current)) } else { before });
            }
        }
        if changed {
            self.changes += 1;
        }
        Ok(match (failed, changed) {
            (true, _) => ResultKind::Error,
            (false, true) => ResultKind::Applied,
            (false, false) => ResultKind::Unchanged,
        })
    }

    /// Runs the mutations, each on the result of the one before.
    fn run_mutations(
        &mut self,
        invocation: Invocation<'_>,
        received: &Inputs<'_>,
        documents: &Documents<'_>,
    ) -> Result<Effect, PolicyError> {
        let mut effect = Effect::default();
        for mutation in &invocation.policy.mutations {
            match self.run_mutation(mutation, received, documents) {
                Ok(this) => {
                    effect.changed |= this;
                    self.succeeded |= invocation.family == Family::Kubernetes;
                }
                Err(error) if invocation.family.rolls_back() => return Err(error),
                Err(error) if error.in_place_of_policies().is_some() => return Err(error),
                Err(error) => {
                    self.report_failure(invocation, &error);
                    effect.failed = true;
                    if matches!(error, PolicyError::TooLong(_)) {
                        break;
                    }
                }
            }
        }
        Ok(effect)
    }

    fn run_mutation(
        &mut self,
        mutation: &CompiledMutation,
        received: &Inputs<'_>,
        documents: &Documents<'_>,
    ) -> Result<bool, PolicyError> {
        let steps = match self.current.node()?.or(documents.object()?) {
            Some(object) => mutation.evaluate(&received.with_object(object))?,
            None => return Ok(false),
        };
        let mut changed = false;
        let mut room = MAX_BYTES;
        for change in steps {
            received.time.spend_change()?;
            changed |= self.apply_change(mutation, change, documents, &mut room, received.time)?;
        }
        Ok(changed)
    }

    /// Applies one change; takes what patches put into the object from `room`. Returns whether the object changed.
    fn apply_change(
        &mut self,
        mutation: &CompiledMutation,
        change: Change,
        documents: &Documents<'_>,
        room: &mut usize,
        time: &TimeBudget,
    ) -> Result<bool, PolicyError> {
        let kind = &documents.review.request.kind;
        let schemas = self.set.schemas();
        let Some(object) = self.documents.object()? else { return Ok(false) };
        let received = || {
            let mut tree = Tree::Read(object);
            if let Some(version) = documents.api_version() {
                set_api_version(&mut tree, version);
            }
            tree
        };
        match (change, &mutation.action) {
            (Change::Patch(operations), Action::Patch(expression, dialect)) => {
                if operations.is_empty() {
                    return Ok(false);
                }
                let what = expression.what();
                self.current.replace_object(received, |target, before| {
                    if !apply(expression, target, operations, *dialect, room, time)? {
                        return Ok(false);
                    }
                    if *dialect == Dialect::ApiServer {
                        decode(target, before, kind, schemas)?;
                    }
                    if target.part().is_object() {
                        return Ok(true);
                    }
                    let problem = "the result is not an object".to_owned();
                    Err(PolicyError::Patch { what: what.to_owned(), problem })
                })
            }
            (Change::Overlay(overlay), _) => {
                let schema = schemas.of_kind_or_other(kind);
                self.current
                    .change_object(received, |target| merge(target, overlay, schema))
                    .map_err(|error| PolicyError::Merge(format!("{}.overlay", mutation.field), error))
            }
            (Change::Configuration(fields), Action::Configuration(expression)) => self
                .current
                .change_object(received, |target| apply_configuration(target, fields, kind, schemas))
                .map_err(|error| PolicyError::Configuration(expression.what().to_owned(), error)),
            (Change::Patch(_) | Change::Configuration(_), _) => Ok(false),
        }
    }

    fn finish(self) -> Outcome {
        let Self { documents, mut gathering, current, door, .. } = self;
        let patch = match (current.tree(), documents.object()) {
            (Some(current), Ok(Some(original))) => diff(original, current.part()),
            _ => None,
        };
        if patch.as_ref().is_some_and(|patch| patch.len() > MAX_PATCH_BYTES) {
            let message = format!("the policies' patch has more than {MAX_PATCH_BYTES} bytes");
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
