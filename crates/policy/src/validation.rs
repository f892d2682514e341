//! Evaluating `ValidationPolicy` objects.

use std::sync::Arc;
use std::time::Instant;

use sallyport_api::{
    AuditAnnotation, FailurePolicy, MatchConstraints, OperationType, Reason, Validation, ValidationAction,
    ValidationPolicy, ValidationPolicySpec,
};
use sallyport_cel::{Activation, Scope};

use crate::annotation;
use crate::condition::Conditions;
use crate::documents::Documents;
use crate::error::{DefinitionError, PolicyError};
use crate::expression::{Expression, Inputs, Loop, Uses, scope_with};
use crate::matcher::Matcher;
use crate::namespaces::Namespaces;
use crate::outcome::{
    Cause, Gathering, MAX_MESSAGE_BYTES, Outcome, PolicyResult, PolicyStatus, ResultKind, join, shorten,
    signed,
};
use crate::request::Review;
use crate::safety;
use crate::schema::Schemas;
use crate::set::{Definition, Match, Set};

/// Longest message that a messageExpression may give, in bytes.
const MAX_MESSAGE_EXPRESSION_BYTES: usize = 5 * 1024;
/// Longest value of an audit annotation, in bytes.
const MAX_ANNOTATION_BYTES: usize = 10 * 1024;
/// Most offenders that one policy reports.
const MAX_FAILURES: usize = 256;

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
        Self::compile_with(policies, namespaces, Arc::default(), previous)
    }

    /// The same with custom kinds, whose versions can then stand for each other.
    pub fn compile_with(
        policies: Vec<ValidationPolicy>,
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

    /// Evaluates the policies with the failure policy `door` that match.
    pub fn review(&self, review: &Review<'_>, door: FailurePolicy) -> Outcome {
        let mut gathering = Gathering::default();
        let candidates = self.set.candidates(review.request, door);
        if candidates.is_empty() {
            return gathering.finish(None);
        }
        let documents = Documents::new(review, self.set.namespaces());
        if matches!(safety::is_mirror_pod(&documents), Ok(true)) {
            return gathering.finish(None);
        }
        for candidate in candidates {
            let started = Instant::now();
            let Some(Match { index, name, request, policy }) = self.set.select(candidate, &documents) else {
                continue;
            };
            let converted = request.as_ref().map(|request| documents.converted(request));
            let findings = match policy {
                Ok(policy) => policy.evaluate(name, converted.as_ref().unwrap_or(&documents)),
                Err(error) => Err(error),
            };
            let result = match findings {
                Ok(None) => ResultKind::Skipped,
                Ok(Some(findings)) => findings.report(name, door, &mut gathering),
                Err(error) => {
                    if door == FailurePolicy::Fail {
                        gathering.refuse_error(name, &error);
                    }
                    ResultKind::Error
                }
            };
            gathering.results.push(PolicyResult { policy: index, result, duration: started.elapsed() });
        }
        gathering.finish(None)
    }
}

/// One compiled policy.
#[derive(Debug)]
pub(crate) struct CompiledValidations {
    conditions: Conditions,
    scope: Scope,
    validations: Vec<CompiledValidation>,
    annotations: Vec<(String, Expression)>,
    actions: Vec<ValidationAction>,
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
    type Spec = ValidationPolicySpec;
    const OPERATIONS: &'static [OperationType] = &[OperationType::Create, OperationType::Update];

    fn constraints(spec: &Self::Spec) -> &MatchConstraints {
        &spec.match_constraints
    }

    fn failure_policy(spec: &Self::Spec) -> FailurePolicy {
        spec.failure_policy
    }

    fn compile(spec: &Self::Spec, _: &Matcher, _: &Schemas) -> Result<Self, DefinitionError> {
        if spec.validations.is_empty() && spec.audit_annotations.is_empty() {
            let problem = "must not be empty unless there are auditAnnotations";
            return Err(DefinitionError::field("validations", problem));
        }
        let actions = &spec.validation_actions;
        if actions.is_empty() {
            return Err(DefinitionError::field("validationActions", "must not be empty"));
        }
        if actions.contains(&ValidationAction::Deny) && actions.contains(&ValidationAction::Warn) {
            let problem = "Deny and Warn exclude each other: the refusal says what the warning would";
            return Err(DefinitionError::field("validationActions", problem));
        }
        let mut uses = Uses::default();
        let conditions = Conditions::compile(&spec.match_conditions, &mut uses)?;
        let scope = scope_with(&spec.variables, &mut uses)?;
        let validations = spec
            .validations
            .iter()
            .enumerate()
            .map(|(index, validation)| CompiledValidation::compile(index, validation, &scope, &mut uses))
            .collect::<Result<_, _>>()?;
        let annotations = annotations(&spec.audit_annotations, &scope, &mut uses)?;
        Ok(Self { conditions, scope, validations, annotations, actions: actions.clone(), uses })
    }
}

fn annotations(
    annotations: &[AuditAnnotation],
    scope: &Scope,
    uses: &mut Uses,
) -> Result<Vec<(String, Expression)>, DefinitionError> {
    let mut compiled: Vec<(String, Expression)> = Vec::with_capacity(annotations.len());
    for (index, annotation) in annotations.iter().enumerate() {
        let field = format!("auditAnnotations[{index}]");
        let taken = annotation.key == annotation::VIOLATIONS
            || compiled.iter().any(|(key, _)| *key == annotation.key);
        if !annotation::is_suffix(&annotation.key) || taken {
            let problem = format!(
                "{:?} must be unique, not {:?}, at most {} letters, digits, '-', '_' and '.', with a letter or \
                 digit at both ends",
                annotation.key,
                annotation::VIOLATIONS,
                annotation::MAX_SUFFIX
            );
            return Err(DefinitionError::field(format!("{field}.key"), problem));
        }
        let what = format!("{field}.valueExpression");
        let expression = Expression::compile(what, &annotation.value_expression, scope, uses)?;
        compiled.push((annotation.key.clone(), expression));
    }
    Ok(compiled)
}

