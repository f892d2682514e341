//! One validation policy, compiled.

use sallyport_admission::annotations::LONGEST_VALUE;
use sallyport_api::{AuditAnnotation, FailurePolicy, MatchConstraints, OperationType, ParamKind};
use sallyport_cel::{Activation, Budget, Scope, Type};
use sallyport_document::Node;

use crate::error::{DefinitionError, PolicyError};
use crate::expression::compiled::{Expression, Inputs, Uses};
use crate::expression::condition::Conditions;
use crate::expression::scope::compile_scope;
use crate::expression::time_budget::TimeBudget;
use crate::family::Family;
use crate::matching::matcher::Matcher;
use crate::matching::qualified_name::{MAX_NAME_PART, is_name_part};
use crate::outcome::{ResultKind, shorten};
use crate::purpose::Purpose;
use crate::review::documents::Documents;
use crate::schema::Schemas;
use crate::set::Definition;
use crate::set::binding::{self, Binding};
use crate::set::objects::Objects;
use crate::validate::annotation;
use crate::validate::findings::{Findings, Report};
use crate::validate::source::ValidationSource;
use crate::validate::validation::CompiledValidation;

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
        source.check()?;
        let bindings = binding::compile(bindings, spec.param_kind.as_ref(), Self::OPERATIONS)?;
        let mut uses = Uses::default();
        let params = spec.param_kind.is_some() || spec.params.is_some();
        let conditions = Conditions::compile(&spec.match_conditions, params, *family, &mut uses)?;
        let scope = compile_scope(&spec.variables, params, Purpose::Validation, &mut uses)?;
        let validations = spec
            .validations
            .iter()
            .enumerate()
            .map(|(index, validation)| {
                CompiledValidation::compile(index, validation, &scope, *family, &mut uses)
            })
            .collect::<Result<_, _>>()?;
        let annotations = compile_annotations(&spec.audit_annotations, &scope, *family, &mut uses)?;
        let param_kind = spec.param_kind.clone();
        let family = *family;
        Ok(Self { family, conditions, scope, validations, annotations, param_kind, bindings, uses })
    }

    fn asks_authorizer(&self) -> bool {
        self.uses.authorizer()
    }
}

/// Compiles audit annotations.
fn compile_annotations(
    annotations: &[AuditAnnotation],
    scope: &Scope,
    family: Family,
    uses: &mut Uses,
) -> Result<Vec<(String, Expression)>, DefinitionError> {
    let (reserved, longest) = match family {
        Family::Sallyport => (Some(annotation::VIOLATIONS), annotation::MAX_SUFFIX),
        Family::Kubernetes => (None, MAX_NAME_PART),
    };
    let mut compiled: Vec<(String, Expression)> = Vec::with_capacity(annotations.len());
    for (index, annotation) in annotations.iter().enumerate() {
        let field = format!("auditAnnotations[{index}]");
        let taken = reserved == Some(annotation.key.as_str())
            || compiled.iter().any(|(key, _)| *key == annotation.key);
        if !is_name_part(&annotation.key) || annotation.key.len() > longest || taken {
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

impl CompiledValidations {
    /// What follows for each binding that covers the request; `None` if none does.
    pub(crate) fn review(
        &self,
        documents: &Documents<'_>,
        objects: &Objects,
        report: &mut Report<'_>,
    ) -> Option<ResultKind> {
        if let Some(Err(error)) = self.param_kind.as_ref().map(|kind| binding::find_kind(kind, objects)) {
            return Some(report.add_misconfiguration(None, &error.into()));
        }
        let time = TimeBudget::default();
        let mut verdict = None;
        let mut annotations: Vec<(&str, Vec<String>)> = Vec::new();
        for binding in &self.bindings {
            let params = match binding.select(documents, objects) {
                Ok(None) => continue,
                Ok(Some(params)) => params,
                Err(error) => {
                    verdict = ResultKind::graver(verdict, report.add_misconfiguration(Some(binding), &error));
                    continue;
                }
            };
            verdict = ResultKind::graver(verdict, ResultKind::Skipped);
            for params in params.iter().copied() {
                let result = match self.evaluate(documents, params, &time) {
                    Ok(None) => ResultKind::Skipped,
                    Ok(Some(mut findings)) => {
                        for (suffix, value) in std::mem::take(&mut findings.annotations) {
                            add_annotation(&mut annotations, suffix, value);
                        }
                        report.add_findings(binding, findings)
                    }
                    Err(error) => report.add_error(binding, error),
                };
                verdict = ResultKind::graver(verdict, result);
            }
        }
        for (suffix, values) in annotations {
            let value = shorten(&values.join(", "), LONGEST_VALUE);
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
        time: &TimeBudget,
    ) -> Result<Option<Findings<'s>>, PolicyError> {
        let inputs = Inputs::fetch(documents, self.uses, self.family, time)?.with_params(params);
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
            match evaluate_annotation(expression, activation) {
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
fn add_annotation<'s>(annotations: &mut Vec<(&'s str, Vec<String>)>, suffix: &'s str, value: String) {
    match annotations.iter_mut().find(|(other, _)| *other == suffix) {
        None => annotations.push((suffix, vec![value])),
        Some((_, values)) if values.contains(&value) => {}
        Some((_, values)) => values.push(value),
    }
}

fn evaluate_annotation(
    expression: &Expression,
    activation: &Activation<'_>,
) -> Result<Option<String>, PolicyError> {
    let value = expression.evaluate(activation)?;
    if value.is_null() {
        return Ok(None);
    }
    let text = value.as_str().ok_or_else(|| expression.mistyped("a string or null", &value))?.trim();
    Ok((!text.is_empty()).then(|| shorten(text, LONGEST_VALUE)))
}
