//! Strings with expressions in them: `${{ CEL }}`.

use sallyport_cel::{Activation, Scope};
use serde_json::Value;

use crate::error::{DefinitionError, PolicyError};
use crate::expression::compiled::{Expression, Uses};

const OPEN: &str = "${{";
const CLOSE: &str = "}}";
/// CEL's name of the type of optional values.
const OPTIONAL: &str = "optional_type";

/// A string of an overlay that holds at least one expression.
#[derive(Clone, Debug)]
pub(crate) enum Template {
    /// The string is one expression; its value keeps its type.
    Whole(Whole),
    /// Text and expressions; the result is text.
    Mixed(Vec<Part>),
}

/// An expression that is a value of its own.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    expression: Expression,
    /// `[?(…)]`: the content of an optional value as a list of none or one.
    content: Option<Expression>,
}

/// A part of a mixed template.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// Literal text.
    Text(String),
    /// An expression that gives a string, a number or a bool.
    Expression(Expression),
}

impl Template {
    /// Compiles `text` standing at `field`; `None` if no expression is in it.
    pub(crate) fn compile(
        field: &str,
        text: &str,
        scope: &Scope,
        uses: &mut Uses,
    ) -> Result<Option<Self>, DefinitionError> {
        if !text.contains(OPEN) {
            return Ok(None);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(OPEN) {
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let (expression, length) = compile_first_expression(field, after, scope, uses)?;
            parts.push(Part::Expression(expression));
            rest = after.get(length..).unwrap_or_default();
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        if parts.len() == 1
            && let Some(Part::Expression(expression)) =
                parts.pop_if(|part| matches!(part, Part::Expression(_)))
        {
            // What is not an optional cannot be compiled this way where the types are known; then it is not needed.
            let source = format!("[?(\n{}\n)]", expression.source());
            let content = Expression::compile(field, &source, scope, uses).ok();
            return Ok(Some(Self::Whole(Whole { expression, content })));
        }
        Ok(Some(Self::Mixed(parts)))
    }

    /// The value; `None` if it is an absent optional, which leaves the field out.
    pub(crate) fn evaluate(&self, activation: &Activation<'_>) -> Result<Option<Value>, PolicyError> {
        match self {
            Self::Whole(whole) => whole.evaluate(activation),
            Self::Mixed(parts) => {
                let mut text = String::new();
                for part in parts {
                    match part {
                        Part::Text(literal) => text.push_str(literal),
                        Part::Expression(expression) => match evaluate_scalar(expression, activation)? {
                            Value::String(value) => text.push_str(&value),
                            other => text.push_str(&other.to_string()),
                        },
                    }
                }
                Ok(Some(Value::String(text)))
            }
        }
    }
}

impl Whole {
    fn evaluate(&self, activation: &Activation<'_>) -> Result<Option<Value>, PolicyError> {
        let value = self.expression.evaluate(activation)?;
        match &self.content {
            Some(content) if value.type_name() == OPTIONAL => {
                let list = content.evaluate(activation)?;
                let first = list.as_list().and_then(|mut items| items.next());
                first.map(|item| content.to_json(&item)).transpose()
            }
            _ => self.expression.to_json(&value).map(Some),
        }
    }
}

fn evaluate_scalar(expression: &Expression, activation: &Activation<'_>) -> Result<Value, PolicyError> {
    let value = expression.evaluate(activation)?;
    match value.to_json() {
        Ok(scalar @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) => Ok(scalar),
        _ => Err(expression.mistyped("a string, a number or a bool", &value)),
    }
}

/// The expression at the beginning of `text`, and where the text after its `}}` begins. Braces of maps may
/// stand in an expression (`{'a': {'b': 1}}`), so it ends at the first `}}` that makes it one.
fn compile_first_expression(
    field: &str,
    text: &str,
    scope: &Scope,
    uses: &mut Uses,
) -> Result<(Expression, usize), DefinitionError> {
    let mut first_error = None;
    // Each attempt parses anew; text with more ends than these is not an expression that anybody wrote.
    let ends = (0..text.len()).filter(|at| text.get(*at..).is_some_and(|rest| rest.starts_with(CLOSE)));
    for end in ends.take(16) {
        let source = text.get(..end).unwrap_or_default().trim();
        match Expression::compile(field, source, scope, uses) {
            Ok(expression) => return Ok((expression, end + CLOSE.len())),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.unwrap_or_else(|| DefinitionError::field(field, "\"${{\" without \"}}\" after it")))
}
