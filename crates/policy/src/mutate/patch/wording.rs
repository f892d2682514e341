//! How an operation that does not apply is described: in our words, or in those of the API server's library, which
//! its users know.

use crate::mutate::patch::dialect::Dialect;
use crate::mutate::patch::fault::{Fault, Missing};
use crate::mutate::patch::operation::{Kind, Operation};
use crate::mutate::patch::place::last_key;

/// Describes why an operation does not apply.
pub(super) fn describe(operation: &Operation, fault: &Fault, dialect: Dialect) -> String {
    match dialect {
        Dialect::Rfc6902 => {
            let problem = match fault {
                Fault::IntoItself => "cannot move the value inside itself",
                Fault::From(_) => "\"from\" path is invalid",
                Fault::TestFailed => "value did not match",
                _ => "path is invalid",
            };
            format!("{problem} at {:?}", operation.path)
        }
        Dialect::ApiServer => describe_as_library(operation, fault),
    }
}

fn describe_as_library(operation: &Operation, fault: &Fault) -> String {
    let Operation { kind, path, from, .. } = operation;
    let name = kind.as_str();
    let from = from.as_deref().unwrap_or_default();
    let missing = |what: String| format!("{name} operation does not apply: {what}: missing value");
    match (kind, fault) {
        (Kind::Unknown(name), _) => format!("Unexpected kind: {name}"),
        (_, Fault::NotAContainer) => "replace operation value must be object or array: %!w(<nil>)".to_owned(),
        (_, Fault::NoFrom) => {
            format!("{name} operation failed to decode from: operation, missing from field: missing value")
        }
        (_, Fault::From(Missing::Holder)) => missing(format!("doc is missing from path: {from}")),
        (Kind::Copy, Fault::From(cause)) => format!("error in copy for from: '{from}': {}", cause.describe()),
        (_, Fault::From(cause)) => {
            format!("error in {name} for path: '{}': {}", last_key(from), cause.describe())
        }
        (Kind::Add | Kind::Remove, Fault::Path(Missing::Holder)) => {
            missing(format!("doc is missing path: \"{path}\""))
        }
        (Kind::Replace, Fault::Path(Missing::Holder)) => missing(format!("doc is missing path: {path}")),
        (Kind::Replace, Fault::Path(_)) => missing(format!("doc is missing key: {path}")),
        (Kind::Test, Fault::Path(Missing::Holder)) => missing(format!("is missing path: {path}")),
        (Kind::Move | Kind::Copy, Fault::Path(Missing::Holder)) => {
            missing(format!("doc is missing destination path: {path}"))
        }
        (Kind::Copy, Fault::Path(cause)) => {
            format!("error while adding value during copy: {}", cause.describe_addition())
        }
        (Kind::Add | Kind::Move, Fault::Path(cause)) => {
            format!("error in {name} for path: '{path}': {}", cause.describe_addition())
        }
        (_, Fault::Path(cause)) => format!("error in {name} for path: '{path}': {}", cause.describe()),
        (_, Fault::TestFailed | Fault::UnknownOperation | Fault::IntoItself) => {
            format!("{name} operation does not apply")
        }
    }
}

impl Missing {
    fn describe(&self) -> String {
        match self {
            Self::Holder => "missing value".to_owned(),
            Self::NotAnIndex(key) => format!("strconv.Atoi: parsing {key:?}: invalid syntax"),
            Self::OutOfRange(index) => {
                format!("Unable to access invalid index: {index}: invalid index referenced")
            }
            Self::Key(key) => format!("Unable to remove nonexistent key: {key}: missing value"),
        }
    }

    /// The same where a value was to be added to a list.
    fn describe_addition(&self) -> String {
        match self {
            Self::NotAnIndex(key) => {
                format!("value was not a proper array index: '{key}': {}", self.describe())
            }
            other => other.describe(),
        }
    }
}
