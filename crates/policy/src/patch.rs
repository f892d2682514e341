//! JSON patches that expressions make.

use json_patch::{PatchErrorKind, PatchOperation};
use serde_json::Value;

use crate::error::PolicyError;
use crate::expression::Expression;

/// Most operations of one patch.
const MAX_OPERATIONS: usize = 4096;

/// The operations in the value that `expression` gave.
pub(crate) fn operations(
    expression: &Expression,
    value: &sallyport_cel::Value<'_>,
) -> Result<Vec<PatchOperation>, PolicyError> {
    let Value::Array(items) = expression.to_json(value)? else {
        return Err(expression.mistyped("a list of JSONPatch", value));
    };
    if items.len() > MAX_OPERATIONS {
        return Err(PolicyError::TooMany {
            what: expression.what().to_owned(),
            found: items.len(),
            limit: MAX_OPERATIONS,
        });
    }
    items
        .into_iter()
        .enumerate()
        .map(|(index, item)| {
            serde_json::from_value(item).map_err(|error| PolicyError::Operation {
                what: expression.what().to_owned(),
                index,
                problem: error.to_string(),
            })
        })
        .collect()
}

/// Applies a patch, wholly or not at all. A failed `test` makes it do nothing, as in Kubernetes.
pub(crate) fn apply(
    expression: &Expression,
    target: &mut Value,
    operations: &[PatchOperation],
) -> Result<(), PolicyError> {
    match json_patch::patch(target, operations) {
        Ok(()) => Ok(()),
        Err(error) if matches!(error.kind, PatchErrorKind::TestFailed) => Ok(()),
        Err(error) => {
            Err(PolicyError::Patch { what: expression.what().to_owned(), problem: error.to_string() })
        }
    }
}
