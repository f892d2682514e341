//! Evaluating `ValidationPolicy` objects, and the API server's own `ValidatingAdmissionPolicy` objects.

use std::sync::Arc;
use std::time::Instant;

use sallyport_api::{
    AuditAnnotation, FailurePolicy, MatchConstraints, OperationType, ParamKind, Reason,
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, Validation, ValidationAction,
    ValidationPolicy, ValidationPolicySpec,
};
use sallyport_cel::{Activation, Budget, Scope, Type};
use sallyport_document::Node;

use crate::admission_policy;
use crate::annotation;
use crate::binding::{self, Binding, BindingSource};
use crate::condition::Conditions;
use crate::documents::Documents;
use crate::error::{DefinitionError, PolicyError};
use crate::expression::{Expression, Inputs, Loop, Patience, Purpose, Uses, scope_with};
use crate::family::Family;
use crate::findings::{Failure, Findings, Report};
use crate::matcher::Matcher;
use crate::namespaces::Namespaces;
use crate::objects::Objects;
use crate::outcome::{Gathering, Outcome, PolicyResult, PolicyStatus, ResultKind, shorten};
use crate::request::Review;
use crate::safety;
use crate::schema::Schemas;
use crate::set::{Definition, Match, Set};

/// Longest message that a messageExpression may give, in bytes.
const MAX_MESSAGE_EXPRESSION_BYTES: usize = 5 * 1024;
/// Most offenders that one policy reports.
const MAX_FAILURES: usize = 256;

/// What a set of validation policies is compiled from: our policies, and the API server's own with their
/// bindings.
#[derive(Clone, Debug, Default)]
pub struct Validations {
    /// Our policies.
    pub policies: Vec<ValidationPolicy>,
    /// The API server's own.
    pub admission_policies: Vec<ValidatingAdmissionPolicy>,
    /// What puts those in force. A binding without its policy has no effect.
    pub bindings: Vec<ValidatingAdmissionPolicyBinding>,
}

/// A compiled set of validation policies. All that match are evaluated, and all that is wrong is reported.
#[derive(Debug)]
pub struct ValidationSet {
    set: Set<CompiledValidations>,
}

impl ValidationSet {
    /// Compiles policies. This cannot fail: a policy that is wrong stays in force as it is in `previous`, or
    /// is an error for the requests it matches, as [`ValidationSet::policies`] says.
    pub fn compile(
        policies: Vec<ValidationPolicy>,
        namespaces: Arc<Namespaces>,
        previous: Option<&Self>,
    ) -> Self {
        let validations = Validations { policies, ..Validations::default() };
        Self::build(validations, Arc::new(Objects::new(namespaces, [])), previous)
    }

    /// Compiles policies of all kinds, with the objects that they may see, likewise.
    pub fn build(validations: Validations, objects: Arc<Objects>, previous: Option<&Self>) -> Self {
        let Validations { policies, admission_policies, bindings } = validations;
        let ours = policies
            .into_iter()
            .map(|policy| (policy.metadata.name, ValidationSource::of_sallyport(policy.spec)));
        let theirs = admission_policy::validations(admission_policies, bindings);
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

    /// Evaluates the policies with the failure policy `door` that match.
    pub fn review(&self, review: &Review<'_>, door: FailurePolicy) -> Outcome {
        let mut gathering = Gathering::default();
        let candidates = self.set.candidates(review.request, door);
        if candidates.is_empty() {
            return gathering.finish(None);
        }
        let documents = Documents::new(review, self.set.objects().namespaces());
        if matches!(safety::is_mirror_pod(&documents), Ok(true)) {
            return gathering.finish(None);
        }
        let matches = self.set.select(&candidates, &documents);
        gathering.results.reserve_exact(matches.len());
        let mut started = Instant::now();
        for Match { index, name, family, request, policy } in matches {
            let mut report = Report { name, family, door, gathering: &mut gathering };
            let objects = self.set.objects();
            let result = match (policy, &request) {
                (Ok(policy), None) => policy.review(&documents, objects, &mut report),
                (Ok(policy), Some(request)) => {
                    policy.review(&documents.converted(request), objects, &mut report)
                }
                (Err(error), _) => Some(report.misconfigured(None, &error)),
            };
            // The end of one is the beginning of the next.
            let ended = Instant::now();
            let duration = ended.duration_since(std::mem::replace(&mut started, ended));
            if let Some(result) = result {
                gathering.results.push(PolicyResult { policy: index, result, duration });
            }
        }
        gathering.finish(None)
    }
}

/// A policy as written, with what puts it in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValidationSource {
    family: Family,
    spec: ValidationPolicySpec,
    bindings: Vec<BindingSource>,
}

