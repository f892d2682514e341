//! JSON documents that are read where they lie.
//!
//! Start with [`Document::parse`], which gives a [`Document`] whose [`root`](Document::root) is a [`Node`]; a [`Tree`]
//! is a document under change.
//!
//! A policy looks at a few fields of an object. Making a tree of the whole object, with an allocation for each key
//! and each text, costs several times what the policy itself does. Here one pass checks the text and writes a
//! *tape*: a word for each value and each key, which says where it is and where the next one begins. Looking up a
//! field goes over one word for each key of one object; texts stay where they are.
//!
//! ```text
//! {"kind": "Pod", "spec": {"hostNetwork": true}}
//!
//! object, 2 entries │ text 2..6 │ text 10..13 │ text 17..21 │ object, 1 entry │ text 25..36 │ true │ table │ table
//! ```
//!
//! The invariants:
//! - A text is accepted exactly when `serde_json` makes a `Value` of it, and means the same: the last of several
//!   entries with one key counts, entries are in the order of their keys, an integer is an integer as long as it
//!   fits into 64 bits. One thing differs: a key that `serde_json` reserves for itself is a key like any other.
//! - Reading takes time and memory proportional to the text, and a stack of constant size.
//! - No look-up takes longer than some dozen steps plus the logarithm of what is in the list or the object, however
//!   large that is: there are tables of what is in long lists and wide objects. Such a step may compare a key, which
//!   takes time proportional to its length.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod builder;
mod error;
mod node;
mod parser;
mod tape;
mod tree;
mod value;

pub use error::{DocumentError, Problem};
pub use node::{Array, Content, Entries, Items, Node, Object};
pub use tape::{Document, MAX_BYTES, MAX_DEPTH};
pub use tree::{Members, Part, Tree};
