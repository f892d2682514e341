//! A document under change.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::DocumentError;
use crate::node::{Array, Node, Object};
use crate::tape::Document;

/// The entries of an object under change.
pub type Members<'d> = BTreeMap<Cow<'d, str>, Tree<'d>>;

/// A value that is being changed: what was read stays where it lies until a change leads into it, so that a change
/// costs what it touches. All methods recurse as deep as the value nests, if at all.
#[derive(Clone, Debug)]
pub enum Tree<'d> {
    /// As it was read, with everything in it.
    Read(Node<'d>),
    /// Made anew, with everything in it.
    Made(Value),
    /// An object that a change led into.
    Object(Members<'d>),
    /// A list that a change led into.
    Array(Vec<Tree<'d>>),
}

/// A look at a part of a tree.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// As it was read.
    Read(Node<'a>),
    /// Made anew.
    Made(&'a Value),
    /// An object that a change led into.
    Object(&'a Members<'a>),
    /// A list that a change led into.
    Array(&'a [Tree<'a>]),
}

impl<'d> Tree<'d> {
    /// A look at the whole.
    pub fn part(&self) -> Part<'_> {
        match self {
            Self::Read(node) => Part::Read(*node),
            Self::Made(value) => Part::Made(value),
            Self::Object(members) => Part::Object(members),
            Self::Array(items) => Part::Array(items),
        }
    }

    /// The entries of an object, to be changed; `None` for anything else.
    pub fn members_mut(&mut self) -> Option<&mut Members<'d>> {
        let members = match self {
            Self::Read(node) => node.as_object().map(|object| {
                object.members().map(|(key, value)| (Cow::Borrowed(key), Tree::Read(value))).collect()
            }),
            Self::Made(Value::Object(fields)) => {
                let fields = std::mem::take(fields).into_iter();
                Some(fields.map(|(key, value)| (Cow::Owned(key), Tree::Made(value))).collect())
            }
            _ => None,
        };
        if let Some(members) = members {
            *self = Self::Object(members);
        }
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The items of a list, to be changed; `None` for anything else.
    pub fn items_mut(&mut self) -> Option<&mut Vec<Tree<'d>>> {
        let items = match self {
            Self::Read(node) => node.as_array().map(|array| array.iter().map(Tree::Read).collect()),
            Self::Made(Value::Array(items)) => {
                Some(std::mem::take(items).into_iter().map(Tree::Made).collect())
            }
            _ => None,
        };
        if let Some(items) = items {
            *self = Self::Array(items);
        }
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// A document of a copy of it.
    ///
    /// # Errors
    /// When it is larger than a document can be.
    pub fn document(&self) -> Result<Document<'static>, DocumentError> {
        Document::of_part(self.part())
    }
}

impl<'a> Part<'a> {
    /// Whether it is `null`.
    pub fn is_null(self) -> bool {
        match self {
            Self::Read(node) => node.is_null(),
            Self::Made(value) => value.is_null(),
            Self::Object(_) | Self::Array(_) => false,
        }
    }

    /// Whether it is an object.
    pub fn is_object(self) -> bool {
        match self {
            Self::Read(node) => node.as_object().is_some(),
            Self::Made(value) => value.is_object(),
            Self::Object(_) => true,
            Self::Array(_) => false,
        }
    }

    /// Whether it is a list.
    pub fn is_list(self) -> bool {
        match self {
            Self::Read(node) => node.as_array().is_some(),
            Self::Made(value) => value.is_array(),
            Self::Array(_) => true,
            Self::Object(_) => false,
        }
    }

    /// Whether it is an object without entries or a list without items.
    pub fn is_empty(self) -> bool {
        match self {
            Self::Read(node) => {
                node.as_object().is_some_and(Object::is_empty) || node.as_array().is_some_and(Array::is_empty)
            }
            Self::Made(Value::Object(fields)) => fields.is_empty(),
            Self::Made(Value::Array(items)) => items.is_empty(),
            Self::Made(_) => false,
            Self::Object(members) => members.is_empty(),
            Self::Array(items) => items.is_empty(),
        }
    }

    /// The text of a string.
    pub fn as_str(self) -> Option<&'a str> {
        match self {
            Self::Read(node) => node.as_str(),
            Self::Made(value) => value.as_str(),
            Self::Object(_) | Self::Array(_) => None,
        }
    }

    /// The value under a key, if it is an object and has that.
    pub fn get(self, key: &str) -> Option<Self> {
        match self {
            Self::Read(node) => node.get(key).map(Self::Read),
            Self::Made(value) => value.get(key).map(Self::Made),
            Self::Object(members) => members.get(key).map(Tree::part),
            Self::Array(_) => None,
        }
    }

    /// Shows `each` the entries of an object, in the order of their keys.
    pub fn each_member(self, mut each: impl FnMut(&'a str, Self)) {
        match self {
            Self::Read(node) => {
                for (key, value) in node.as_object().into_iter().flat_map(Object::entries) {
                    each(key, Self::Read(value));
                }
            }
            Self::Made(Value::Object(fields)) => {
                for (key, value) in fields {
                    each(key, Self::Made(value));
                }
            }
            Self::Object(members) => {
                for (key, value) in members {
                    each(key, value.part());
                }
            }
            Self::Made(_) | Self::Array(_) => {}
        }
    }

    /// The items of a list; `None` for anything else.
    pub fn items(self) -> Option<Vec<Self>> {
        Some(match self {
            Self::Read(node) => node.as_array()?.iter().map(Self::Read).collect(),
            Self::Made(value) => value.as_array()?.iter().map(Self::Made).collect(),
            Self::Array(items) => items.iter().map(Tree::part).collect(),
            Self::Object(_) => return None,
        })
    }

    /// The value with everything in it.
    pub fn to_value(self) -> Value {
        match self {
            Self::Read(node) => node.to_value(),
            Self::Made(value) => value.clone(),
            Self::Array(items) => items.iter().map(|item| item.part().to_value()).collect(),
            Self::Object(members) => {
                let fields =
                    members.iter().map(|(key, value)| (key.clone().into_owned(), value.part().to_value()));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }
}

impl PartialEq<Value> for Part<'_> {
    /// Equal to the value that [`Part::to_value`] would make of it.
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Self::Read(node), other) => *node == *other,
            (Self::Made(value), other) => *value == other,
            (Self::Array(left), Value::Array(right)) => {
                left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left.part() == *right)
            }
            (Self::Object(left), Value::Object(right)) => {
                let same = |(key, value): (&Cow<'_, str>, &Tree<'_>)| {
                    right.get(&**key).is_some_and(|other| value.part() == *other)
                };
                left.len() == right.len() && left.iter().all(same)
            }
            (Self::Array(_) | Self::Object(_), _) => false,
        }
    }
}

impl PartialEq<Part<'_>> for Node<'_> {
    /// Equal as values are. What a change left where it lay is seen at once to be the same.
    fn eq(&self, other: &Part<'_>) -> bool {
        match other {
            Part::Read(other) => self.lies_where(*other) || self == other,
            Part::Made(value) => self == *value,
            Part::Array(right) => self.as_array().is_some_and(|left| {
                left.len() == right.len() && left.iter().zip(*right).all(|(left, right)| left == right.part())
            }),
            Part::Object(right) => self.as_object().is_some_and(|left| {
                let same = |(key, value): (&Cow<'_, str>, &Tree<'_>)| {
                    left.get(key).is_some_and(|node| node == value.part())
                };
                left.len() == right.len() && right.iter().all(same)
            }),
        }
    }
}
