//! Which policies a request is for: rules and selectors, and the index that finds them.

pub(crate) mod index;
pub(crate) mod labels;
pub(crate) mod matcher;
pub(crate) mod qualified_name;
pub(crate) mod selector;
