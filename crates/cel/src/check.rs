//! The static check of types, as Kubernetes makes it before it takes an expression.
//!
//! ```text
//! tree ──checker (unification, signatures)──▶ type of the result, literals ──lint──▶ done
//! ```
//!
//! What is known of the types decides whether an expression is taken, what `variables.NAME` and the result are,
//! and what calls cost whose overload is certain. The machine finds functions by the values that are there, and
//! gives the same results unchecked.
//!
//! The invariant: the check recurses no deeper than the tree, and takes a bounded number of steps.

mod cel_type;
mod checker;
mod declarations;
mod format_clauses;
mod lint;
mod macros;
mod review;
mod signatures;
mod unification;

pub use cel_type::{Structure, Type};
pub(crate) use checker::{Overloads, check, qualified};
pub(crate) use lint::LIMITS;
pub(crate) use review::{authorizer, namespace, request, resource_check};
pub(crate) use signatures::Overload;

use crate::check::signatures::named;

/// The type that a name denotes, such as `int` or `net.IP`.
pub(crate) fn type_named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "optional_type" => Type::Opaque("optional_type"),
        "string" => Type::String,
        "type" => Type::Type(None),
        "uint" => Type::Uint,
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "net.CIDR" | "net.IP" => named(name)?,
        _ => return None,
    })
}
