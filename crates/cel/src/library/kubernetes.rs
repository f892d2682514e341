//! The libraries that Kubernetes adds to CEL.

pub(crate) mod addresses;
pub(crate) mod networks;
pub(crate) mod orders;
pub(crate) mod patches;
