//! The kinds that are known, and their schemas.

use std::collections::HashMap;

use serde_json::Value;

use crate::request::GroupVersionKind;
use crate::schema::built_in::BUILT_IN;
use crate::schema::definition::{self, Definition, ObjectProblem};
use crate::schema::served::{Served, place};
use crate::schema::types::{Schema, TypeId, Types};

/// The kinds that are known: those of Kubernetes, and the custom ones whose definitions were given.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Schemas {
    custom: HashMap<GroupVersionKind, Custom>,
    /// All versions of a custom resource, by group, resource and subresource.
    resources: HashMap<String, Vec<Served>>,
    /// Whether versions of a custom kind differ in nothing but `apiVersion`, by group and kind.
    unconverted: HashMap<(String, String), bool>,
}

/// A version of a custom kind.
#[derive(Debug, PartialEq)]
struct Custom {
    types: Types,
    root: TypeId,
}

/// The schema of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KindSchema<'s> {
    pub(crate) schema: Schema<'s>,
    /// Whether Kubernetes decodes its objects into types of its own, which is stricter than a schema.
    pub(crate) typed: bool,
}

impl Schemas {
    /// The built-in kinds, and those of the given `CustomResourceDefinition` objects. What is not such an object
    /// is passed over. The problems are the definitions that could not be used; of several definitions of a kind
    /// the first counts.
    pub(crate) fn with_definitions(definitions: &[Value]) -> (Self, Vec<ObjectProblem>) {
        let mut schemas = Self::default();
        let mut problems = Vec::new();
        for (index, object) in definitions.iter().enumerate() {
            match definition::read(object) {
                Ok(Some(definition)) => schemas.add(definition),
                Ok(None) => {}
                Err(message) => problems.push(ObjectProblem { index, message }),
            }
        }
        (schemas, problems)
    }

    fn add(&mut self, definition: Definition) {
        let key = (definition.group, definition.kind);
        if self.unconverted.contains_key(&key) {
            return;
        }
        self.unconverted.insert(key, definition.unconverted);
        for version in definition.versions {
            for served in version.served {
                let Served { resource, sub_resource, .. } = &served;
                let place = place(&resource.group, &resource.resource, sub_resource);
                self.resources.entry(place).or_default().push(served);
            }
            self.custom.entry(version.kind).or_insert(Custom { types: version.types, root: version.root });
        }
    }

    /// The schema of a kind, if it is known.
    pub(crate) fn of_kind(&self, kind: &GroupVersionKind) -> Option<KindSchema<'_>> {
        if let Some(id) = BUILT_IN.kinds.get(kind) {
            return Some(KindSchema { schema: Schema::new(&BUILT_IN.types, *id), typed: true });
        }
        let custom = self.custom.get(kind)?;
        Some(KindSchema { schema: Schema::new(&custom.types, custom.root), typed: false })
    }

    /// Returns whether Kubernetes itself has the kind.
    pub(crate) fn is_built_in(group: &str, version: &str, kind: &str) -> bool {
        BUILT_IN.kinds.contains_key(&GroupVersionKind {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        })
    }

    /// The schema of a kind, or what is true of nearly all kinds.
    pub(crate) fn of_kind_or_other(&self, kind: &GroupVersionKind) -> Schema<'_> {
        self.of_kind(kind).map_or_else(|| Schema::new(&BUILT_IN.types, BUILT_IN.other), |known| known.schema)
    }

    /// The schemas of the kinds that a rule may name: `versions` may hold `*`.
    pub(crate) fn of_resource(
        &self,
        group: &str,
        versions: &[String],
        resource: &str,
        sub: &str,
    ) -> Vec<Schema<'_>> {
        let matching: Vec<&Served> = self
            .equivalents(group, resource, sub)
            .iter()
            .filter(|served| served.resource.group == group && served.resource.resource == resource)
            .filter(|served| versions.iter().any(|it| it == "*" || *it == served.resource.version))
            .collect();
        if matching.is_empty() {
            return vec![Schema::new(&BUILT_IN.types, BUILT_IN.other)];
        }
        matching.iter().map(|served| self.of_kind_or_other(&served.kind)).collect()
    }

    /// All resources that hold the same objects as this one, itself among them; none if it is not known.
    pub(crate) fn equivalents(&self, group: &str, resource: &str, sub: &str) -> &[Served] {
        let place = place(group, resource, sub);
        BUILT_IN.resources.get(&place).or_else(|| self.resources.get(&place)).map_or(&[], Vec::as_slice)
    }

    /// Returns whether an object of one kind is one of the other once its `apiVersion` says so.
    pub(crate) fn differ_in_version_only(&self, one: &GroupVersionKind, other: &GroupVersionKind) -> bool {
        if one.kind != other.kind {
            return false;
        }
        if let (Some(left), Some(right)) = (BUILT_IN.kinds.get(one), BUILT_IN.kinds.get(other)) {
            return BUILT_IN.types.alike(*left, *right);
        }
        one.group == other.group
            && self.custom.contains_key(one)
            && self.custom.contains_key(other)
            && self.unconverted.get(&(one.group.clone(), one.kind.clone())) == Some(&true)
    }
}
