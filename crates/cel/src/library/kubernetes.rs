//! The libraries that Kubernetes adds to CEL.

pub(super) mod addresses;
pub(super) mod authorizer;
pub(super) mod named_formats;
pub(super) mod networks;
pub(super) mod orders;
pub(super) mod patches;
pub(super) mod quantities;
pub(super) mod urls;
pub(super) mod versions;
