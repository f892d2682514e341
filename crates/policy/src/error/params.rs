//! What is wrong with the params of a binding.

use thiserror::Error;

/// Params that cannot be had, in the API server's words.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum ParamError {
    #[error("failed to find resource referenced by paramKind: '{0}'")]
    UnknownKind(String),
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    NeedlessNamespace,
    #[error("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")]
    NoNamespace,
    #[error("no params found for policy binding with `Deny` parameterNotFoundAction")]
    NotFound,
}
