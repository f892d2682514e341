//! `ApplyConfiguration` mutations: partial objects, checked and merged as server-side apply does.

pub(crate) mod apply;
pub(crate) mod conformance;
pub(crate) mod instant;
pub(crate) mod value;
