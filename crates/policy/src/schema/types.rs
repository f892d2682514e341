//! Types of objects as merging sees them: what a value may be, and how two of them become one.
//!
//! A type allows scalars, lists, maps, or several of these. Types refer to each other by number, so that they
//! can be recursive.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// A type's number among its [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TypeId(usize);

/// Scalars. Those from [`Scalar::Untyped`] on allow any scalar as far as merging is concerned, and are looked at
/// more closely when the object is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Int32,
    Int64,
    Number,
    String,
    Boolean,
    /// Base64.
    Bytes,
    Untyped,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
}

/// What a value may be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Type {
    pub(crate) scalar: Option<Scalar>,
    pub(crate) list: Option<List>,
    pub(crate) map: Option<Map>,
}

/// A list and how it merges.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct List {
    pub(crate) items: TypeId,
    pub(crate) relation: Relation,
}

/// What the items of a list are to each other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Relation {
    /// The list is one value.
    Atomic,
    /// Every value stands once.
    Set,
    /// Items are told apart by keys.
    Map(Vec<Key>),
}

/// A key of a list's items.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    /// Name of the field.
    pub(crate) field: Box<str>,
    /// What a missing field counts as. For a required field Kubernetes takes the empty value.
    pub(crate) default: Option<Value>,
}

impl Key {
    /// What a missing field counts as when it is the author's intent: `TCP` is, an empty name is not.
    pub(crate) fn meant(&self) -> Option<&Value> {
        self.default.as_ref().filter(|default| match default {
            Value::String(text) => !text.is_empty(),
            Value::Number(number) => number.as_f64() != Some(0.0),
            _ => true,
        })
    }
}

/// Named fields, or any keys, or both.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Map {
    /// What Kubernetes calls it, with its package: `v1.ContainerPort`.
    pub(crate) name: Option<Box<str>>,
    /// In the order of their names.
    pub(crate) fields: Vec<(Box<str>, TypeId)>,
    /// The type of other keys; none are allowed without it.
    pub(crate) others: Option<TypeId>,
    /// Whether the map is one value.
    pub(crate) atomic: bool,
}

impl Map {
    pub(crate) fn field(&self, name: &str) -> Option<TypeId> {
        self.declared(name).map(|(_, id)| id)
    }

    /// A field by its name, with that name.
    pub(crate) fn declared(&self, name: &str) -> Option<(&str, TypeId)> {
        let at = self.fields.binary_search_by(|(field, _)| (**field).cmp(name)).ok()?;
        self.fields.get(at).map(|(name, id)| (&**name, *id))
    }

    /// The type of what stands under a key, declared or not.
    pub(crate) fn entry(&self, name: &str) -> Option<TypeId> {
        self.field(name).or(self.others)
    }
}

/// Types that refer to each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Types {
    types: Vec<Type>,
}

/// One of the [`Types`], with the others at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schema<'t> {
    types: &'t Types,
    id: TypeId,
}

impl Types {
    /// Takes up a type that allows nothing; [`Types::set`] says later what it is.
    pub(crate) fn reserve(&mut self) -> TypeId {
        self.add(Type::default())
    }

    pub(crate) fn add(&mut self, definition: Type) -> TypeId {
        self.types.push(definition);
        TypeId(self.types.len() - 1)
    }

    pub(crate) fn set(&mut self, id: TypeId, definition: Type) {
        if let Some(place) = self.types.get_mut(id.0) {
            *place = definition;
        }
    }

    pub(crate) fn get(&self, id: TypeId) -> Option<&Type> {
        self.types.get(id.0)
    }

    pub(crate) fn len(&self) -> usize {
        self.types.len()
    }

    /// The type of any value that merges as one, and of any value whose maps merge key by key.
    pub(crate) fn add_untyped(&mut self) -> (TypeId, TypeId) {
        let (untyped, any) = (self.reserve(), self.reserve());
        let list = |items| Some(List { items, relation: Relation::Atomic });
        let map = |others, atomic| Some(Map { others: Some(others), atomic, ..Map::default() });
        let scalar = Some(Scalar::Untyped);
        self.set(untyped, Type { scalar, list: list(untyped), map: map(untyped, true) });
        self.set(any, Type { scalar, list: list(untyped), map: map(any, false) });
        (untyped, any)
    }

    /// Copies a type of other types, and those it refers to.
    pub(crate) fn import(&mut self, schema: Schema<'_>) -> TypeId {
        let mut known = HashMap::new();
        self.import_once(schema, &mut known)
    }

    fn import_once(&mut self, schema: Schema<'_>, known: &mut HashMap<TypeId, TypeId>) -> TypeId {
        if let Some(id) = known.get(&schema.id) {
            return *id;
        }
        let id = self.reserve();
        known.insert(schema.id, id);
        let Some(source) = schema.definition() else { return id };
        let mut copy = source.clone();
        if let Some(list) = &mut copy.list {
            list.items = self.import_once(schema.at(list.items), known);
        }
        if let Some(map) = &mut copy.map {
            for (_, field) in &mut map.fields {
                *field = self.import_once(schema.at(*field), known);
            }
            map.others = map.others.map(|others| self.import_once(schema.at(others), known));
        }
        self.set(id, copy);
        id
    }

    /// Returns whether two types are the same in all but their numbers.
    pub(crate) fn alike(&self, left: TypeId, right: TypeId) -> bool {
        let (mut seen, mut pending) = (HashSet::new(), vec![(left, right)]);
        while let Some((left, right)) = pending.pop() {
            if left == right || !seen.insert((left, right)) {
                continue;
            }
            let (Some(one), Some(other)) = (self.get(left), self.get(right)) else { return false };
            if one.scalar != other.scalar {
                return false;
            }
            match (&one.list, &other.list) {
                (None, None) => {}
                (Some(one), Some(other)) if one.relation == other.relation => {
                    pending.push((one.items, other.items));
                }
                _ => return false,
            }
            match (&one.map, &other.map) {
                (None, None) => {}
                (Some(one), Some(other))
                    if one.atomic == other.atomic
                        && one.others.is_some() == other.others.is_some()
                        && one.fields.len() == other.fields.len() =>
                {
                    pending.extend(one.others.zip(other.others));
                    for ((name, field), (other_name, other_field)) in one.fields.iter().zip(&other.fields) {
                        if name != other_name {
                            return false;
                        }
                        pending.push((*field, *other_field));
                    }
                }
                _ => return false,
            }
        }
        true
    }
}

impl<'t> Schema<'t> {
    pub(crate) fn new(types: &'t Types, id: TypeId) -> Self {
        Self { types, id }
    }

    pub(crate) fn at(self, id: TypeId) -> Self {
        Self { id, ..self }
    }

    fn definition(self) -> Option<&'t Type> {
        self.types.get(self.id)
    }

    pub(crate) fn scalar(self) -> Option<Scalar> {
        self.definition().and_then(|definition| definition.scalar)
    }

    pub(crate) fn list(self) -> Option<&'t List> {
        self.definition().and_then(|definition| definition.list.as_ref())
    }

    pub(crate) fn map(self) -> Option<&'t Map> {
        self.definition().and_then(|definition| definition.map.as_ref())
    }

    /// The type of the items, if it is that of a list.
    pub(crate) fn items(self) -> Option<Self> {
        self.list().map(|list| self.at(list.items))
    }

    /// The type of what stands under a key, if that may be.
    pub(crate) fn entry(self, name: &str) -> Option<Self> {
        self.map().and_then(|map| map.entry(name)).map(|id| self.at(id))
    }
}
