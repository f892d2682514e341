//! Values of a document.

use std::fmt;
use std::iter::FusedIterator;
use std::slice;
use std::vec;

use crate::tape::{
    ARRAY, Document, FALSE, FLAT_ARRAY, FLOAT, INT, KEPT, LONG_ARRAY, NULL, OBJECT, SHORT, SORTED_OBJECT,
    TEXT, TRUE, UINT, bit, extent, fingerprint, fingerprint_of, kind, place, short,
};

/// A value of a document: two words, copied at will.
#[derive(Clone, Copy)]
pub struct Node<'d> {
    pub(crate) document: &'d Document<'d>,
    pub(crate) at: usize,
}

impl Document<'_> {
    /// The outermost value.
    pub fn root(&self) -> Node<'_> {
        Node { document: self, at: 0 }
    }
}

/// A list of a document.
#[derive(Clone, Copy)]
pub struct Array<'d>(Node<'d>);

/// An object of a document.
#[derive(Clone, Copy)]
pub struct Object<'d>(Node<'d>);

/// What a value is.
#[derive(Clone, Copy, Debug)]
pub enum Content<'d> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer beyond the range of `i64`.
    Uint(u64),
    /// Any other number.
    Float(f64),
    /// A string, without its escapes.
    Str(&'d str),
    /// A list.
    Array(Array<'d>),
    /// An object.
    Object(Object<'d>),
}

impl<'d> Node<'d> {
    /// What the value is.
    #[inline]
    pub fn content(self) -> Content<'d> {
        let document = self.document;
        let word = document.word(self.at);
        match kind(word) {
            FALSE => Content::Bool(false),
            TRUE => Content::Bool(true),
            SHORT => Content::Int(short(word)),
            INT => Content::Int(self.bits(word).cast_signed()),
            UINT => Content::Uint(self.bits(word)),
            FLOAT => Content::Float(f64::from_bits(self.bits(word))),
            TEXT | KEPT => Content::Str(document.string(word)),
            ARRAY | FLAT_ARRAY | LONG_ARRAY => Content::Array(Array(self)),
            OBJECT | SORTED_OBJECT => Content::Object(Object(self)),
            _ => Content::Null,
        }
    }

    fn bits(self, word: u64) -> u64 {
        self.document.numbers.get(place(word)).copied().unwrap_or(0)
    }

    /// Whether both are the same place of the same document.
    pub fn lies_where(self, other: Node<'_>) -> bool {
        self.at == other.at && std::ptr::eq(self.document, other.document)
    }

    /// Whether it is `null`.
    pub fn is_null(self) -> bool {
        kind(self.document.word(self.at)) == NULL
    }

    /// The text of a string.
    pub fn as_str(self) -> Option<&'d str> {
        match self.content() {
            Content::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The value of `true` and `false`.
    pub fn as_bool(self) -> Option<bool> {
        match self.content() {
            Content::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// An integer in the range of `i64`.
    pub fn as_i64(self) -> Option<i64> {
        match self.content() {
            Content::Int(number) => Some(number),
            _ => None,
        }
    }

    /// A list.
    pub fn as_array(self) -> Option<Array<'d>> {
        match self.content() {
            Content::Array(array) => Some(array),
            _ => None,
        }
    }

    /// An object.
    pub fn as_object(self) -> Option<Object<'d>> {
        match self.content() {
            Content::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The value under a key, if it is an object and has that.
    pub fn get(self, key: &str) -> Option<Node<'d>> {
        self.as_object()?.get(key)
    }

    /// The value below these keys, each in the object under the one before.
    pub fn at(self, keys: &[&str]) -> Option<Node<'d>> {
        keys.iter().try_fold(self, |node, key| node.get(key))
    }
}

impl<'d> Array<'d> {
    /// The list as a value.
    pub fn node(self) -> Node<'d> {
        self.0
    }

    fn word(self) -> u64 {
        self.0.document.word(self.0.at)
    }

    /// How many items there are.
    pub fn len(self) -> usize {
        extent(self.word())
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The item at an index that counts from 0.
    pub fn get(self, index: usize) -> Option<Node<'d>> {
        let Node { document, at } = self.0;
        let word = self.word();
        if index >= extent(word) {
            return None;
        }
        match kind(word) {
            FLAT_ARRAY => Some(Node { document, at: at + 1 + index }),
            LONG_ARRAY => document.table(word).get(index).map(|entry| Node { document, at: place(*entry) }),
            _ => self.iter().nth(index),
        }
    }

    /// The items.
    pub fn iter(self) -> Items<'d> {
        Items { document: self.0.document, next: self.0.at + 1, left: self.len() }
    }
}

