//! What policies never do.

use sallyport_policy::{FailurePolicy, Operation, ResultKind};
use serde_json::{Value, json};

use crate::fixtures::{
    mutate_pods, mutation_set, patch, patched, pod, pod_request, review, validate_pods, validation_set,
};

fn update(policy: &str, old: &Value, new: &Value, sub_resource: &str) -> sallyport_policy::Outcome {
    let mut request = pod_request(Operation::Update);
    sub_resource.clone_into(&mut request.sub_resource);
    let (old, new) = (old.to_string(), new.to_string());
    let mut review = review(&request, new.as_bytes());
    review.old_object = old.as_bytes();
    mutation_set(&[policy]).review(&review, FailurePolicy::Fail)
}

/// C-74, SYS-1.6: an existing pod's spec is immutable but for a few fields.
#[test]
fn updates_of_pods_keep_only_what_the_api_server_takes_sys1() {
    let policy = mutate_pods(
        "eager",
        "",
        r#"  - overlay:
      metadata: {labels: {a: x}, annotations: {b: why}}
      spec:
        activeDeadlineSeconds: 60
        hostNetwork: true
        priority: null
        tolerations: '${{ object.spec.tolerations + [{"key": "new"}] }}'
        containers: [{name: sleep, image: newer, command: [x]}, {name: sidecar, image: s}]
        volumes: [{name: v, emptyDir: {}}]"#,
    );
    let mut object = pod(json!({}), json!({}));
    object["spec"]["tolerations"] = json!([{"key": "old"}]);
    object["spec"]["priority"] = json!(7);
    let outcome = update(&policy, &object, &object, "");
    let result = patched(&object, &outcome);
    assert_eq!(result["metadata"]["labels"], json!({"a": "x"}));
    assert_eq!(result["metadata"]["annotations"], json!({"b": "why"}));
    assert_eq!(
        result["spec"],
        json!({"containers": [{"name": "sleep", "image": "newer"}], "activeDeadlineSeconds": 60, "priority": 7,
               "tolerations": [{"key": "old"}, {"key": "new"}]})
    );
    assert_eq!(outcome.answer.warnings.len(), 1);
    for part in ["policy eager", "spec.containers", "spec.hostNetwork", "spec.priority", "spec.volumes"] {
        assert!(outcome.answer.warnings[0].contains(part), "{part} in {:?}", outcome.answer.warnings);
    }
}

#[test]
fn an_update_with_nothing_left_to_do_makes_no_patch_sys1() {
    let policy = mutate_pods("eager", "", "  - overlay: {spec: {containers: [{name: sidecar}]}}");
    let object = pod(json!({}), json!({}));
    let outcome = update(&policy, &object, &object, "");
    assert!(outcome.answer.patch.is_empty());
    assert_eq!(outcome.results[0].result, ResultKind::Unchanged);
    assert_eq!(outcome.answer.warnings.len(), 1);
}

#[test]
fn a_removal_alone_is_taken_back_too_sys1() {
    let policy = mutate_pods("eager", "", "  - overlay: {spec: {priority: null}}");
    let mut object = pod(json!({}), json!({}));
    object["spec"]["priority"] = json!(7);
    let outcome = update(&policy, &object, &object, "");
    assert_eq!((outcome.answer.patch.is_empty(), outcome.answer.warnings.len()), (true, 1));
}

/// Kubernetes: scheduling gates of an existing pod can be removed, and nothing else.
#[test]
fn scheduling_gates_may_go_but_not_come_sys1() {
    let gates = json!([{"name": "a"}, {"name": "b"}]);
    let rows = [
        ("op: 'remove', path: '/spec/schedulingGates/0'", Some(json!([{"name": "b"}])), false),
        ("op: 'replace', path: '/spec/schedulingGates', value: []", Some(json!([])), false),
        ("op: 'remove', path: '/spec/schedulingGates'", None, false),
        ("op: 'add', path: '/spec/schedulingGates/-', value: {'name': 'c'}", Some(gates.clone()), true),
        ("op: 'replace', path: '/spec/schedulingGates/0/name', value: 'c'", Some(gates.clone()), true),
        ("op: 'replace', path: '/spec/schedulingGates', value: 'a'", Some(gates.clone()), true),
    ];
    for (operation, expected, restored) in rows {
        let mutation = format!("  - jsonPatch: {{expression: \"[JSONPatch{{{operation}}}]\"}}");
        let mut object = pod(json!({}), json!({}));
        object["spec"]["schedulingGates"] = gates.clone();
        let outcome = update(&mutate_pods("eager", "", &mutation), &object, &object, "");
        let result = patched(&object, &outcome);
        assert_eq!(result["spec"].get("schedulingGates"), expected.as_ref(), "{operation}");
        assert_eq!(
            !outcome.answer.warnings.is_empty(),
            restored,
            "{operation}: {:?}",
            outcome.answer.warnings
        );
    }
    // A pod that never had any gets none.
    let object = pod(json!({}), json!({}));
    let mutation = "  - overlay: {spec: {schedulingGates: [{name: a}]}}";
    let outcome = update(&mutate_pods("eager", "", mutation), &object, &object, "");
    assert_eq!((outcome.answer.patch.is_empty(), outcome.answer.warnings.len()), (true, 1));
}

