//! Expressions of policies: how they are compiled, and what they are evaluated over.

pub(crate) mod compiled;
pub(crate) mod condition;
pub(crate) mod for_each;
pub(crate) mod scope;
pub(crate) mod template;
pub(crate) mod time_budget;
mod variables;
