//! The webhook configurations that send reviews to a webhook by its URL, made from the policies themselves.
//!
//! Each endpoint with policies has an entry whose rules are the union of theirs; an endpoint without has none, so the
//! API server asks nobody in vain. Rules only widen: what they let through too much, the policies do not match.

use sallyport_api::{
    FailurePolicy, MatchConstraints, MutatingAdmissionPolicySpec, MutationPolicySpec, OperationType,
    ResourceScope, ValidatingAdmissionPolicySpec, ValidationPolicySpec,
};
use serde_json::{Value, json};

use crate::description::Kind;
use crate::endpoint::Endpoint;

/// The label by which everything of the suite is found, and removed in an emergency.
const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "sallyport");
/// Namespaces that no entry covers: a cluster must come up and heal without its webhooks.
const EXEMPT_NAMESPACES: [&str; 2] = ["kube-node-lease", "kube-system"];
/// Seconds that the API server gives a review.
const TIMEOUT_SECONDS: u32 = 10;
/// Mirror pods only show what a kubelet runs already. It holds without annotations and without an object too. Nothing
/// but a new pod can say that it is one: a pod that is there is what it was, and an Eviction is no pod.
const NOT_A_MIRROR_POD: &str = "request.kind.group != '' || request.kind.kind != 'Pod' || \
                                [oldObject == null ? object : oldObject].all(it, it == null || \
                                !it.?metadata.?annotations[?'kubernetes.io/config.mirror'].hasValue())";

/// A policy, as far as its registration is concerned.
#[derive(Debug, Clone, Copy)]
pub struct Policy<'a> {
    endpoint: Endpoint,
    constraints: &'a MatchConstraints,
    /// The operations of a rule that names none.
    operations: &'static [&'static str],
}

impl<'a> Policy<'a> {
    /// A policy that changes objects.
    pub fn mutation(spec: &'a MutationPolicySpec) -> Self {
        Self::of(true, spec.failure_policy, &spec.match_constraints, &["CREATE"])
    }

    /// A policy that judges objects.
    pub fn validation(spec: &'a ValidationPolicySpec) -> Self {
        Self::of(false, spec.failure_policy, &spec.match_constraints, &["CREATE", "UPDATE"])
    }

    /// One of Kubernetes' own policies that change objects.
    pub fn mutating_admission(spec: &'a MutatingAdmissionPolicySpec) -> Self {
        Self::of(true, spec.failure_policy, &spec.match_constraints, &[])
    }

    /// One of Kubernetes' own policies that judge objects.
    pub fn validating_admission(spec: &'a ValidatingAdmissionPolicySpec) -> Self {
        Self::of(false, spec.failure_policy, &spec.match_constraints, &[])
    }

    fn of(
        mutates: bool,
        policy: FailurePolicy,
        constraints: &'a MatchConstraints,
        operations: &'static [&'static str],
    ) -> Self {
        Self { endpoint: Endpoint::of(mutates, policy), constraints, operations }
    }
}

/// Both configurations without their `caBundle`, under this name, for a webhook at `url`. Their lists of entries may be
/// empty.
pub fn configurations(name: &str, url: &str, policies: &[Policy<'_>]) -> [Value; 2] {
    let configuration = |kind: Kind, mutates: bool| {
        let endpoints = Endpoint::ALL.into_iter().filter(|endpoint| endpoint.mutates() == mutates);
        let webhooks: Vec<Value> =
            endpoints.filter_map(|endpoint| webhook(endpoint, url, policies)).collect();
        json!({
            "apiVersion": kind.api_version(),
            "kind": kind.kind(),
            "metadata": {"name": name, "labels": {PART_OF.0: PART_OF.1}},
            "webhooks": webhooks,
        })
    };
    [configuration(Kind::Mutating, true), configuration(Kind::Validating, false)]
}

fn webhook(endpoint: Endpoint, url: &str, policies: &[Policy<'_>]) -> Option<Value> {
    let rules = rules(endpoint, policies);
    if rules.is_empty() {
        return None;
    }
    let mut webhook = json!({
        "name": format!("{}.sallyport.dev", endpoint.name().replace('/', "-")),
        "clientConfig": {"url": format!("{url}/{}", endpoint.name())},
        "rules": rules,
        "failurePolicy": endpoint.failure_policy(),
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": EXEMPT_NAMESPACES},
        ]},
        "matchConditions": [{"name": "not-a-mirror-pod", "expression": NOT_A_MIRROR_POD}],
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "admissionReviewVersions": ["v1"],
    });
    if endpoint.mutates() {
        webhook["reinvocationPolicy"] = json!("IfNeeded");
    }
    Some(webhook)
}

