//! Entries of webhook configurations, and the resources by which doctor judges them.

pub(super) use sallyport_registration::{
    Entry, Labels, Resource, ServicePort as Target, entries, labels_at, title,
};
use serde_json::Value;

/// Pods, which everything else stands on.
pub(super) const PODS: Resource = Resource::of("", "pods", true);
/// What a webhook's own recovery writes in its own namespace (C-101).
pub(super) const RECOVERY: [Resource; 8] = [
    PODS,
    Resource::of("apps", "replicasets", true),
    Resource::of("apps", "deployments", true),
    Resource::of("", "secrets", true),
    Resource::of("", "services", true),
    Resource::of("", "endpoints", true),
    Resource::of("discovery.k8s.io", "endpointslices", true),
    Resource::of("coordination.k8s.io", "leases", true),
];
/// What nodes and the control plane live by, outside of all namespaces.
pub(super) const VITAL: [Resource; 4] = [
    Resource::of("", "nodes", false),
    Resource::of("certificates.k8s.io", "certificatesigningrequests", false),
    Resource {
        word: "authentication.k8s.io",
        ..Resource::of("authentication.k8s.io", "tokenreviews", false)
    },
    Resource {
        word: "authorization.k8s.io",
        ..Resource::of("authorization.k8s.io", "subjectaccessreviews", false)
    },
];
/// Leases, by which nodes say that they live and leaders that they lead.
pub(super) const LEASES: Resource = Resource::of("coordination.k8s.io", "leases", true);
/// What is written all the time (C-107).
pub(super) const BUSY: [Resource; 3] = [
    Resource::of("", "events", true),
    Resource::of("events.k8s.io", "events", true),
    Resource::of("discovery.k8s.io", "endpointslices", true),
];

/// A text in a JSON object; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
