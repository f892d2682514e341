//! The API server's own policies and their bindings: which belong together, and what the API server would refuse
//! when one is created, beyond its shape and its expressions.

use std::collections::HashMap;

use sallyport_api::{MatchConstraints, OperationType, ParamKind, ParamRef, ResourceRule, Variable};

use crate::error::DefinitionError;
use crate::matching::qualified_name::is_name_part;
use crate::purpose::Purpose;
use crate::set::binding::BindingSource;

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

/// Bindings of the API server's own policies.
#[derive(Default)]
pub(crate) struct Bindings {
    by_policy: HashMap<String, Vec<BindingSource>>,
}

impl Bindings {
    /// Takes those of one policy, in the order of their names.
    pub(crate) fn take(&mut self, policy: Option<&str>) -> Vec<BindingSource> {
        let mut bindings = policy.and_then(|policy| self.by_policy.remove(policy)).unwrap_or_default();
        bindings.sort_by(|a, b| a.name.cmp(&b.name));
        bindings
    }
}

impl FromIterator<(String, BindingSource)> for Bindings {
    /// Takes bindings, each with the name of its policy.
    fn from_iter<I: IntoIterator<Item = (String, BindingSource)>>(bindings: I) -> Self {
        let mut by_policy: HashMap<String, Vec<BindingSource>> = HashMap::new();
        for (policy, binding) in bindings {
            by_policy.entry(policy).or_default().push(binding);
        }
        Self { by_policy }
    }
}

/// Checks what both kinds of policies have.
pub(crate) fn check_policy(
    kind: Option<&ParamKind>,
    constraints: &MatchConstraints,
    variables: &[Variable],
    purpose: Purpose,
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
    check_constraints("matchConstraints", constraints, purpose)
}

/// Checks the names of matchConditions.
pub(crate) fn check_condition_names<'n>(names: impl Iterator<Item = &'n str>) -> Result<(), DefinitionError> {
    let mut seen: Vec<&str> = Vec::new();
    for (index, name) in names.enumerate() {
        let field = format!("matchConditions[{index}].name");
        let part = name.split_once('/').map_or(name, |(_, part)| part);
        if !is_name_part(part) {
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

/// Checks what both kinds of bindings have.
pub(crate) fn check_binding(binding: &BindingSource, purpose: Purpose) -> Result<(), DefinitionError> {
    if let Some(constraints) = &binding.constraints {
        check_constraints("matchResources", constraints, purpose)?;
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

fn check_constraints(
    field: &str,
    constraints: &MatchConstraints,
    purpose: Purpose,
) -> Result<(), DefinitionError> {
    let lists = [
        ("resourceRules", &constraints.resource_rules),
        ("excludeResourceRules", &constraints.exclude_resource_rules),
    ];
    for (list, rules) in lists {
        for (index, rule) in rules.iter().enumerate() {
            let field = format!("{field}.{list}[{index}]");
            check_rule(&field, rule)?;
            if purpose == Purpose::Mutation
                && list == "resourceRules"
                && rule.operations.contains(&OperationType::Delete)
            {
                let problem = "DELETE has no object that could be changed";
                return Err(DefinitionError::field(format!("{field}.operations"), problem));
            }
        }
    }
    Ok(())
}

/// Returns whether the resources of a rule say something twice. The API server looks at the last resource alone for
/// whether `*` leaves one without a subresource over, and for the others at those that stand before.
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
