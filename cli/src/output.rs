//! What commands write.

pub(crate) mod terminal;
pub(crate) mod yaml;
