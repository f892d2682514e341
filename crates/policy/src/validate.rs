//! Validation policies: what they compile to, what they find, and what follows from it.

pub(crate) mod annotation;
pub(crate) mod findings;
pub(crate) mod validation;
