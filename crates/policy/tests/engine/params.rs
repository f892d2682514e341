//! Settings of policies: written out, or in objects of their own.

use std::sync::Arc;

use sallyport_policy::{
    FailurePolicy, MutationSet, Mutations, Objects, Operation, Outcome, PolicyState, ValidationSet,
    Validations,
};
use serde_json::{Value, json};

use crate::fixtures::{message, mutation_set, namespaces, patched, pod, pod_request, review, validation_set};

fn config_map(namespace: Option<&str>, name: &str, limit: &str) -> Value {
    let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                         "metadata": {"name": name, "labels": {"limit": limit}}, "data": {"limit": limit}});
    if let Some(namespace) = namespace {
        map["metadata"]["namespace"] = json!(namespace);
    }
    map
}

fn objects() -> Arc<Objects> {
    let definition = |kind: &str, scope: &str| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
               "metadata": {"name": kind}, "spec": {"group": "example.dev", "names": {"kind": kind}, "scope": scope,
               "versions": [{"name": "v1", "served": true}, {"name": "v9", "served": false}]}})
    };
    Arc::new(Objects::new(
        namespaces(),
        [
            config_map(None, "in-default", "1"),
            config_map(Some("other"), "in-other", "2"),
            config_map(Some("default"), "second", "3"),
            definition("Limit", "Cluster"),
            definition("Unused", "Namespaced"),
            json!({"apiVersion": "example.dev/v1", "kind": "Limit", "metadata": {"name": "l"}, "limit": "4"}),
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}),
        ],
    ))
}

/// Kind and reference, the request's namespace, and the names of the settings or how the policy fails.
type Row<'r> = (Option<&'r str>, Option<Value>, &'r str, Result<&'r [&'r str], &'r str>);

/// A policy that refuses everything and tells its settings.
fn review_with(kind: Option<&str>, reference: Option<Value>, namespace: &str) -> Outcome {
    let (version, kind_name) = kind.and_then(|kind| kind.rsplit_once('/')).unwrap_or_default();
    let expression =
        if kind.is_some() { "params == null ? 'null' : string(params.metadata.name)" } else { "'none'" };
    let mut policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"}, "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*"]}]},
            "validations": [{"expression": "false", "messageExpression": expression}]}});
    if kind.is_some() {
        policy["spec"]["paramKind"] = json!({"apiVersion": version, "kind": kind_name});
    }
    let mut binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Warn"]}});
    if let Some(reference) = reference {
        binding["spec"]["paramRef"] = reference;
    }
    let validations = Validations {
        admission_policies: vec![serde_json::from_value(policy).unwrap()],
        bindings: vec![serde_json::from_value(binding).unwrap()],
        ..Validations::default()
    };
    let set = ValidationSet::build(validations, objects(), None);
    assert_eq!(set.policies()[0].message, "");
    let mut request = pod_request(Operation::Create);
    namespace.clone_into(&mut request.namespace);
    let object = pod(json!({}), json!({})).to_string();
    set.review(&review(&request, object.as_bytes()), FailurePolicy::Fail)
}

