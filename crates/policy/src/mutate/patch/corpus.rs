//! The JSON Patch community's tests, read from `$SALLYPORT_CORPORA/json-patch-tests`, through what applies the
//! patches of policies.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sallyport_cel::{Scope, Value as Cel};
use sallyport_document::{Document, Tree};
use serde_json::Value;

use crate::error::PolicyError;
use crate::expression::compiled::{Expression, Uses};
use crate::expression::time_budget::TimeBudget;
use crate::mutate::measure::MAX_BYTES;
use crate::mutate::patch::apply::apply;
use crate::mutate::patch::dialect::Dialect;
use crate::mutate::patch::operation::read_operations;

/// Cases that do not give what the corpus says, by file and comment, with the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

fn cases(file: &str) -> Vec<Value> {
    let root = std::env::var_os("SALLYPORT_CORPORA").expect(
        "SALLYPORT_CORPORA is not set: set it to the directory that holds json-patch-tests (make test does)",
    );
    let path = PathBuf::from(root).join("json-patch-tests").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// `None` when a `test` failed.
fn patched(document: &Value, patch: &Value) -> Result<Option<Value>, PolicyError> {
    let expression = Expression::compile("patch", "null", &Scope::default(), &mut Uses::default()).unwrap();
    let patch = Document::of(patch).unwrap();
    let (operations, _) = read_operations(&expression, &Cel::from(&patch), Dialect::Rfc6902)?;
    let document = Document::of(document).unwrap();
    let mut tree = Tree::Read(document.root());
    let (room, time) = (&mut { MAX_BYTES }, TimeBudget::default());
    let applies = apply(&expression, &mut tree, operations, Dialect::Rfc6902, room, &time)?;
    Ok(applies.then(|| tree.part().to_value()))
}

/// What is wrong with the outcome of a case.
fn problem(case: &Value) -> Option<String> {
    let outcome = patched(&case["doc"], &case["patch"]);
    let fits = match (&outcome, case.get("expected")) {
        (Ok(None) | Err(_), _) => case.get("error").is_some(),
        (Ok(Some(_)), None) => case.get("error").is_none(),
        (Ok(Some(found)), Some(expected)) => case.get("error").is_none() && found == expected,
    };
    (!fits).then(|| format!("{outcome:?}"))
}

#[test]
fn json_patch_tests() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut problems = Vec::new();
    for file in ["tests.json", "spec_tests.json"] {
        for case in cases(file) {
            let comment = case["comment"].as_str().unwrap_or_default();
            let exception = EXCEPTIONS.iter().find(|(at, named, _)| *at == file && *named == comment);
            let outcome = match (exception, problem(&case)) {
                _ if !case["patch"].is_array() => "are comments",
                _ if case.get("disabled").is_some() => "are disabled by the corpus itself",
                (Some((.., reason)), Some(_)) => reason,
                (Some(_), None) => {
                    problems.push(format!("{file}: {comment}: is an exception and passes"));
                    "failed"
                }
                (None, Some(problem)) => {
                    problems.push(format!("{file}: {comment}: {case}\n    {problem}"));
                    "failed"
                }
                (None, None) => "passed",
            };
            *counts.entry(outcome).or_default() += 1;
        }
    }
    println!("{counts:?}");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(counts["passed"] > 100, "{counts:?}");
}
