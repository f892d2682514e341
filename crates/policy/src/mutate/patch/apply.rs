//! Carrying out a JSON patch.

use sallyport_document::Tree;
use serde_json::Value;

use crate::error::PolicyError;
use crate::expression::compiled::Expression;
use crate::expression::time_budget::TimeBudget;
use crate::mutate::measure::{MAX_BYTES, MAX_DEPTH, Measure};
use crate::mutate::patch::dialect::Dialect;
use crate::mutate::patch::fault::{Fault, Missing};
use crate::mutate::patch::operation::{Kind, Operation};
use crate::mutate::patch::place::{Place, find, find_holder};
use crate::mutate::patch::wording::describe;

/// Applies a patch to `target`. Returns whether it applies: after a failed `test` it does nothing, as in Kubernetes,
/// and `target`, which may be half patched, is to be thrown away, as it is after an error. Takes what the patch puts
/// into it from `room`.
pub(crate) fn apply(
    expression: &Expression,
    target: &mut Tree<'_>,
    operations: Vec<Operation>,
    dialect: Dialect,
    room: &mut usize,
    time: &TimeBudget,
) -> Result<bool, PolicyError> {
    let failed = |index: usize, problem: String| match dialect {
        Dialect::Rfc6902 => PolicyError::Patch {
            what: expression.what().to_owned(),
            problem: format!("operation {index}: {problem}"),
        },
        Dialect::ApiServer => PolicyError::Library(problem),
    };
    for (index, mut operation) in operations.into_iter().enumerate() {
        let handled = operation.measure(target, dialect);
        time.spend_operation(handled.bytes)?;
        if operation.path.matches('/').count() + handled.depth > MAX_DEPTH {
            let subject = if dialect == Dialect::ApiServer { "the patch " } else { "" };
            return Err(failed(index, format!("{subject}nests deeper than {MAX_DEPTH}")));
        }
        // What is moved was there before.
        let made = if operation.kind == Kind::Move { 0 } else { handled.bytes };
        *room = room
            .checked_sub(made)
            .ok_or_else(|| PolicyError::TooLarge { what: expression.what().to_owned(), limit: MAX_BYTES })?;
        match operation.apply(target, dialect) {
            Ok(()) => {}
            Err(Fault::TestFailed) => return Ok(false),
            Err(fault) => return Err(failed(index, describe(&operation, &fault, dialect))),
        }
    }
    Ok(true)
}

impl Operation {
    /// Measures what the operation puts somewhere in the object.
    fn measure(&self, target: &Tree<'_>, dialect: Dialect) -> Measure {
        match (&self.kind, &self.value, &self.from) {
            (Kind::Add | Kind::Replace, Some(value), _) => Measure::of(value),
            (Kind::Copy | Kind::Move, _, Some(from)) => {
                let found = find(target, from, dialect).ok().flatten();
                found.map_or_else(Measure::default, |found| Measure::of_part(found.part()))
            }
            _ => Measure::default(),
        }
    }

    fn apply(&mut self, target: &mut Tree<'_>, dialect: Dialect) -> Result<(), Fault> {
        match &self.kind {
            Kind::Add => {
                let value = self.take_value();
                add(target, &self.path, value, dialect)
            }
            Kind::Remove => {
                let (holder, key) = find_holder(target, &self.path, dialect).map_err(Fault::Path)?;
                holder.remove(&key, dialect).map(drop).map_err(Fault::Path)
            }
            Kind::Replace => self.replace(target, dialect),
            Kind::Move => {
                let from = self.from()?;
                let inside = self.path.strip_prefix(from).is_some_and(|rest| rest.starts_with('/'));
                if inside && dialect == Dialect::Rfc6902 {
                    return Err(Fault::IntoItself);
                }
                let (holder, key) = find_holder(target, from, dialect).map_err(Fault::From)?;
                let moved = holder.remove(&key, dialect).map_err(Fault::From)?;
                add(target, &self.path, moved, dialect)
            }
            Kind::Copy => {
                let from = self.from()?;
                let copied = match find(target, from, dialect).map_err(Fault::From)? {
                    Some(found) => found.to_tree(),
                    None if dialect == Dialect::ApiServer => Tree::Made(Value::Null),
                    None => return Err(Fault::From(Missing::Key(from.to_owned()))),
                };
                add(target, &self.path, copied, dialect)
            }
            Kind::Test => self.test(target, dialect),
            Kind::Unknown(_) => Err(Fault::UnknownOperation),
        }
    }

    fn take_value<'d>(&mut self) -> Tree<'d> {
        Tree::Made(self.value.take().unwrap_or_default())
    }

