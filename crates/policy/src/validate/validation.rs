//! One validation of a policy.

use sallyport_api::{Reason, Validation};
use sallyport_cel::{Activation, Scope, Type};

use crate::error::{DefinitionError, PolicyError};
use crate::expression::compiled::{Expression, Inputs, Uses};
use crate::expression::for_each::Loop;
use crate::family::Family;
use crate::validate::findings::{Failure, Findings};

/// Longest message that a messageExpression may give, in bytes.
const MAX_MESSAGE_EXPRESSION_BYTES: usize = 5 * 1024;
/// Most offenders that one policy reports.
const MAX_FAILURES: usize = 256;

/// A compiled validation.
#[derive(Debug)]
pub(crate) struct CompiledValidation {
    each: Option<(Loop, Scope)>,
    expression: Expression,
    message: Option<String>,
    message_expression: Option<Expression>,
    field_path: Option<Expression>,
    reason: Reason,
    code: u16,
}

impl CompiledValidation {
    /// Compiles the validation with this index.
    pub(crate) fn compile(
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

    /// Notes in `findings` what is wrong.
    pub(crate) fn evaluate(
        &self,
        inputs: &Inputs<'_>,
        shared: &Activation<'_>,
        findings: &mut Findings<'_>,
    ) -> Result<(), PolicyError> {
        let Some((each, scope)) = &self.each else {
            return self.evaluate_once(shared, findings);
        };
        let mut activation = inputs.activate(scope);
        transfer_budget(shared, &activation);
        let result = self.evaluate_elements(inputs, each, &mut activation, findings);
        transfer_budget(&activation, shared);
        result
    }

    fn evaluate_elements(
        &self,
        inputs: &Inputs<'_>,
        each: &Loop,
        activation: &mut Activation<'_>,
        findings: &mut Findings<'_>,
    ) -> Result<(), PolicyError> {
        for element in each.elements(activation)? {
            inputs.check_time(activation)?;
            each.bind(activation, element);
            self.evaluate_once(activation, findings)?;
        }
        Ok(())
    }

    fn evaluate_once(
        &self,
        activation: &Activation<'_>,
        findings: &mut Findings<'_>,
    ) -> Result<(), PolicyError> {
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
fn transfer_budget(from: &Activation<'_>, to: &Activation<'_>) {
    if let Some(budget) = from.budget() {
        to.set_budget(budget);
    }
}
