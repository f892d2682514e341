//! JSON patches as the API server reads them.
//!
//! Policies of the API server's own kinds are carried out by a Go library that departs from RFC 6902: `replace`
//! adds a missing member, array indices may be negative or have leading zeros, `copy` of a missing member
//! writes null, a `test` without value passes on a missing member, and the root can only be replaced. People
//! rely on it, so those policies get the same here, in the same words. Our own kinds keep to the RFC (`patch`).

use sallyport_cel::EvalError;
use serde_json::{Map, Number, Value};

use crate::error::PolicyError;
use crate::expression::compiled::{Expression, Patience};
use crate::mutate::measure::{MAX_BYTES, MAX_DEPTH, Measure};
use crate::mutate::patch::MAX_OPERATIONS;

/// Largest integer that every reader of JSON takes for what it is. Beyond it the API server writes a string.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;
/// Beyond it a float is written with an exponent.
const MAX_PLAIN_FLOAT: f64 = 1e15;

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operation {
    op: String,
    path: String,
    from: Option<String>,
    value: Option<Value>,
}

/// Why a patch does not apply.
enum Fault {
    /// A failed `test`: the patch does nothing.
    Test,
    Other(String),
}

/// The operations in the value that `expression` gave, and how many bytes they take.
pub(crate) fn operations(
    expression: &Expression,
    value: &sallyport_cel::Value<'_>,
) -> Result<(Vec<Operation>, usize), PolicyError> {
    let json = value.to_json().map_err(|error| match error {
        EvalError::NotJson(found) => PolicyError::NotJson(found.rsplit('.').next().unwrap_or(found)),
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
    let operations = items.into_iter().map(Operation::read).collect();
    Ok((operations, bytes))
}

impl Operation {
    /// A field that is missing counts as empty, as in Go.
    fn read(item: Value) -> Self {
        let mut fields = match item {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        let mut text = |name: &str| match fields.remove(name) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let (op, path, from) = (text("op"), text("path"), text("from"));
        let mut value = fields.remove("value");
        if let Some(value) = &mut value {
            plain_numbers(value);
        }
        Self { op, path, from: Some(from).filter(|from| !from.is_empty()), value }
    }
}

/// `target` with the patch applied; `None` after a failed `test`, which makes the patch do nothing. Takes what
/// the patch puts into it from `room`.
pub(crate) fn apply(
    expression: &Expression,
    mut target: Value,
    operations: &[Operation],
    room: &mut usize,
    patience: &Patience,
) -> Result<Option<Value>, PolicyError> {
    for operation in operations {
        let handled = operation.handles(&mut target);
        patience.take_operation(handled.bytes)?;
        let depth = operation.path.matches('/').count() + handled.depth;
        if depth > MAX_DEPTH {
            return Err(PolicyError::Library(format!("the patch nests deeper than {MAX_DEPTH}")));
        }
        // What is moved was there before.
        let made = if operation.op == "move" { 0 } else { handled.bytes };
        *room = room
            .checked_sub(made)
            .ok_or_else(|| PolicyError::TooLarge { what: expression.what().to_owned(), limit: MAX_BYTES })?;
        match operation.apply(&mut target) {
            Ok(()) => {}
            Err(Fault::Test) => return Ok(None),
            Err(Fault::Other(text)) => return Err(PolicyError::Library(text)),
        }
    }
    Ok(Some(target))
}

impl Operation {
    /// What the operation puts somewhere in the document.
    fn handles(&self, document: &mut Value) -> Measure {
        match (self.op.as_str(), &self.value, &self.from) {
            ("add" | "replace", Some(value), _) => Measure::of(value),
            ("copy" | "move", _, Some(from)) => measure_at(document, from),
            _ => Measure::default(),
        }
    }

    fn apply(&self, document: &mut Value) -> Result<(), Fault> {
        match self.op.as_str() {
            "add" => self.add(document),
            "remove" => self.remove(document),
            "replace" => self.replace(document),
            "move" => self.r#move(document),
            "test" => self.test(document),
            "copy" => self.copy(document),
            other => Err(Fault::Other(format!("Unexpected kind: {other}"))),
        }
    }

    fn value(&self) -> Value {
        self.value.clone().unwrap_or(Value::Null)
    }

    fn add(&self, document: &mut Value) -> Result<(), Fault> {
        let path = &self.path;
        let (container, key) = find(document, path).ok_or_else(|| {
            fault(format!("add operation does not apply: doc is missing path: \"{path}\": missing value"))
        })?;
        add(container, &key, self.value())
            .map_err(|problem| fault(format!("error in add for path: '{path}': {problem}")))
    }

    fn remove(&self, document: &mut Value) -> Result<(), Fault> {
        let path = &self.path;
        let (container, key) = find(document, path).ok_or_else(|| {
            fault(format!("remove operation does not apply: doc is missing path: \"{path}\": missing value"))
        })?;
        remove(container, &key)
            .map(|_| ())
            .map_err(|problem| fault(format!("error in remove for path: '{path}': {problem}")))
    }

    fn replace(&self, document: &mut Value) -> Result<(), Fault> {
        let path = &self.path;
        if path.is_empty() {
            return match &self.value {
                Some(value @ (Value::Object(_) | Value::Array(_))) => {
                    *document = value.clone();
                    Ok(())
                }
                _ => Err(fault("replace operation value must be object or array: %!w(<nil>)".to_owned())),
            };
        }
        let missing = |what: &str| {
            fault(format!("replace operation does not apply: doc is missing {what}: {path}: missing value"))
        };
        let (container, key) = find(document, path).ok_or_else(|| missing("path"))?;
        match container {
            Value::Object(fields) => {
                fields.insert(key, self.value());
                Ok(())
            }
            Value::Array(items) => {
                let place = element(items.len(), &key).map_err(|_| missing("key"))?;
                if let Some(item) = items.get_mut(place) {
                    *item = self.value();
                }
                Ok(())
            }
            _ => Err(missing("path")),
        }
    }

    fn r#move(&self, document: &mut Value) -> Result<(), Fault> {
        let from = self.from("move")?;
        let (container, key) = find(document, from).ok_or_else(|| {
            fault(format!("move operation does not apply: doc is missing from path: {from}: missing value"))
        })?;
        let moved = remove(container, &key)
            .map_err(|problem| fault(format!("error in move for path: '{key}': {problem}")))?;
        let path = &self.path;
        let (container, key) = find(document, path).ok_or_else(|| {
            fault(format!(
                "move operation does not apply: doc is missing destination path: {path}: missing value"
            ))
        })?;
        add(container, &key, moved)
            .map_err(|problem| fault(format!("error in move for path: '{path}': {problem}")))
    }

    fn test(&self, document: &mut Value) -> Result<(), Fault> {
        let path = &self.path;
        if path.is_empty() {
            return if self.value.as_ref() == Some(&*document) { Ok(()) } else { Err(Fault::Test) };
        }
        let (container, key) = find(document, path).ok_or_else(|| {
            fault(format!("test operation does not apply: is missing path: {path}: missing value"))
        })?;
        let found = get(container, &key)
            .map_err(|problem| fault(format!("error in test for path: '{path}': {problem}")))?;
        // The library takes a null in the document for nothing at all.
        let equal = match (found.filter(|found| !found.is_null()), &self.value) {
            (None, expected) => expected.is_none(),
            (Some(found), expected) => expected.as_ref() == Some(found),
        };
        if equal { Ok(()) } else { Err(Fault::Test) }
    }

    fn copy(&self, document: &mut Value) -> Result<(), Fault> {
        let from = self.from("copy")?;
        let (container, key) = find(document, from).ok_or_else(|| {
            fault(format!("copy operation does not apply: doc is missing from path: {from}: missing value"))
        })?;
        let copied = get(container, &key)
            .map_err(|problem| fault(format!("error in copy for from: '{from}': {problem}")))?
            .cloned()
            .unwrap_or(Value::Null);
        let path = &self.path;
        let (container, key) = find(document, path).ok_or_else(|| {
            fault(format!(
                "copy operation does not apply: doc is missing destination path: {path}: missing value"
            ))
        })?;
        add(container, &key, copied)
            .map_err(|problem| fault(format!("error while adding value during copy: {problem}")))
    }

    fn from(&self, operation: &str) -> Result<&str, Fault> {
        self.from.as_deref().ok_or_else(|| {
            fault(format!(
                "{operation} operation failed to decode from: operation, missing from field: missing value"
            ))
        })
    }
}

fn fault(text: String) -> Fault {
    Fault::Other(text)
}

/// The object or list that holds what `path` names, and its key there. The text before the first slash does
/// not matter.
fn find<'d>(document: &'d mut Value, path: &str) -> Option<(&'d mut Value, String)> {
    let mut parts = path.split('/');
    parts.next();
    let mut parts: Vec<&str> = parts.collect();
    let key = unescape(parts.pop()?);
    let mut container = document;
    for part in parts {
        let part = unescape(part);
        container = match container {
            Value::Object(fields) => fields.get_mut(&part)?,
            Value::Array(items) => {
                let place = element(items.len(), &part).ok()?;
                items.get_mut(place)?
            }
            _ => return None,
        };
    }
    (container.is_object() || container.is_array()).then_some((container, key))
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

fn get<'d>(container: &'d Value, key: &str) -> Result<Option<&'d Value>, String> {
    match container {
        Value::Array(items) => Ok(items.get(element(items.len(), key)?)),
        other => Ok(other.get(key)),
    }
}

