//! The API server's own policies and their bindings, turned into what the engine compiles; and what the API
//! server would refuse when such a policy is created, beyond its shape and its expressions.

use std::collections::HashMap;

use sallyport_api::{
    AdmissionPatchType, AdmissionValidation, MatchConstraints, MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding, MutatingAdmissionPolicySpec, Mutation, MutationPolicySpec, OperationType,
    ParamKind, ParamRef, PatchType, Reason, ResourceRule, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicySpec, Validation, ValidationAction,
    ValidationPolicySpec, Variable,
};

use crate::annotation;
use crate::binding::BindingSource;
use crate::error::DefinitionError;
use crate::mutation::MutationSource;
use crate::validation::ValidationSource;

/// Words that CEL keeps for itself.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];
/// Most auditAnnotations.
const MAX_AUDIT_ANNOTATIONS: usize = 20;

/// Policies with their bindings, by name.
pub(crate) fn validations(
    policies: Vec<ValidatingAdmissionPolicy>,
    bindings: Vec<ValidatingAdmissionPolicyBinding>,
) -> impl Iterator<Item = (Option<String>, ValidationSource)> {
    let mut by_policy: HashMap<String, Vec<BindingSource>> = HashMap::new();
    for binding in bindings {
        by_policy.entry(binding.spec.policy_name).or_default().push(BindingSource {
            name: Some(binding.metadata.name.unwrap_or_default()),
            constraints: binding.spec.match_resources,
            actions: binding.spec.validation_actions,
            param_ref: binding.spec.param_ref,
            params: None,
        });
    }
    policies.into_iter().map(move |policy| {
        let bindings = take(&mut by_policy, policy.metadata.name.as_deref());
        (policy.metadata.name, ValidationSource::of_kubernetes(validation_spec(policy.spec), bindings))
    })
}

/// Policies with their bindings, by name.
pub(crate) fn mutations(
    policies: Vec<MutatingAdmissionPolicy>,
    bindings: Vec<MutatingAdmissionPolicyBinding>,
) -> impl Iterator<Item = (Option<String>, MutationSource)> {
    let mut by_policy: HashMap<String, Vec<BindingSource>> = HashMap::new();
    for binding in bindings {
        by_policy.entry(binding.spec.policy_name).or_default().push(BindingSource {
            name: Some(binding.metadata.name.unwrap_or_default()),
            constraints: binding.spec.match_resources,
            actions: Vec::new(),
            param_ref: binding.spec.param_ref,
            params: None,
        });
    }
    policies.into_iter().map(move |policy| {
        let bindings = take(&mut by_policy, policy.metadata.name.as_deref());
        (policy.metadata.name, MutationSource::of_kubernetes(mutation_spec(policy.spec), bindings))
    })
}

/// The bindings of a policy in the order of their names.
fn take(by_policy: &mut HashMap<String, Vec<BindingSource>>, name: Option<&str>) -> Vec<BindingSource> {
    let mut bindings = name.and_then(|name| by_policy.remove(name)).unwrap_or_default();
    bindings.sort_by(|a, b| a.name.cmp(&b.name));
    bindings
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

fn mutation_spec(spec: MutatingAdmissionPolicySpec) -> MutationPolicySpec {
    let mutations = spec.mutations.into_iter().map(|mutation| Mutation {
        patch_type: Some(match mutation.patch_type {
            AdmissionPatchType::ApplyConfiguration => PatchType::ApplyConfiguration,
            AdmissionPatchType::JSONPatch => PatchType::JSONPatch,
        }),
        json_patch: mutation.json_patch,
        apply_configuration: mutation.apply_configuration,
        ..Mutation::default()
    });
    MutationPolicySpec {
        param_kind: spec.param_kind,
        match_constraints: spec.match_constraints,
        match_conditions: spec.match_conditions,
        variables: spec.variables,
        mutations: mutations.collect(),
        failure_policy: spec.failure_policy,
        reinvocation_policy: spec.reinvocation_policy,
        ..MutationPolicySpec::default()
    }
}

/// What the API server demands of a `ValidatingAdmissionPolicy` and its bindings.
pub(crate) fn check_validation(
    spec: &ValidationPolicySpec,
    bindings: &[BindingSource],
) -> Result<(), DefinitionError> {
    check_policy(spec.param_kind.as_ref(), &spec.match_constraints, &spec.variables, false)?;
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
        check_binding(binding, false)
            .and_then(|()| check_actions(binding))
            .map_err(|error| binding.blame(error))?;
    }
    Ok(())
}

/// What the API server demands of a `MutatingAdmissionPolicy` and its bindings.
pub(crate) fn check_mutation(
    spec: &MutationPolicySpec,
    bindings: &[BindingSource],
) -> Result<(), DefinitionError> {
    check_policy(spec.param_kind.as_ref(), &spec.match_constraints, &spec.variables, true)?;
    check_condition_names(spec.match_conditions.iter().map(|condition| condition.name.as_str()))?;
    for binding in bindings {
        check_binding(binding, true).map_err(|error| binding.blame(error))?;
    }
    Ok(())
}