/// Facts 10, 12 and 13: which settings the policy is evaluated with, or how it fails.
#[test]
fn references_are_resolved_as_by_the_api_server() {
    let named = |name: &str| json!({"name": name, "parameterNotFoundAction": "Deny"});
    let allowed = |name: &str| json!({"name": name, "parameterNotFoundAction": "Allow"});
    let within = |namespace: &str, name: &str| json!({"name": name, "namespace": namespace, "parameterNotFoundAction": "Deny"});
    let labelled = |selector: Value| json!({"selector": selector, "parameterNotFoundAction": "Deny"});
    let not_found = Err("no params found for policy binding with `Deny` parameterNotFoundAction");
    let rows: Vec<Row<'_>> = vec![
        (None, None, "default", Ok(&["none"])),
        // A reference without a kind is ignored.
        (None, Some(named("absent")), "default", Ok(&["none"])),
        (Some("v1/ConfigMap"), None, "default", Ok(&["null"])),
        (Some("v1/ConfigMap"), Some(named("in-default")), "default", Ok(&["in-default"])),
        (Some("v1/ConfigMap"), Some(named("in-other")), "default", not_found),
        (Some("v1/ConfigMap"), Some(allowed("in-other")), "default", Ok(&[])),
        (Some("v1/ConfigMap"), Some(within("other", "in-other")), "default", Ok(&["in-other"])),
        (Some("v1/ConfigMap"), Some(within("other", "in-other")), "", Ok(&["in-other"])),
        (
            Some("v1/ConfigMap"),
            Some(named("in-default")),
            "",
            Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"),
        ),
        (Some("v1/ConfigMap"), Some(labelled(json!({}))), "default", Ok(&["in-default", "second"])),
        (
            Some("v1/ConfigMap"),
            Some(labelled(
                json!({"matchExpressions": [{"key": "limit", "operator": "In", "values": ["3", "2"]}]}),
            )),
            "default",
            Ok(&["second"]),
        ),
        (Some("v1/ConfigMap"), Some(labelled(json!({"matchLabels": {"limit": "9"}}))), "default", not_found),
        (Some("example.dev/v1/Limit"), Some(named("l")), "default", Ok(&["l"])),
        (Some("example.dev/v1/Limit"), Some(named("l")), "", Ok(&["l"])),
        (Some("scheduling.k8s.io/v1/PriorityClass"), Some(named("high")), "default", Ok(&["high"])),
        (Some("v1/Namespace"), Some(named("plain")), "default", Ok(&["plain"])),
        (
            Some("example.dev/v1/Limit"),
            Some(within("default", "l")),
            "default",
            Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`"),
        ),
        (Some("example.dev/v1/Unused"), Some(named("u")), "default", not_found),
        (
            Some("example.dev/v1/Unheard"),
            Some(named("u")),
            "default",
            Err("failed to find resource referenced by paramKind: 'example.dev/v1, Kind=Unheard'"),
        ),
        (
            Some("example.dev/v9/Limit"),
            None,
            "default",
            Err("failed to find resource referenced by paramKind: 'example.dev/v9, Kind=Limit'"),
        ),
        (
            Some("v1/Unheard"),
            Some(named("u")),
            "default",
            Err("failed to find resource referenced by paramKind: '/v1, Kind=Unheard'"),
        ),
    ];
    for (kind, reference, namespace, expected) in rows {
        let outcome = review_with(kind, reference.clone(), namespace);
        let row = format!("{kind:?} {reference:?} {namespace:?}");
        match expected {
            Ok(settings) => {
                assert!(outcome.answer.allowed, "{row}: {:?}", outcome.answer.status);
                let warned = |name: &&str| {
                    format!("Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': {name}")
                };
                assert_eq!(outcome.answer.warnings, settings.iter().map(warned).collect::<Vec<_>>(), "{row}");
            }
            Err(problem) => {
                let (bound, what) = if problem.starts_with("failed to find") {
                    ("", "policy")
                } else {
                    (" with binding 'b'", "binding")
                };
                let expected = format!(
                    "ValidatingAdmissionPolicy 'p'{bound} denied request: failed to configure {what}: {problem}"
                );
                assert_eq!(message(&outcome), expected, "{row}");
                assert_eq!(outcome.answer.status.unwrap().code, 422, "{row}");
            }
        }
    }
}

const LIMIT: &str = r#"
apiVersion: sallyport.dev/v1alpha1
kind: ValidationPolicy
metadata: {name: limit}
spec:
  params: {most: 1}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods]}]
  validations:
  - expression: object.spec.containers.size() <= params.most
    messageExpression: "'at most ' + string(params.most)"
"#;

const LABEL: &str = r#"
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata: {name: label}
spec:
  params: {team: a}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods]}]
  mutations: [{overlay: {metadata: {labels: {team: "${{ params.team }}"}}}}]
"#;

#[test]
fn settings_can_stand_in_the_policy() {
    let mut object = pod(json!({}), json!({}));
    let set = validation_set(&[LIMIT]);
    assert!(crate::fixtures::validate(&set, &object).answer.allowed);
    let outcome = crate::fixtures::mutate(&mutation_set(&[LABEL]), &object);
    assert_eq!(patched(&object, &outcome)["metadata"]["labels"], json!({"team": "a"}));
    object["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "b"}));
    assert_eq!(message(&crate::fixtures::validate(&set, &object)), "at most 1 (policy limit)");
}

#[test]
fn ours_refer_to_objects_too_and_are_evaluated_for_each() {
    let policy = LIMIT.replace(
        "params: {most: 1}",
        "paramKind: {apiVersion: v1, kind: ConfigMap}\n  paramRef: {selector: {}}",
    );
    let policy = policy.replace("params.most", "int(params.data.limit)").replace("<=", ">");
    let validations =
        Validations { policies: crate::fixtures::validations(&[&policy]), ..Validations::default() };
    let set = ValidationSet::build(validations, objects(), None);
    assert_eq!(set.policies()[0].message, "");
    let outcome = crate::fixtures::validate(&set, &pod(json!({}), json!({})));
    assert_eq!(message(&outcome), "at most 1 (policy limit); at most 3 (policy limit)");
}

#[test]
fn ours_say_kind_and_reference_or_neither() {
    let rows = [
        ("paramKind: {apiVersion: v1, kind: ConfigMap}", "paramRef"),
        ("paramRef: {name: x}", "paramKind"),
        ("paramKind: {apiVersion: v1, kind: ConfigMap}\n  paramRef: {}", "either a name or a selector"),
        (
            "params: {most: 1}\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n  paramRef: {name: x}",
            "params",
        ),
        ("failurePolicy: Fail", "undeclared reference to 'params'"),
    ];
    for (fields, expected) in rows {
        let policy = LIMIT.replace("params: {most: 1}", fields);
        let set = ValidationSet::compile(crate::fixtures::validations(&[&policy]), namespaces(), None);
        let status = &set.policies()[0];
        assert_eq!(status.state, PolicyState::Broken, "{fields}");
        assert!(status.message.contains(expected), "{fields}: {}", status.message);
    }
}

/// A policy that is evaluated for several objects has one second for all of them.
#[test]
fn the_settings_of_a_policy_share_its_time() {
    let policy = LIMIT.replace(
        "params: {most: 1}",
        "paramKind: {apiVersion: v1, kind: ConfigMap}\n  paramRef: {selector: {}}",
    );
    let policy = policy.replace(
        "  - expression: object.spec.containers.size() <= params.most",
        "  - forEach: {list: lists.range(1000), as: n}\n    expression: lists.range(400).all(i, i + n >= 0) || params == null",
    );
    let policy = policy.replace("'at most ' + string(params.most)", "'failed'");
    let maps = (0..500).map(|n| config_map(Some("default"), &format!("c{n}"), "1"));
    let validations =
        Validations { policies: crate::fixtures::validations(&[&policy]), ..Validations::default() };
    let set = ValidationSet::build(validations, Arc::new(Objects::new(namespaces(), maps)), None);
    assert_eq!(set.policies()[0].message, "");
    let outcome = crate::fixtures::validate(&set, &pod(json!({}), json!({})));
    assert_eq!(message(&outcome), "policy limit: the evaluation took longer than 1000 ms");
}

/// `IfNeeded` means another policy's change: what a policy did with its other settings is its own.
#[test]
fn a_policy_of_ours_does_not_reinvoke_itself_through_its_settings() {
    let counter = LABEL
        .replace(
            "params: {team: a}",
            "reinvocationPolicy: IfNeeded\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n  paramRef: {selector: {}}",
        )
        .replace(
            "{team: \"${{ params.team }}\"}",
            "{team: \"${{ object.metadata.?labels.?team.orValue('') + params.data.limit }}\"}",
        );
    let other = LABEL.replace("name: label", "name: other").replace("{team: \"$", "{other: \"$");
    let object = pod(json!({}), json!({}));
    let team = |policies: &[&str]| {
        let policies = Mutations { policies: crate::fixtures::mutations(policies), ..Mutations::default() };
        let set = MutationSet::build(policies, objects(), None);
        assert!(set.policies().iter().all(|policy| policy.message.is_empty()), "{:?}", set.policies());
        patched(&object, &crate::fixtures::mutate(&set, &object))["metadata"]["labels"]["team"].clone()
    };
    assert_eq!(team(&[&counter]), "13");
    assert_eq!(team(&[&counter, &other]), "1313");
}
