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
fn sys_1_6_updates_of_pods_keep_only_what_the_api_server_takes() {
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
    assert_eq!(outcome.warnings.len(), 1);
    for part in ["policy eager", "spec.containers", "spec.hostNetwork", "spec.priority", "spec.volumes"] {
        assert!(outcome.warnings[0].contains(part), "{part} in {:?}", outcome.warnings);
    }
}

#[test]
fn sys_1_6_an_update_with_nothing_left_to_do_makes_no_patch() {
    let policy = mutate_pods("eager", "", "  - overlay: {spec: {containers: [{name: sidecar}]}}");
    let object = pod(json!({}), json!({}));
    let outcome = update(&policy, &object, &object, "");
    assert_eq!(outcome.patch, None);
    assert_eq!(outcome.results[0].result, ResultKind::Unchanged);
    assert_eq!(outcome.warnings.len(), 1);
}

#[test]
fn sys_1_6_a_removal_alone_is_taken_back_too() {
    let policy = mutate_pods("eager", "", "  - overlay: {spec: {priority: null}}");
    let mut object = pod(json!({}), json!({}));
    object["spec"]["priority"] = json!(7);
    let outcome = update(&policy, &object, &object, "");
    assert_eq!((outcome.patch, outcome.warnings.len()), (None, 1));
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
                outcome.allowed && outcome.patch.is_none() && outcome.results.is_empty(),
                "{operation:?}"
            );
        }
    }
    let ordinary = pod(json!({}), json!({})).to_string();
    let request = pod_request(Operation::Create);
    assert!(!validations.review(&review(&request, ordinary.as_bytes()), FailurePolicy::Fail).allowed);
}