fn check_policy(
    kind: Option<&ParamKind>,
    constraints: &MatchConstraints,
    variables: &[Variable],
    mutates: bool,
) -> Result<(), DefinitionError> {
    for (field, value) in
        kind.into_iter().flat_map(|kind| [("apiVersion", &kind.api_version), ("kind", &kind.kind)])
    {
        if value.is_empty() {
            return Err(DefinitionError::field(format!("paramKind.{field}"), "must not be empty"));
        }
    }
    for (index, variable) in variables.iter().enumerate() {
        if RESERVED.contains(&variable.name.as_str()) {
            let problem = format!("{} is a word that CEL keeps for itself", variable.name);
            return Err(DefinitionError::field(format!("variables[{index}].name"), problem));
        }
    }
    check_constraints("matchConstraints", constraints, mutates)
}

fn check_condition_names<'n>(names: impl Iterator<Item = &'n str>) -> Result<(), DefinitionError> {
    let mut seen: Vec<&str> = Vec::new();
    for (index, name) in names.enumerate() {
        let field = format!("matchConditions[{index}].name");
        let part = name.split_once('/').map_or(name, |(_, part)| part);
        if !annotation::is_valid_key(part) {
            let problem = "must be a qualified name: at most 63 letters, digits, '-', '_' and '.', with a letter \
                           or digit at both ends";
            return Err(DefinitionError::field(field, problem));
        }
        if seen.contains(&name) {
            return Err(DefinitionError::field(field, format!("{name} is there twice")));
        }
        seen.push(name);
    }
    Ok(())
}

fn check_binding(binding: &BindingSource, mutates: bool) -> Result<(), DefinitionError> {
    if let Some(constraints) = &binding.constraints {
        check_constraints("matchResources", constraints, mutates)?;
    }
    match &binding.param_ref {
        Some(ParamRef { parameter_not_found_action: None, .. }) => {
            Err(DefinitionError::field("paramRef.parameterNotFoundAction", "must be Allow or Deny"))
        }
        Some(ParamRef { name, selector, .. })
            if name.as_ref().is_some_and(|name| !name.is_empty()) == selector.is_some() =>
        {
            Err(DefinitionError::field("paramRef", "needs either a name or a selector"))
        }
        _ => Ok(()),
    }
}

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

fn check_constraints(
    field: &str,
    constraints: &MatchConstraints,
    mutates: bool,
) -> Result<(), DefinitionError> {
    let lists = [
        ("resourceRules", &constraints.resource_rules),
        ("excludeResourceRules", &constraints.exclude_resource_rules),
    ];
    for (list, rules) in lists {
        for (index, rule) in rules.iter().enumerate() {
            let field = format!("{field}.{list}[{index}]");
            check_rule(&field, rule)?;
            if mutates && list == "resourceRules" && rule.operations.contains(&OperationType::Delete) {
                let problem = "DELETE has no object that could be changed";
                return Err(DefinitionError::field(format!("{field}.operations"), problem));
            }
        }
    }
    Ok(())
}

/// Whether the resources of a rule say something twice. The API server looks at the last resource alone for whether
/// `*` leaves one without a subresource over, and for the others at those that stand before.
fn repeats(resources: &[String]) -> bool {
    let has = |name: &str| resources.iter().any(|entry| entry == name);
    let ends_plain = resources.iter().rfind(|entry| !entry.contains('/')).is_some_and(|entry| entry != "*");
    resources.len() > 1 && has("*/*")
        || has("*") && ends_plain
        || resources.iter().enumerate().any(|(index, entry)| {
            let Some((name, sub)) = entry.split_once('/') else { return false };
            let before = || resources.iter().take(index).filter_map(|entry| entry.split_once('/'));
            before().any(|(other, wild)| other == name && wild == "*" || other == "*" && wild == sub)
        })
}

/// `*` stands alone, and operations are named.
fn check_rule(field: &str, rule: &ResourceRule) -> Result<(), DefinitionError> {
    let alone = |list: &[String]| list.len() < 2 || !list.iter().any(|entry| entry == "*");
    let resources = &rule.resources;
    let problems = [
        ("apiGroups", !alone(&rule.api_groups)),
        ("apiVersions", !alone(&rule.api_versions) || rule.api_versions.iter().any(String::is_empty)),
        ("operations", rule.operations.len() > 1 && rule.operations.contains(&OperationType::All)),
        ("resources", resources.iter().any(String::is_empty) || repeats(resources)),
    ];
    if let Some((name, _)) = problems.into_iter().find(|(_, wrong)| *wrong) {
        let problem = "must not be empty, and \"*\" must stand alone";
        return Err(DefinitionError::field(format!("{field}.{name}"), problem));
    }
    if rule.operations.is_empty() {
        return Err(DefinitionError::field(format!("{field}.operations"), "must not be empty"));
    }
    Ok(())
}
