//! What is wrong with an overlay.

use thiserror::Error;

/// A partial object that does not fit.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum MergeError {
    #[error("{0} must be a list")]
    NotAList(String),
    #[error("an entry of {path} lacks its key {key}")]
    NoKey { path: String, key: String },
}
