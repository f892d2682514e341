//! The operations of a JSON patch, read from the value of an expression.

use json_patch::PatchOperation;
use sallyport_cel::EvalError;
use serde_json::{Map, Number, Value};

use crate::error::PolicyError;
use crate::expression::compiled::Expression;
use crate::mutate::measure::Measure;
use crate::mutate::patch::dialect::Dialect;

/// Most operations of one patch.
const MAX_OPERATIONS: usize = 4096;
/// Largest integer that every reader of JSON takes for what it is. Beyond it the API server writes a string.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;
/// Beyond it a float is written with an exponent.
const MAX_PLAIN_FLOAT: f64 = 1e15;

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operation {
    pub(super) kind: Kind,
    pub(super) path: String,
    pub(super) from: Option<String>,
    pub(super) value: Option<Value>,
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Add,
    Remove,
    Replace,
    Move,
    Copy,
    Test,
    /// Only the API server's library finds out when it is carried out.
    Unknown(String),
}

/// Reads the operations in the value that `expression` gave. Returns them, and how many bytes they take.
pub(crate) fn read_operations(
    expression: &Expression,
    value: &sallyport_cel::Value<'_>,
    dialect: Dialect,
) -> Result<(Vec<Operation>, usize), PolicyError> {
    let json = value.to_json().map_err(|error| match error {
        EvalError::NotJson(found) if dialect == Dialect::ApiServer => {
            PolicyError::NotJson(found.rsplit('.').next().unwrap_or(found))
        }
        other => PolicyError::Evaluation(expression.what().to_owned(), other),
    })?;
    let bytes = Measure::of(&json).bytes;
    let Value::Array(items) = json else {
        return Err(expression.mistyped("a list of JSONPatch", value));
    };
    if items.len() > MAX_OPERATIONS {
        return Err(PolicyError::TooMany {
            what: expression.what().to_owned(),
            found: items.len(),
            limit: MAX_OPERATIONS,
        });
    }
    let read = |(index, item)| match dialect {
        Dialect::ApiServer => Ok(Operation::read_leniently(item)),
        Dialect::Rfc6902 => {
            serde_json::from_value::<PatchOperation>(item).map(Operation::from).map_err(|error| {
                PolicyError::Operation {
                    what: expression.what().to_owned(),
                    index,
                    problem: error.to_string(),
                }
            })
        }
    };
    let operations = items.into_iter().enumerate().map(read).collect::<Result<_, _>>()?;
    Ok((operations, bytes))
}

impl Operation {
    /// Reads an operation as the API server does: a field that is missing counts as empty, as in Go.
    pub(super) fn read_leniently(item: Value) -> Self {
        let mut fields = match item {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        let mut text = |name: &str| match fields.remove(name) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let (kind, path, from) = (Kind::named(text("op")), text("path"), text("from"));
        let mut value = fields.remove("value");
        if let Some(value) = &mut value {
            plain_numbers(value);
        }
        Self { kind, path, from: Some(from).filter(|from| !from.is_empty()), value }
    }
}

impl From<PatchOperation> for Operation {
    fn from(operation: PatchOperation) -> Self {
        let path = operation.path().as_str().to_owned();
        let (kind, from, value) = match operation {
            PatchOperation::Add(add) => (Kind::Add, None, Some(add.value)),
            PatchOperation::Remove(_) => (Kind::Remove, None, None),
            PatchOperation::Replace(replace) => (Kind::Replace, None, Some(replace.value)),
            PatchOperation::Move(moved) => (Kind::Move, Some(moved.from.as_str().to_owned()), None),
            PatchOperation::Copy(copy) => (Kind::Copy, Some(copy.from.as_str().to_owned()), None),
            PatchOperation::Test(test) => (Kind::Test, None, Some(test.value)),
        };
        Self { kind, path, from, value }
    }
}

impl Kind {
    fn named(name: String) -> Self {
        match name.as_str() {
            "add" => Self::Add,
            "remove" => Self::Remove,
            "replace" => Self::Replace,
            "move" => Self::Move,
            "copy" => Self::Copy,
            "test" => Self::Test,
            _ => Self::Unknown(name),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Add => "add",
            Self::Remove => "remove",
            Self::Replace => "replace",
            Self::Move => "move",
            Self::Copy => "copy",
            Self::Test => "test",
            Self::Unknown(name) => name,
        }
    }
}

/// Numbers as the API server writes them: large integers as strings, whole floats as integers.
fn plain_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(plain) = plain_number(number) {
                *value = plain;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(plain_numbers),
        Value::Object(fields) => fields.values_mut().for_each(plain_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn plain_number(number: &Number) -> Option<Value> {
    if let Some(integer) = number.as_i64() {
        return (integer.unsigned_abs() > MAX_SAFE_INTEGER).then(|| Value::String(integer.to_string()));
    }
    if let Some(integer) = number.as_u64() {
        return (integer > MAX_SAFE_INTEGER).then(|| Value::String(integer.to_string()));
    }
    let float = number.as_f64()?;
    #[allow(clippy::cast_possible_truncation)] // whole and small enough
    let whole = (float.fract() == 0.0 && float.abs() < MAX_PLAIN_FLOAT).then_some(float as i64);
    whole.map(Value::from)
}
