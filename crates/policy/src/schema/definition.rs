//! The schema that a `CustomResourceDefinition` gives, in the form of the built-in kinds'.
//!
//! Read as the API server reads it to publish and to merge: `x-kubernetes-list-type`, `-list-map-keys` and
//! `-map-type` say how lists and maps merge, `-preserve-unknown-fields` lets fields be that are not declared
//! here and below, an `-embedded-resource` has metadata of its own, and what has no type may be anything.

use serde_json::Value;

use crate::request::{GroupVersionKind, GroupVersionResource};
use crate::schema::api_version::split;
use crate::schema::built_in::BUILT_IN;
use crate::schema::served::Served;
use crate::schema::types::{Key, List, Map, Relation, Scalar, Schema, Type, TypeId, Types};

/// Deepest nesting of a schema.
const MAX_DEPTH: usize = 100;
/// Most types of one version.
const MAX_TYPES: usize = 100_000;

/// An object that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectProblem {
    /// Which of the objects that were given, from 0, Namespaces not counted.
    pub index: usize,
    /// What is wrong with it; its kind and name are said.
    pub message: String,
}

/// What a definition says.
pub(super) struct Definition {
    pub(super) group: String,
    pub(super) kind: String,
    /// Whether versions differ in nothing but `apiVersion`.
    pub(super) unconverted: bool,
    pub(super) versions: Vec<Version>,
}

/// A version that is served.
pub(super) struct Version {
    pub(super) kind: GroupVersionKind,
    pub(super) types: Types,
    pub(super) root: TypeId,
    pub(super) served: Vec<Served>,
}

/// Reads an object; `None` if it is no definition. The error names the definition.
pub(super) fn read(object: &Value) -> Result<Option<Definition>, String> {
    let (group, version) = split(text(object, "apiVersion"));
    if text(object, "kind") != "CustomResourceDefinition" || group != "apiextensions.k8s.io" {
        return Ok(None);
    }
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("without a name");
    if version != "v1" {
        return Err(format!(
            "CustomResourceDefinition {name}: {group}/{version} is not known, use {group}/v1"
        ));
    }
    let text = |pointer: &str| {
        let found = object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        found.ok_or_else(|| format!("CustomResourceDefinition {name}: {pointer} is missing"))
    };
    let (group, kind) = (text("/spec/group")?, text("/spec/names/kind")?);
    let plural = text("/spec/names/plural")?;
    let conversion = object.pointer("/spec/conversion/strategy").and_then(Value::as_str);
    let mut versions = Vec::new();
    for version in object.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten() {
        let Some(label) = version.get("name").and_then(Value::as_str) else { continue };
        if version.get("served").and_then(Value::as_bool) != Some(true) {
            continue;
        }
        let mut reader = Reader::default();
        let root = reader
            .read_root(version.pointer("/schema/openAPIV3Schema"))
            .map_err(|problem| format!("CustomResourceDefinition {name}, version {label}: {problem}"))?;
        let of = |kind: &str| GroupVersionKind {
            group: group.clone(),
            version: label.to_owned(),
            kind: kind.to_owned(),
        };
        let served = |sub_resource: &str, kind: GroupVersionKind| Served {
            resource: GroupVersionResource {
                group: group.clone(),
                version: label.to_owned(),
                resource: plural.clone(),
            },
            sub_resource: sub_resource.to_owned(),
            kind,
        };
        let mut all = vec![served("", of(&kind))];
        if version.pointer("/subresources/status").is_some() {
            all.push(served("status", of(&kind)));
        }
        if version.pointer("/subresources/scale").is_some() {
            let scale = GroupVersionKind {
                group: "autoscaling".to_owned(),
                version: "v1".to_owned(),
                kind: "Scale".to_owned(),
            };
            all.push(served("scale", scale));
        }
        versions.push(Version { kind: of(&kind), types: reader.types, root, served: all });
    }
    Ok(Some(Definition { group, kind, unconverted: matches!(conversion, None | Some("None")), versions }))
}

#[derive(Default)]
struct Reader {
    types: Types,
    any: Option<(TypeId, TypeId)>,
    metadata: Option<TypeId>,
}

impl Reader {
    fn read_root(&mut self, schema: Option<&Value>) -> Result<TypeId, String> {
        let Some(schema) = schema else { return Ok(self.any().1) };
        let mut root = self.read_type(schema, false, 0)?;
        if let Some(map) = &mut root.map {
            self.add_identity(map);
        }
        Ok(self.types.add(root))
    }

