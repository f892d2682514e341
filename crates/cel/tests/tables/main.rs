//! Tables of expressions with what they give, through the public surface alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests

mod authorizers;
mod bounds;
mod check;
mod costs;
mod hostile;
mod kubernetes;
mod language;
mod libraries;
mod speed;
mod surface;

use sallyport_cel::{Activation, Limits, Program, Scope, Value};
use sallyport_document::Document;
use serde_json::{Value as Json, json};

/// A pod with one of everything that the tables look at.
fn object() -> Json {
    json!({
        "metadata": {"name": "web", "labels": {"app": "web", "tier": "front"}, "annotations": null},
        "spec": {
            "replicas": 3,
            "ratio": 3.0,
            "big": 18_446_744_073_709_551_615_u64,
            "flag": true,
            "empty": [],
            "containers": [
                {"name": "a", "image": "registry.example.com/a:1", "ports": [{"containerPort": 80}]},
                {"name": "b", "image": "registry.example.com/b:2"},
                {"name": "c", "image": "docker.io/c"}
            ]
        }
    })
}

/// The value as JSON, or the error's text; compile errors begin with their place.
fn run(source: &str) -> Result<Json, String> {
    let scope = Scope::new(&["object", "oldObject"]);
    let program = Program::compile(source, &scope).map_err(|error| error.to_string())?;
    let [object, old_object] = [object(), Json::Null].map(|value| Document::of(&value).unwrap());
    let mut activation = Activation::new(&scope, Limits::default());
    activation.bind("object", Value::from(&object));
    activation.bind("oldObject", Value::from(&old_object));
    program.evaluate(&activation).and_then(|value| value.to_json()).map_err(|error| error.to_string())
}

/// Each expression must be true.
fn all_true(expressions: &[&str]) {
    let failed: Vec<String> = expressions
        .iter()
        .map(|source| (source, run(source)))
        .filter(|(_, result)| *result != Ok(Json::Bool(true)))
        .map(|(source, result)| format!("{source}\n    gave {result:?}"))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Each expression must fail with a message that holds this text.
fn all_fail(rows: &[(&str, &str)]) {
    let failed: Vec<String> = rows
        .iter()
        .map(|(source, message)| (source, message, run(source)))
        .filter(|(_, message, result)| !matches!(result, Err(error) if error.contains(*message)))
        .map(|(source, message, result)| format!("{source}\n    wanted {message:?}, gave {result:?}"))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
