//! Resources by the kind of their objects.

use crate::request::{GroupVersionKind, GroupVersionResource};

/// A resource and the kind of its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) resource: GroupVersionResource,
    pub(crate) sub_resource: String,
    pub(crate) kind: GroupVersionKind,
}

/// Where the resources that hold the same objects as this one are kept.
pub(super) fn place(group: &str, resource: &str, sub: &str) -> String {
    [group, resource, sub].join("\0")
}
