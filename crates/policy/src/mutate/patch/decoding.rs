//! What the API server does to an object of its own kinds after a JSON patch: it decodes it into types, which
//! refuses unknown fields and values of another type, and encodes it anew, which drops empty maps. The next
//! mutation sees the result.

use std::collections::HashSet;

use sallyport_document::{Part, Tree};
use serde_json::Value;

use crate::error::PolicyError;
use crate::mutate::configuration::conformance::{decode_scalar, find_base64_fault};
use crate::mutate::configuration::value::Node;
use crate::request::GroupVersionKind;
use crate::schema::{Map, Scalar, Schema, Schemas, split};

/// Most unknown fields that are written down.
const MAX_UNKNOWN: usize = 16;

/// Decodes and encodes an object made from `original`. Fields that are unknown in that one already are younger
/// than the schema, and known to the API server that sent them.
pub(crate) fn decode(
    object: &mut Tree<'_>,
    original: Part<'_>,
    kind: &GroupVersionKind,
    schemas: &Schemas,
) -> Result<(), PolicyError> {
    let part = object.part();
    let named = named_kind(part);
    let kind = named.as_ref().unwrap_or(kind);
    let Some(known) = schemas.of_kind(kind).filter(|known| known.typed) else { return Ok(()) };
    if let Some(problem) = find_mistyped(part, known.schema, &mut Field::default()) {
        return Err(PolicyError::Undecodable(problem));
    }
    let mut unknown = Vec::new();
    find_unknown(part, known.schema, &mut Place::default(), &mut unknown);
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
    if has_empty_maps(part, known.schema) {
        let mut value = part.to_value();
        drop_empty_maps(&mut value, known.schema);
        *object = Tree::Made(value);
    }
    Ok(())
}

/// The kind that an object says it is of.
fn named_kind(object: Part<'_>) -> Option<GroupVersionKind> {
    let (group, version) = split(object.get("apiVersion")?.as_str()?);
    let kind = object.get("kind")?.as_str()?.to_owned();
    Some(GroupVersionKind { group: group.to_owned(), version: version.to_owned(), kind })
}

/// A field as the decoder names it.
#[derive(Debug, Default)]
struct Field<'s> {
    /// Of the innermost structure.
    structure: &'s str,
    /// Names of fields, without the indices of lists and the keys of maps.
    path: Vec<&'s str>,
}

impl Field<'_> {
    fn refuse(&self, value: &str, wanted: &str) -> String {
        let Self { structure, path } = self;
        let path = path.join(".");
        format!("json: cannot unmarshal {value} into Go struct field {structure}.{path} of type {wanted}")
    }
}

/// The first value that is not of its field's type, in the words of the API server's decoder. Named types of Go
/// that are texts are not known here and are called `string`.
fn find_mistyped<'s>(part: Part<'_>, schema: Schema<'s>, field: &mut Field<'s>) -> Option<String> {
    if part.is_null() {
        return None;
    }
    match (schema.scalar(), schema.list(), schema.map()) {
        (Some(Scalar::Untyped), ..) | (None, None, None) => None,
        (Some(scalar), ..) => mistyped_scalar(part, scalar, field),
        (None, Some(_), _) if part.is_list() => {
            let below = schema.items()?;
            part.items()?.into_iter().find_map(|item| find_mistyped(item, below, field))
        }
        (None, _, Some(map)) if part.is_object() => {
            let outer = field.structure;
            if let Some(name) = &map.name {
                field.structure = name.rsplit('.').next().unwrap_or(name);
            }
            let mut found = None;
            part.each_member(|name, value| {
                if found.is_some() {
                    return;
                }
                let Some((name, id)) = map.declared(name) else {
                    found = map.others.and_then(|others| find_mistyped(value, schema.at(others), field));
                    return;
                };
                field.path.push(name);
                found = find_mistyped(value, schema.at(id), field);
                field.path.pop();
            });
            field.structure = outer;
            found
        }
        _ => Some(field.refuse(kind_of(&part.to_value()), &go_type(schema))),
    }
}