fn add(container: &mut Value, key: &str, value: Value) -> Result<(), String> {
    match container {
        Value::Object(fields) => {
            fields.insert(key.to_owned(), value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let index = number(key)
                .map_err(|problem| format!("value was not a proper array index: '{key}': {problem}"))?;
            let place = within(index, items.len() + 1)?;
            items.insert(place, value);
        }
        _ => {}
    }
    Ok(())
}

fn remove(container: &mut Value, key: &str) -> Result<Value, String> {
    match container {
        Value::Array(items) => {
            let place = element(items.len(), key)?;
            Ok(items.remove(place))
        }
        other => other
            .as_object_mut()
            .and_then(|fields| fields.remove(key))
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
    }
}

/// The place of an element of a list; negative indices count from the end.
fn element(length: usize, key: &str) -> Result<usize, String> {
    within(number(key)?, length)
}

fn number(key: &str) -> Result<i64, String> {
    key.parse().map_err(|_| format!("strconv.Atoi: parsing {key:?}: invalid syntax"))
}

fn within(index: i64, length: usize) -> Result<usize, String> {
    let place = if index < 0 {
        usize::try_from(index.unsigned_abs()).ok().and_then(|back| length.checked_sub(back))
    } else {
        usize::try_from(index).ok().filter(|place| *place < length)
    };
    place.ok_or_else(|| format!("Unable to access invalid index: {index}: invalid index referenced"))
}

/// What a path names, as the operations find it.
fn measure_at(document: &mut Value, path: &str) -> Measure {
    let found = find(document, path);
    found.and_then(|(holder, key)| get(holder, &key).ok().flatten().map(Measure::of)).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use sallyport_cel::Scope;
    use serde_json::{Value, json};

    use super::{Fault, Operation, apply};
    use crate::expression::compiled::{Expression, Patience, Uses};
    use crate::mutate::measure::MAX_BYTES;

    fn patched(document: &Value, operations: Value) -> Result<Value, String> {
        let mut document = document.clone();
        let Value::Array(operations) = operations else { panic!("a list") };
        for operation in operations {
            Operation::read(operation).apply(&mut document).map_err(|fault| match fault {
                Fault::Test => "test".to_owned(),
                Fault::Other(text) => text,
            })?;
        }
        Ok(document)
    }

    #[test]
    fn operations_mean_what_the_library_takes_them_for() {
        let rows = [
            // Document, operation, result.
            (
                json!({"a": 1}),
                json!({"op": "replace", "path": "/b", "value": 2}),
                Ok(json!({"a": 1, "b": 2})),
            ),
            (
                json!({"a": [1, 2]}),
                json!({"op": "add", "path": "/a/-1", "value": 3}),
                Ok(json!({"a": [1, 2, 3]})),
            ),
            (
                json!({"a": [1, 2]}),
                json!({"op": "add", "path": "/a/-2", "value": 3}),
                Ok(json!({"a": [1, 3, 2]})),
            ),
            (json!({"a": [1, 2]}), json!({"op": "remove", "path": "/a/-1"}), Ok(json!({"a": [1]}))),
            (
                json!({"a": [1, 2]}),
                json!({"op": "replace", "path": "/a/01", "value": 3}),
                Ok(json!({"a": [1, 3]})),
            ),
            (
                json!({"a": [1]}),
                json!({"op": "replace", "path": "/a/1", "value": 3}),
                Err("replace operation does not apply: doc is missing key: /a/1: missing value"),
            ),
            (
                json!({"a": [1]}),
                json!({"op": "add", "path": "/a/2", "value": 3}),
                Err(
                    "error in add for path: '/a/2': Unable to access invalid index: 2: invalid index referenced",
                ),
            ),
            (
                json!({"a": [1]}),
                json!({"op": "add", "path": "/a/x", "value": 3}),
                Err(
                    "error in add for path: '/a/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax",
                ),
            ),
            (json!({}), json!({"op": "copy", "from": "/a", "path": "/b"}), Ok(json!({"b": null}))),
            (
                json!({}),
                json!({"op": "copy", "path": "/b"}),
                Err("copy operation failed to decode from: operation, missing from field: missing value"),
            ),
            (
                json!({}),
                json!({"op": "move", "from": "/a", "path": "/b"}),
                Err("error in move for path: 'a': Unable to remove nonexistent key: a: missing value"),
            ),
            (json!({"a": 1}), json!({"op": "move", "from": "/a", "path": "/b"}), Ok(json!({"b": 1}))),
            (json!({}), json!({"op": "test", "path": "/a"}), Ok(json!({}))),
            (json!({"a": null}), json!({"op": "test", "path": "/a"}), Ok(json!({"a": null}))),
            (json!({}), json!({"op": "test", "path": "/a", "value": null}), Err("test")),
            (json!({"a": 1}), json!({"op": "test", "path": "/a", "value": 1}), Ok(json!({"a": 1}))),
            (json!({"a": 1}), json!({"op": "test", "path": "/a", "value": 2}), Err("test")),
            (
                json!({"a": 1}),
                json!({"op": "test", "path": "/b/c", "value": 2}),
                Err("test operation does not apply: is missing path: /b/c: missing value"),
            ),
            (json!({}), json!({"op": "add", "path": "/a~1b~0c", "value": 1}), Ok(json!({"a/b~c": 1}))),
            (json!({}), json!({"op": "add", "path": "/a"}), Ok(json!({"a": null}))),
            (
                json!({}),
                json!({"op": "add", "path": "", "value": {}}),
                Err("add operation does not apply: doc is missing path: \"\": missing value"),
            ),
            (json!({"a": 1}), json!({"op": "replace", "path": "", "value": {"b": 1}}), Ok(json!({"b": 1}))),
            (
                json!({"a": 1}),
                json!({"op": "add", "path": "/a/b", "value": 1}),
                Err("add operation does not apply: doc is missing path: \"/a/b\": missing value"),
            ),
            (
                json!({}),
                json!({"op": "remove", "path": "/a"}),
                Err("error in remove for path: '/a': Unable to remove nonexistent key: a: missing value"),
            ),
            (json!({}), json!({"op": "merge", "path": "/a"}), Err("Unexpected kind: merge")),
        ];
        for (document, operation, expected) in rows {
            let result = patched(&document, json!([operation.clone()]));
            assert_eq!(result, expected.map_err(str::to_owned), "{document} {operation}");
        }
    }

    /// The bounded way of `apply`, with its error in one line.
    fn applied(document: &Value, operations: Vec<Value>, patience: &Patience) -> Result<(), String> {
        let expression =
            Expression::compile("patch", "null", &Scope::default(), &mut Uses::default()).unwrap();
        let operations: Vec<Operation> = operations.into_iter().map(Operation::read).collect();
        apply(&expression, document.clone(), &operations, &mut { MAX_BYTES }, patience)
            .map(|_| ())
            .map_err(|error| error.explain())
    }

    /// What is measured is what the operation takes, however its path is written.
    #[test]
    fn doubling_and_nesting_end_soon_however_the_path_is_written() {
        let document = json!({"a": [{"k": "v".repeat(10_000)}]});
        for from in ["/a/0", "/a/-1", "/a/00", "/a/+0", "text/a/0", "text/a/-1"] {
            let doubling = (0..40)
                .map(|n| json!({"op": "copy", "from": from, "path": format!("/a/0/x{n}")}))
                .collect::<Vec<_>>();
            let problem = applied(&document, doubling, &Patience::default()).unwrap_err();
            assert_eq!(problem, "patch: makes more than 16777216 bytes", "{from}");
            let nesting = (0..300)
                .flat_map(|_| {
                    [
                        json!({"op": "move", "from": from, "path": "/b"}),
                        json!({"op": "add", "path": "/a/-", "value": {}}),
                        json!({"op": "move", "from": "text/b", "path": "/a/-1/k"}),
                    ]
                })
                .collect::<Vec<_>>();
            let problem = applied(&document, nesting, &Patience::default()).unwrap_err();
            assert_eq!(problem, "JSON Patch: the patch nests deeper than 256", "{from}");
        }
    }

    #[test]
    fn a_patch_that_takes_too_long_is_stopped() {
        let operations = |count| vec![json!({"op": "add", "path": "/a", "value": 1}); count];
        assert_eq!(applied(&json!({}), operations(8), &Patience::spent()), Ok(()));
        let late = "the evaluation took longer than 1000 ms".to_owned();
        assert_eq!(applied(&json!({}), operations(64), &Patience::spent()), Err(late));
    }

    #[test]
    fn numbers_are_written_as_by_the_api_server() {
        for (value, expected) in [
            (json!(9_007_199_254_740_991_i64), json!(9_007_199_254_740_991_i64)),
            (json!(9_007_199_254_740_992_i64), json!("9007199254740992")),
            (json!(-9_007_199_254_740_993_i64), json!("-9007199254740993")),
            (json!(u64::MAX), json!("18446744073709551615")),
            (json!({"a": [5.0, 1.5]}), json!({"a": [5, 1.5]})),
        ] {
            let document = patched(&json!({}), json!([{"op": "add", "path": "/v", "value": value}]));
            assert_eq!(document, Ok(json!({"v": expected})));
        }
    }
}
