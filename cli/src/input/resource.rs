//! From a kind to its resource, without an API server to ask.
//!
//! Kubernetes' own kinds are known, and custom ones whose definitions are at hand. Of any other kind the resource
//! is guessed as the lower-case plural, which is the convention for custom resources, and the object is taken to
//! live in a namespace.

use std::collections::HashMap;

use serde_json::Value;

/// Kinds without a namespace, by API group.
const CLUSTER_SCOPED: [(&str, &[&str]); 17] = [
    ("", &["ComponentStatus", "Namespace", "Node", "PersistentVolume"]),
    (
        "admissionregistration.k8s.io",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("apiextensions.k8s.io", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", &["APIService"]),
    ("authentication.k8s.io", &["SelfSubjectReview", "TokenReview"]),
    ("authorization.k8s.io", &["SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview"]),
    ("certificates.k8s.io", &["CertificateSigningRequest", "ClusterTrustBundle"]),
    ("flowcontrol.apiserver.k8s.io", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("gateway.networking.k8s.io", &["GatewayClass"]),
    ("internal.apiserver.k8s.io", &["StorageVersion"]),
    ("networking.k8s.io", &["IPAddress", "IngressClass", "ServiceCIDR"]),
    ("node.k8s.io", &["RuntimeClass"]),
    ("rbac.authorization.k8s.io", &["ClusterRole", "ClusterRoleBinding"]),
    ("resource.k8s.io", &["DeviceClass", "DeviceTaintRule", "ResourceSlice"]),
    ("sallyport.dev", &["MutationPolicy", "ValidationPolicy"]),
    ("scheduling.k8s.io", &["PriorityClass"]),
    (
        "storage.k8s.io",
        &["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"],
    ),
];

/// Built-in kinds whose plural is not formed as in English.
const IRREGULAR: [(&str, &str); 1] = [("Endpoints", "endpoints")];

/// Custom kinds whose definitions are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct CustomKinds {
    /// Resource and whether objects live in a namespace, by group and kind.
    known: HashMap<(String, String), (String, bool)>,
}

impl CustomKinds {
    /// What those of the objects say that are definitions. Of several for one kind the first counts.
    pub(crate) fn of<'o>(objects: impl IntoIterator<Item = &'o Value>) -> Self {
        let mut known = HashMap::new();
        for object in objects {
            let text = |path| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let group = text("/apiVersion").split_once('/').map(|(group, _)| group);
            let (kind, plural) = (text("/spec/names/kind"), text("/spec/names/plural"));
            if group != Some("apiextensions.k8s.io")
                || text("/kind") != "CustomResourceDefinition"
                || kind.is_empty()
                || plural.is_empty()
            {
                continue;
            }
            let namespaced = text("/spec/scope") != "Cluster";
            let key = (text("/spec/group").to_owned(), kind.to_owned());
            known.entry(key).or_insert((plural.to_owned(), namespaced));
        }
        Self { known }
    }

    /// The resource of a kind, and whether its objects live in a namespace.
    pub(crate) fn resource(&self, group: &str, kind: &str) -> (String, bool) {
        let known = self.known.get(&(group.to_owned(), kind.to_owned()));
        known.cloned().unwrap_or_else(|| resource(group, kind))
    }
}

/// The resource of a kind without a definition, and whether its objects live in a namespace.
fn resource(group: &str, kind: &str) -> (String, bool) {
    let irregular = IRREGULAR.iter().find(|(known, _)| *known == kind);
    let plural = irregular.map_or_else(|| plural(&kind.to_lowercase()), |(_, plural)| (*plural).to_owned());
    let clustered = CLUSTER_SCOPED.iter().any(|(known, kinds)| *known == group && kinds.contains(&kind));
    (plural, !clustered)
}

fn plural(word: &str) -> String {
    if word.is_empty() {
        return String::new();
    }
    let before = |ends: &str| word.strip_suffix(ends).and_then(|stem| stem.chars().next_back());
    if ["s", "x", "z", "ch", "sh"].iter().any(|end| word.ends_with(end)) {
        format!("{word}es")
    } else if before("y").is_some_and(|letter| !"aeiou".contains(letter)) {
        format!("{}ies", &word[..word.len() - 1])
    } else {
        format!("{word}s")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{CustomKinds, resource};

    #[test]
    fn kinds_have_their_resources_and_scopes() {
        for (group, kind, plural, namespaced) in [
            ("", "Pod", "pods", true),
            ("", "Endpoints", "endpoints", true),
            ("", "Namespace", "namespaces", false),
            ("", "ComponentStatus", "componentstatuses", false),
            ("apps", "Deployment", "deployments", true),
            ("networking.k8s.io", "Ingress", "ingresses", true),
            ("networking.k8s.io", "NetworkPolicy", "networkpolicies", true),
            ("networking.k8s.io", "IPAddress", "ipaddresses", false),
            ("storage.k8s.io", "StorageClass", "storageclasses", false),
            ("storage.k8s.io", "CSIDriver", "csidrivers", false),
            ("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", false),
            ("sallyport.dev", "MutationPolicy", "mutationpolicies", false),
            ("gateway.networking.k8s.io", "Gateway", "gateways", true),
            ("example.com", "Box", "boxes", true),
            ("example.com", "Node", "nodes", true),
            ("example.com", "Y", "ys", true),
            ("example.com", "", "", true),
        ] {
            assert_eq!(resource(group, kind), (plural.to_owned(), namespaced), "{group}/{kind}");
        }
    }

    #[test]
    fn custom_kinds_are_as_their_definitions_say() {
        let definition = |kind: &str, plural: &str, scope: &str| {
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec":
                {"group": "example.com", "scope": scope, "names": {"kind": kind, "plural": plural}}})
        };
        let objects = [
            definition("Goose", "geese", "Namespaced"),
            definition("Goose", "gooses", "Cluster"),
            definition("Zone", "zones", "Cluster"),
            definition("Pod", "", "Cluster"),
            json!({"kind": "CustomResourceDefinition", "spec": {"group": "", "names": {"kind": "Pod"}}}),
        ];
        let kinds = CustomKinds::of(&objects);
        for (group, kind, plural, namespaced) in [
            ("example.com", "Goose", "geese", true),
            ("example.com", "Zone", "zones", false),
            ("example.com", "Pod", "pods", true),
            ("example.org", "Goose", "gooses", true),
            ("", "Pod", "pods", true),
        ] {
            assert_eq!(kinds.resource(group, kind), (plural.to_owned(), namespaced), "{group}/{kind}");
        }
    }
}
