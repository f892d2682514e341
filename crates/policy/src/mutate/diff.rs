//! The smallest patch from one JSON document to another that touches only what differs.

use sallyport_document::{Node, Object, Part};
use serde_json::Value;

/// Largest patch made, in bytes.
pub(crate) const MAX_PATCH_BYTES: usize = 4 * 1024 * 1024;

/// JSON text of the RFC 6902 patch that makes `after` of `before`; `None` where they are equal.
///
/// Maps are compared key by key. Lists keep their common beginning and end; between them, entries with a name
/// are recognised by it where nothing was removed or moved, others go by position. Missing parents are added
/// whole. A patch longer than [`MAX_PATCH_BYTES`] is not finished: it makes something else of `before`.
pub(crate) fn diff(before: Node<'_>, after: Part<'_>) -> Option<Vec<u8>> {
    let mut writer = Writer { path: Vec::new(), out: Vec::new() };
    writer.write_value(before, after);
    if writer.out.is_empty() {
        return None;
    }
    writer.out.push(b']');
    Some(writer.out)
}

enum Token<'a> {
    Key(&'a str),
    Index(usize),
}

struct Writer<'a> {
    path: Vec<Token<'a>>,
    out: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn write_value(&mut self, before: Node<'a>, after: Part<'a>) {
        if matches!(after, Part::Read(after) if before.lies_where(after)) {
            return;
        }
        if before.as_object().is_some() && after.is_object() {
            self.write_map(before, after);
        } else if let (Some(before), Some(after)) = (before.as_array(), after.items()) {
            self.write_list(&before.iter().collect::<Vec<_>>(), &after);
        } else if before != after {
            self.write_operation("replace", Some(after));
        }
    }

    fn write_map(&mut self, before: Node<'a>, after: Part<'a>) {
        for (key, _) in before.as_object().into_iter().flat_map(Object::members) {
            if after.get(key).is_none() {
                self.write_at(Token::Key(key), |writer| writer.write_operation("remove", None));
            }
        }
        after.each_member(|key, to| {
            self.write_at(Token::Key(key), |writer| match before.get(key) {
                Some(from) => writer.write_value(from, to),
                None => writer.write_operation("add", Some(to)),
            });
        });
    }

    fn write_list(&mut self, before: &[Node<'a>], after: &[Part<'a>]) {
        let start = before.iter().zip(after).take_while(|(a, b)| *a == *b).count();
        let (old, new) = (before.get(start..).unwrap_or_default(), after.get(start..).unwrap_or_default());
        let end = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| *a == *b).count();
        let old = old.get(..old.len() - end).unwrap_or_default();
        let new = new.get(..new.len() - end).unwrap_or_default();
        if inserted_only(old, new) {
            let mut remaining = old.iter().peekable();
            for (offset, to) in new.iter().enumerate() {
                let from = remaining.next_if(|from| same_name(**from, *to));
                self.write_at(Token::Index(start + offset), |writer| match from {
                    Some(from) => writer.write_value(*from, *to),
                    None => writer.write_operation("add", Some(*to)),
                });
            }
            return;
        }
        let common = old.len().min(new.len());
        for (offset, (from, to)) in old.iter().zip(new).enumerate() {
            self.write_at(Token::Index(start + offset), |writer| writer.write_value(*from, *to));
        }
        for offset in (common..old.len()).rev() {
            self.write_at(Token::Index(start + offset), |writer| writer.write_operation("remove", None));
        }
        for (offset, to) in new.iter().enumerate().skip(common) {
            self.write_at(Token::Index(start + offset), |writer| writer.write_operation("add", Some(*to)));
        }
    }

    fn write_at(&mut self, token: Token<'a>, then: impl FnOnce(&mut Self)) {
        self.path.push(token);
        then(self);
        self.path.pop();
    }

    fn write_operation(&mut self, operation: &str, value: Option<Part<'_>>) {
        // Every operation repeats its path, which can be long.
        if self.out.len() > MAX_PATCH_BYTES {
            return;
        }
        self.out.push(if self.out.is_empty() { b'[' } else { b',' });
        let mut path = String::with_capacity(64);
        for token in &self.path {
            path.push('/');
            match token {
                Token::Index(index) => path.push_str(&index.to_string()),
                Token::Key(key) => escape(key, &mut path),
            }
        }
        self.out.extend_from_slice(b"{\"op\":\"");
        self.out.extend_from_slice(operation.as_bytes());
        self.out.extend_from_slice(b"\",\"path\":");
        self.out.extend_from_slice(Value::String(path).to_string().as_bytes());
        if let Some(value) = value {
            self.out.extend_from_slice(b",\"value\":");
            let text = match value {
                Part::Made(value) => value.to_string(),
                other => other.to_value().to_string(),
            };
            self.out.extend_from_slice(text.as_bytes());
        }
        self.out.push(b'}');
    }
}

