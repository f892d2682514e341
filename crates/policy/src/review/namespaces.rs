//! The Namespaces that a source knows.

use std::collections::HashMap;

use sallyport_document::{Document, Node};
use serde_json::{Map, Value};

/// The label that every Namespace has.
pub(crate) const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Namespace objects by name, for selectors and for `namespaceObject`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Namespaces {
    by_name: HashMap<String, Document<'static>>,
}

impl Namespaces {
    /// The object of the namespace `name`.
    pub fn get(&self, name: &str) -> Option<Node<'_>> {
        self.by_name.get(name).map(Document::root)
    }

    /// The objects in the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Node<'_>> {
        let mut namespaces: Vec<_> = self.by_name.iter().collect();
        namespaces.sort_unstable_by_key(|(name, _)| *name);
        namespaces.into_iter().map(|(_, object)| object.root())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

impl FromIterator<Value> for Namespaces {
    /// Takes Namespace objects; one without a name, or of immense size, is left out, the last of several with one
    /// name counts. Each gets the label `kubernetes.io/metadata.name`, as the API server gives it.
    fn from_iter<I: IntoIterator<Item = Value>>(objects: I) -> Self {
        let mut by_name = HashMap::new();
        for mut object in objects {
            let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { continue };
            let Some(name) = metadata.get("name").and_then(Value::as_str).map(str::to_owned) else {
                continue;
            };
            let labels = metadata.entry("labels").or_insert(Value::Null);
            if !labels.is_object() {
                *labels = Value::Object(Map::new());
            }
            if let Some(labels) = labels.as_object_mut() {
                labels.insert(NAME_LABEL.to_owned(), Value::String(name.clone()));
            }
            let Ok(object) = Document::of(&object) else { continue };
            by_name.insert(name, object);
        }
        Self { by_name }
    }
}
