//! What a validation policy found in a review, and what follows from it.

use sallyport_api::{FailurePolicy, Reason, ValidationAction};
use serde_json::Value;

use crate::error::PolicyError;
use crate::family::{self, Family};
use crate::outcome::{Cause, Gathering, MAX_MESSAGE_BYTES, ResultKind, join, signed};
use crate::set::binding::Binding;
use crate::validate::annotation;

/// A validation that failed, or one of the elements it failed for.
pub(crate) struct Failure {
    /// Of the validation in its policy.
    pub(crate) index: usize,
    pub(crate) message: String,
    pub(crate) reason: &'static str,
    pub(crate) code: u16,
    pub(crate) field: Option<String>,
    /// One of several elements, and so a cause of its own.
    pub(crate) single: bool,
}

/// What one policy found.
#[derive(Default)]
pub(crate) struct Findings<'p> {
    /// Of the validation that is being evaluated.
    pub(crate) index: usize,
    pub(crate) failures: Vec<Failure>,
    /// Of validations: they obey the actions, as failures do.
    pub(crate) errors: Vec<(usize, PolicyError)>,
    /// Of audit annotations: they refuse the request whatever the actions are.
    pub(crate) annotation_errors: Vec<PolicyError>,
    pub(crate) annotations: Vec<(&'p str, String)>,
}

/// Reports what one policy found.
pub(crate) struct Report<'r> {
    pub(crate) name: &'r str,
    pub(crate) family: Family,
    /// The policy's failure policy.
    pub(crate) door: FailurePolicy,
    pub(crate) gathering: &'r mut Gathering,
}

