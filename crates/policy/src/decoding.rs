//! What the API server does to an object of its own kinds after a JSON patch: it decodes it into types, which
//! refuses unknown fields, and encodes it anew, which drops empty maps. The next mutation sees the result.

use std::collections::HashSet;

use serde_json::Value;

use crate::error::PolicyError;
use crate::request::GroupVersionKind;
use crate::schema::{Schema, Schemas};

/// Most unknown fields that are written down.
const MAX_UNKNOWN: usize = 16;

/// Decodes and encodes an object made from `original`. Fields that are unknown in that one already are younger
/// than the schema, and known to the API server that sent them.
pub(crate) fn decode(
    object: &mut Value,
    original: &Value,
    kind: &GroupVersionKind,
    schemas: &Schemas,
) -> Result<(), PolicyError> {
    let Some(known) = schemas.of_kind(kind).filter(|known| known.typed) else { return Ok(()) };
    let mut unknown = Vec::new();
    find_unknown(object, known.schema, &mut Place::default(), &mut unknown);
    if !unknown.is_empty() {
        let mut younger = Vec::new();
        find_unknown(original, known.schema, &mut Place::default(), &mut younger);
        let younger: HashSet<String> = younger.into_iter().map(|place| place.fields).collect();
        let problems: Vec<String> = unknown
            .iter()
            .filter(|place| !younger.contains(&place.fields))
            .take(MAX_UNKNOWN)
            .map(|place| format!("unknown field {:?}", place.path))
            .collect();
        if !problems.is_empty() {
            return Err(PolicyError::Decoding(problems.join(", ")));
        }
    }
    drop_empty_maps(object, known.schema);
    Ok(())
}

/// Where a field stands.
#[derive(Clone, Debug, Default)]
struct Place {
    /// With the indices of lists.
    path: String,
    /// Without them.
    fields: String,
}

impl Place {
    fn within<T>(&mut self, field: &str, index: Option<usize>, act: impl FnOnce(&mut Self) -> T) -> T {
        let lengths = (self.path.len(), self.fields.len());
        match index {
            Some(index) => self.path.extend(["[", &index.to_string(), "]"]),
            None => {
                for text in [&mut self.path, &mut self.fields] {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(field);
                }
            }
        }
        let result = act(self);
        self.path.truncate(lengths.0);
        self.fields.truncate(lengths.1);
        result
    }
}

fn find_unknown(value: &Value, schema: Schema<'_>, place: &mut Place, found: &mut Vec<Place>) {
    match value {
        Value::Object(fields) if schema.map().is_some() => {
            for (name, value) in fields {
                place.within(name, None, |place| match schema.entry(name) {
                    Some(below) => find_unknown(value, below, place, found),
                    None => found.push(place.clone()),
                });
            }
        }
        Value::Array(items) => {
            let Some(below) = schema.items() else { return };
            for (index, item) in items.iter().enumerate() {
                place.within("", Some(index), |place| find_unknown(item, below, place, found));
            }
        }
        _ => {}
    }
}

/// Maps with keys of the author's choice; an empty object with named fields means something.
fn drop_empty_maps(value: &mut Value, schema: Schema<'_>) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let Some(below) = schema.entry(name) else { return true };
            drop_empty_maps(value, below);
            let of_any_keys = below.map().is_some_and(|map| map.fields.is_empty() && map.others.is_some());
            let untyped = below.scalar().is_some() || below.list().is_some();
            untyped || !of_any_keys || value.as_object().is_none_or(|map| !map.is_empty())
        }),
        Value::Array(items) => {
            let Some(below) = schema.items() else { return };
            for item in items {
                drop_empty_maps(item, below);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::decode;
    use crate::request::GroupVersionKind;
    use crate::schema::Schemas;

    fn decoded(kind: &str, original: &Value, object: &Value) -> Result<Value, String> {
        let version = if kind == "Pod" { "v1" } else { "v9" };
        let kind =
            GroupVersionKind { group: String::new(), version: version.to_owned(), kind: kind.to_owned() };
        let mut object = object.clone();
        decode(&mut object, original, &kind, &Schemas::default()).map_err(|error| error.to_string())?;
        Ok(object)
    }

    #[test]
    fn maps_that_are_empty_go_and_structs_stay() {
        let object = json!({"metadata": {"labels": {}, "annotations": {"a": "b"}}, "spec": {
            "nodeSelector": {}, "securityContext": {}, "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{"name": "c", "resources": {"limits": {}, "requests": {"cpu": "1"}}}]}});
        let expected = json!({"metadata": {"annotations": {"a": "b"}}, "spec": {
            "securityContext": {}, "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        assert_eq!(decoded("Pod", &json!({}), &object), Ok(expected));
        assert_eq!(decoded("Unheard", &json!({}), &object), Ok(object));
    }

    #[test]
    fn unknown_fields_are_refused_unless_the_api_server_sent_them() {
        let with = |containers: Value| json!({"spec": {"containers": containers}});
        let old = with(json!([{"name": "a", "younger": 1}]));
        let moved = with(json!([{"name": "b"}, {"name": "a", "younger": 2}]));
        assert_eq!(decoded("Pod", &old, &moved), Ok(moved.clone()));
        let problem = "strict decoding error: unknown field \"spec.containers[1].younger\"";
        assert_eq!(decoded("Pod", &with(json!([])), &moved), Err(problem.to_owned()));
    }
}