/// The rules of all policies that are evaluated at an endpoint, each once.
fn rules(endpoint: Endpoint, policies: &[Policy<'_>]) -> Vec<Value> {
    let mut rules = Vec::new();
    for policy in policies.iter().filter(|policy| policy.endpoint == endpoint) {
        add(&mut rules, policy);
    }
    rules
}

/// Adds the rules of a policy.
fn add(rules: &mut Vec<Value>, policy: &Policy<'_>) {
    for rule in &policy.constraints.resource_rules {
        let mut named: Vec<_> = rule.operations.iter().map(|operation| name(*operation)).collect();
        if named.is_empty() {
            named = policy.operations.to_vec();
        } else if named.contains(&"*") {
            // The API server takes the asterisk only by itself.
            named = vec!["*"];
        }
        // Names cannot be said here; the policy looks at them.
        let rule = json!({
            "apiGroups": rule.api_groups,
            "apiVersions": rule.api_versions,
            "operations": named,
            "resources": rule.resources,
            "scope": match rule.scope {
                ResourceScope::Cluster => "Cluster",
                ResourceScope::Namespaced => "Namespaced",
                ResourceScope::All => "*",
            },
        });
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
}

const fn name(operation: OperationType) -> &'static str {
    match operation {
        OperationType::Create => "CREATE",
        OperationType::Update => "UPDATE",
        OperationType::Delete => "DELETE",
        OperationType::Connect => "CONNECT",
        OperationType::All => "*",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUTATION: &str = r#"
failurePolicy: Ignore
matchConstraints:
  resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods]}]
mutations: [{overlay: {metadata: {labels: {a: b}}}}]
"#;
    const VALIDATION: &str = r#"
matchConstraints:
  resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods]}
    - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE, UPDATE]}
    - {apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: [DELETE, "*"], scope: Namespaced}
validations: [{expression: "true"}]
"#;

    #[test]
    fn an_endpoint_without_policies_has_no_entry() {
        let described = configurations("dev", "https://127.0.0.1:1", &[]);
        assert!(described.iter().all(|configuration| configuration["webhooks"] == json!([])));
    }

    #[test]
    fn an_entry_covers_what_its_policies_cover() {
        let mutation: MutationPolicySpec = serde_saphyr::from_str(MUTATION).unwrap();
        let validation: ValidationPolicySpec = serde_saphyr::from_str(VALIDATION).unwrap();
        let policies = [Policy::mutation(&mutation), Policy::validation(&validation)];
        let [mutating, validating] = configurations("dev", "https://127.0.0.1:1", &policies);
        assert_eq!(
            mutating["metadata"],
            json!({"name": "dev", "labels": {"app.kubernetes.io/part-of": "sallyport"}})
        );
        assert_eq!(mutating["webhooks"].as_array().map(Vec::len), Some(1));
        let entry = &mutating["webhooks"][0];
        let expected = json!({"url": "https://127.0.0.1:1/mutate/ignore"});
        assert_eq!((&entry["clientConfig"], &entry["failurePolicy"]), (&expected, &json!("Ignore")));
        assert_eq!(entry["reinvocationPolicy"], "IfNeeded");
        assert_eq!(
            entry["rules"],
            json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "*"}])
        );

        let entry = &validating["webhooks"][0];
        assert_eq!((&entry["failurePolicy"], entry.get("reinvocationPolicy")), (&json!("Fail"), None));
        assert_eq!(entry["clientConfig"]["url"], "https://127.0.0.1:1/validate/fail");
        // The first two rules are the same once defaults are filled in.
        assert_eq!(
            entry["rules"],
            json!([
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"], "scope": "*"},
                {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"], "scope": "Namespaced"},
            ])
        );
    }
}