impl CompiledValidation {
    fn compile(
        index: usize,
        validation: &Validation,
        scope: &Scope,
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
        let expression =
            Expression::compile(format!("{field}.expression"), &validation.expression, scope, uses)?;
        let mut optional = |name: &str, source: &Option<String>| {
            let source = source.as_ref().filter(|source| !source.trim().is_empty());
            source
                .map(|source| Expression::compile(format!("{field}.{name}"), source, scope, uses))
                .transpose()
        };
        let message_expression = optional("messageExpression", &validation.message_expression)?;
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
        for element in each.elements(&activation)? {
            inputs.check_time()?;
            each.bind(&mut activation, element);
            self.judge(&activation, findings)?;
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
            message,
            reason: self.reason.as_str(),
            code: self.code,
            field: text(&self.field_path),
            single: self.each.is_some(),
        });
        Ok(())
    }
}

impl CompiledValidations {
    /// What is wrong; `None` if a matchCondition is false.
    fn evaluate(&self, name: &str, documents: &Documents<'_>) -> Result<Option<Findings<'_>>, PolicyError> {
        let inputs = Inputs::fetch(documents, self.uses)?;
        if !self.conditions.hold(&inputs)? {
            return Ok(None);
        }
        let activation = inputs.activate(&self.scope);
        let mut findings = Findings { actions: &self.actions, ..Findings::default() };
        for validation in &self.validations {
            inputs.check_time()?;
            if let Err(error) = validation.evaluate(&inputs, &activation, &mut findings) {
                findings.errors.push(error);
            }
        }
        for (suffix, expression) in &self.annotations {
            inputs.check_time()?;
            match annotation_value(expression, &activation) {
                Ok(Some(value)) => findings.annotations.push((annotation::key(name, suffix), value)),
                Ok(None) => {}
                Err(error) => findings.annotation_errors.push(error),
            }
        }
        Ok(Some(findings))
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
    Ok((!text.is_empty()).then(|| shorten(text, MAX_ANNOTATION_BYTES)))
}

/// A validation that failed, or one of the elements it failed for.
struct Failure {
    message: String,
    reason: &'static str,
    code: u16,
    field: Option<String>,
    /// One of several elements, and so a cause of its own.
    single: bool,
}

/// What one policy found.
#[derive(Default)]
struct Findings<'p> {
    actions: &'p [ValidationAction],
    failures: Vec<Failure>,
    /// Of validations: they obey the actions, as failures do.
    errors: Vec<PolicyError>,
    /// Of audit annotations: they refuse the request whatever the actions are.
    annotation_errors: Vec<PolicyError>,
    annotations: Vec<(String, String)>,
}

impl Findings<'_> {
    fn report(self, name: &str, door: FailurePolicy, gathering: &mut Gathering) -> ResultKind {
        let acts = |action| self.actions.contains(&action);
        let (deny, warn, audit) =
            (acts(ValidationAction::Deny), acts(ValidationAction::Warn), acts(ValidationAction::Audit));
        let failed = !self.failures.is_empty();
        let erred = !self.errors.is_empty() || !self.annotation_errors.is_empty();
        let errors = if door == FailurePolicy::Fail { self.errors.as_slice() } else { &[] };

        if deny {
            if let Some(first) = self.failures.first() {
                let messages: Vec<String> =
                    self.failures.iter().map(|failure| failure.message.clone()).collect();
                let causes = self.failures.iter().filter_map(Failure::cause).collect();
                gathering.refuse(name, first.code, first.reason, &messages, causes);
            }
            for error in errors {
                gathering.refuse_error(name, error);
            }
        }
        if door == FailurePolicy::Fail {
            for error in &self.annotation_errors {
                gathering.refuse_error(name, error);
            }
        }
        if warn {
            for failure in &self.failures {
                gathering.warn(&signed(std::slice::from_ref(&failure.message), name));
            }
            for error in errors {
                gathering.warn(&format!("policy {name}: {}", error.explain()));
            }
        }
        if audit && (failed || !errors.is_empty()) {
            let messages: Vec<String> = self
                .failures
                .iter()
                .map(|failure| failure.message.clone())
                .chain(errors.iter().map(PolicyError::explain))
                .collect();
            let key = annotation::key(name, annotation::VIOLATIONS);
            gathering.audit_annotations.insert(key, join(&messages, MAX_MESSAGE_BYTES));
        }
        gathering.audit_annotations.extend(self.annotations);

        if erred {
            ResultKind::Error
        } else if !failed {
            ResultKind::Allowed
        } else if deny {
            ResultKind::Denied
        } else if warn {
            ResultKind::Warned
        } else {
            ResultKind::Audited
        }
    }
}

impl Failure {
    /// The failure as a cause, if it names a field or is one of several.
    fn cause(&self) -> Option<Cause> {
        if self.field.is_none() && !self.single {
            return None;
        }
        let reason = if self.reason == Reason::Forbidden.as_str() {
            "FieldValueForbidden"
        } else {
            "FieldValueInvalid"
        };
        Some(Cause {
            reason: reason.to_owned(),
            message: self.message.clone(),
            field: self.field.clone().unwrap_or_default(),
        })
    }
}
