//! What commands read.

pub(crate) mod lines;
pub(crate) mod manifest;
pub(crate) mod resource;
