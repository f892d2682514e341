//! Whether a live object is as described: only what is described counts, and what we once applied.

use serde_json::{Map, Value};

/// How deep objects are compared; the API server refuses deeper ones.
const MAX_DEPTH: usize = 64;

/// Where a live object differs from the described one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// Nothing to write.
    None,
    /// Only `caBundle` fields differ: the way to the front is broken until they are repaired.
    Bundle,
    /// Something else differs.
    Fields,
}

/// Compares `live` with `described`. Defaults that the server set and fields of others do not count; fields
/// that `manager` applied before and that are described no more do.
pub fn difference(described: &Value, live: &Value, manager: &str) -> Difference {
    if covers(live, described, 0) {
        let leftovers = live
            .pointer("/metadata/managedFields")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter(|entry| {
                entry.get("manager").and_then(Value::as_str) == Some(manager)
                    && entry.get("operation").and_then(Value::as_str) == Some("Apply")
            })
            .filter_map(|entry| entry.get("fieldsV1")?.as_object())
            .any(|owned| has_leftovers(owned, described, 0));
        return if leftovers { Difference::Fields } else { Difference::None };
    }
    let mut relieved = described.clone();
    if let Some(entries) = relieved.get_mut("webhooks").and_then(Value::as_array_mut) {
        for entry in entries {
            if let Some(client) = entry.get_mut("clientConfig").and_then(Value::as_object_mut) {
                client.remove("caBundle");
            }
        }
    }
    if covers(live, &relieved, 0) { Difference::Bundle } else { Difference::Fields }
}

/// Whether everything in `described` is in `live` with the same value.
fn covers(live: &Value, described: &Value, depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return false;
    }
    match (live, described) {
        (Value::Object(live), Value::Object(described)) => {
            described.iter().all(|(key, value)| match live.get(key) {
                Some(live) => covers(live, value, depth + 1),
                // The server drops what is empty.
                None => is_empty(value),
            })
        }
        (Value::Array(live), Value::Array(described)) if is_named(described) => {
            described.iter().all(|item| {
                // Owners of several kinds may share a name, so the first of a name need not be the one.
                let is_it = |there: &&Value| there.get("name") == item.get("name");
                live.iter().filter(is_it).any(|there| covers(there, item, depth + 1))
            })
        }
        (Value::Array(live), Value::Array(described)) => {
            live.len() == described.len()
                && live.iter().zip(described).all(|(live, described)| covers(live, described, depth + 1))
        }
        (live, Value::Null) => is_empty(live),
        (live, described) => live == described,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// Whether a list is one of objects with names, whose order does not matter.
fn is_named(list: &[Value]) -> bool {
    !list.is_empty() && list.iter().all(|item| item.get("name").is_some_and(Value::is_string))
}

/// Whether `owned`, in the form of `managedFields`, names a field that `described` does not have.
fn has_leftovers(owned: &Map<String, Value>, described: &Value, depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return false;
    }
    owned.iter().any(|(key, below)| {
        let there = if let Some(field) = key.strip_prefix("f:") {
            described.get(field)
        } else if let Some(keys) = key.strip_prefix("k:") {
            let Ok(Value::Object(keys)) = serde_json::from_str(keys) else { return false };
            let is_it = |item: &&Value| {
                // Keys that the description leaves to the server's defaults do not tell items apart.
                keys.iter().all(|(key, value)| item.get(key).is_none_or(|there| there == value))
            };
            described.as_array().and_then(|items| items.iter().find(is_it))
        } else {
            // "." stands for the item itself; "v:" and "i:" are within lists that are compared as a whole.
            return false;
        };
        match (there, below.as_object()) {
            (None, _) => true,
            (Some(there), Some(below)) => has_leftovers(below, there, depth + 1),
            (Some(_), None) => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn configuration(bundle: &str) -> Value {
        json!({
            "metadata": {"name": "s", "labels": {"a": "b"}},
            "webhooks": [
                {"name": "x", "clientConfig": {"url": "https://h/", "caBundle": bundle}, "namespaceSelector": {}},
                {"name": "y", "clientConfig": {"url": "https://h/", "caBundle": bundle}, "rules": [{"operations": ["CREATE"]}]},
            ],
        })
    }

    /// As a server gives it back: defaults, another order, fields of others.
    fn live(bundle: &str) -> Value {
        json!({
            "metadata": {"name": "s", "uid": "u", "labels": {"a": "b", "theirs": "c"}},
            "webhooks": [
                {"name": "y", "clientConfig": {"url": "https://h/", "caBundle": bundle}, "rules": [{"operations": ["CREATE"], "scope": "*"}], "timeoutSeconds": 10},
                {"name": "x", "clientConfig": {"url": "https://h/", "caBundle": bundle}, "matchPolicy": "Equivalent"},
            ],
        })
    }

    #[test]
    fn defaults_order_and_fields_of_others_are_no_difference_r05() {
        assert_eq!(difference(&configuration("1"), &live("1"), "m"), Difference::None);
    }

    #[test]
    fn what_differs_is_told_apart() {
        let set = |pointer: &str, value: Value| {
            let mut live = live("1");
            *live.pointer_mut(pointer).unwrap() = value;
            live
        };
        let rows = [
            (
                "the bundle of one entry",
                set("/webhooks/1/clientConfig/caBundle", json!("0")),
                Difference::Bundle,
            ),
            (
                "no bundle at all",
                set("/webhooks/0/clientConfig", json!({"url": "https://h/"})),
                Difference::Bundle,
            ),
            ("another address", set("/webhooks/0/clientConfig/url", json!("https://o/")), Difference::Fields),
            ("an entry is gone", set("/webhooks", json!([live("1")["webhooks"][0]])), Difference::Fields),
            ("a rule was added", set("/webhooks/0/rules", json!([{}, {}])), Difference::Fields),
            ("a label was changed", set("/metadata/labels", json!({"a": "c"})), Difference::Fields),
        ];
        for (what, live, wanted) in rows {
            assert_eq!(difference(&configuration("1"), &live, "m"), wanted, "{what}");
        }
    }

    #[test]
    fn what_we_applied_and_describe_no_more_is_a_difference() {
        let managed = |manager: &str, fields: Value| {
            let mut live = live("1");
            live["metadata"]["managedFields"] =
                json!([{"manager": manager, "operation": "Apply", "fieldsV1": fields}]);
            live
        };
        let entry = |name: &str| json!({"f:webhooks": {format!("k:{{\"name\":\"{name}\"}}"): {".": {}, "f:name": {}}}});
        let rows = [
            ("an entry that is described", managed("m", entry("x")), Difference::None),
            ("an entry that is described no more", managed("m", entry("z")), Difference::Fields),
            ("an entry of somebody else's", managed("o", entry("z")), Difference::None),
            (
                "a label that is described no more",
                managed("m", json!({"f:metadata": {"f:labels": {"f:old": {}}}})),
                Difference::Fields,
            ),
        ];
        for (what, live, wanted) in rows {
            assert_eq!(difference(&configuration("1"), &live, "m"), wanted, "{what}");
        }
    }

    #[test]
    fn bottomless_objects_are_a_difference_not_a_crash() {
        let mut deep = json!({});
        for _ in 0..100 {
            deep = json!({"a": deep});
        }
        assert_eq!(difference(&deep, &deep.clone(), "m"), Difference::Fields);
    }
}
