//! How large and how deep a JSON value is.
//!
//! Expressions are bounded one by one, but many of them can add up, and a `copy` can double what is there:
//! whatever is put into an object is weighed first.

use sallyport_document::{Content, Node, Part};
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
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Self { bytes: NODE_BYTES, depth: 0 },
            Value::String(text) => Self { bytes: NODE_BYTES + text.len(), depth: 0 },
            Value::Array(items) => Self::of_items(items.iter().map(Self::of)),
            Value::Object(fields) => {
                Self::of_entries(fields.iter().map(|(key, value)| (key.as_str(), Self::of(value))))
            }
        }
    }

    /// The same of a part of an object under change.
    pub(crate) fn of_part(part: Part<'_>) -> Self {
        match part {
            Part::Read(node) => Self::of_node(node),
            Part::Made(value) => Self::of(value),
            Part::Array(items) => Self::of_items(items.iter().map(|item| Self::of_part(item.part()))),
            Part::Object(members) => {
                Self::of_entries(members.iter().map(|(key, value)| (&**key, Self::of_part(value.part()))))
            }
        }
    }

    fn of_node(node: Node<'_>) -> Self {
        match node.content() {
            Content::Null | Content::Bool(_) | Content::Int(_) | Content::Uint(_) | Content::Float(_) => {
                Self { bytes: NODE_BYTES, depth: 0 }
            }
            Content::Str(text) => Self { bytes: NODE_BYTES + text.len(), depth: 0 },
            Content::Array(items) => Self::of_items(items.iter().map(Self::of_node)),
            Content::Object(object) => {
                Self::of_entries(object.members().map(|(key, value)| (key, Self::of_node(value))))
            }
        }
    }

    fn of_items(items: impl Iterator<Item = Self>) -> Self {
        Self::around(items.fold(Self::default(), Self::beside))
    }

    fn of_entries<'k>(entries: impl Iterator<Item = (&'k str, Self)>) -> Self {
        let with_key = |(key, value): (&str, Self)| Self { bytes: value.bytes + key.len(), ..value };
        Self::of_items(entries.map(with_key))
    }

    /// That of a list or an object with this in it.
    fn around(inner: Self) -> Self {
        Self { bytes: NODE_BYTES + inner.bytes, depth: inner.depth + 1 }
    }

    fn beside(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), depth: self.depth.max(other.depth) }
    }
}

#[cfg(test)]
mod tests {
    use sallyport_document::{Document, Part, Tree};
    use serde_json::{Value, json};

    use super::Measure;

    /// What is read, what is made and what is changed count alike.
    fn measured(value: &Value) -> Measure {
        let document = Document::of(value).unwrap();
        let mut tree = Tree::Read(document.root());
        let measure = Measure::of(value);
        assert_eq!(Measure::of_part(tree.part()), measure);
        assert_eq!(Measure::of_part(Part::Made(value)), measure);
        let _ = (tree.members_mut().is_some(), tree.items_mut().is_some());
        assert_eq!(Measure::of_part(tree.part()), measure);
        measure
    }

    #[test]
    fn text_nodes_and_levels_count() {
        assert_eq!(measured(&json!("abc")), Measure { bytes: 35, depth: 0 });
        assert_eq!(measured(&json!([])), Measure { bytes: 32, depth: 1 });
        assert_eq!(measured(&json!({"ab": [1, [2]], "c": null})), Measure { bytes: 195, depth: 3 });
    }
}
