//! The objects of one review.

pub(crate) mod documents;
pub(crate) mod namespaces;
pub(crate) mod safety;