#[test]
fn subresources_of_pods_are_not_held_back() {
    let policy =
        mutate_pods("debug", "", "  - overlay: {spec: {ephemeralContainers: [{name: d, image: new}]}}");
    let mut object = pod(json!({}), json!({}));
    object["spec"]["ephemeralContainers"] = json!([{"name": "d", "image": "old"}]);
    let outcome = update(&policy, &object, &object, "ephemeralcontainers");
    assert_eq!(
        patch(&outcome),
        json!([{"op": "replace", "path": "/spec/ephemeralContainers/0/image", "value": "new"}])
    );
}

#[test]
fn mirror_pods_are_left_alone_at_both_doors() {
    let mirror = pod(json!({"kubernetes.io/config.mirror": "hash"}), json!({})).to_string();
    let mutation = mutate_pods("m", "", "  - overlay: {metadata: {labels: {a: x}}}");
    let validation = validate_pods("v", "  validations: [{expression: 'false'}]");
    let mutations = mutation_set(&[&mutation]);
    let validations = validation_set(&[&validation]);
    for (operation, object, old) in [
        (Operation::Create, mirror.as_str(), ""),
        (Operation::Update, mirror.as_str(), mirror.as_str()),
        (Operation::Delete, "null", mirror.as_str()),
    ] {
        let request = pod_request(operation);
        let mut review = review(&request, object.as_bytes());
        review.old_object = old.as_bytes();
        for outcome in
            [mutations.review(&review, FailurePolicy::Fail), validations.review(&review, FailurePolicy::Fail)]
        {
            assert!(
                outcome.answer.allowed && outcome.answer.patch.is_empty() && outcome.results.is_empty(),
                "{operation:?}"
            );
        }
    }
    let ordinary = pod(json!({}), json!({})).to_string();
    let request = pod_request(Operation::Create);
    assert!(!validations.review(&review(&request, ordinary.as_bytes()), FailurePolicy::Fail).answer.allowed);
}

/// Whoever sends a request can write the mark into what is sent. Only that of a pod counts, and only one that
/// the pod had before.
#[test]
fn the_mark_of_mirror_pods_is_no_way_past_the_policies() {
    let marked = pod(json!({"kubernetes.io/config.mirror": "hash"}), json!({})).to_string();
    let ordinary = pod(json!({}), json!({})).to_string();
    let (marked, ordinary) = (marked.as_str(), ordinary.as_str());
    let validations = validation_set(&[&validate_pods("v", "  validations: [{expression: 'false'}]")]);
    let mutations = mutation_set(&[&mutate_pods("m", "", "  - overlay: {metadata: {labels: {a: x}}}")]);
    let rows = [
        // Operation, subresource, kind, object, old object, whether it is left alone.
        (Operation::Create, "eviction", "Eviction", marked, "", false),
        (Operation::Create, "binding", "Binding", marked, "", false),
        (Operation::Connect, "exec", "PodExecOptions", marked, "", false),
        (Operation::Update, "ephemeralcontainers", "Pod", marked, ordinary, false),
        (Operation::Update, "resize", "Pod", marked, ordinary, false),
        (Operation::Update, "", "Pod", marked, ordinary, false),
        (Operation::Delete, "", "Pod", "", ordinary, false),
        (Operation::Update, "status", "Pod", marked, marked, true),
        (Operation::Create, "", "Pod", marked, "", true),
    ];
    for (operation, sub_resource, kind, object, old, left_alone) in rows {
        let mut request = pod_request(operation);
        sub_resource.clone_into(&mut request.sub_resource);
        kind.clone_into(&mut request.kind.kind);
        let mut review = review(&request, object.as_bytes());
        review.old_object = old.as_bytes();
        let row = format!("{operation:?} {sub_resource} {kind}");
        let outcome = validations.review(&review, FailurePolicy::Fail);
        assert_eq!(outcome.answer.allowed, left_alone, "{row}");
        let outcome = mutations.review(&review, FailurePolicy::Fail);
        assert_eq!(outcome.results.is_empty(), left_alone, "{row}");
    }
}
