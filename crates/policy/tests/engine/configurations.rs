//! `ApplyConfiguration` mutations. What the API server makes of the same is compared in `tests/`.

use std::sync::Arc;

use sallyport_policy::{
    FailurePolicy, GroupVersionKind, MutationSet, Mutations, Objects, Operation, Request,
};
use serde_json::{Value, json};

use crate::fixtures::{message, mutations, namespaces, patched, pod_request, resource, review};
use crate::versions::definitions;

fn policy(expression: &str) -> String {
    let rules = "{resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]}";
    let mutation =
        json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]);
    format!(
        "apiVersion: sallyport.dev/v1alpha1\nkind: MutationPolicy\nmetadata: {{name: p}}\nspec:\n  \
         matchConstraints: {rules}\n  mutations: {mutation}"
    )
}

fn applied(request: &Request, object: &Value, expression: &str) -> Result<Value, String> {
    let policies = Mutations { policies: mutations(&[&policy(expression)]), ..Mutations::default() };
    let set = MutationSet::build(policies, Arc::new(Objects::new(namespaces(), definitions())), None);
    assert_eq!(set.policies()[0].message, "", "{expression}");
    let bytes = object.to_string();
    let outcome = set.review(&review(request, bytes.as_bytes()), FailurePolicy::Fail);
    if outcome.answer.allowed { Ok(patched(object, &outcome)) } else { Err(message(&outcome).to_owned()) }
}

fn in_pod(spec: &Value, fields: &str) -> Result<Value, String> {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec});
    let expression = format!("Object{{spec: Object.spec{{{fields}}}}}");
    Ok(applied(&pod_request(Operation::Create), &object, &expression)?["spec"].clone())
}

#[test]
fn items_in_common_stand_in_the_order_of_the_configuration() {
    let list =
        |names: &str| Value::Array(names.chars().map(|name| json!({"name": name.to_string()})).collect());
    let rows = [
        ("a", "b", "ab"),
        ("a", "ba", "ba"),
        ("abc", "ca", "bca"),
        ("abx", "bac", "bxac"),
        ("xay", "bac", "xbayc"),
        ("ab", "xayb", "xayb"),
        ("abc", "b", "abc"),
        // Those that are there twice give way to one.
        ("aab", "a", "ab"),
        ("aax", "ac", "acx"),
        ("abab", "c", "ababc"),
    ];
    for (before, configuration, after) in rows {
        let items: Vec<String> =
            configuration.chars().map(|name| format!("Object.spec.containers{{name: '{name}'}}")).collect();
        let found =
            in_pod(&json!({"containers": list(before)}), &format!("containers: [{}]", items.join(", ")));
        assert_eq!(found, Ok(json!({"containers": list(after)})), "{before} {configuration}");
    }
}

#[test]
fn a_configuration_that_says_what_is_there_changes_nothing() {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}], "hostNetwork": false}});
    let expression = "Object{kind: 'Other', metadata: Object.metadata{labels: object.metadata.labels, annotations: \
        optional.none().orValue({})}, spec: Object.spec{hostNetwork: false, containers: \
        [Object.spec.containers{name: 'c', ports: [Object.spec.containers.ports{containerPort: 80.0}]}]}}";
    let set = MutationSet::compile(
        mutations(&[&policy(&expression.replace(", annotations: optional.none().orValue({})", ""))]),
        namespaces(),
        None,
    );
    let bytes = object.to_string();
    let request = pod_request(Operation::Create);
    let outcome = set.review(&review(&request, bytes.as_bytes()), FailurePolicy::Fail);
    assert!(outcome.answer.allowed && outcome.answer.patch.is_empty(), "{outcome:?}");
}

/// What the API server lets pass although it cuts numbers off.
#[test]
fn numbers_beyond_their_fields_are_refused() {
    let start = "policy p: mutations[0].applyConfiguration.expression: unable to convert unstructured object to \
                 /v1, Kind=Pod: ";
    let rows = [
        ("priority: 99999999999", "99999999999 is beyond int32"),
        ("activeDeadlineSeconds: 1e30", "cannot convert float64 to int64"),
        ("activeDeadlineSeconds: 1.0 / 0.0", "cannot convert float64 to int64"),
    ];
    for (fields, problem) in rows {
        assert_eq!(in_pod(&json!({}), fields), Err(format!("{start}{problem}")));
    }
}

#[test]
fn kinds_without_a_schema_are_refused_and_custom_ones_follow_theirs() {
    let request = |group: &str, kind: &str, name: &str| Request {
        kind: GroupVersionKind { group: group.to_owned(), version: "v1".to_owned(), kind: kind.to_owned() },
        resource: resource(group, "v1", name),
        operation: Operation::Create,
        ..Request::default()
    };
    let expression = "Object{spec: Object.spec{a: 'x'}}";
    let object = |group: &str, spec: Value| json!({"apiVersion": format!("{group}/v1"), "metadata": {"name": "x"}, "spec": spec});
    let thing = request("example.dev", "Thing", "things");
    assert_eq!(
        applied(&thing, &object("example.dev", json!({})), expression),
        Ok(object("example.dev", json!({"a": "x"})))
    );
    let start = "policy p: mutations[0].applyConfiguration.expression: ";
    assert_eq!(
        applied(&thing, &object("example.dev", json!({"a": 5})), expression),
        Err(format!(
            "{start}error applying patch: failed to convert original object to typed object: .spec.a: expected \
             string, got &value.valueUnstructured{{Value:5}}"
        ))
    );
    assert_eq!(
        applied(&request("example.org", "Widget", "widgets"), &object("example.org", json!({})), expression),
        Err(format!(
            "{start}Resource kind example.org/v1, Kind=Widget not found. There can be a delay between when \
             CustomResourceDefinitions are created and when they are available."
        ))
    );
}

#[test]
fn deep_and_large_configurations_end_in_an_error() {
    let deep = format!("{}1{}", "[".repeat(90), "]".repeat(90));
    let found = in_pod(&json!({}), &format!("hostname: {deep}"));
    assert!(found.unwrap_err().contains("expected string, got"));
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"x": "y".repeat(1 << 20)}});
    let copies = vec!["object.spec.x"; 40].join(", ");
    let expression = format!("Object{{metadata: Object.metadata{{finalizers: [{copies}]}}}}");
    let found = applied(&pod_request(Operation::Create), &object, &expression).unwrap_err();
    assert!(found.contains("makes more than"), "{found}");
}
