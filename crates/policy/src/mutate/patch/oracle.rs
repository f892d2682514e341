//! Patches at random: in the dialect of RFC 6902 they do what the `json-patch` crate does.

use sallyport_cel::{Scope, Value as Cel};
use sallyport_document::{Document, Tree};
use serde_json::{Map, Value, json};

use crate::expression::compiled::{Expression, Uses};
use crate::expression::time_budget::TimeBudget;
use crate::mutate::measure::MAX_BYTES;
use crate::mutate::patch::apply::apply;
use crate::mutate::patch::dialect::Dialect;
use crate::mutate::patch::operation::read_operations;

const KEYS: [&str; 12] = ["a", "b", "0", "1", "2", "-1", "01", "+1", "-", "x~1y", "~0", ""];

/// Numbers at random, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }

    fn value(&mut self, depth: u64) -> Value {
        match self.below(if depth == 0 { 3 } else { 7 }) {
            0 => Value::Null,
            1 => json!(self.below(2)),
            2 => json!("text"),
            3 | 4 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => {
                let fields = (0..self.below(4)).map(|_| {
                    let key = self.pick(&KEYS).replace("~1", "/").replace("~0", "~");
                    (key, self.value(depth - 1))
                });
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }

    /// A path that leads into the document more often than not.
    fn path(&mut self, document: &Value) -> String {
        let (mut path, mut at) = (String::new(), document);
        for _ in 0..self.below(4) {
            let known: Vec<String> = match at {
                Value::Object(fields) => fields.keys().cloned().collect(),
                Value::Array(items) => (0..=items.len()).map(|index| index.to_string()).collect(),
                _ => Vec::new(),
            };
            let key = if known.is_empty() || self.below(4) == 0 {
                self.pick(&KEYS).to_owned()
            } else {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                self.pick(&known).replace('~', "~0").replace('/', "~1")
            };
            path = format!("{path}/{key}");
            at = document.pointer(&path).unwrap_or(&Value::Null);
        }
        path
    }

    fn operation(&mut self, document: &Value) -> Value {
        let op = self.pick(&["add", "add", "remove", "replace", "move", "copy", "copy", "test"]);
        json!({"op": op, "path": self.path(document), "from": self.path(document), "value": self.value(2)})
    }
}

#[test]
fn patches_do_what_the_json_patch_crate_does() {
    let expression = Expression::compile("patch", "null", &Scope::default(), &mut Uses::default()).unwrap();
    let mut random = Random(1);
    let mut applied = 0;
    for _ in 0..20_000 {
        let document = random.value(4);
        let patch: Value = (0..=random.below(4)).map(|_| random.operation(&document)).collect();
        let operations: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
        let mut expected = document.clone();
        let apply_one = |operation| json_patch::patch(&mut expected, std::slice::from_ref(operation));
        let result = operations.iter().try_for_each(apply_one);
        let read = Document::of(&document).unwrap();
        for mut tree in [Tree::Read(read.root()), Tree::Made(document.clone())] {
            let value = Document::of(&patch).unwrap();
            let (operations, _) = read_operations(&expression, &Cel::from(&value), Dialect::Rfc6902).unwrap();
            let (room, time) = (&mut { MAX_BYTES }, TimeBudget::default());
            let found = apply(&expression, &mut tree, operations, Dialect::Rfc6902, room, &time);
            match (&result, found) {
                (Ok(()), found) => {
                    assert!(matches!(found, Ok(true)), "{document} {patch} {found:?}");
                    assert_eq!(tree.part().to_value(), expected, "{document} {patch}");
                    applied += 1;
                }
                (Err(error), Ok(passed)) => {
                    let failed_test = matches!(error.kind, json_patch::PatchErrorKind::TestFailed);
                    assert!(failed_test && !passed, "{document} {patch} {error}");
                }
                (Err(error), Err(found)) => {
                    let problem = format!("{} at {:?}", error.kind, error.path.as_str());
                    assert!(found.explain().ends_with(&problem), "{document} {patch} {error} {found}");
                }
            }
        }
    }
    assert!(applied > 2_000, "{applied}");
}
