//! AdmissionReviews in the shape in which the API server sends them.

use serde_json::{Value, json};

pub const UID: &str = "5c7e2f1a-8a51-11f0-9d5e-0242ac120002";

/// The CREATE of a small Pod, by a controller, as `admission.k8s.io/v1`.
pub fn review() -> Value {
    json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "",
            "namespace": "garden",
            "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kube-system:replicaset-controller",
                "uid": "90b1c7a2-0000-4000-8000-000000000001",
                "groups": ["system:serviceaccounts", "system:authenticated"],
                "extra": {"authentication.kubernetes.io/credential-id": ["JTI=1", "JTI=2"], "none": []},
            },
            "object": pod(),
            "oldObject": null,
            "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

pub fn pod() -> Value {
    json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "generateName": "rose-6d5f-",
            "labels": {"app": "rose", "app.kubernetes.io/name": "rose"},
            "annotations": {"a/b~c": "x"},
        },
        "spec": {
            "containers": [{"name": "rose", "image": "rose:1"}],
            "initContainers": [{"name": "water", "image": "water:1", "restartPolicy": "Always"}],
        },
    })
}

/// The review with one field of `request` set.
pub fn with(field: &str, value: Value) -> Value {
    let mut review = review();
    review["request"][field] = value;
    review
}

/// The review with the object given as text, byte for byte.
pub fn with_object_text(object: &str) -> Vec<u8> {
    let placeholder = "\"put-the-object-here\"";
    let text = with("object", json!("put-the-object-here")).to_string();
    assert_eq!(text.matches(placeholder).count(), 1);
    text.replace(placeholder, object).into_bytes()
}

pub fn bytes(review: &Value) -> Vec<u8> {
    serde_json::to_vec(review).unwrap()
}

/// A review of exactly `size` bytes; the object is what makes it large.
pub fn sized(size: usize) -> Vec<u8> {
    let text =
        |filler: usize| with_object_text(&format!(r#"{{"kind":"Pod","filler":"{}"}}"#, "x".repeat(filler)));
    let bare = text(0).len();
    let body = text(size - bare);
    assert_eq!(body.len(), size);
    body
}
