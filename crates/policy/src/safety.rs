//! What policies never do, whatever they say.

use serde_json::{Map, Value};

use crate::documents::Documents;
use crate::error::PolicyError;
use crate::request::{Operation, Request};

/// The kubelet's mark on mirror pods, which stand for pods that the API server does not control.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether the review is about a mirror pod, which both doors leave alone.
pub(crate) fn is_mirror_pod(documents: &Documents<'_>) -> Result<bool, PolicyError> {
    if !documents.review.request.is_pod() {
        return Ok(false);
    }
    let object = match documents.object()? {
        Some(object) => Some(object),
        None => documents.old_object()?,
    };
    Ok(object.is_some_and(|object| object.at(&["metadata", "annotations", MIRROR]).is_some()))
}

/// Whether most of the object's spec cannot be changed any more: an existing pod.
pub(crate) fn is_immutable(request: &Request) -> bool {
    request.is_pod() && request.sub_resource.is_empty() && request.operation == Operation::Update
}

/// Takes back what a mutation changed in the spec of an existing pod and the API server would refuse. Images,
/// `activeDeadlineSeconds` and added tolerations stay. Gives the fields of the spec that were restored.
pub(crate) fn restore_immutable(before: &Value, after: &mut Value) -> Vec<String> {
    let empty = Map::new();
    let old = before.get("spec").and_then(Value::as_object).unwrap_or(&empty);
    let new = after.get("spec").and_then(Value::as_object).unwrap_or(&empty);
    let mut restored = Vec::new();
    let mut spec = Map::new();
    for (field, was) in old {
        let is = new.get(field);
        if is == Some(was) {
            spec.insert(field.clone(), was.clone());
            continue;
        }
        let allowed = match (field.as_str(), is) {
            ("activeDeadlineSeconds", Some(is)) => Some(is.clone()),
            ("tolerations", Some(is)) if begins_with(is, was) => Some(is.clone()),
            ("containers" | "initContainers", Some(is)) => Some(with_images_of(was, is)),
            _ => None,
        };
        if allowed.is_none() || allowed.as_ref() != is {
            restored.push(format!("spec.{field}"));
        }
        spec.insert(field.clone(), allowed.unwrap_or_else(|| was.clone()));
    }
    for (field, is) in new.iter().filter(|(field, _)| !old.contains_key(*field)) {
        if matches!(field.as_str(), "activeDeadlineSeconds" | "tolerations") {
            spec.insert(field.clone(), is.clone());
        } else {
            restored.push(format!("spec.{field}"));
        }
    }
    if !restored.is_empty()
        && let Some(object) = after.as_object_mut()
    {
        if before.get("spec").is_some() || !spec.is_empty() {
            object.insert("spec".to_owned(), Value::Object(spec));
        } else {
            object.remove("spec");
        }
    }
    restored
}

fn begins_with(is: &Value, was: &Value) -> bool {
    match (is, was) {
        (Value::Array(is), Value::Array(was)) => is.starts_with(was),
        (Value::Array(_), Value::Null) => true,
        _ => false,
    }
}

/// The containers as they were, with the images that those of the same name have now.
fn with_images_of(was: &Value, is: &Value) -> Value {
    let mut containers = was.clone();
    let Some(entries) = containers.as_array_mut() else { return containers };
    let changed = is.as_array().map(Vec::as_slice).unwrap_or_default();
    for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
        let same = changed.iter().find(|other| other.get("name") == entry.get("name"));
        if let Some(image) = same.and_then(|other| other.get("image")) {
            entry.insert("image".to_owned(), image.clone());
        }
    }
    containers
}
