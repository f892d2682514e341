//! From a kind to its resource, without an API server to ask.
//!
//! Kubernetes' own kinds are known. Of any other kind the resource is guessed as the lower-case plural, which is
//! the convention for custom resources, and the object is taken to live in a namespace.

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

/// The resource of a kind, and whether its objects live in a namespace.
pub(crate) fn resource(group: &str, kind: &str) -> (String, bool) {
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
    use super::resource;

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
}