/// Writes one token of a JSON pointer (RFC 6901).
fn escape(key: &str, pointer: &mut String) {
    for character in key.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}

/// Returns whether every entry of `old` is found by its name in `new`, in the same order. An empty `old` is.
fn inserted_only(old: &[Node<'_>], new: &[Part<'_>]) -> bool {
    let mut new = new.iter();
    old.iter().all(|from| new.any(|to| same_name(*from, *to)))
}

fn same_name(from: Node<'_>, to: Part<'_>) -> bool {
    match (from.get("name").and_then(Node::as_str), to.get("name").and_then(Part::as_str)) {
        (Some(from), Some(to)) => from == to,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use sallyport_document::{Document, Node, Part, Tree};
    use serde_json::{Value, json};

    fn operations(before: &Value, after: &Value) -> Value {
        let document = Document::of(before).unwrap();
        let patch = super::diff(document.root(), Part::Made(after));
        let tree = grafted(document.root(), after);
        assert_eq!(tree.part(), *after);
        assert_eq!(super::diff(document.root(), tree.part()), patch, "{before} {after}");
        patch.map_or_else(|| json!([]), |patch| serde_json::from_slice(&patch).unwrap())
    }

    /// The value as changes make it: what is the same, where it was, is left there.
    fn grafted<'d>(before: Node<'d>, after: &Value) -> Tree<'d> {
        if before == *after {
            return Tree::Read(before);
        }
        match after {
            Value::Object(fields) => {
                let member = |(key, value): (&String, &Value)| {
                    let value = match before.get(key) {
                        Some(before) => grafted(before, value),
                        None => Tree::Made(value.clone()),
                    };
                    (key.clone().into(), value)
                };
                Tree::Object(fields.iter().map(member).collect())
            }
            Value::Array(items) => {
                let item = |(at, item)| match before.as_array().and_then(|before| before.get(at)) {
                    Some(before) => grafted(before, item),
                    None => Tree::Made(item.clone()),
                };
                Tree::Array(items.iter().enumerate().map(item).collect())
            }
            other => Tree::Made(other.clone()),
        }
    }

    /// The `json-patch` crate is the oracle.
    fn assert_leads_from_to(before: &Value, after: &Value) {
        let patch = operations(before, after);
        let parsed: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
        let mut result = before.clone();
        json_patch::patch(&mut result, &parsed)
            .unwrap_or_else(|error| panic!("{error}: {before} {after} {patch}"));
        assert_eq!(result, *after, "{before} {patch}");
    }

    /// A generator of small documents that share many parts, so that pairs differ in few places.
    struct Generator(u64);

    impl Generator {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % bound
        }

        fn value(&mut self, depth: usize) -> Value {
            match self.below(if depth == 0 { 4 } else { 8 }) {
                0 => Value::Null,
                1 => json!(self.below(3)),
                2 => json!(self.below(2) == 0),
                3 => json!(["", "x", "a/b", "m~n"][self.below(4)]),
                4 | 5 => (0..self.below(4))
                    .map(|_| {
                        (["a", "b/c", "d~e", "", "~1", "0"][self.below(6)].to_owned(), self.value(depth - 1))
                    })
                    .collect(),
                6 => (0..self.below(5)).map(|_| self.value(depth - 1)).collect(),
                _ => (0..self.below(5))
                    .map(|_| json!({"name": self.below(4).to_string(), "value": self.value(depth - 1)}))
                    .collect(),
            }
        }

        /// `value` with one place in it changed.
        fn changed(&mut self, value: &Value) -> Value {
            match value {
                Value::Array(items) if !items.is_empty() && self.below(4) > 0 => {
                    let mut items = items.clone();
                    let at = self.below(items.len());
                    match self.below(3) {
                        0 => items.insert(at, self.value(1)),
                        1 => drop(items.remove(at)),
                        _ => items[at] = self.changed(&items[at].clone()),
                    }
                    Value::Array(items)
                }
                Value::Object(fields) if !fields.is_empty() && self.below(4) > 0 => {
                    let mut fields = fields.clone();
                    let at = self.below(fields.len());
                    let key = fields.keys().nth(at).unwrap().clone();
                    let changed = self.changed(&fields[&key].clone());
                    fields.insert(key, changed);
                    Value::Object(fields)
                }
                _ => self.value(1),
            }
        }
    }

    #[test]
    fn applying_the_difference_gives_the_second_document() {
        let mut generator = Generator(7);
        for _ in 0..10_000 {
            let (before, after) = (generator.value(4), generator.value(4));
            assert_leads_from_to(&before, &after);
            assert_eq!(operations(&before, &before), json!([]));
            let near = generator.changed(&before);
            assert_leads_from_to(&before, &near);
            let farther = generator.changed(&near);
            assert_leads_from_to(&before, &farther);
        }
    }

    /// Keys can be so long that the patch is much larger than both documents.
    #[test]
    fn a_patch_that_is_too_long_ends_with_the_operation_that_makes_it_so() {
        let key = "k".repeat(100_000);
        let document = |value: usize| -> Value {
            let children: Value = (0..4000).map(|child| (format!("c{child}"), json!(value))).collect();
            json!({ key.as_str(): children })
        };
        let (before, after) = (document(1), document(2));
        let patch = super::diff(Document::of(&before).unwrap().root(), Part::Made(&after)).unwrap();
        assert!(patch.len() > super::MAX_PATCH_BYTES);
        assert!(patch.len() < super::MAX_PATCH_BYTES + 2 * key.len(), "{}", patch.len());
    }

    /// C-34, C-35.
    #[test]
    fn only_what_differs_is_named() {
        let rows = [
            (json!({}), json!({}), json!([])),
            (
                json!({"a/b~c": 1}),
                json!({"a/b~c": 2}),
                json!([{"op": "replace", "path": "/a~1b~0c", "value": 2}]),
            ),
            (json!({"": {}}), json!({"": {"": 1}}), json!([{"op": "add", "path": "//", "value": 1}])),
            (json!({"a": null}), json!({}), json!([{"op": "remove", "path": "/a"}])),
            (
                json!({}),
                json!({"m": {"l": {"k": 1}}}),
                json!([{"op": "add", "path": "/m", "value": {"l": {"k": 1}}}]),
            ),
            (
                json!({"m": null}),
                json!({"m": {"k": 1}}),
                json!([{"op": "replace", "path": "/m", "value": {"k": 1}}]),
            ),
            (json!([1, 2, 3]), json!([0, 1, 2, 3]), json!([{"op": "add", "path": "/0", "value": 0}])),
            (json!([1, 2, 3]), json!([1, 3]), json!([{"op": "remove", "path": "/1"}])),
            (
                json!([1, 2, 3, 4]),
                json!([1, 4]),
                json!([{"op": "remove", "path": "/2"}, {"op": "remove", "path": "/1"}]),
            ),
            (
                json!([{"name": "a", "v": 1}, {"name": "b"}]),
                json!([{"name": "x"}, {"name": "a", "v": 2}, {"name": "y"}, {"name": "b", "w": 3}]),
                json!([{"op": "add", "path": "/0", "value": {"name": "x"}},
                       {"op": "replace", "path": "/1/v", "value": 2},
                       {"op": "add", "path": "/2", "value": {"name": "y"}},
                       {"op": "add", "path": "/3/w", "value": 3}]),
            ),
        ];
        for (before, after, expected) in rows {
            assert_eq!(operations(&before, &after), expected, "{before} {after}");
        }
    }
}
