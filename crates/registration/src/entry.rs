//! Entries of webhook configurations, as far as they can do harm: whom they call, and what they intercept.

use serde_json::Value;

use crate::selector::{Labels, selects};
use crate::target::{ServicePort, Target};

/// API groups of Kubernetes itself that have no dot in their names.
const BUILT_IN: [&str; 5] = ["", "apps", "batch", "autoscaling", "policy"];

/// A resource, as a rule speaks of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Its API group.
    pub group: &'static str,
    /// Its name, in plural.
    pub plural: &'static str,
    /// A word that a match condition that keeps it out would use.
    pub word: &'static str,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
}

impl Resource {
    /// A resource whose plural is the word that match conditions use.
    pub const fn of(group: &'static str, plural: &'static str, is_namespaced: bool) -> Self {
        Self { group, plural, word: plural, is_namespaced }
    }
}

/// One entry of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The configuration that it is in.
    pub configuration: &'a Value,
    entry: &'a Value,
}

/// All entries of these configurations.
pub fn entries(configurations: &[Value]) -> impl Iterator<Item = Entry<'_>> {
    configurations.iter().flat_map(|configuration| {
        let entries = configuration.get("webhooks").and_then(Value::as_array);
        entries.into_iter().flatten().map(move |entry| Entry { configuration, entry })
    })
}

/// A text in a JSON object; empty if there is none.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Whether an entry's failurePolicy is Fail, which is also the server's default.
pub(crate) fn is_fail(entry: &Value) -> bool {
    entry.get("failurePolicy").and_then(Value::as_str).is_none_or(|policy| policy == "Fail")
}

/// Kind and name of a configuration.
pub fn title(configuration: &Value) -> String {
    format!("{} {}", text(configuration, "/kind"), text(configuration, "/metadata/name"))
}

impl Entry<'_> {
    /// How it is called in findings.
    pub fn title(&self) -> String {
        format!("{}, {}", title(self.configuration), text(self.entry, "/name"))
    }

    /// Whether a call that fails is a refusal: the default.
    pub fn is_fail(&self) -> bool {
        is_fail(self.entry)
    }

    /// Whether it changes objects.
    pub fn is_mutating(&self) -> bool {
        text(self.configuration, "/kind").starts_with("Mutating")
    }

    /// How long the API server waits for it, in seconds.
    pub fn timeout(&self) -> u64 {
        self.entry.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(10)
    }

    /// The Service that it calls, if it calls one.
    pub fn target(&self) -> Option<ServicePort> {
        match Target::of(self.entry.get("clientConfig")?.as_object()?) {
            Ok(Target::Service(service)) => Some(service),
            _ => None,
        }
    }

    /// Its `caBundle`, in base64; empty if there is none.
    pub fn ca_bundle(&self) -> &str {
        text(self.entry, "/clientConfig/caBundle")
    }

    fn rules(&self) -> impl Iterator<Item = &Value> {
        self.entry.get("rules").and_then(Value::as_array).into_iter().flatten()
    }

    /// Whether its rules match a resource, whatever the operation but a plain read.
    pub fn covers(&self, resource: Resource) -> bool {
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
    pub fn is_unbounded(&self) -> bool {
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
    pub fn selects_namespace(&self, labels: &Labels) -> bool {
        selects(self.entry.get("namespaceSelector"), labels)
    }

    /// Whether an object with these labels passes its selector.
    pub fn selects_object(&self, labels: &Labels) -> bool {
        selects(self.entry.get("objectSelector"), labels)
    }

    /// Whether a match condition has a word as a literal: it then keeps out what the word stands for. Conditions are
    /// not evaluated, which would need the request.
    pub fn conditions_name(&self, word: &str) -> bool {
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
    use serde_json::json;

    use super::*;

    const PODS: Resource = Resource::of("", "pods", true);
    const NODES: Resource = Resource::of("", "nodes", false);

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
            assert_eq!((entry.covers(PODS), entry.covers(NODES)), (pods, nodes), "{rule}");
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