impl ValidationSource {
    fn of_sallyport(spec: ValidationPolicySpec) -> Self {
        let binding =
            BindingSource::own(&spec.validation_actions, spec.param_ref.as_ref(), spec.params.as_ref());
        Self { family: Family::Sallyport, spec, bindings: vec![binding] }
    }

    pub(crate) fn of_kubernetes(spec: ValidationPolicySpec, bindings: Vec<BindingSource>) -> Self {
        Self { family: Family::Kubernetes, spec, bindings }
    }
}

/// One compiled policy.
#[derive(Debug)]
pub(crate) struct CompiledValidations {
    family: Family,
    conditions: Conditions,
    scope: Scope,
    validations: Vec<CompiledValidation>,
    annotations: Vec<(String, Expression)>,
    param_kind: Option<ParamKind>,
    bindings: Vec<Binding>,
    uses: Uses,
}

#[derive(Debug)]
struct CompiledValidation {
    each: Option<(Loop, Scope)>,
    expression: Expression,
    message: Option<String>,
    message_expression: Option<Expression>,
    field_path: Option<Expression>,
    reason: Reason,
    code: u16,
}

impl Definition for CompiledValidations {
    type Spec = ValidationSource;
    const OPERATIONS: &'static [OperationType] = &[OperationType::Create, OperationType::Update];

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

    fn compile(source: &Self::Spec, _: &Matcher, _: &Schemas) -> Result<Self, DefinitionError> {
        let ValidationSource { family, spec, bindings } = source;
        if spec.validations.is_empty() && spec.audit_annotations.is_empty() {
            let problem = "must not be empty unless there are auditAnnotations";
            return Err(DefinitionError::field("validations", problem));
        }
        match family {
            Family::Sallyport => check(spec)?,
            Family::Kubernetes => admission_policy::check_validation(spec, bindings)?,
        }
        let bindings = binding::compile(bindings, spec.param_kind.as_ref(), Self::OPERATIONS)?;
        let mut uses = Uses::default();
        let params = spec.param_kind.is_some() || spec.params.is_some();
        let conditions = Conditions::compile(&spec.match_conditions, params, *family, &mut uses)?;
        let scope = scope_with(&spec.variables, params, Purpose::Validation, &mut uses)?;
        let validations = spec
            .validations
            .iter()
            .enumerate()
            .map(|(index, validation)| {
                CompiledValidation::compile(index, validation, &scope, *family, &mut uses)
            })
            .collect::<Result<_, _>>()?;
        let annotations = annotations(&spec.audit_annotations, &scope, *family, &mut uses)?;
        let param_kind = spec.param_kind.clone();
        let family = *family;
        Ok(Self { family, conditions, scope, validations, annotations, param_kind, bindings, uses })
    }

    fn asks_authorizer(&self) -> bool {
        self.uses.authorizer()
    }
}

/// What only our kind demands.
fn check(spec: &ValidationPolicySpec) -> Result<(), DefinitionError> {
    let actions = &spec.validation_actions;
    if actions.is_empty() {
        return Err(DefinitionError::field("validationActions", "must not be empty"));
    }
    if actions.contains(&ValidationAction::Deny) && actions.contains(&ValidationAction::Warn) {
        let problem = "Deny and Warn exclude each other: the refusal says what the warning would";
        return Err(DefinitionError::field("validationActions", problem));
    }
    binding::check_params(spec.param_kind.as_ref(), spec.param_ref.as_ref())
}

fn annotations(
    annotations: &[AuditAnnotation],
    scope: &Scope,
    family: Family,
    uses: &mut Uses,
) -> Result<Vec<(String, Expression)>, DefinitionError> {
    let (reserved, longest) = match family {
        Family::Sallyport => (Some(annotation::VIOLATIONS), annotation::MAX_SUFFIX),
        Family::Kubernetes => (None, annotation::LONGEST_KEY),
    };
    let mut compiled: Vec<(String, Expression)> = Vec::with_capacity(annotations.len());
    for (index, annotation) in annotations.iter().enumerate() {
        let field = format!("auditAnnotations[{index}]");
        let taken = reserved == Some(annotation.key.as_str())
            || compiled.iter().any(|(key, _)| *key == annotation.key);
        if !annotation::is_valid_key(&annotation.key) || annotation.key.len() > longest || taken {
            let reserved = reserved.map(|key| format!("not {key:?}, ")).unwrap_or_default();
            let problem = format!(
                "{:?} must be unique, {reserved}at most {longest} letters, digits, '-', '_' and '.', with a \
                 letter or digit at both ends",
                annotation.key
            );
            return Err(DefinitionError::field(format!("{field}.key"), problem));
        }
        let what = format!("{field}.valueExpression");
        let wanted = [Type::String, Type::Null];
        let expression = Expression::compile_as(&wanted, what, &annotation.value_expression, scope, uses)?;
        compiled.push((annotation.key.clone(), expression.named_by(family)));
    }
    Ok(compiled)
}

