//! What commands write, and how they end.

pub(crate) mod difference;
pub(crate) mod exit_status;
pub(crate) mod format;
pub(crate) mod terminal;
pub(crate) mod yaml;
