//! Entries of webhook configurations, as far as they can do harm: whom they call, and what they intercept.

use super::selector::{Labels, selects};
use serde_json::Value;

/// API groups of Kubernetes itself that have no dot in their names.
const BUILT_IN: [&str; 5] = ["", "apps", "batch", "autoscaling", "policy"];

/// A resource, as a rule speaks of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) group: &'static str,
    pub(super) plural: &'static str,
    /// A word that a match condition that keeps it out would use.
    pub(super) word: &'static str,
    pub(super) is_namespaced: bool,
}

impl Resource {
    const fn of(group: &'static str, plural: &'static str, is_namespaced: bool) -> Self {
        Self { group, plural, word: plural, is_namespaced }
    }
}

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

/// The Service that an entry calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) port: u64,
}

/// One entry of a configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    /// The configuration that it is in.
    pub(super) configuration: &'a Value,
    entry: &'a Value,
}

/// All entries of these configurations.
pub(super) fn entries(configurations: &[Value]) -> impl Iterator<Item = Entry<'_>> {
    configurations.iter().flat_map(|configuration| {
        let entries = configuration.get("webhooks").and_then(Value::as_array);
        entries.into_iter().flatten().map(move |entry| Entry { configuration, entry })
    })
}

/// A text in a JSON object; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Kind and name of a configuration.
pub(super) fn title(configuration: &Value) -> String {
    format!("{} {}", text(configuration, "/kind"), text(configuration, "/metadata/name"))
}

impl Entry<'_> {
    /// How it is called in findings.
    pub(super) fn title(&self) -> String {
        format!("{}, {}", title(self.configuration), text(self.entry, "/name"))
    }

    /// Whether a call that fails is a refusal: the default.
    pub(super) fn is_fail(&self) -> bool {
        text(self.entry, "/failurePolicy") != "Ignore"
    }

    /// Whether it changes objects.
    pub(super) fn is_mutating(&self) -> bool {
        text(self.configuration, "/kind").starts_with("Mutating")
    }

    /// How long the API server waits for it, in seconds.
    pub(super) fn timeout(&self) -> u64 {
        self.entry.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(10)
    }

    /// The Service that it calls, if it calls one.
    pub(super) fn target(&self) -> Option<Target> {
        let service = self.entry.pointer("/clientConfig/service")?;
        Some(Target {
            namespace: text(service, "/namespace").to_owned(),
            name: text(service, "/name").to_owned(),
            port: service.get("port").and_then(Value::as_u64).unwrap_or(443),
        })
    }

    /// Its `caBundle`, in base64; empty if there is none.
    pub(super) fn ca_bundle(&self) -> &str {
        text(self.entry, "/clientConfig/caBundle")
    }

    fn rules(&self) -> impl Iterator<Item = &Value> {
        self.entry.get("rules").and_then(Value::as_array).into_iter().flatten()
    }

    /// Whether its rules match a resource, whatever the operation but a plain read.
    pub(super) fn covers(&self, resource: Resource) -> bool {
        self.rules().any(|rule| {
            let has = |field: &str, wanted: &[&str]| {
                let list = rule.get(field).and_then(Value::as_array);
                list.into_iter().flatten().filter_map(Value::as_str).any(|item| wanted.contains(&item))
            };
            let scope = rule.get("scope").and_then(Value::as_str).unwrap_or("*");
            let wanted = if resource.is_namespaced { "Namespaced" } else { "Cluster" };
            has("apiGroups", &["*", resource.group])
                && has("resources", &["*", "*/*", resource.plural])
                && has("operations", &["*", "CREATE", "UPDATE"])
                && (scope == "*" || scope == wanted)
        })
    }

    /// Whether a rule matches everything, or everything of a group of Kubernetes itself (C-95).
    pub(super) fn is_unbounded(&self) -> bool {
        self.rules().any(|rule| {
            let all = |field: &str| {
                let list = rule.get(field).and_then(Value::as_array);
                list.into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>()
            };
            let resources = all("resources").iter().any(|resource| matches!(*resource, "*" | "*/*"));
            let groups = all("apiGroups")
                .iter()
                .any(|group| *group == "*" || BUILT_IN.contains(group) || group.ends_with(".k8s.io"));
            resources && groups
        })
    }

    /// Whether objects of a namespace with these labels pass its selector.
    pub(super) fn selects_namespace(&self, labels: &Labels) -> bool {
        selects(self.entry.get("namespaceSelector"), labels)
    }

    /// Whether an object with these labels passes its selector.
    pub(super) fn selects_object(&self, labels: &Labels) -> bool {
        selects(self.entry.get("objectSelector"), labels)
    }

    /// Whether a match condition has a word as a literal: it then keeps out what the word stands for. Conditions are
    /// not evaluated, which would need the request.
    pub(super) fn conditions_name(&self, word: &str) -> bool {
        let conditions = self.entry.get("matchConditions").and_then(Value::as_array);
        let literals = [format!("'{word}'"), format!("\"{word}\"")];
        conditions.into_iter().flatten().any(|condition| {
            let expression = text(condition, "/expression");
            literals.iter().any(|literal| expression.contains(literal))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn configuration(rule: &Value) -> [Value; 1] {
        [json!({"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "c"},
                "webhooks": [{"name": "e", "rules": [rule],
                    "matchConditions": [{"name": "n", "expression": "request.resource.resource != 'nodes'"}]}]})]
    }

    #[test]
    fn rules_cover_what_the_api_server_would_send() {
        let rule = |groups: &[&str], resources: &[&str], operations: &[&str], scope: &str| json!({"apiGroups": groups, "resources": resources, "operations": operations, "scope": scope});
        for (rule, pods, nodes, unbounded) in [
            (rule(&[""], &["pods"], &["CREATE"], "*"), true, false, false),
            (rule(&[""], &["pods/status"], &["*"], "*"), false, false, false),
            (rule(&[""], &["pods/*"], &["*"], "*"), false, false, false),
            (rule(&["*"], &["*"], &["*"], "*"), true, true, true),
            (rule(&["*"], &["*/*"], &["*"], "Namespaced"), true, false, true),
            (rule(&[""], &["*"], &["UPDATE"], "Cluster"), false, true, true),
            (rule(&[""], &["pods", "nodes"], &["DELETE", "CONNECT"], "*"), false, false, false),
            (rule(&["apps"], &["*"], &["*"], "*"), false, false, true),
            (rule(&["example.com"], &["*"], &["*"], "*"), false, false, false),
        ] {
            let configurations = configuration(&rule);
            let entry = entries(&configurations).next().unwrap();
            assert_eq!((entry.covers(PODS), entry.covers(VITAL[0])), (pods, nodes), "{rule}");
            assert_eq!(entry.is_unbounded(), unbounded, "{rule}");
        }
    }

    #[test]
    fn defaults_are_those_of_the_api() {
        let configurations = configuration(&json!({}));
        let entry = entries(&configurations).next().unwrap();
        assert!(entry.is_fail() && !entry.is_mutating() && entry.target().is_none());
        assert_eq!((entry.timeout(), entry.ca_bundle()), (10, ""));
        for (word, named) in [("nodes", true), ("leases", false), ("node", false), ("resource", false)] {
            assert_eq!(entry.conditions_name(word), named, "{word}");
        }
        assert_eq!(entry.title(), "ValidatingWebhookConfiguration c, e");
        assert_eq!(entries(&[json!({"webhooks": 7}), json!({})]).count(), 0);
    }
}
