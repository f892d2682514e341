//! What policies never do, whatever they say.

use std::collections::{HashMap, HashSet};

use sallyport_document::Node;
use serde_json::{Map, Value};

use crate::error::PolicyError;
use crate::request::{Operation, Request};
use crate::review::documents::Documents;

/// The kubelet's mark on mirror pods, which stand for pods that the API server does not control.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Returns whether the review is about a mirror pod, which both doors leave alone.
///
/// A client puts the mark on whatever it sends: on an Eviction, or on a pod of which a subresource takes another
/// part. So it counts on pods alone, and only if the pod that was there has it too: of an existing pod it can be
/// neither added nor removed.
pub(crate) fn is_mirror_pod(documents: &Documents<'_>) -> Result<bool, PolicyError> {
    let request = documents.review.request;
    if !request.is_pod() || request.kind.kind != "Pod" {
        return Ok(false);
    }
    let object = documents.object()?;
    if object.is_some_and(|object| !is_marked(object)) {
        return Ok(false);
    }
    // Only now, as it has to be read for this.
    let old_object = documents.old_object()?;
    Ok(old_object.or(object).is_some_and(is_marked))
}

fn is_marked(pod: Node<'_>) -> bool {
    pod.at(&["metadata", "annotations", MIRROR]).is_some()
}

/// Returns whether most of the object's spec cannot be changed any more: an existing pod.
pub(crate) fn is_immutable(request: &Request) -> bool {
    request.is_pod() && request.sub_resource.is_empty() && request.operation == Operation::Update
}

/// Takes back what a mutation changed in the spec of an existing pod and the API server would refuse. Images,
/// `activeDeadlineSeconds`, added tolerations and removed scheduling gates stay. Gives the fields of the spec
/// that were restored.
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
            ("schedulingGates", None) => continue,
            ("schedulingGates", Some(is)) if is_among(is, was) => Some(is.clone()),
            ("activeDeadlineSeconds", Some(is)) => Some(is.clone()),
            ("tolerations", Some(is)) if begins_with(is, was) => Some(is.clone()),
            ("containers" | "initContainers", Some(is)) => Some(copy_images(was, is)),
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

/// Returns whether nothing is in a list that was not in it before.
fn is_among(is: &Value, was: &Value) -> bool {
    match (is, was) {
        (Value::Null, _) => true,
        (Value::Array(is), Value::Array(was)) => {
            let was: HashSet<&Value> = was.iter().collect();
            is.iter().all(|item| was.contains(item))
        }
        _ => false,
    }
}

/// The containers as they were, with the images that those of the same name have now.
fn copy_images(was: &Value, is: &Value) -> Value {
    let mut containers = was.clone();
    let Some(entries) = containers.as_array_mut() else { return containers };
    let changed = is.as_array().map(Vec::as_slice).unwrap_or_default();
    // From the end, as of several that share a name the first counts.
    let images: HashMap<Option<&Value>, Option<&Value>> =
        changed.iter().rev().map(|container| (container.get("name"), container.get("image"))).collect();
    for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
        if let Some(image) = images.get(&entry.get("name")).copied().flatten() {
            entry.insert("image".to_owned(), image.clone());
        }
    }
    containers
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::copy_images;

    #[test]
    fn images_are_those_of_the_same_name_and_of_several_the_first() {
        let was = json!([{"name": "a", "image": "1", "command": ["x"]}, {"name": "b", "image": "1"},
                         {"image": "1"}, {"name": "d", "image": "1"}, "text"]);
        let is = json!([{"name": "c", "image": "2"}, {"name": "a", "image": "3"}, {"name": "a", "image": "4"},
                        {"image": "5"}, {"name": "d"}, {"name": "d", "image": "6"}]);
        let expected = json!([{"name": "a", "image": "3", "command": ["x"]}, {"name": "b", "image": "1"},
                              {"image": "5"}, {"name": "d", "image": "1"}, "text"]);
        assert_eq!(copy_images(&was, &is), expected);
        assert_eq!(copy_images(&was, &json!("text")), was);
    }
}
