//! What the objects of a kind look like: how their lists and maps merge, which resources hold the same objects
//! in other versions.
//!
//! Built-in kinds are in a table that is made from a real API server; custom ones are as their definitions say,
//! as far as those are known. Invariant: of one kind there is one schema, whatever the order in which
//! definitions were given.

mod api_version;
mod built_in;
mod definition;
mod kinds;
mod served;
mod table;
mod types;

pub(crate) use self::api_version::split;
pub use self::definition::ObjectProblem;
pub(crate) use self::kinds::Schemas;
pub(crate) use self::served::Served;
pub(crate) use self::types::{Key, List, Map, Relation, Scalar, Schema};
