//! Merging the partial object of an `ApplyConfiguration` as Kubernetes' server-side apply does.
//!
//! Maps merge key by key and nothing is ever removed. Items of a set or of a keyed list merge with those they
//! equal; where both lists have items in common, these stand in the order of the partial object, and its new
//! items before the next that both have. Items that are there twice give way to one of the partial object.

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;

use serde_json::{Map, Value};

use crate::configuration::{ConfigurationError, Node};
use crate::conformance::{self, identity};
use crate::request::GroupVersionKind;
use crate::schema::{Key, List, Relation, Schema, Schemas};

/// Merges the fields of an `Object{…}` into an object of a kind; whether that changed anything. An object that
/// cannot take them stays as it is.
pub(crate) fn apply_configuration(
    target: &mut Value,
    fields: Vec<(String, Node)>,
    kind: &GroupVersionKind,
    schemas: &Schemas,
) -> Result<bool, ConfigurationError> {
    let known = schemas.of_kind(kind).ok_or_else(|| ConfigurationError::UnknownKind(kind.to_string()))?;
    let mut node = Node::Map(fields);
    conformance::check(&node, known.schema)?;
    if known.typed {
        conformance::decode(&mut node, known.schema, &kind.to_string())?;
    } else {
        // An object of a custom kind is looked at by nobody else before this.
        let original = Node::from_json(target, 0).ok_or(ConfigurationError::TooDeep)?;
        conformance::check_original(&original, known.schema)?;
    }
    let Node::Map(fields) = node else { return Ok(false) };
    Ok(apply(target, fields, known.schema))
}

/// Merges fields that have been checked into an object; whether that changed anything.
fn apply(target: &mut Value, fields: Vec<(String, Node)>, schema: Schema<'_>) -> bool {
    let mut merging = Merging { changed: false };
    *target = merging.value(mem::take(target), Node::Map(fields), Some(schema));
    merging.changed
}

struct Merging {
    changed: bool,
}

impl Merging {
    fn value(&mut self, existing: Value, node: Node, schema: Option<Schema<'_>>) -> Value {
        match (existing, node) {
            (Value::Object(existing), Node::Map(fields))
                if !existing.is_empty() && !schema.and_then(Schema::map).is_some_and(|map| map.atomic) =>
            {
                Value::Object(self.map(existing, fields, schema))
            }
            (Value::Array(existing), Node::List(items)) if !(existing.is_empty() && items.is_empty()) => {
                match schema.and_then(Schema::list) {
                    Some(list) if list.relation != Relation::Atomic => {
                        Value::Array(self.list(existing, items, list, schema))
                    }
                    _ => self.replace(Value::Array(existing), Node::List(items)),
                }
            }
            // Null leaves lists and maps be.
            (existing @ (Value::Object(_) | Value::Array(_)), Node::Null) => existing,
            (existing, node) => self.replace(existing, node),
        }
    }

    fn replace(&mut self, existing: Value, node: Node) -> Value {
        let value = node.into_json();
        if existing == value {
            return existing;
        }
        self.changed = true;
        value
    }

    fn map(
        &mut self,
        mut existing: Map<String, Value>,
        fields: Vec<(String, Node)>,
        schema: Option<Schema<'_>>,
    ) -> Map<String, Value> {
        for (name, node) in fields {
            let below = schema.and_then(|schema| schema.entry(&name));
            match existing.get_mut(&name) {
                Some(place) => *place = self.value(mem::take(place), node, below),
                None if node == Node::Null => {}
                None => {
                    existing.insert(name, node.into_json());
                    self.changed = true;
                }
            }
        }
        existing
    }