    fn from(&self) -> Result<&str, Fault> {
        self.from.as_deref().ok_or(Fault::NoFrom)
    }

    fn replace(&mut self, target: &mut Tree<'_>, dialect: Dialect) -> Result<(), Fault> {
        if self.path.is_empty() {
            let container = matches!(self.value, Some(Value::Object(_) | Value::Array(_)));
            if dialect == Dialect::ApiServer && !container {
                return Err(Fault::NotAContainer);
            }
            *target = self.take_value();
            return Ok(());
        }
        let value = self.take_value();
        let (holder, key) = find_holder(target, &self.path, dialect).map_err(Fault::Path)?;
        holder.replace(&key, value, dialect).map_err(Fault::Path)
    }

    fn test(&self, target: &Tree<'_>, dialect: Dialect) -> Result<(), Fault> {
        let found = if self.path.is_empty() {
            Some(Place::of(target))
        } else {
            find(target, &self.path, dialect).map_err(Fault::Path)?
        };
        let found = found.map(Place::part);
        let passes = match (found, &self.value) {
            (None, _) if dialect == Dialect::Rfc6902 => {
                return Err(Fault::Path(Missing::Key(self.path.clone())));
            }
            // The library takes a null in the object for nothing at all.
            (Some(found), expected)
                if dialect == Dialect::ApiServer && found.is_null() && !self.path.is_empty() =>
            {
                expected.is_none()
            }
            (Some(found), Some(expected)) => found == *expected,
            (found, expected) => found.is_none() && expected.is_none(),
        };
        if passes { Ok(()) } else { Err(Fault::TestFailed) }
    }
}

/// Adds a value at a path; the whole can only be replaced, and in the API server's library not even that way.
fn add<'d>(target: &mut Tree<'d>, path: &str, value: Tree<'d>, dialect: Dialect) -> Result<(), Fault> {
    if path.is_empty() && dialect == Dialect::Rfc6902 {
        *target = value;
        return Ok(());
    }
    let (holder, key) = find_holder(target, path, dialect).map_err(Fault::Path)?;
    holder.add(&key, value, dialect).map_err(Fault::Path)
}

#[cfg(test)]
mod tests {
    use sallyport_cel::Scope;
    use sallyport_document::{Document, Tree};
    use serde_json::{Value, json};

    use super::apply;
    use crate::expression::compiled::{Expression, Uses};
    use crate::expression::time_budget::TimeBudget;
    use crate::mutate::measure::MAX_BYTES;
    use crate::mutate::patch::dialect::Dialect;
    use crate::mutate::patch::fault::Fault;
    use crate::mutate::patch::operation::Operation;
    use crate::mutate::patch::wording::describe;

    fn patched(document: &Value, operations: Value) -> Result<Value, String> {
        let Value::Array(operations) = operations else { panic!("a list") };
        let read = Document::of(document).unwrap();
        // As it was read, and as something that was made before.
        let [read, made] = [Tree::Read(read.root()), Tree::Made(document.clone())].map(|mut tree| {
            for operation in &operations {
                let mut operation = Operation::read_leniently(operation.clone());
                operation.apply(&mut tree, Dialect::ApiServer).map_err(|fault| match fault {
                    Fault::TestFailed => "test".to_owned(),
                    fault => describe(&operation, &fault, Dialect::ApiServer),
                })?;
            }
            Ok(tree.part().to_value())
        });
        assert_eq!(read, made, "{document} {operations:?}");
        read
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
    fn applied(document: &Value, operations: Vec<Value>, time: &TimeBudget) -> Result<(), String> {
        let expression =
            Expression::compile("patch", "null", &Scope::default(), &mut Uses::default()).unwrap();
        let operations = operations.into_iter().map(Operation::read_leniently).collect();
        let document = Document::of(document).unwrap();
        let target = &mut Tree::Read(document.root());
        apply(&expression, target, operations, Dialect::ApiServer, &mut { MAX_BYTES }, time)
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
            let problem = applied(&document, doubling, &TimeBudget::default()).unwrap_err();
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
            let problem = applied(&document, nesting, &TimeBudget::default()).unwrap_err();
            assert_eq!(problem, "JSON Patch: the patch nests deeper than 256", "{from}");
        }
    }

    #[test]
    fn a_patch_that_takes_too_long_is_stopped() {
        let operations = |count| vec![json!({"op": "add", "path": "/a", "value": 1}); count];
        assert_eq!(applied(&json!({}), operations(8), &TimeBudget::exhausted()), Ok(()));
        let late = "the evaluation took longer than 1000 ms".to_owned();
        assert_eq!(applied(&json!({}), operations(64), &TimeBudget::exhausted()), Err(late));
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