impl Report<'_> {
    /// A policy, or one of its bindings, that cannot be used.
    pub(crate) fn add_misconfiguration(
        &mut self,
        binding: Option<&Binding>,
        error: &PolicyError,
    ) -> ResultKind {
        if self.door == FailurePolicy::Ignore {
            return ResultKind::Error;
        }
        match self.family {
            Family::Sallyport => self.gathering.refuse_error(self.name, error),
            Family::Kubernetes => {
                let binding = binding.and_then(|binding| binding.name.as_deref());
                let (code, reason) = status_of(error);
                let text = family::misconfigured(binding, &error.explain());
                let message = family::denied_by_validation(self.name, binding, &text);
                self.gathering.deny(code, reason, &message);
            }
        }
        ResultKind::Error
    }

    /// A policy that could not be evaluated. In the API server that is a finding, which obeys the actions.
    pub(crate) fn add_error(&mut self, binding: &Binding, error: PolicyError) -> ResultKind {
        match self.family {
            Family::Sallyport => self.add_misconfiguration(Some(binding), &error),
            Family::Kubernetes => {
                self.add_findings(binding, Findings { errors: vec![(0, error)], ..Findings::default() })
            }
        }
    }

    /// What was found for one binding.
    pub(crate) fn add_findings(&mut self, binding: &Binding, findings: Findings<'_>) -> ResultKind {
        let acts = |action| binding.actions.contains(&action);
        let failed = !findings.failures.is_empty();
        let erred = !findings.errors.is_empty() || !findings.annotation_errors.is_empty();
        match self.family {
            Family::Sallyport => self.add_as_sallyport(&binding.actions, findings),
            Family::Kubernetes => self.add_as_kubernetes(binding, findings),
        }
        if erred {
            ResultKind::Error
        } else if !failed {
            ResultKind::Allowed
        } else if acts(ValidationAction::Deny) {
            ResultKind::Denied
        } else if acts(ValidationAction::Warn) {
            ResultKind::Warned
        } else {
            ResultKind::Audited
        }
    }

    /// All that is wrong, signed by the policy.
    fn add_as_sallyport(&mut self, actions: &[ValidationAction], findings: Findings<'_>) {
        let (name, door) = (self.name, self.door);
        let acts = |action| actions.contains(&action);
        let Findings { failures, errors, annotation_errors, .. } = findings;
        let errors = if door == FailurePolicy::Fail { errors.as_slice() } else { &[] };
        if acts(ValidationAction::Deny) {
            if let Some(first) = failures.first() {
                let messages: Vec<String> = failures.iter().map(|failure| failure.message.clone()).collect();
                let causes = failures.iter().filter_map(Failure::to_cause).collect();
                self.gathering.refuse(name, first.code, first.reason, &messages, causes);
            }
            for (_, error) in errors {
                self.gathering.refuse_error(name, error);
            }
        }
        if door == FailurePolicy::Fail {
            for error in &annotation_errors {
                self.gathering.refuse_error(name, error);
            }
        }
        if acts(ValidationAction::Warn) {
            for failure in &failures {
                self.gathering.warn(&signed(std::slice::from_ref(&failure.message), name));
            }
            for (_, error) in errors {
                self.gathering.warn(&format!("policy {name}: {}", error.explain()));
            }
        }
        if acts(ValidationAction::Audit) && !(failures.is_empty() && errors.is_empty()) {
            let messages: Vec<String> = failures
                .iter()
                .map(|failure| failure.message.clone())
                .chain(errors.iter().map(|(_, error)| error.explain()))
                .collect();
            let key = annotation::key(name, annotation::VIOLATIONS);
            self.gathering.audit_annotations.insert(key, join(&messages, MAX_MESSAGE_BYTES));
        }
    }

    /// In the order of the validations, and in the API server's words.
    fn add_as_kubernetes(&mut self, binding: &Binding, findings: Findings<'_>) {
        let name = binding.name.as_deref().unwrap_or_default();
        let Findings { failures, errors, annotation_errors, .. } = findings;
        let failures = failures
            .into_iter()
            .map(|failure| (failure.index, failure.message, failure.code, failure.reason));
        let errors = errors.into_iter().filter(|_| self.door == FailurePolicy::Fail);
        let errors = errors.map(|(index, error)| {
            let (code, reason) = status_of(&error);
            (index, error.explain(), code, reason)
        });
        let mut decisions: Vec<_> = failures.chain(errors).collect();
        decisions.sort_by_key(|(index, ..)| *index);
        for (index, message, code, reason) in decisions {
            for action in &binding.actions {
                match action {
                    ValidationAction::Deny => {
                        let message = family::denied_by_validation(self.name, Some(name), &message);
                        self.gathering.deny(code, reason, &message);
                    }
                    ValidationAction::Warn => {
                        self.gathering.warn(&family::warned_by_validation(self.name, name, &message));
                    }
                    ValidationAction::Audit => {
                        let text = write_audit_annotation(self.name, binding, index, &message);
                        // The API server too keeps the first only.
                        let key = annotation::VALIDATION_FAILURE.to_owned();
                        self.gathering.audit_annotations.entry(key).or_insert(text);
                    }
                }
            }
        }
        for error in annotation_errors.iter().filter(|_| self.door == FailurePolicy::Fail) {
            let (code, reason) = status_of(error);
            let message = family::denied_by_validation(self.name, Some(name), &error.explain());
            self.gathering.deny(code, reason, &message);
        }
    }
}

/// To the API server a policy that is broken is one that always fails, and a limit that is reached a failure as
/// any other.
fn status_of(error: &PolicyError) -> (u16, &'static str) {
    match error {
        PolicyError::Broken(_) | PolicyError::Evaluation(..) | PolicyError::Several(_) => {
            (Reason::Invalid.code(), Reason::Invalid.as_str())
        }
        other => other.status(),
    }
}

/// The audit annotation of a failure: JSON, as the API server writes it.
fn write_audit_annotation(policy: &str, binding: &Binding, index: usize, message: &str) -> String {
    let text = |text: &str| Value::from(text).to_string();
    let actions: Vec<String> = binding.actions.iter().map(|action| format!("\"{action:?}\"")).collect();
    let json = format!(
        r#"[{{"message":{},"policy":{},"binding":{},"expressionIndex":{index},"validationActions":[{}]}}]"#,
        text(message),
        text(policy),
        text(binding.name.as_deref().unwrap_or_default()),
        actions.join(","),
    );
    // Go writes JSON so that it can stand in HTML.
    let mut written = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' => written.push_str("\\u003c"),
            '>' => written.push_str("\\u003e"),
            '&' => written.push_str("\\u0026"),
            '\u{2028}' => written.push_str("\\u2028"),
            '\u{2029}' => written.push_str("\\u2029"),
            other => written.push(other),
        }
    }
    written
}

impl Failure {
    /// The failure as a cause, if it names a field or is one of several.
    fn to_cause(&self) -> Option<Cause> {
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