fn mistyped_scalar(part: Part<'_>, scalar: Scalar, field: &Field<'_>) -> Option<String> {
    if scalar == Scalar::String && part.as_str().is_some() {
        return None;
    }
    let value = part.to_value();
    match (scalar, &value) {
        (Scalar::Boolean, Value::Bool(_)) | (Scalar::Number, Value::Number(_)) => None,
        (Scalar::Bytes, Value::String(text)) => {
            find_base64_fault(text).map(|at| format!("illegal base64 data at input byte {at}"))
        }
        (Scalar::Int32 | Scalar::Int64, Value::Number(number)) => {
            let fits = number
                .as_i64()
                .is_some_and(|number| scalar == Scalar::Int64 || i32::try_from(number).is_ok());
            (!fits).then(|| field.refuse(&format!("number {number}"), go_scalar(scalar)))
        }
        (Scalar::Quantity | Scalar::IntOrString | Scalar::Time | Scalar::MicroTime, value) => {
            decode_scalar(&mut Node::from_json(value, 0)?, scalar).err()
        }
        (scalar, value) => Some(field.refuse(kind_of(value), go_scalar(scalar))),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn go_scalar(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Int32 => "int32",
        Scalar::Int64 => "int64",
        Scalar::Number => "float64",
        Scalar::Boolean => "bool",
        Scalar::Bytes => "[]uint8",
        Scalar::String
        | Scalar::Untyped
        | Scalar::Quantity
        | Scalar::IntOrString
        | Scalar::Time
        | Scalar::MicroTime => "string",
    }
}

/// The type of a list, a map or a structure as Go writes it.
fn go_type(schema: Schema<'_>) -> String {
    if let Some(scalar) = schema.scalar() {
        return go_scalar(scalar).to_owned();
    }
    if let Some(items) = schema.items() {
        return format!("[]{}", go_type(items));
    }
    match schema.map() {
        Some(Map { name: Some(name), .. }) => name.to_string(),
        Some(Map { others: Some(others), .. }) => format!("map[string]{}", go_type(schema.at(*others))),
        _ => "interface {}".to_owned(),
    }
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

fn find_unknown(part: Part<'_>, schema: Schema<'_>, place: &mut Place, found: &mut Vec<Place>) {
    if part.is_object() && schema.map().is_some() {
        part.each_member(|name, value| {
            place.within(name, None, |place| match schema.entry(name) {
                Some(below) => find_unknown(value, below, place, found),
                None => found.push(place.clone()),
            });
        });
    } else if let Some(below) = schema.items()
        && let Some(items) = part.items()
    {
        for (index, item) in items.into_iter().enumerate() {
            place.within("", Some(index), |place| find_unknown(item, below, place, found));
        }
    }
}

/// Returns whether there is something for [`drop_empty_maps`] to drop.
fn has_empty_maps(part: Part<'_>, schema: Schema<'_>) -> bool {
    if let Some(below) = schema.items()
        && let Some(items) = part.items()
    {
        return items.into_iter().any(|item| has_empty_maps(item, below));
    }
    let mut found = false;
    part.each_member(|name, value| {
        if let Some(below) = schema.entry(name).filter(|_| !found) {
            found =
                is_droppable(below) && value.is_object() && value.is_empty() || has_empty_maps(value, below);
        }
    });
    found
}

/// Returns whether a map of this type has keys of the author's choice; an empty object with named fields means
/// something.
fn is_droppable(schema: Schema<'_>) -> bool {
    let of_any_keys = schema.map().is_some_and(|map| map.fields.is_empty() && map.others.is_some());
    of_any_keys && schema.scalar().is_none() && schema.list().is_none()
}

/// Drops empty maps with keys of the author's choice.
fn drop_empty_maps(value: &mut Value, schema: Schema<'_>) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let Some(below) = schema.entry(name) else { return true };
            drop_empty_maps(value, below);
            !is_droppable(below) || value.as_object().is_none_or(|map| !map.is_empty())
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
    use sallyport_document::{Document, Part, Tree};
    use serde_json::{Value, json};

    use super::decode;
    use crate::request::GroupVersionKind;
    use crate::schema::Schemas;

    fn decoded(kind: &str, original: &Value, object: &Value) -> Result<Value, String> {
        let version = if kind == "Pod" { "v1" } else { "v9" };
        let kind =
            GroupVersionKind { group: String::new(), version: version.to_owned(), kind: kind.to_owned() };
        let document = Document::of(object).unwrap();
        // As it was read, and as something that was made before.
        let [read, made] = [Tree::Read(document.root()), Tree::Made(object.clone())].map(|mut tree| {
            decode(&mut tree, Part::Made(original), &kind, &Schemas::default())
                .map_err(|error| error.to_string())?;
            Ok(tree.part().to_value())
        });
        assert_eq!(read, made, "{object}");
        read
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
    fn values_of_another_type_are_refused_in_the_words_of_the_decoder() {
        let rows = [
            (json!({"spec": {"hostNetwork": true, "priority": null, "containers": [{"name": "c"}]}}), None),
            (
                json!({"spec": {"hostNetwork": 1}}),
                Some("number into Go struct field PodSpec.spec.hostNetwork of type bool"),
            ),
            (
                json!({"spec": {"containers": [{"ports": [{"containerPort": "81"}]}]}}),
                Some(
                    "string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
                ),
            ),
            (
                json!({"spec": {"priority": 5_000_000_000_i64}}),
                Some("number 5000000000 into Go struct field PodSpec.spec.priority of type int32"),
            ),
            (
                json!({"metadata": {"labels": {"a": 1}}}),
                Some("number into Go struct field ObjectMeta.metadata.labels of type string"),
            ),
            (
                json!({"spec": {"containers": {}}}),
                Some("object into Go struct field PodSpec.spec.containers of type []v1.Container"),
            ),
            (
                json!({"metadata": {"labels": "a"}}),
                Some("string into Go struct field ObjectMeta.metadata.labels of type map[string]string"),
            ),
        ];
        for (object, problem) in rows {
            let expected = problem.map(|problem| format!("json: cannot unmarshal {problem}"));
            assert_eq!(decoded("Pod", &json!({}), &object).err(), expected, "{object}");
        }
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "1"}});
        let problem = "illegal base64 data at input byte 0".to_owned();
        assert_eq!(decoded("Pod", &json!({}), &secret), Err(problem));
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