impl CompiledValidation {
    fn compile(
        index: usize,
        validation: &Validation,
        scope: &Scope,
        family: Family,
        uses: &mut Uses,
    ) -> Result<Self, DefinitionError> {
        let field = format!("validations[{index}]");
        let each = match &validation.for_each {
            Some(each) => Some(Loop::compile(&field, each, scope, uses)?),
            None => None,
        };
        let scope = each.as_ref().map_or(scope, |(_, inner)| inner);
        if let Some(code) = validation.code.filter(|code| !(400..=599).contains(code)) {
            let problem = format!("{code} is not between 400 and 599");
            return Err(DefinitionError::field(format!("{field}.code"), problem));
        }
        let what = format!("{field}.expression");
        let expression = Expression::compile_as(&[Type::Bool], what, &validation.expression, scope, uses)?;
        let expression = expression.named_by(family);
        let mut told = scope.clone();
        if !family.shows_authorizer_to_messages() {
            told.hide_authorizer();
        }
        let mut optional = |name: &str, source: &Option<String>| {
            let source = source.as_ref().filter(|source| !source.trim().is_empty());
            source
                .map(|source| {
                    Expression::compile_as(&[Type::String], format!("{field}.{name}"), source, &told, uses)
                })
                .transpose()
        };
        let message_expression = optional("messageExpression", &validation.message_expression)?;
        // As in the API server, which has no authorizer when it makes messages: they fail.
        let message_expression = message_expression
            .filter(|expression| family == Family::Sallyport || !expression.asks_authorizer());
        let field_path = optional("fieldPath", &validation.field_path)?;
        let message = validation.message.as_ref().map(|message| message.trim());
        Ok(Self {
            expression,
            message: message.filter(|message| !message.is_empty()).map(str::to_owned),
            message_expression,
            field_path,
            reason: validation.reason,
            code: validation.code.unwrap_or_else(|| validation.reason.code()),
            each,
        })
    }

    fn evaluate(
        &self,
        inputs: &Inputs<'_>,
        shared: &Activation<'_>,
        findings: &mut Findings<'_>,
    ) -> Result<(), PolicyError> {
        let Some((each, scope)) = &self.each else {
            return self.judge(shared, findings);
        };
        let mut activation = inputs.activate(scope);
        hand_over(shared, &activation);
        let result = self.judge_each(inputs, each, &mut activation, findings);
        hand_over(&activation, shared);
        result
    }

    fn judge_each(
        &self,
        inputs: &Inputs<'_>,
        each: &Loop,
        activation: &mut Activation<'_>,
        findings: &mut Findings<'_>,
    ) -> Result<(), PolicyError> {
        for element in each.elements(activation)? {
            inputs.check_time(activation)?;
            each.bind(activation, element);
            self.judge(activation, findings)?;
        }
        Ok(())
    }

    fn judge(&self, activation: &Activation<'_>, findings: &mut Findings<'_>) -> Result<(), PolicyError> {
        if self.expression.evaluate_bool(activation)? || findings.failures.len() >= MAX_FAILURES {
            return Ok(());
        }
        let text = |expression: &Option<Expression>| {
            let value = expression.as_ref()?.evaluate(activation).ok()?;
            value.as_str().map(|text| text.trim().to_owned())
        };
        let composed = text(&self.message_expression).filter(|message| {
            !message.is_empty() && !message.contains('\n') && message.len() <= MAX_MESSAGE_EXPRESSION_BYTES
        });
        let message = composed
            .or_else(|| self.message.clone())
            .unwrap_or_else(|| format!("failed expression: {}", self.expression.source().trim()));
        findings.failures.push(Failure {
            index: findings.index,
            message,
            reason: self.reason.as_str(),
            code: self.code,
            field: text(&self.field_path),
            single: self.each.is_some(),
        });
        Ok(())
    }
}

