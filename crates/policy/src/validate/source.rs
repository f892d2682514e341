//! Validation policies as they are written, ours and the API server's own.

use sallyport_api::{
    AdmissionValidation, Reason, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicySpec, Validation, ValidationAction, ValidationPolicy, ValidationPolicySpec,
};

use crate::error::DefinitionError;
use crate::family::Family;
use crate::purpose::Purpose;
use crate::set::admission_policy::{Bindings, check_binding, check_condition_names, check_policy};
use crate::set::binding::{self, BindingSource};

/// Most auditAnnotations of one of the API server's own policies.
const MAX_AUDIT_ANNOTATIONS: usize = 20;

/// A policy as written, with what puts it in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValidationSource {
    pub(crate) family: Family,
    pub(crate) spec: ValidationPolicySpec,
    pub(crate) bindings: Vec<BindingSource>,
}

impl ValidationSource {
    fn of_sallyport(spec: ValidationPolicySpec) -> Self {
        let binding =
            BindingSource::of_policy(&spec.validation_actions, spec.param_ref.as_ref(), spec.params.as_ref());
        Self { family: Family::Sallyport, spec, bindings: vec![binding] }
    }

    fn of_kubernetes(spec: ValidatingAdmissionPolicySpec, bindings: Vec<BindingSource>) -> Self {
        Self { family: Family::Kubernetes, spec: validation_spec(spec), bindings }
    }

    /// Checks what no schema and no expression says.
    pub(crate) fn check(&self) -> Result<(), DefinitionError> {
        match self.family {
            Family::Sallyport => self.check_as_sallyport(),
            Family::Kubernetes => self.check_as_kubernetes(),
        }
    }

    /// What only our kind demands.
    fn check_as_sallyport(&self) -> Result<(), DefinitionError> {
        let spec = &self.spec;
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

    /// What the API server demands of a `ValidatingAdmissionPolicy` and its bindings.
    fn check_as_kubernetes(&self) -> Result<(), DefinitionError> {
        let Self { spec, bindings, .. } = self;
        let purpose = Purpose::Validation;
        check_policy(spec.param_kind.as_ref(), &spec.match_constraints, &spec.variables, purpose)?;
        check_condition_names(spec.match_conditions.iter().map(|condition| condition.name.as_str()))?;
        for (index, validation) in spec.validations.iter().enumerate() {
            let field = |name: &str| format!("validations[{index}].{name}");
            for (name, text) in
                [("message", &validation.message), ("messageExpression", &validation.message_expression)]
            {
                if text.as_ref().is_some_and(|text| !text.is_empty() && text.trim().is_empty()) {
                    return Err(DefinitionError::field(field(name), "must be non-empty if specified"));
                }
            }
            if validation.reason == Reason::Unauthorized {
                let problem = "must be Forbidden, Invalid or RequestEntityTooLarge";
                return Err(DefinitionError::field(field("reason"), problem));
            }
            if validation.message.as_ref().is_some_and(|message| message.trim().contains(['\n', '\r'])) {
                return Err(DefinitionError::field(field("message"), "must not contain line breaks"));
            }
        }
        if spec.audit_annotations.len() > MAX_AUDIT_ANNOTATIONS {
            let problem = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} entries");
            return Err(DefinitionError::field("auditAnnotations", problem));
        }
        for binding in bindings {
            check_binding(binding, purpose)
                .and_then(|()| check_actions(binding))
                .map_err(|error| binding.locate_error(error))?;
        }
        Ok(())
    }
}

/// Our policies and the API server's own, by name.
pub(crate) fn sources(
    policies: Vec<ValidationPolicy>,
    admission_policies: Vec<ValidatingAdmissionPolicy>,
    bindings: Vec<ValidatingAdmissionPolicyBinding>,
) -> impl Iterator<Item = (Option<String>, ValidationSource)> {
    let ours = policies
        .into_iter()
        .map(|policy| (policy.metadata.name, ValidationSource::of_sallyport(policy.spec)));
    let mut bindings: Bindings = bindings
        .into_iter()
        .map(|binding| {
            let source = BindingSource {
                name: Some(binding.metadata.name.unwrap_or_default()),
                constraints: binding.spec.match_resources,
                actions: binding.spec.validation_actions,
                param_ref: binding.spec.param_ref,
                params: None,
            };
            (binding.spec.policy_name, source)
        })
        .collect();
    ours.chain(admission_policies.into_iter().map(move |policy| {
        let bindings = bindings.take(policy.metadata.name.as_deref());
        (policy.metadata.name, ValidationSource::of_kubernetes(policy.spec, bindings))
    }))
}

fn validation_spec(spec: ValidatingAdmissionPolicySpec) -> ValidationPolicySpec {
    ValidationPolicySpec {
        param_kind: spec.param_kind,
        match_constraints: spec.match_constraints,
        match_conditions: spec.match_conditions,
        variables: spec.variables,
        validations: spec.validations.into_iter().map(validation).collect(),
        audit_annotations: spec.audit_annotations,
        failure_policy: spec.failure_policy,
        ..ValidationPolicySpec::default()
    }
}

fn validation(validation: AdmissionValidation) -> Validation {
    Validation {
        expression: validation.expression,
        message: validation.message,
        message_expression: validation.message_expression,
        reason: validation.reason.unwrap_or(Reason::Invalid),
        ..Validation::default()
    }
}

/// Checks the actions of a binding.
fn check_actions(binding: &BindingSource) -> Result<(), DefinitionError> {
    let actions = &binding.actions;
    let times = |action| actions.iter().filter(|other| **other == action).count();
    let twice = [ValidationAction::Deny, ValidationAction::Warn, ValidationAction::Audit]
        .into_iter()
        .any(|action| times(action) > 1);
    let problem = if actions.is_empty() {
        "must not be empty"
    } else if twice {
        "must not name an action twice"
    } else if times(ValidationAction::Deny) > 0 && times(ValidationAction::Warn) > 0 {
        "must not contain both Deny and Warn"
    } else {
        return Ok(());
    };
    Err(DefinitionError::field("validationActions", problem))
}
