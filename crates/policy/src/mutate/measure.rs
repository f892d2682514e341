//! How large and how deep a JSON value is.
//!
//! Expressions are bounded one by one, but many of them can add up, and a `copy` can double what is there:
//! whatever is put into an object is weighed first.

use serde_json::Value;

/// Most that the mutations of one policy may put into an object in one step, in bytes.
pub(crate) const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Deepest nesting of what a patch makes. Expressions make no deeper values, parsed objects nest to 127.
pub(crate) const MAX_DEPTH: usize = 256;
/// What a node counts besides its text.
const NODE_BYTES: usize = 32;

/// Size and depth of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measure {
    /// Bytes in memory, roughly.
    pub(crate) bytes: usize,
    /// Levels of lists and maps; a scalar has none.
    pub(crate) depth: usize,
}

impl Measure {
    pub(crate) fn of(value: &Value) -> Self {
        let (text, inner) = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => return Self { bytes: NODE_BYTES, depth: 0 },
            Value::String(text) => return Self { bytes: NODE_BYTES + text.len(), depth: 0 },
            Value::Array(items) => (0, items.iter().map(Self::of).fold(Self::default(), Self::beside)),
            Value::Object(fields) => (
                fields.keys().map(String::len).sum(),
                fields.values().map(Self::of).fold(Self::default(), Self::beside),
            ),
        };
        Self { bytes: NODE_BYTES + text + inner.bytes, depth: inner.depth + 1 }
    }

    fn beside(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), depth: self.depth.max(other.depth) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Measure;

    #[test]
    fn text_nodes_and_levels_count() {
        assert_eq!(Measure::of(&json!("abc")), Measure { bytes: 35, depth: 0 });
        assert_eq!(Measure::of(&json!([])), Measure { bytes: 32, depth: 1 });
        assert_eq!(Measure::of(&json!({"ab": [1, [2]], "c": null})), Measure { bytes: 195, depth: 3 });
    }
}
