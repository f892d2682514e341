//! Validation policies: what they compile to, what they find, and what follows from it.

pub(crate) mod annotation;
pub(crate) mod findings;
pub(crate) mod policy;
pub(crate) mod source;
pub(crate) mod validation;
pub(crate) mod validation_set;
