//! Descriptions of registrations by URL, as the rotator reads them.

use serde_json::{Value, json};

/// The suite's own namespace.
pub const NAMESPACE: &str = "sallyport";

/// One webhook of a configuration.
#[derive(Clone, Debug)]
pub struct Entry {
    /// `mutate` or `validate`.
    pub side: &'static str,
    /// `Fail` or `Ignore`; also the door.
    pub failure_policy: &'static str,
    /// `namespaceSelector`.
    pub namespaces: Value,
    /// `objectSelector`.
    pub objects: Value,
    /// `rules`.
    pub rules: Value,
    is_probe: bool,
}

impl Entry {
    /// Pods, their ephemeral containers included, in namespaces with this label.
    pub fn pods(side: &'static str, failure_policy: &'static str, label: (&str, &str)) -> Self {
        Self {
            side,
            failure_policy,
            namespaces: json!({"matchLabels": {label.0: label.1}}),
            objects: json!({}),
            rules: json!([
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "pods/ephemeralcontainers"],
                 "operations": ["CREATE", "UPDATE", "DELETE"], "scope": "Namespaced"},
            ]),
            is_probe: false,
        }
    }

    /// The way of the rotator's probe, as the chart describes it.
    pub fn probe(side: &'static str) -> Self {
        Self {
            side,
            failure_policy: "Fail",
            namespaces: json!({"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}),
            objects: json!({"matchExpressions": [{"key": "sallyport.dev/probe", "operator": "Exists"}]}),
            rules: json!([
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]},
            ]),
            is_probe: true,
        }
    }

    /// Whether it is a probe's.
    pub fn is_probe(&self) -> bool {
        self.is_probe
    }

    fn name(&self) -> String {
        if self.is_probe {
            return format!("probe.{}.sallyport.dev", self.side);
        }
        format!("{}-{}.sallyport.test", self.side, self.failure_policy.to_lowercase())
    }

    fn webhook(&self, url: &str) -> Value {
        let path = format!("/{}/{}", self.side, self.failure_policy.to_lowercase());
        let mut webhook = json!({
            "name": self.name(),
            "clientConfig": {"url": format!("{url}{path}")},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": if self.is_probe { 3 } else { 10 },
            "failurePolicy": if self.is_probe { "Ignore" } else { self.failure_policy },
            "matchPolicy": "Equivalent",
            "namespaceSelector": self.namespaces,
            "objectSelector": self.objects,
            "rules": self.rules,
        });
        if self.side == "mutate" {
            webhook["reinvocationPolicy"] = json!("IfNeeded");
        }
        webhook
    }
}

/// The documents to register `entries` at `url`, under configurations of this name.
pub fn describe(name: &str, url: &str, entries: &[Entry]) -> String {
    [("mutate", "MutatingWebhookConfiguration"), ("validate", "ValidatingWebhookConfiguration")]
        .into_iter()
        .filter_map(|(side, kind)| {
            let webhooks: Vec<_> =
                entries.iter().filter(|entry| entry.side == side).map(|entry| entry.webhook(url)).collect();
            (!webhooks.is_empty()).then(|| {
                json!({
                    "apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": kind,
                    "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "sallyport"}},
                    "webhooks": webhooks,
                })
                .to_string()
            })
        })
        .collect::<Vec<_>>()
        .join("\n---\n")
}
