//! Merging the partial object of an `ApplyConfiguration` as Kubernetes' server-side apply does.
//!
//! Maps merge key by key and nothing is ever removed. Items of a set or of a keyed list merge with those they
//! equal; where both lists have items in common, these stand in the order of the partial object, and its new
//! items before the next that both have. Items that are there twice give way to one of the partial object.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;

use sallyport_document::{Members, Part, Tree};

use crate::error::ConfigurationError;
use crate::mutate::configuration::conformance::{self, identify};
use crate::mutate::configuration::value::Node;
use crate::mutate::measure::MAX_DEPTH;
use crate::request::GroupVersionKind;
use crate::schema::{Key, List, Relation, Schema, Schemas};

/// Merges the fields of an `Object{…}` into an object of a kind. Returns whether the object changed. An object that
/// cannot take them stays as it is.
pub(crate) fn apply_configuration(
    target: &mut Tree<'_>,
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
        let original =
            Node::from_json(&target.part().to_value(), 0).ok_or(ConfigurationError::TooDeep(MAX_DEPTH))?;
        conformance::check_original(&original, known.schema)?;
    }
    let Node::Map(fields) = node else { return Ok(false) };
    Ok(apply(target, fields, known.schema))
}

/// Merges fields that have been checked into an object. Returns whether the object changed.
fn apply(target: &mut Tree<'_>, fields: Vec<(String, Node)>, schema: Schema<'_>) -> bool {
    let mut merging = Merging { changed: false };
    merging.merge_value(target, Node::Map(fields), Some(schema));
    merging.changed
}

struct Merging {
    changed: bool,
}

impl Merging {
    fn merge_value(&mut self, existing: &mut Tree<'_>, node: Node, schema: Option<Schema<'_>>) {
        let part = existing.part();
        let (is_object, is_list) = (part.is_object(), part.is_list());
        match node {
            Node::Map(fields)
                if is_object
                    && !part.is_empty()
                    && !schema.and_then(Schema::map).is_some_and(|map| map.atomic) =>
            {
                if let Some(existing) = existing.members_mut() {
                    self.merge_map(existing, fields, schema);
                }
            }
            Node::List(items) if is_list && !(part.is_empty() && items.is_empty()) => {
                let list = schema.and_then(Schema::list).filter(|list| list.relation != Relation::Atomic);
                let Some(list) = list else { return self.replace_value(existing, Node::List(items)) };
                if let Some(existing) = existing.items_mut() {
                    *existing = self.merge_list(mem::take(existing), items, list, schema);
                }
            }
            // Null leaves lists and maps be.
            Node::Null if is_object || is_list => {}
            node => self.replace_value(existing, node),
        }
    }

    fn replace_value(&mut self, existing: &mut Tree<'_>, node: Node) {
        let value = node.into_json();
        if existing.part() != value {
            self.changed = true;
            *existing = Tree::Made(value);
        }
    }

    fn merge_map(
        &mut self,
        existing: &mut Members<'_>,
        fields: Vec<(String, Node)>,
        schema: Option<Schema<'_>>,
    ) {
        for (name, node) in fields {
            let below = schema.and_then(|schema| schema.entry(&name));
            match existing.get_mut(name.as_str()) {
                Some(place) => self.merge_value(place, node, below),
                None if node == Node::Null => {}
                None => {
                    existing.insert(Cow::Owned(name), Tree::Made(node.into_json()));
                    self.changed = true;
                }
            }
        }
    }

    fn merge_list<'d>(
        &mut self,
        existing: Vec<Tree<'d>>,
        items: Vec<Node>,
        list: &List,
        schema: Option<Schema<'_>>,
    ) -> Vec<Tree<'d>> {
        let below = schema.and_then(Schema::items);
        let mut left = Left::new(existing, list);
        let keyed: Vec<(String, Node)> =
            items.into_iter().filter_map(|item| Some((identify(&item, list).ok()??, item))).collect();
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
            out.push(self.merge_item(left.take_unique(&key), item, out.len(), below));
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
    fn merge_item<'d>(
        &mut self,
        existing: Option<(usize, Tree<'d>)>,
        node: Node,
        at: usize,
        schema: Option<Schema<'_>>,
    ) -> Tree<'d> {
        if let Some((was, mut existing)) = existing {
            self.changed |= was != at;
            self.merge_value(&mut existing, node, schema);
            existing
        } else {
            self.changed = true;
            Tree::Made(node.into_json())
        }
    }
}

/// As much of an item as tells it from the others.
fn keys_only(item: Part<'_>, list: &List) -> Option<Node> {
    let keys = match &list.relation {
        Relation::Map(keys) if item.is_object() => keys,
        _ => return Node::from_json(&item.to_value(), 0),
    };
    let key = |key: &Key| {
        let value = item.get(&key.field)?.to_value();
        Some(Node::from_json(&value, 1).map(|value| (key.field.to_string(), value)))
    };
    keys.iter().filter_map(key).collect::<Option<_>>().map(Node::Map)
}

/// The items that are there already.
struct Left<'d> {
    items: Vec<Option<Tree<'d>>>,
    /// What tells them from each other; `None` for what has no key and so stays where it is.
    keys: Vec<Option<String>>,
    /// The place of each key, `None` if it has several.
    first: HashMap<String, Option<usize>>,
}

impl<'d> Left<'d> {
    fn new(items: Vec<Tree<'d>>, list: &List) -> Self {
        let key = |item: &Tree<'_>| {
            keys_only(item.part(), list).and_then(|item| identify(&item, list).ok().flatten())
        };
        let keys: Vec<Option<String>> = items.iter().map(key).collect();
        let mut first: HashMap<String, Option<usize>> = HashMap::new();
        for (index, key) in keys.iter().enumerate() {
            let Some(key) = key else { continue };
            first.entry(key.clone()).and_modify(|place| *place = None).or_insert(Some(index));
        }
        Self { items: items.into_iter().map(Some).collect(), keys, first }
    }

    fn take(&mut self, at: usize) -> Option<Tree<'d>> {
        self.items.get_mut(at).and_then(Option::take)
    }

    /// The item with a key that no other has.
    fn take_unique(&mut self, key: &str) -> Option<(usize, Tree<'d>)> {
        let at = (*self.first.get(key)?)?;
        Some((at, self.take(at)?))
    }
}