impl<'d> Object<'d> {
    /// The object as a value.
    pub fn node(self) -> Node<'d> {
        self.0
    }

    fn word(self) -> u64 {
        self.0.document.word(self.0.at)
    }

    /// How many different keys there are.
    pub fn len(self) -> usize {
        extent(self.word())
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The value under a key.
    #[inline]
    pub fn get(self, key: &str) -> Option<Node<'d>> {
        let Node { document, at } = self.0;
        let word = self.word();
        let wanted = fingerprint(key.as_bytes());
        // An empty object has no such word, and an empty table.
        if document.word(at + 1) & bit(wanted) == 0 {
            return None;
        }
        let table = document.table(word);
        if kind(word) == SORTED_OBJECT {
            return find(document, table, key);
        }
        for entry in table {
            let at = place(*entry);
            if fingerprint_of(*entry) == wanted && document.string_bytes(document.word(at)) == key.as_bytes()
            {
                return Some(Node { document, at: at + 1 });
            }
        }
        None
    }

    /// The entries, in an order that is cheap.
    pub fn members(self) -> Entries<'d> {
        let document = self.0.document;
        Entries { document, order: Order::Table(document.table(self.word()).iter()) }
    }

    /// The entries in the order of their keys.
    pub fn entries(self) -> Entries<'d> {
        let document = self.0.document;
        let table = document.table(self.word());
        let key = |entry: &u64| document.string_bytes(document.word(place(*entry)));
        if kind(self.word()) == SORTED_OBJECT || table.is_sorted_by_key(key) {
            return self.members();
        }
        let mut sorted = table.to_vec();
        sorted.sort_by_key(key);
        Entries { document, order: Order::Sorted(sorted.into_iter()) }
    }
}

/// The value under a key of an object whose table is sorted.
#[cold]
fn find<'d>(document: &'d Document<'d>, table: &[u64], key: &str) -> Option<Node<'d>> {
    let order = |entry: &u64| document.string_bytes(document.word(place(*entry))).cmp(key.as_bytes());
    let found = table.binary_search_by(order).ok()?;
    Some(Node { document, at: place(*table.get(found)?) + 1 })
}

/// The items of a list.
#[derive(Clone)]
pub struct Items<'d> {
    document: &'d Document<'d>,
    next: usize,
    left: usize,
}

impl<'d> Iterator for Items<'d> {
    type Item = Node<'d>;

    #[inline]
    fn next(&mut self) -> Option<Node<'d>> {
        self.left = self.left.checked_sub(1)?;
        let node = Node { document: self.document, at: self.next };
        self.next = self.document.skip(self.next);
        Some(node)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Items<'_> {}
impl FusedIterator for Items<'_> {}

/// The entries of an object.
pub struct Entries<'d> {
    document: &'d Document<'d>,
    order: Order<'d>,
}

/// The part of the table that is left.
enum Order<'d> {
    Table(slice::Iter<'d, u64>),
    Sorted(vec::IntoIter<u64>),
}

impl<'d> Iterator for Entries<'d> {
    type Item = (&'d str, Node<'d>);

    fn next(&mut self) -> Option<Self::Item> {
        let document = self.document;
        let at = place(match &mut self.order {
            Order::Table(entries) => *entries.next()?,
            Order::Sorted(entries) => entries.next()?,
        });
        Some((document.string(document.word(at)), Node { document, at: at + 1 }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match &self.order {
            Order::Table(entries) => entries.len(),
            Order::Sorted(entries) => entries.len(),
        };
        (left, Some(left))
    }
}

impl ExactSizeIterator for Entries<'_> {}
impl FusedIterator for Entries<'_> {}

impl<'d> IntoIterator for Array<'d> {
    type Item = Node<'d>;
    type IntoIter = Items<'d>;

    fn into_iter(self) -> Items<'d> {
        self.iter()
    }
}

impl PartialEq for Node<'_> {
    /// Equal as `serde_json::Value`s are: an integer is never equal to a double.
    fn eq(&self, other: &Self) -> bool {
        match (self.content(), other.content()) {
            (Content::Null, Content::Null) => true,
            (Content::Bool(left), Content::Bool(right)) => left == right,
            (Content::Int(left), Content::Int(right)) => left == right,
            (Content::Uint(left), Content::Uint(right)) => left == right,
            #[allow(clippy::float_cmp)] // as it says
            (Content::Float(left), Content::Float(right)) => left == right,
            (Content::Str(left), Content::Str(right)) => left == right,
            (Content::Array(left), Content::Array(right)) => {
                left.len() == right.len() && left.iter().eq(right)
            }
            (Content::Object(left), Content::Object(right)) => {
                left.len() == right.len()
                    && left.members().all(|(key, value)| right.get(key).is_some_and(|other| other == value))
            }
            _ => false,
        }
    }
}

impl PartialEq for Document<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.root() == other.root()
    }
}

impl fmt::Debug for Document<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root().fmt(formatter)
    }
}

impl fmt::Debug for Node<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.content() {
            Content::Null => formatter.write_str("null"),
            Content::Bool(value) => value.fmt(formatter),
            Content::Int(number) => number.fmt(formatter),
            Content::Uint(number) => number.fmt(formatter),
            Content::Float(number) => number.fmt(formatter),
            Content::Str(text) => text.fmt(formatter),
            Content::Array(array) => array.fmt(formatter),
            Content::Object(object) => object.fmt(formatter),
        }
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for Object<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.entries()).finish()
    }
}
