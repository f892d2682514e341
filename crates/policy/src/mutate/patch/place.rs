//! Where a path leads in an object under change.

use std::borrow::Cow;

use sallyport_document::{Array, Members, Node, Part, Tree};
use serde_json::Value;

use crate::mutate::patch::dialect::Dialect;
use crate::mutate::patch::fault::Missing;

/// A value in the object, to be looked at and copied.
#[derive(Clone, Copy)]
pub(super) enum Place<'t, 'd> {
    Read(Node<'d>),
    Made(&'t Value),
    /// A change led into it.
    Changed(&'t Tree<'d>),
}

/// What holds a value, to be changed.
pub(super) enum Holder<'t, 'd> {
    Object(&'t mut Members<'d>),
    List(&'t mut Vec<Tree<'d>>),
}

impl<'t, 'd> Place<'t, 'd> {
    pub(super) fn of(tree: &'t Tree<'d>) -> Self {
        match tree {
            Tree::Read(node) => Self::Read(*node),
            Tree::Made(value) => Self::Made(value),
            Tree::Object(_) | Tree::Array(_) => Self::Changed(tree),
        }
    }

    pub(super) fn part(self) -> Part<'t> {
        match self {
            Self::Read(node) => Part::Read(node),
            Self::Made(value) => Part::Made(value),
            Self::Changed(tree) => tree.part(),
        }
    }

    /// A copy. What was read is not copied, but read again where it lies.
    pub(super) fn to_tree(self) -> Tree<'d> {
        match self {
            Self::Read(node) => Tree::Read(node),
            Self::Made(value) => Tree::Made(value.clone()),
            Self::Changed(tree) => tree.clone(),
        }
    }

    /// What it holds under a key; `None` if an object has no such key.
    fn child(self, key: &str, dialect: Dialect) -> Result<Option<Self>, Missing> {
        if let Some(length) = self.length() {
            return Ok(self.item(dialect.index(length, key)?));
        }
        if !self.part().is_object() {
            return Err(Missing::Holder);
        }
        Ok(match self {
            Self::Read(node) => node.get(key).map(Self::Read),
            Self::Made(value) => value.get(key).map(Self::Made),
            Self::Changed(Tree::Object(members)) => members.get(key).map(Self::of),
            Self::Changed(_) => None,
        })
    }

    /// The number of items of a list.
    fn length(self) -> Option<usize> {
        match self {
            Self::Read(node) => node.as_array().map(Array::len),
            Self::Made(value) => value.as_array().map(Vec::len),
            Self::Changed(Tree::Array(items)) => Some(items.len()),
            Self::Changed(_) => None,
        }
    }

    fn item(self, index: usize) -> Option<Self> {
        match self {
            Self::Read(node) => node.as_array()?.get(index).map(Self::Read),
            Self::Made(value) => value.get(index).map(Self::Made),
            Self::Changed(Tree::Array(items)) => items.get(index).map(Self::of),
            Self::Changed(_) => None,
        }
    }
}

/// What `path` names; `None` if the object that could hold it does not. Nothing names the whole in the API server's
/// library.
pub(super) fn find<'t, 'd>(
    whole: &'t Tree<'d>,
    path: &str,
    dialect: Dialect,
) -> Result<Option<Place<'t, 'd>>, Missing> {
    let Some((above, key)) = path.rsplit_once('/') else {
        return if dialect == Dialect::Rfc6902 { Ok(Some(Place::of(whole))) } else { Err(Missing::Holder) };
    };
    let mut holder = Place::of(whole);
    for key in keys(above) {
        holder = holder.child(&key, dialect).ok().flatten().ok_or(Missing::Holder)?;
    }
    holder.child(&unescape(key), dialect)
}

/// What holds what `path` names, and its key there.
pub(super) fn find_holder<'t, 'd, 'p>(
    whole: &'t mut Tree<'d>,
    path: &'p str,
    dialect: Dialect,
) -> Result<(Holder<'t, 'd>, Cow<'p, str>), Missing> {
    let (above, key) = path.rsplit_once('/').ok_or(Missing::Holder)?;
    let mut tree = whole;
    for key in keys(above) {
        tree = match Holder::of(tree)? {
            Holder::Object(members) => members.get_mut(&*key),
            Holder::List(items) => {
                let index = dialect.index(items.len(), &key).map_err(|_| Missing::Holder)?;
                items.get_mut(index)
            }
        }
        .ok_or(Missing::Holder)?;
    }
    Ok((Holder::of(tree)?, unescape(key)))
}

/// The last key of a path.
pub(super) fn last_key(path: &str) -> Cow<'_, str> {
    unescape(path.rsplit_once('/').map_or(path, |(_, key)| key))
}

/// The keys of a path. What stands before the first slash does not matter to the API server's library; in a path of
/// the RFC there is nothing.
fn keys(path: &str) -> impl Iterator<Item = Cow<'_, str>> {
    path.split('/').skip(1).map(unescape)
}

fn unescape(key: &str) -> Cow<'_, str> {
    if key.contains('~') { Cow::Owned(key.replace("~1", "/").replace("~0", "~")) } else { Cow::Borrowed(key) }
}

impl<'t, 'd> Holder<'t, 'd> {
    fn of(tree: &'t mut Tree<'d>) -> Result<Self, Missing> {
        let found = if tree.part().is_object() {
            tree.members_mut().map(Self::Object)
        } else {
            tree.items_mut().map(Self::List)
        };
        found.ok_or(Missing::Holder)
    }

    /// Adds a value: under a key in the place of what is there, in a list before what is there.
    pub(super) fn add(self, key: &str, value: Tree<'d>, dialect: Dialect) -> Result<(), Missing> {
        match self {
            Self::Object(members) => insert(members, key, value),
            Self::List(items) if key == "-" => items.push(value),
            Self::List(items) => items.insert(dialect.index(items.len() + 1, key)?, value),
        }
        Ok(())
    }

    /// Replaces the value under a key. The API server's library adds it to an object that lacks it.
    pub(super) fn replace(self, key: &str, value: Tree<'d>, dialect: Dialect) -> Result<(), Missing> {
        match self {
            Self::Object(members) => {
                if dialect == Dialect::Rfc6902 && !members.contains_key(key) {
                    return Err(Missing::Key(key.to_owned()));
                }
                insert(members, key, value);
            }
            Self::List(items) => {
                let index = dialect.index(items.len(), key)?;
                if let Some(item) = items.get_mut(index) {
                    *item = value;
                }
            }
        }
        Ok(())
    }

    /// Takes out what stands under a key.
    pub(super) fn remove(self, key: &str, dialect: Dialect) -> Result<Tree<'d>, Missing> {
        match self {
            Self::Object(members) => members.remove(key).ok_or_else(|| Missing::Key(key.to_owned())),
            Self::List(items) => Ok(items.remove(dialect.index(items.len(), key)?)),
        }
    }
}

fn insert<'d>(members: &mut Members<'d>, key: &str, value: Tree<'d>) {
    match members.get_mut(key) {
        Some(place) => *place = value,
        None => drop(members.insert(Cow::Owned(key.to_owned()), value)),
    }
}
