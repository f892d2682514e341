//! Mutation policies: what they compile to, the changes that they make, and the patch that comes of these.

pub(crate) mod configuration;
pub(crate) mod current;
pub(crate) mod diff;
pub(crate) mod measure;
pub(crate) mod merge;
pub(crate) mod mutation;
pub(crate) mod mutation_set;
pub(crate) mod overlay;
pub(crate) mod patch;
pub(crate) mod policy;
pub(crate) mod round;
pub(crate) mod source;