    /// The type of a schema; `open` if fields may be that are not declared.
    fn read_type(&mut self, schema: &Value, open: bool, depth: usize) -> Result<Type, String> {
        if depth > MAX_DEPTH {
            return Err(format!("the schema nests deeper than {MAX_DEPTH}"));
        }
        if self.types.len() > MAX_TYPES {
            return Err(format!("the schema has more than {MAX_TYPES} parts"));
        }
        let open = open || marked(schema, "x-kubernetes-preserve-unknown-fields");
        let scalar = |scalar| Ok(Type { scalar: Some(scalar), ..Type::default() });
        match (text(schema, "type"), text(schema, "format")) {
            ("object", _) => Ok(Type { map: Some(self.read_map(schema, open, depth)?), ..Type::default() }),
            ("array", _) => Ok(Type { list: Some(self.read_list(schema, open, depth)?), ..Type::default() }),
            ("integer", _) => scalar(Scalar::Int64),
            ("number", _) => scalar(Scalar::Number),
            ("boolean", _) => scalar(Scalar::Boolean),
            ("string", "" | "byte") => scalar(Scalar::String),
            ("string", _) => scalar(Scalar::Untyped),
            ("", _) => Ok(Type {
                scalar: Some(Scalar::Untyped),
                list: Some(self.read_list(schema, open, depth)?),
                map: Some(self.read_map(schema, open, depth)?),
            }),
            (other, _) => Err(format!("{other} is no type")),
        }
    }

    fn add_type(&mut self, schema: &Value, open: bool, depth: usize) -> Result<TypeId, String> {
        let definition = self.read_type(schema, open, depth + 1)?;
        Ok(self.types.add(definition))
    }

    fn read_map(&mut self, schema: &Value, open: bool, depth: usize) -> Result<Map, String> {
        let mut map = Map { atomic: text(schema, "x-kubernetes-map-type") == "atomic", ..Map::default() };
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            map.fields.push((name.as_str().into(), self.add_type(property, open, depth)?));
        }
        map.fields.sort_by(|(one, _), (other, _)| one.cmp(other));
        if marked(schema, "x-kubernetes-embedded-resource") {
            self.add_identity(&mut map);
        }
        map.others = match schema.get("additionalProperties") {
            Some(Value::Bool(false)) => None,
            Some(values @ Value::Object(_)) => Some(self.add_type(values, open, depth)?),
            Some(_) => Some(self.any().1),
            None if open || map.fields.is_empty() => Some(self.any().1),
            None => None,
        };
        Ok(map)
    }

    fn read_list(&mut self, schema: &Value, open: bool, depth: usize) -> Result<List, String> {
        let Some(items) = schema.get("items") else {
            return Ok(List { items: self.any().0, relation: Relation::Atomic });
        };
        let relation = match text(schema, "x-kubernetes-list-type") {
            "" | "atomic" => Relation::Atomic,
            "set" => Relation::Set,
            "map" => {
                let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                let keys = keys.into_iter().flatten().filter_map(Value::as_str);
                let default =
                    |key: &str| items.get("properties").and_then(|it| it.get(key)?.get("default")).cloned();
                Relation::Map(keys.map(|key| Key { field: key.into(), default: default(key) }).collect())
            }
            other => return Err(format!("{other} is no list type")),
        };
        Ok(List { items: self.add_type(items, open, depth)?, relation })
    }

    /// Gives a map what every object has, in place of what is declared there.
    fn add_identity(&mut self, map: &mut Map) {
        let text = self.types.add(Type { scalar: Some(Scalar::String), ..Type::default() });
        let metadata = match (self.metadata, BUILT_IN.metadata) {
            (Some(known), _) => Some(known),
            (None, Some(id)) => Some(self.types.import(Schema::new(&BUILT_IN.types, id))),
            (None, None) => None,
        };
        self.metadata = metadata;
        let own = [("apiVersion", Some(text)), ("kind", Some(text)), ("metadata", metadata)];
        for (name, id) in own {
            let Some(id) = id else { continue };
            map.fields.retain(|(field, _)| &**field != name);
            map.fields.push((name.into(), id));
        }
        map.fields.sort_by(|(one, _), (other, _)| one.cmp(other));
    }

    /// The types of any value, merging as one and key by key.
    fn any(&mut self) -> (TypeId, TypeId) {
        *self.any.get_or_insert_with(|| self.types.add_untyped())
    }
}

fn text<'v>(schema: &'v Value, field: &str) -> &'v str {
    schema.get(field).and_then(Value::as_str).unwrap_or("")
}

fn marked(schema: &Value, field: &str) -> bool {
    schema.get(field).and_then(Value::as_bool) == Some(true)
}