/// The budget that is left goes on to another activation.
fn hand_over(from: &Activation<'_>, to: &Activation<'_>) {
    if let Some(budget) = from.budget() {
        to.set_budget(budget);
    }
}

impl CompiledValidations {
    /// What follows for each binding that covers the request; `None` if none does.
    fn review(
        &self,
        documents: &Documents<'_>,
        objects: &Objects,
        report: &mut Report<'_>,
    ) -> Option<ResultKind> {
        if let Some(Err(error)) = self.param_kind.as_ref().map(|kind| binding::known(kind, objects)) {
            return Some(report.misconfigured(None, &error.into()));
        }
        let patience = Patience::default();
        let mut verdict = None;
        let mut annotations: Vec<(&str, Vec<String>)> = Vec::new();
        for binding in &self.bindings {
            let params = match binding.select(documents, objects) {
                Ok(None) => continue,
                Ok(Some(params)) => params,
                Err(error) => {
                    verdict = ResultKind::graver(verdict, report.misconfigured(Some(binding), &error));
                    continue;
                }
            };
            verdict = ResultKind::graver(verdict, ResultKind::Skipped);
            for params in params.iter().copied() {
                let result = match self.evaluate(documents, params, &patience) {
                    Ok(None) => ResultKind::Skipped,
                    Ok(Some(mut findings)) => {
                        for (suffix, value) in std::mem::take(&mut findings.annotations) {
                            note(&mut annotations, suffix, value);
                        }
                        report.findings(binding, findings)
                    }
                    Err(error) => report.error(binding, error),
                };
                verdict = ResultKind::graver(verdict, result);
            }
        }
        for (suffix, values) in annotations {
            let value = shorten(&values.join(", "), annotation::LONGEST_VALUE);
            let key = annotation::long_key(report.name, suffix);
            report.gathering.audit_annotations.insert(key, value);
        }
        verdict
    }

    /// What is wrong; `None` if a matchCondition is false.
    fn evaluate<'s>(
        &'s self,
        documents: &Documents<'_>,
        params: Option<Node<'_>>,
        patience: &Patience,
    ) -> Result<Option<Findings<'s>>, PolicyError> {
        let inputs = Inputs::fetch(documents, self.uses, self.family, patience)?.with_params(params);
        let mut activation = inputs.activate(&self.scope);
        if !self.conditions.hold(&inputs, &mut activation)? {
            return Ok(None);
        }
        activation.set_budget(Budget::POLICY);
        let mut findings = Findings::default();
        for (index, validation) in self.validations.iter().enumerate() {
            inputs.check_time(&activation)?;
            findings.index = index;
            if let Err(error) = validation.evaluate(&inputs, &activation, &mut findings) {
                if error.is_out_of_budget() {
                    return Err(error);
                }
                findings.errors.push((index, error));
            }
        }
        // Audit annotations have the whole budget for themselves.
        activation.set_budget(Budget::POLICY);
        // The API server has no authorizer when it makes them.
        let alone = self.family == Family::Kubernetes && self.uses.authorizer();
        let bare = alone.then(|| inputs.without_authorizer().activate(&self.scope));
        for (suffix, expression) in &self.annotations {
            let activation = bare.as_ref().unwrap_or(&activation);
            inputs.check_time(activation)?;
            match annotation_value(expression, activation) {
                Ok(Some(value)) => findings.annotations.push((suffix, value)),
                Ok(None) => {}
                // There it stands in the place of all that the policy has found.
                Err(error) if self.family == Family::Kubernetes && error.is_out_of_budget() => {
                    return Err(error);
                }
                Err(error) => findings.annotation_errors.push(error),
            }
        }
        Ok(Some(findings))
    }
}

/// Each value once, as several bindings may give the same.
fn note<'s>(annotations: &mut Vec<(&'s str, Vec<String>)>, suffix: &'s str, value: String) {
    match annotations.iter_mut().find(|(other, _)| *other == suffix) {
        None => annotations.push((suffix, vec![value])),
        Some((_, values)) if values.contains(&value) => {}
        Some((_, values)) => values.push(value),
    }
}

fn annotation_value(
    expression: &Expression,
    activation: &Activation<'_>,
) -> Result<Option<String>, PolicyError> {
    let value = expression.evaluate(activation)?;
    if value.is_null() {
        return Ok(None);
    }
    let text = value.as_str().ok_or_else(|| expression.mistyped("a string or null", &value))?.trim();
    Ok((!text.is_empty()).then(|| shorten(text, annotation::LONGEST_VALUE)))
}
