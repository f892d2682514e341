//! What is wrong with an `ApplyConfiguration`.

use thiserror::Error;

/// An `ApplyConfiguration` that cannot be merged. The texts are the API server's.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum ConfigurationError {
    #[error("unsupported return type from ApplyConfiguration expression: {0}")]
    NotAnObject(String),
    #[error("type mismatch: {0}")]
    TypeNames(String),
    #[error("invalid return type: *dynamic.ObjectVal")]
    Keys,
    #[error("nests deeper than {0}")]
    TooDeep(usize),
    #[error(
        "Resource kind {0} not found. There can be a delay between when CustomResourceDefinitions are created \
         and when they are available."
    )]
    UnknownKind(String),
    #[error("error applying patch: failed to convert patch object to typed object: {0}")]
    Mistyped(String),
    #[error(
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {0}"
    )]
    Atomic(String),
    #[error("error applying patch: failed to convert original object to typed object: {0}")]
    Original(String),
    #[error("unable to convert unstructured object to {kind}: {problem}")]
    Undecodable { kind: String, problem: String },
}
