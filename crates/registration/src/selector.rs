//! Label selectors of live objects, evaluated as the API server does.

use serde_json::{Map, Value};

/// Labels of an object.
pub type Labels = Map<String, Value>;

/// Whether a selector selects these labels. One that is absent or empty selects everything; what cannot be
/// understood in it selects too, as a check had better see too much.
pub(crate) fn selects(selector: Option<&Value>, labels: &Labels) -> bool {
    let Some(selector) = selector else { return true };
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let equal = selector.get("matchLabels").and_then(Value::as_object);
    if !equal.into_iter().flatten().all(|(key, value)| label(key) == value.as_str()) {
        return false;
    }
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    expressions.into_iter().flatten().all(|expression| {
        let Some(key) = expression.get("key").and_then(Value::as_str) else { return true };
        let values = expression.get("values").and_then(Value::as_array);
        let is_listed = |label: &str| values.is_some_and(|values| values.iter().any(|value| value == label));
        match expression.get("operator").and_then(Value::as_str) {
            Some("In") => label(key).is_some_and(is_listed),
            Some("NotIn") => !label(key).is_some_and(is_listed),
            Some("Exists") => label(key).is_some(),
            Some("DoesNotExist") => label(key).is_none(),
            _ => true,
        }
    })
}

/// Labels found at a JSON pointer.
pub fn labels_at(object: &Value, pointer: &str) -> Labels {
    object.pointer(pointer).and_then(Value::as_object).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_select_as_kubernetes_does() {
        let labels = labels_at(&json!({"metadata": {"labels": {"a": "1", "b": "2"}}}), "/metadata/labels");
        let expression = |operator: &str, key: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, wanted) in [
            (json!({}), true),
            (json!({"matchLabels": {"a": "1"}}), true),
            (json!({"matchLabels": {"a": "2"}}), false),
            (json!({"matchLabels": {"c": "1"}}), false),
            (expression("In", "a", &["1", "2"]), true),
            (expression("In", "c", &["1"]), false),
            (expression("NotIn", "a", &["1"]), false),
            (expression("NotIn", "c", &["1"]), true),
            (expression("Exists", "a", &[]), true),
            (expression("DoesNotExist", "a", &[]), false),
            (expression("Unheard", "a", &[]), true),
        ] {
            assert_eq!(selects(Some(&selector), &labels), wanted, "{selector}");
        }
        assert!(selects(None, &labels));
    }
}
