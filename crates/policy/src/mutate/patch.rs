//! JSON patches that expressions make.

#[cfg(test)]
mod corpus;
pub(crate) mod decoding;
pub(crate) mod library;

use json_patch::{PatchErrorKind, PatchOperation};
use serde_json::Value;

use crate::error::PolicyError;
use crate::expression::compiled::{Expression, Patience};
use crate::mutate::measure::{MAX_BYTES, MAX_DEPTH, Measure};

/// Most operations of one patch.
pub(crate) const MAX_OPERATIONS: usize = 4096;

/// The operations in the value that `expression` gave, and how many bytes they take.
pub(crate) fn operations(
    expression: &Expression,
    value: &sallyport_cel::Value<'_>,
) -> Result<(Vec<PatchOperation>, usize), PolicyError> {
    let json = expression.to_json(value)?;
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
    let operations = items
        .into_iter()
        .enumerate()
        .map(|(index, item)| {
            serde_json::from_value(item).map_err(|error| PolicyError::Operation {
                what: expression.what().to_owned(),
                index,
                problem: error.to_string(),
            })
        })
        .collect::<Result<_, _>>()?;
    Ok((operations, bytes))
}

/// `target` with the patch applied; `None` after a failed `test`, which makes the patch do nothing, as in
/// Kubernetes. Takes what the patch puts into it from `room`.
pub(crate) fn apply(
    expression: &Expression,
    mut target: Value,
    operations: &[PatchOperation],
    room: &mut usize,
    patience: &Patience,
) -> Result<Option<Value>, PolicyError> {
    let failed = |index: usize, problem: String| PolicyError::Patch {
        what: expression.what().to_owned(),
        problem: format!("operation {index}: {problem}"),
    };
    for (index, operation) in operations.iter().enumerate() {
        let path = operation.path();
        let handled = match operation {
            PatchOperation::Add(add) => Measure::of(&add.value),
            PatchOperation::Replace(replace) => Measure::of(&replace.value),
            PatchOperation::Copy(copy) => measure_at(&target, copy.from.as_str()),
            PatchOperation::Move(moved) => measure_at(&target, moved.from.as_str()),
            PatchOperation::Remove(_) | PatchOperation::Test(_) => Measure::default(),
        };
        patience.take_operation(handled.bytes)?;
        let above = path.as_str().matches('/').count();
        if above + handled.depth > MAX_DEPTH {
            return Err(failed(index, format!("nests deeper than {MAX_DEPTH}")));
        }
        // What is moved was there before.
        let made = if matches!(operation, PatchOperation::Move(_)) { 0 } else { handled.bytes };
        *room = room
            .checked_sub(made)
            .ok_or_else(|| PolicyError::TooLarge { what: expression.what().to_owned(), limit: MAX_BYTES })?;
        if let Err(error) = json_patch::patch(&mut target, std::slice::from_ref(operation)) {
            if matches!(error.kind, PatchErrorKind::TestFailed) {
                return Ok(None);
            }
            return Err(failed(index, format!("{} at {:?}", error.kind, error.path.as_str())));
        }
    }
    Ok(Some(target))
}

fn measure_at(document: &Value, path: &str) -> Measure {
    document.pointer(path).map_or_else(Measure::default, Measure::of)
}
