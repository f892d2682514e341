//! `matchPolicy`: policies that name one version, objects that come in another.

use std::sync::Arc;

use sallyport_policy::{
    FailurePolicy, GroupVersionKind, MutationSet, Mutations, Objects, Operation, Outcome, PolicyState,
    Request, ValidationSet, Validations,
};
use serde_json::{Value, json};

use crate::fixtures::{message, mutations, namespaces, patch, resource, review, validations};

/// A custom kind in two versions with different schemas, and one that a webhook converts.
pub fn definitions() -> Vec<Value> {
    let definition = |plural: &str, kind: &str, conversion: Value| {
        let version = |name: &str, field: &str| {
            json!({"name": name, "served": true, "storage": name == "v1", "subresources": {"status": {}},
                   "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                       "spec": {"type": "object", "properties": {field: {"type": "string"}}}}}}})
        };
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
               "metadata": {"name": format!("{plural}.example.dev")},
               "spec": {"group": "example.dev", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                        "conversion": conversion, "versions": [version("v1", "a"), version("v2", "b")]}})
    };
    vec![
        definition("things", "Thing", json!({"strategy": "None"})),
        definition("cogs", "Cog", json!({"strategy": "Webhook"})),
    ]
}

fn objects() -> Arc<Objects> {
    let objects = Objects::new(namespaces(), definitions());
    assert!(objects.problems().is_empty(), "{:?}", objects.problems());
    Arc::new(objects)
}

#[test]
fn definitions_that_cannot_be_used_are_told_with_their_place() {
    let mut bad = definitions();
    bad[1]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["type"] = json!("blob");
    bad.insert(0, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}));
    let mut old = definitions().remove(0);
    old["apiVersion"] = json!("apiextensions.k8s.io/v1beta1");
    bad.push(old);
    let objects = Objects::new(namespaces(), bad);
    let problems: Vec<_> =
        objects.problems().iter().map(|problem| (problem.index, problem.message.as_str())).collect();
    let expected = [
        (2, "CustomResourceDefinition cogs.example.dev, version v1: blob is no type"),
        (
            3,
            "CustomResourceDefinition things.example.dev: apiextensions.k8s.io/v1beta1 is not known, use \
             apiextensions.k8s.io/v1",
        ),
    ];
    assert_eq!(problems, expected);
}

/// What a policy may say of a kind depends on its definition, so a policy that did not change is compiled anew
/// when definitions did.
#[test]
fn unchanged_policies_are_checked_against_changed_definitions() {
    let policy = "apiVersion: sallyport.dev/v1alpha1\nkind: MutationPolicy\nmetadata: {name: p}\nspec:\n  \
                  matchConstraints: {resourceRules: [{apiGroups: [example.dev], apiVersions: [v1], resources: [things]}]}\n  \
                  mutations: [{overlay: {spec: {parts: [{size: 1}]}}}]";
    let compile = |definitions: Vec<Value>, previous: Option<&MutationSet>| {
        let policies = Mutations { policies: mutations(&[policy]), ..Mutations::default() };
        MutationSet::build(policies, Arc::new(Objects::new(namespaces(), definitions)), previous)
    };
    let state = |set: &MutationSet| set.policies()[0].state;
    let mut keyed = definitions();
    keyed[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = json!({
        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                  "items": {"type": "object", "properties": {"name": {"type": "string"}}}}});
    let first = compile(definitions(), None);
    assert_eq!(state(&first), PolicyState::Active);
    let second = compile(keyed, Some(&first));
    assert_eq!(state(&second), PolicyState::Stale);
    assert!(second.policies()[0].message.contains("spec.parts[0]: lacks name"));
    assert_eq!(state(&compile(definitions(), Some(&second))), PolicyState::Active);
}

