//! The public json-patch-tests corpus, read from `$SALLYPORT_CORPORA/json-patch-tests`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;

use sallyport_admission::Patch;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

fn cases(file: &str) -> Vec<Value> {
    let root = std::env::var_os("SALLYPORT_CORPORA").expect(
        "SALLYPORT_CORPORA is not set: set it to the directory that holds json-patch-tests (make test does)",
    );
    let path = PathBuf::from(root).join("json-patch-tests").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// Documents of the corpus may be lists and scalars and be replaced whole, which objects of Kubernetes are
/// not: so each goes under a key of an object, and its pointers with it. A `test` of that key then proves
/// the resulting document, too.
#[test]
fn json_patch_tests_c31() {
    let mut ran = 0;
    for file in ["tests.json", "spec_tests.json"] {
        for case in cases(file) {
            // Disabled by the corpus itself: duplicate members, which its own reader cannot see.
            let Some(operations) = case["patch"].as_array().filter(|_| case.get("disabled").is_none()) else {
                continue;
            };
            let mut operations = operations.clone();
            for operation in &mut operations {
                for name in ["path", "from"] {
                    // What is no pointer (does not begin with a slash) must stay none.
                    match operation.get_mut(name) {
                        Some(Value::String(pointer)) if pointer.is_empty() || pointer.starts_with('/') => {
                            pointer.insert_str(0, "/doc");
                        }
                        _ => {}
                    }
                }
            }
            if let Some(expected) = case.get("expected") {
                operations.push(json!({"op": "test", "path": "/doc", "value": expected}));
            }
            let object = to_raw_value(&json!({"doc": case["doc"]})).unwrap();
            let text = Value::Array(operations).to_string();
            let outcome = Patch::parse(text.as_bytes()).and_then(|patch| patch.verify(Some(&object)));
            assert_eq!(outcome.is_err(), case.get("error").is_some(), "{case}\n{outcome:?}");
            ran += 1;
        }
    }
    assert!(ran > 100, "only {ran} cases");
}
