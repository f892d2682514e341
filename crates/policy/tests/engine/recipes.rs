//! The recipe library against its own fixtures, and each recipe's second run (C-70, SYS-1, SYS-2, SYS-8).

use std::fs;
use std::path::{Path, PathBuf};

use sallyport_policy::{FailurePolicy, Operation, Outcome};
use serde_json::{Value, json};

use crate::fixtures::{mutation_set, patch, patched, pod_request, review, validation_set};

fn folder(recipe: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies").join(recipe)
}

fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The fixtures in a folder whose names end so.
fn fixtures(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{}", folder.display());
    paths
}

fn send(object: &Value, through: impl Fn(&sallyport_policy::Review<'_>) -> Outcome) -> Outcome {
    let mut request = pod_request(Operation::Create);
    if let Some(namespace) = object["metadata"]["namespace"].as_str() {
        namespace.clone_into(&mut request.namespace);
    }
    let bytes = object.to_string();
    through(&review(&request, bytes.as_bytes()))
}

#[test]
fn mutating_recipes_make_what_their_fixtures_show() {
    for recipe in ["sidecar-nginx", "hello-file"] {
        let folder = folder(recipe);
        let set = mutation_set(&[&fs::read_to_string(folder.join("policy.yaml")).unwrap()]);
        let mutate = |object: &Value| send(object, |review| set.review(review, FailurePolicy::Fail));
        for path in fixtures(&folder.join("fixtures/changed"), ".before.yaml") {
            let before = read(&path);
            let after = read(Path::new(&path.to_string_lossy().replace(".before.", ".after.")));
            assert_eq!(patched(&before, &mutate(&before)), after, "{}", path.display());
            assert_eq!(patch(&mutate(&after)), json!([]), "{}", path.display());
        }
        for path in fixtures(&folder.join("fixtures/unchanged"), ".yaml") {
            assert_eq!(patch(&mutate(&read(&path))), json!([]), "{}", path.display());
        }
    }
}

#[test]
fn sys_8_the_deny_env_recipe_refuses_as_its_fixtures_show() {
    let folder = folder("deny-env");
    let set = validation_set(&[&fs::read_to_string(folder.join("policy.yaml")).unwrap()]);
    let validate = |object: &Value| send(object, |review| set.review(review, FailurePolicy::Fail));
    for path in fixtures(&folder.join("fixtures/allowed"), ".yaml") {
        assert!(validate(&read(&path)).allowed, "{}", path.display());
    }
    for path in fixtures(&folder.join("fixtures/denied"), ".status.yaml") {
        let expected = read(&path);
        let object = read(Path::new(&path.to_string_lossy().replace(".status.", ".")));
        let status = validate(&object).status.unwrap_or_else(|| panic!("{}", path.display()));
        assert_eq!(json!(status.code), expected["code"], "{}", path.display());
        assert_eq!(json!(status.message), expected["message"], "{}", path.display());
        let causes: Vec<Value> = status
            .causes
            .iter()
            .map(|cause| json!({"field": cause.field, "message": cause.message}))
            .collect();
        if let Some(expected) = expected.get("causes") {
            assert_eq!(&json!(causes), expected, "{}", path.display());
        }
    }
}
