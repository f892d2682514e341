//! The kinds of Kubernetes itself.

use std::collections::HashMap;
use std::slice;
use std::sync::LazyLock;

use crate::request::GroupVersionKind;
use crate::schema::served::{Served, place};
use crate::schema::table;
use crate::schema::types::{Key, List, Map, Relation, Schema, Type, TypeId, Types};

/// The built-in kinds.
#[derive(Debug)]
pub(super) struct BuiltIn {
    pub(super) types: Types,
    pub(super) kinds: HashMap<GroupVersionKind, TypeId>,
    /// The resources that hold the same objects, by group, resource and subresource.
    pub(super) resources: HashMap<String, Vec<Served>>,
    /// What nearly all objects have: metadata, and conditions told apart by their type.
    pub(super) other: TypeId,
    pub(super) metadata: Option<TypeId>,
}

pub(super) static BUILT_IN: LazyLock<BuiltIn> =
    LazyLock::new(|| BuiltIn::new(table::parse(table::TEXT).unwrap_or_default()));

impl BuiltIn {
    fn new(table: table::Table) -> Self {
        let table::Table { mut types, kinds, resources, together } = table;
        let kinds: HashMap<GroupVersionKind, TypeId> = kinds.into_iter().collect();
        let pod = GroupVersionKind { group: String::new(), version: "v1".to_owned(), kind: "Pod".to_owned() };
        let metadata = kinds.get(&pod).and_then(|pod| Schema::new(&types, *pod).map()?.field("metadata"));
        let other = add_other(&mut types, metadata);
        let mut by_place: HashMap<String, Vec<Served>> = HashMap::new();
        for (mut resource, kind) in resources {
            let (name, sub) = match resource.resource.split_once('/') {
                Some((name, sub)) => (name.to_owned(), sub.to_owned()),
                None => (resource.resource.clone(), String::new()),
            };
            resource.resource.clone_from(&name);
            let own = (resource.group.clone(), name.clone());
            let served = Served { resource, sub_resource: sub.clone(), kind };
            // A resource that is stored with others is found in the place of each of them.
            let places = together.iter().find(|group| group.contains(&own));
            let places = places.map_or(slice::from_ref(&own), Vec::as_slice);
            for (group, name) in places {
                by_place.entry(place(group, name, &sub)).or_default().push(served.clone());
            }
        }
        Self { types, kinds, resources: by_place, other, metadata }
    }
}

/// The type of objects of which nothing is known but what nearly all have.
fn add_other(types: &mut Types, metadata: Option<TypeId>) -> TypeId {
    let (_, any) = types.add_untyped();
    let key = Key { field: "type".into(), default: None };
    let conditions = List { items: any, relation: Relation::Map(vec![key]) };
    let conditions = types.add(Type { list: Some(conditions), ..Type::default() });
    let open = |fields: Vec<(Box<str>, TypeId)>| Type {
        map: Some(Map { fields, others: Some(any), ..Map::default() }),
        ..Type::default()
    };
    let status = types.add(open(vec![("conditions".into(), conditions)]));
    let mut fields = vec![("status".into(), status)];
    fields.splice(0..0, metadata.map(|id| ("metadata".into(), id)));
    types.add(open(fields))
}
