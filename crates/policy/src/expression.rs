//! Expressions of policies: how they are compiled, and what they are evaluated over.

pub(crate) mod compiled;
pub(crate) mod condition;
pub(crate) mod template;
