//! What commands read.

pub(crate) mod manifest;
pub(crate) mod resource;
