//! The types that names denote.

use crate::check::cel_type::Type;
use crate::check::declarations::{FIELDLESS, OPAQUE};

/// A type of Kubernetes' libraries.
pub(crate) fn named(name: &str) -> Option<Type> {
    if let Some(name) = OPAQUE.iter().find(|opaque| **opaque == name) {
        return Some(Type::Opaque(name));
    }
    FIELDLESS.contains(&name).then(|| Type::hidden(name))
}

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
