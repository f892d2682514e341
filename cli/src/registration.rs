//! The webhook configurations by `url` that send reviews to a front, made from the policies themselves.
//!
//! Each door with policies has an entry whose rules are the union of theirs; a door without has none, so the API
//! server asks nobody in vain. Rules only widen: what they let through too much, the policies do not match.

use crate::door::Door;
use sallyport_api::{FailurePolicy, MatchConstraints, OperationType, ResourceScope};
use sallyport_sources::Snapshot;
use serde_json::{Value, json};

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

/// Both configurations without their `caBundle`, under this name, for a front at `url`. Their lists of webhooks
/// may be empty.
pub(crate) fn describe(name: &str, url: &str, snapshot: &Snapshot) -> [Value; 2] {
    let configuration = |kind: &str, mutates: bool| {
        let doors = Door::ALL.into_iter().filter(|door| door.mutates() == mutates);
        let webhooks: Vec<Value> = doors.filter_map(|door| webhook(door, url, snapshot)).collect();
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name, "labels": {PART_OF.0: PART_OF.1}},
            "webhooks": webhooks,
        })
    };
    [
        configuration("MutatingWebhookConfiguration", true),
        configuration("ValidatingWebhookConfiguration", false),
    ]
}

/// The configurations that have webhooks, with their `caBundle`: ready to be applied.
pub(crate) fn complete(described: &[Value; 2], ca_bundle: &str) -> Vec<Value> {
    let mut configurations = described.to_vec();
    configurations
        .retain(|configuration| configuration["webhooks"].as_array().is_some_and(|list| !list.is_empty()));
    for configuration in &mut configurations {
        for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
            webhook["clientConfig"]["caBundle"] = json!(ca_bundle);
        }
    }
    configurations
}

fn webhook(door: Door, url: &str, snapshot: &Snapshot) -> Option<Value> {
    let rules = rules(door, snapshot);
    if rules.is_empty() {
        return None;
    }
    let mut webhook = json!({
        "name": format!("{}.sallyport.dev", door.name().replace('/', "-")),
        "clientConfig": {"url": format!("{url}/{}", door.name())},
        "rules": rules,
        "failurePolicy": door.failure_policy(),
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": EXEMPT_NAMESPACES},
        ]},
        "matchConditions": [{"name": "not-a-mirror-pod", "expression": NOT_A_MIRROR_POD}],
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "admissionReviewVersions": ["v1"],
    });
    if door.mutates() {
        webhook["reinvocationPolicy"] = json!("IfNeeded");
    }
    Some(webhook)
}

/// The rules of all policies that are evaluated at a door, each once.
fn rules(door: Door, snapshot: &Snapshot) -> Vec<Value> {
    let is_here = |policy: FailurePolicy| (policy == FailurePolicy::Ignore) == door.tolerates_failure();
    let mut rules = Vec::new();
    if door.mutates() {
        for policy in
            snapshot.mutations.iter().map(|entry| &entry.object.spec).filter(|s| is_here(s.failure_policy))
        {
            add(&mut rules, &policy.match_constraints, &["CREATE"]);
        }
        let theirs = snapshot.mutating_policies.iter().map(|entry| &entry.object.spec);
        for policy in theirs.filter(|spec| is_here(spec.failure_policy)) {
            add(&mut rules, &policy.match_constraints, &[]);
        }
    } else {
        for policy in
            snapshot.validations.iter().map(|entry| &entry.object.spec).filter(|s| is_here(s.failure_policy))
        {
            add(&mut rules, &policy.match_constraints, &["CREATE", "UPDATE"]);
        }
        let theirs = snapshot.validating_policies.iter().map(|entry| &entry.object.spec);
        for policy in theirs.filter(|spec| is_here(spec.failure_policy)) {
            add(&mut rules, &policy.match_constraints, &[]);
        }
    }
    rules
}

/// Adds the rules of a policy. `operations` are those of a rule that names none.
fn add(rules: &mut Vec<Value>, constraints: &MatchConstraints, operations: &[&'static str]) {
    for rule in &constraints.resource_rules {
        let mut named: Vec<_> = rule.operations.iter().map(|operation| name(*operation)).collect();
        if named.is_empty() {
            named = operations.to_vec();
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
    use super::{complete, describe};
    use sallyport_sources::{Directory, Snapshot};
    use serde_json::json;

    fn snapshot(policies: &[&str]) -> Snapshot {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("policies.yaml"), policies.join("\n---\n")).unwrap();
        let snapshot = Directory::new(directory.path()).load(None).unwrap();
        assert!(snapshot.problems.is_empty(), "{:?}", snapshot.problems);
        snapshot
    }

    const MUTATION: &str = r#"
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata: {name: label}
spec:
  failurePolicy: Ignore
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods]}]
  mutations: [{overlay: {metadata: {labels: {a: b}}}}]
"#;
    const VALIDATION: &str = r#"
apiVersion: sallyport.dev/v1alpha1
kind: ValidationPolicy
metadata: {name: deny}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], resources: [pods]}
      - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE, UPDATE]}
      - {apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: [DELETE, "*"], scope: Namespaced}
  validations: [{expression: "true"}]
"#;

    #[test]
    fn a_door_without_policies_has_no_entry() {
        let described = describe("dev", "https://127.0.0.1:1", &snapshot(&["# none"]));
        assert!(described.iter().all(|configuration| configuration["webhooks"] == json!([])));
        assert!(complete(&described, "QQ==").is_empty());
    }

    #[test]
    fn an_entry_covers_what_its_policies_cover() {
        let described = describe("dev", "https://127.0.0.1:1", &snapshot(&[MUTATION, VALIDATION]));
        let configurations = complete(&described, "QQ==");
        let [mutating, validating] = configurations.as_slice() else { panic!("{configurations:?}") };
        assert_eq!(
            mutating["metadata"],
            json!({"name": "dev", "labels": {"app.kubernetes.io/part-of": "sallyport"}})
        );
        assert_eq!(mutating["webhooks"].as_array().map(Vec::len), Some(1));
        let entry = &mutating["webhooks"][0];
        let expected = json!({"url": "https://127.0.0.1:1/mutate/ignore", "caBundle": "QQ=="});
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