fn kind(group: &str, version: &str, kind: &str) -> GroupVersionKind {
    GroupVersionKind { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
}

/// A request for a resource, its name with the subresource.
fn request(group: &str, version: &str, kind_name: &str, name: &str) -> Request {
    let (name, sub) = name.split_once('/').unwrap_or((name, ""));
    Request {
        kind: kind(group, version, kind_name),
        resource: resource(group, version, name),
        sub_resource: sub.to_owned(),
        namespace: "default".to_owned(),
        operation: Operation::Create,
        ..Request::default()
    }
}

/// A policy that refuses what it matches and says in which version it saw it.
fn refuse(constraints: &str) -> ValidationSet {
    let yaml = format!(
        "apiVersion: sallyport.dev/v1alpha1\nkind: ValidationPolicy\nmetadata: {{name: p}}\nspec:\n  \
         matchConstraints: {constraints}\n  validations: [{{expression: 'false', messageExpression: \
         \"object.apiVersion + ' ' + request.kind.version + ' ' + request.resource.version + ' ' + \
         request.requestKind.version + ' ' + request.requestResource.version\"}}]"
    );
    let policies = Validations { policies: validations(&[&yaml]), ..Validations::default() };
    ValidationSet::build(policies, objects(), None)
}

fn outcome(set: &ValidationSet, request: &Request, object: &Value) -> Outcome {
    let bytes = object.to_string();
    set.review(&review(request, bytes.as_bytes()), FailurePolicy::Fail)
}

#[test]
fn equivalent_policies_see_the_version_that_they_name() {
    let object = |version: &str| json!({"apiVersion": version, "metadata": {"name": "x"}});
    let present = "the object is in autoscaling/v1, Kind=HorizontalPodAutoscaler, the policy is for \
                   autoscaling/v2, Kind=HorizontalPodAutoscaler, and it cannot be converted here; name both \
                   versions in resourceRules, or register the webhook for the one alone";
    let unknown = "the object is in example.org/v2, Kind=Widget, the policy is for another version, and it cannot \
                   be converted here; name both versions in resourceRules, or register the webhook for the one alone";
    let cogs = "the object is in example.dev/v2, Kind=Cog, the policy is for example.dev/v1, Kind=Cog, and it \
                cannot be converted here; name both versions in resourceRules, or register the webhook for the \
                one alone";
    // group, version and resource of the rule; the request; with Equivalent, and with Exact
    let rows = [
        (
            "apps",
            "v1",
            "deployments",
            request("apps", "v1", "Deployment", "deployments"),
            "apps/v1 v1 v1 v1 v1",
            true,
        ),
        // A definition without conversion: versions differ in apiVersion alone.
        (
            "example.dev",
            "v1",
            "things",
            request("example.dev", "v2", "Thing", "things"),
            "example.dev/v1 v1 v1 v2 v2",
            false,
        ),
        (
            "example.dev",
            "v1",
            "things/status",
            request("example.dev", "v2", "Thing", "things/status"),
            "example.dev/v1 v1 v1 v2 v2",
            false,
        ),
        ("example.dev", "v1", "things", request("example.dev", "v2", "Thing", "things/status"), "", false),
        (
            "*",
            "v1",
            "*",
            request("example.dev", "v2", "Thing", "things"),
            "example.dev/v1 v1 v1 v2 v2",
            false,
        ),
        (
            "example.dev",
            "*",
            "things",
            request("example.dev", "v2", "Thing", "things"),
            "example.dev/v2 v2 v2 v2 v2",
            true,
        ),
        ("example.dev", "v1", "cogs", request("example.dev", "v2", "Cog", "cogs"), cogs, false),
        ("example.org", "v1", "widgets", request("example.org", "v2", "Widget", "widgets"), unknown, false),
        // Whoever names everything did not mean a version of this.
        ("*", "v1", "*", request("example.org", "v2", "Widget", "widgets"), "", false),
        (
            "autoscaling",
            "v2",
            "horizontalpodautoscalers",
            request("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
            present,
            false,
        ),
        // The same schema in both.
        (
            "resource.k8s.io",
            "v1beta2",
            "resourceclaims",
            request("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims"),
            "resource.k8s.io/v1beta2 v1beta2 v1beta2 v1 v1",
            false,
        ),
        // A version that no API server of this release has.
        ("apps", "v1beta1", "deployments", request("apps", "v1", "Deployment", "deployments"), "", false),
    ];
    for (group, version, name, request, expected, exact) in rows {
        let rules = format!(
            "resourceRules: [{{apiGroups: ['{group}'], apiVersions: ['{version}'], resources: ['{name}']}}]"
        );
        let sent = object(&format!("{}/{}", request.kind.group, request.kind.version));
        let found = outcome(&refuse(&format!("{{{rules}}}")), &request, &sent);
        let found = if found.answer.allowed { "" } else { message(&found) };
        let found = found.trim_start_matches("policy p: ").trim_end_matches(" (policy p)");
        assert_eq!(found, expected, "{rules} {:?}", request.resource);
        let found = outcome(&refuse(&format!("{{{rules}, matchPolicy: Exact}}")), &request, &sent);
        assert_eq!(!found.answer.allowed, exact, "{rules} Exact");
    }
}

/// Also for whoever names all resources of a group.
#[test]
fn events_are_the_same_in_both_groups() {
    let asked = request("events.k8s.io", "v1", "Event", "events");
    let sent = json!({"apiVersion": "events.k8s.io/v1"});
    for name in ["events", "*"] {
        let rules = |group: &str, policy: &str| {
            format!(
                "{{resourceRules: [{{apiGroups: ['{group}'], apiVersions: [v1], resources: ['{name}']}}], \
                 matchPolicy: {policy}}}"
            )
        };
        let found = outcome(&refuse(&rules("", "Equivalent")), &asked, &sent);
        assert!(message(&found).contains("the policy is for /v1, Kind=Event"), "{name}: {}", message(&found));
        assert!(outcome(&refuse(&rules("", "Exact")), &asked, &sent).answer.allowed, "{name}");
        assert_eq!(
            message(&outcome(&refuse(&rules("events.k8s.io", "Equivalent")), &asked, &sent)),
            "events.k8s.io/v1 v1 v1 v1 v1 (policy p)",
            "{name}"
        );
        let core = request("", "v1", "Event", "events");
        let found = outcome(&refuse(&rules("events.k8s.io", "Equivalent")), &core, &json!({}));
        assert!(
            message(&found).contains("the policy is for events.k8s.io/v1, Kind=Event"),
            "{name}: {}",
            message(&found)
        );
        let others = request("", "v1", "Pod", "pods");
        assert!(
            outcome(&refuse(&rules("events.k8s.io", "Equivalent")), &others, &json!({})).answer.allowed,
            "{name}"
        );
    }
}

/// Kubernetes: of several rules for other versions the first one says in which the policy sees the object.
#[test]
fn the_first_rule_that_matches_says_which_version() {
    let rule = |version: &str| {
        format!("{{apiGroups: [resource.k8s.io], apiVersions: [{version}], resources: [resourceclaims]}}")
    };
    let asked = request("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims");
    let sent = json!({"apiVersion": "resource.k8s.io/v1"});
    for (first, second) in [("v1beta1", "v1beta2"), ("v1beta2", "v1beta1")] {
        let policies = refuse(&format!("{{resourceRules: [{}, {}]}}", rule(first), rule(second)));
        let found = outcome(&policies, &asked, &sent);
        // Seen in that version, or an error that names it.
        let text = message(&found);
        assert!(text.contains(first) && !text.contains(second), "{first}, {second}: {text}");
    }
}

/// What the registration made of a request, and what was asked for.
#[test]
fn exact_policies_look_at_what_was_asked_for() {
    let rules = |version: &str, policy: &str| {
        format!(
            "{{resourceRules: [{{apiGroups: [example.dev], apiVersions: [{version}], resources: [things]}}], matchPolicy: {policy}}}"
        )
    };
    let mut converted = request("example.dev", "v1", "Thing", "things");
    converted.request_kind = Some(kind("example.dev", "v2", "Thing"));
    converted.request_resource = Some(resource("example.dev", "v2", "things"));
    let rows = [
        ("v1", "Exact", ""),
        ("v2", "Exact", "example.dev/v2 v2 v2 v2 v2"),
        ("v1", "Equivalent", "example.dev/v1 v1 v1 v2 v2"),
        ("v2", "Equivalent", "example.dev/v2 v2 v2 v2 v2"),
        // No conversion where none is needed.
        ("'*'", "Equivalent", "example.dev/v1 v1 v1 v2 v2"),
        ("'*'", "Exact", "example.dev/v2 v2 v2 v2 v2"),
    ];
    for (version, policy, expected) in rows {
        let found =
            outcome(&refuse(&rules(version, policy)), &converted, &json!({"apiVersion": "example.dev/v1"}));
        let found = if found.answer.allowed { "" } else { message(&found).trim_end_matches(" (policy p)") };
        assert_eq!(found, expected, "{version} {policy}");
    }
}

#[test]
fn excluded_rules_are_equivalent_too() {
    let rules = |policy: &str| {
        format!(
            "{{resourceRules: [{{apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}}], excludeResourceRules: \
             [{{apiGroups: [example.dev], apiVersions: [v1], resources: [things]}}], matchPolicy: {policy}}}"
        )
    };
    let asked = request("example.dev", "v2", "Thing", "things");
    let sent = json!({"apiVersion": "example.dev/v2"});
    assert!(outcome(&refuse(&rules("Equivalent")), &asked, &sent).answer.allowed);
    assert!(!outcome(&refuse(&rules("Exact")), &asked, &sent).answer.allowed);
}

#[test]
fn a_mutation_in_another_version_leaves_the_version_be() {
    let policy = |name: &str, version: &str| {
        format!(
            "apiVersion: sallyport.dev/v1alpha1\nkind: MutationPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
             matchConstraints: {{resourceRules: [{{apiGroups: [example.dev], apiVersions: [{version}], resources: \
             [things]}}]}}\n  reinvocationPolicy: IfNeeded\n  mutations: [{{applyConfiguration: {{expression: \"Object{{metadata: \
             Object.metadata{{labels: {{'{name}': object.apiVersion.replace('/', '.')}}}}}}\"}}}}]"
        )
    };
    let policies = mutations(&[&policy("a", "v1"), &policy("b", "v2"), &policy("c", "v1")]);
    let policies = Mutations { policies, ..Mutations::default() };
    let set = MutationSet::build(policies, objects(), None);
    assert!(set.policies().iter().all(|policy| policy.message.is_empty()), "{:?}", set.policies());
    let object =
        json!({"apiVersion": "example.dev/v2", "kind": "Thing", "metadata": {"name": "x"}}).to_string();
    let asked = request("example.dev", "v2", "Thing", "things");
    let outcome = set.review(&review(&asked, object.as_bytes()), FailurePolicy::Fail);
    assert_eq!(
        patch(&outcome),
        json!([{"op": "add", "path": "/metadata/labels",
                "value": {"a": "example.dev.v1", "b": "example.dev.v2", "c": "example.dev.v1"}}])
    );
}
