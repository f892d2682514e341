//! Objects that tests send about.

use serde_json::{Value, json};

/// A small pod as a user writes it.
#[allow(clippy::needless_pass_by_value)] // reads better with literals
pub fn pod(name: &str, labels: Value, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"containers": [{"name": "app", "image": "registry.example/app:1"}]},
    })
}