    fn list(
        &mut self,
        existing: Vec<Value>,
        items: Vec<Node>,
        list: &List,
        schema: Option<Schema<'_>>,
    ) -> Vec<Value> {
        let below = schema.and_then(Schema::items);
        let mut left = Left::new(existing, list);
        let keyed: Vec<(String, Node)> =
            items.into_iter().filter_map(|item| Some((identity(&item, list).ok()??, item))).collect();
        let right: HashSet<String> = keyed.iter().map(|(key, _)| key.clone()).collect();
        let mut shared: VecDeque<String> =
            keyed.iter().map(|(key, _)| key).filter(|key| left.first.contains_key(*key)).cloned().collect();
        let mut next_shared = shared.pop_front();
        let mut merged: HashSet<String> = HashSet::new();
        let mut out = Vec::with_capacity(left.items.len() + keyed.len());
        let mut keyed = keyed.into_iter().peekable();
        let mut at = 0;
        loop {
            let ours = left.keys.get(at);
            let in_both = ours.is_some_and(|ours| ours.as_ref().is_some_and(|ours| right.contains(ours)));
            let ours = ours.and_then(Option::as_ref);
            let same = ours.is_some() && ours == keyed.peek().map(|(key, _)| key);
            if at < left.keys.len() && !same {
                if !in_both {
                    out.extend(left.take(at));
                    at += 1;
                    continue;
                }
                // Not the common item that comes next: it stands where the partial object has it.
                if keyed.peek().is_some() && next_shared.is_some() && ours != next_shared.as_ref() {
                    at += 1;
                    continue;
                }
                // One of several that the partial object has replaced.
                if ours.is_some_and(|ours| merged.contains(ours)) {
                    at += 1;
                }
            }
            let Some((key, item)) = keyed.next() else {
                if at < left.keys.len() {
                    continue;
                }
                break;
            };
            out.push(self.item(left.first_of(&key), item, out.len(), below));
            if same {
                at += 1;
            }
            if next_shared.as_ref() == Some(&key) {
                next_shared = shared.pop_front();
            }
            merged.insert(key);
        }
        self.changed |= out.len() != left.items.len();
        out
    }

    /// An item of a list, at its new place.
    fn item(
        &mut self,
        existing: Option<(usize, Value)>,
        node: Node,
        at: usize,
        schema: Option<Schema<'_>>,
    ) -> Value {
        if let Some((was, existing)) = existing {
            self.changed |= was != at;
            self.value(existing, node, schema)
        } else {
            self.changed = true;
            node.into_json()
        }
    }
}

/// As much of an item as tells it from the others.
fn keys_only(item: &Value, list: &List) -> Option<Node> {
    let (Relation::Map(keys), Value::Object(fields)) = (&list.relation, item) else {
        return Node::from_json(item, 0);
    };
    let key = |key: &Key| {
        let (name, value) = fields.get_key_value(&*key.field)?;
        Some(Node::from_json(value, 1).map(|value| (name.clone(), value)))
    };
    keys.iter().filter_map(key).collect::<Option<_>>().map(Node::Map)
}

/// The items that are there already.
struct Left {
    items: Vec<Option<Value>>,
    /// What tells them from each other; `None` for what has no key and so stays where it is.
    keys: Vec<Option<String>>,
    /// The place of each key, `None` if it has several.
    first: HashMap<String, Option<usize>>,
}

impl Left {
    fn new(items: Vec<Value>, list: &List) -> Self {
        let key = |item| keys_only(item, list).and_then(|item| identity(&item, list).ok().flatten());
        let keys: Vec<Option<String>> = items.iter().map(key).collect();
        let mut first: HashMap<String, Option<usize>> = HashMap::new();
        for (index, key) in keys.iter().enumerate() {
            let Some(key) = key else { continue };
            first.entry(key.clone()).and_modify(|place| *place = None).or_insert(Some(index));
        }
        Self { items: items.into_iter().map(Some).collect(), keys, first }
    }

    fn take(&mut self, at: usize) -> Option<Value> {
        self.items.get_mut(at).and_then(Option::take)
    }

    /// The item with a key that no other has.
    fn first_of(&mut self, key: &str) -> Option<(usize, Value)> {
        let at = (*self.first.get(key)?)?;
        Some((at, self.take(at)?))
    }
}
