//! Mutations: what they make of objects, how they follow each other, and what happens when they fail.

use sallyport_policy::{FailurePolicy, Operation, ResultKind};
use serde_json::{Value, json};

use crate::fixtures::{
    HELLO, SIDECAR, message, mutate, mutate_pods, mutation_set, patch, patched, pod, pod_request, review,
};

fn results(outcome: &sallyport_policy::Outcome) -> Vec<ResultKind> {
    outcome.results.iter().map(|result| result.result).collect()
}

#[test]
fn the_sidecar_is_added_and_nothing_else_sys1() {
    let object = pod(json!({"example.dev/inject": "yes", "other/key": "kept"}), json!({}));
    let outcome = mutate(&mutation_set(&[SIDECAR]), &object);
    assert_eq!(
        patch(&outcome),
        json!([
            {"op": "add", "path": "/metadata/annotations/example.dev~1status", "value": "injected"},
            {"op": "add", "path": "/spec/containers/1", "value": {
                "name": "sidecar-nginx", "image": "nginx:1.12.2", "imagePullPolicy": "IfNotPresent",
                "ports": [{"containerPort": 80}],
                "volumeMounts": [{"name": "nginx-conf", "mountPath": "/etc/nginx"}]}},
            {"op": "add", "path": "/spec/volumes",
             "value": [{"name": "nginx-conf", "configMap": {"name": "nginx-configmap"}}]},
        ])
    );
    assert_eq!(results(&outcome), [ResultKind::Applied]);
}

#[test]
fn opt_in_is_case_insensitive_and_everything_else_stays_out_sys1() {
    let set = mutation_set(&[SIDECAR]);
    for (value, injected) in
        [("y", true), ("YES", true), ("True", true), ("on", true), ("no", false), ("", false)]
    {
        let outcome = mutate(&set, &pod(json!({"example.dev/inject": value}), json!({})));
        assert_eq!(outcome.answer.patch.is_empty(), !injected, "{value}");
    }
    let outcome = mutate(&set, &json!({"metadata": {}, "spec": {"containers": []}}));
    assert_eq!(results(&outcome), [ResultKind::Skipped]);
}

#[test]
fn every_container_gets_the_mount_sys2() {
    let mut object = pod(json!(null), json!({"hello": "true"}));
    object["spec"]["containers"] =
        json!([{"name": "a"}, {"name": "b", "volumeMounts": [{"name": "x", "mountPath": "/x"}]}]);
    let set = mutation_set(&[HELLO]);
    let outcome = mutate(&set, &object);
    let mount = json!({"name": "hello-volume", "mountPath": "/etc/config"});
    assert_eq!(
        patch(&outcome),
        json!([
            {"op": "add", "path": "/metadata/labels/hello-added", "value": "OK"},
            {"op": "add", "path": "/spec/containers/0/volumeMounts", "value": [mount]},
            {"op": "add", "path": "/spec/containers/1/volumeMounts/1", "value": mount},
            {"op": "add", "path": "/spec/volumes",
             "value": [{"name": "hello-volume", "configMap": {"name": "hello-configmap"}}]},
        ])
    );
    let outcome = mutate(&set, &pod(json!(null), json!({"hello": "false"})));
    assert_eq!((outcome.answer.patch.is_empty(), outcome.results.len()), (true, 0));
}

/// C-33: absent, null and empty parents.
#[test]
fn parents_are_made_where_they_lack_c33() {
    let overlay =
        "  - overlay: {metadata: {annotations: {a/b~c: x}}, spec: {volumes: [{name: v, emptyDir: {}}]}}";
    let policy = mutate_pods("p", "", overlay);
    let set = mutation_set(&[&policy]);
    for metadata in [json!({}), json!({"annotations": null}), json!({"annotations": {}})] {
        for spec in [json!({}), json!({"volumes": null}), json!({"volumes": []})] {
            let object = json!({"metadata": metadata, "spec": spec});
            let result = patched(&object, &mutate(&set, &object));
            assert_eq!(result["metadata"]["annotations"], json!({"a/b~c": "x"}), "{object}");
            assert_eq!(result["spec"]["volumes"], json!([{"name": "v", "emptyDir": {}}]), "{object}");
        }
    }
    let result = patched(&json!({}), &mutate(&set, &json!({})));
    assert_eq!(result["metadata"]["annotations"]["a/b~c"], "x");
}

#[test]
fn policies_run_in_name_order_each_on_the_result_of_the_one_before() {
    let append = |name: &str| {
        let mutation = format!(
            "  - overlay: {{metadata: {{labels: {{trace: \"${{{{ object.metadata.?labels[?'trace'].orValue('') }}}}{name}\"}}}}}}"
        );
        mutate_pods(name, "", &mutation)
    };
    let (a, b, c) = (append("a"), append("b"), append("c"));
    let outcome = mutate(&mutation_set(&[&c, &a, &b]), &pod(json!({}), json!({})));
    assert_eq!(patch(&outcome), json!([{"op": "add", "path": "/metadata/labels/trace", "value": "abc"}]));
}

/// upstream 5: variables are evaluated anew for each mutation.
#[test]
fn the_second_mutation_and_its_variables_see_the_result_of_the_first() {
    let policy = mutate_pods(
        "p",
        "  variables: [{name: count, expression: size(object.spec.containers)}]",
        "  - overlay: {spec: {containers: [{name: added}]}}\n  - overlay: {metadata: {labels: {n: \"${{ string(variables.count) }}\"}}}",
    );
    let object = pod(json!({}), json!({}));
    let result = patched(&object, &mutate(&mutation_set(&[&policy]), &object));
    assert_eq!(result["metadata"]["labels"]["n"], "2");
}

#[test]
fn reinvocation_happens_once_and_only_after_a_change_by_another() {
    let count = "  - overlay: {metadata: {labels: {count: \"${{ string(int(object.metadata.?labels[?'count'].orValue('0')) + 1) }}\"}}}";
    let counter = |policy: &str| mutate_pods("a-counter", &format!("  reinvocationPolicy: {policy}"), count);
    let other = mutate_pods("b-other", "", "  - overlay: {metadata: {labels: {other: x}}}");
    let object = pod(json!({}), json!({}));
    let count = |policies: &[&str]| {
        patched(&object, &mutate(&mutation_set(policies), &object))["metadata"]["labels"]["count"].clone()
    };
    assert_eq!(count(&[&counter("IfNeeded")]), "1");
    assert_eq!(count(&[&counter("IfNeeded"), &other]), "2");
    assert_eq!(count(&[&counter("Never"), &other]), "1");
}

/// upstream 3.
#[test]
fn a_policy_skipped_at_first_is_not_reinvoked() {
    let skipped = mutate_pods(
        "a",
        "  reinvocationPolicy: IfNeeded\n  matchConditions: [{name: c, expression: \"has(object.metadata.labels.other)\"}]",
        "  - overlay: {metadata: {labels: {ran: x}}}",
    );
    let other = mutate_pods("b", "", "  - overlay: {metadata: {labels: {other: x}}}");
    let outcome = mutate(&mutation_set(&[&skipped, &other]), &pod(json!({}), json!({})));
    assert_eq!(results(&outcome), [ResultKind::Skipped, ResultKind::Applied]);
}

#[test]
fn overlay_values_keep_their_type_and_absent_ones_leave_no_field() {
    let policy = mutate_pods(
        "p",
        "",
        r#"  - overlay:
      metadata:
        labels:
          "${{ 'made-' + object.metadata.name }}": "v${{ 1 + 1 }}-${{ {'a': {'b': 'c'}}['a']['b'] }}"
          absent: ${{ object.metadata.?nothing }}
          present: ${{ object.metadata.?name }}
      spec:
        terminationGracePeriodSeconds: ${{ 10 * 3 }}
        hostNetwork: ${{ size(object.spec.containers) == 1 }}
        nodeSelector: "${{ {'os': 'linux'} }}""#,
    );
    let object = pod(json!({}), json!({}));
    let result = patched(&object, &mutate(&mutation_set(&[&policy]), &object));
    assert_eq!(result["metadata"]["labels"], json!({"made-sleep": "v2-c", "present": "sleep"}));
    assert_eq!(result["spec"]["terminationGracePeriodSeconds"], 30);
    assert_eq!(result["spec"]["hostNetwork"], true);
    assert_eq!(result["spec"]["nodeSelector"], json!({"os": "linux"}));
}

#[test]
fn null_removes_a_field_and_makes_no_parents() {
    let policy = mutate_pods(
        "p",
        "",
        "  - overlay: {metadata: {labels: {gone: null}, annotations: {never: null}}, spec: {hostPID: null}}",
    );
    let set = mutation_set(&[&policy]);
    let mut object = pod(json!({}), json!({"gone": "x", "kept": "y"}));
    object["metadata"].as_object_mut().unwrap().remove("annotations");
    object["spec"]["hostPID"] = json!(true);
    assert_eq!(
        patch(&mutate(&set, &object)),
        json!([{"op": "remove", "path": "/metadata/labels/gone"}, {"op": "remove", "path": "/spec/hostPID"}])
    );
}

#[test]
fn a_container_put_first_is_one_operation_c35() {
    let policy = mutate_pods(
        "p",
        "",
        "  - jsonPatch: {expression: \"[JSONPatch{op: 'add', path: '/spec/containers/0', value: {'name': 'first'}}]\"}",
    );
    let outcome = mutate(&mutation_set(&[&policy]), &pod(json!({}), json!({})));
    assert_eq!(
        patch(&outcome),
        json!([{"op": "add", "path": "/spec/containers/0", "value": {"name": "first"}}])
    );
}

/// upstream 27; upstream 24 for the empty list.
#[test]
fn a_failed_test_undoes_its_mutation_alone() {
    let policy = mutate_pods(
        "p",
        "",
        r"  - jsonPatch:
      expression: >-
        [JSONPatch{op: 'add', path: '/metadata/labels/a', value: 'x'},
         JSONPatch{op: 'test', path: '/metadata/name', value: 'other'}]
  - jsonPatch: {expression: 'true ? [] : [JSONPatch{op: ''remove'', path: ''/spec''}]'}
  - overlay: {metadata: {labels: {b: x}}}",
    );
    let outcome = mutate(&mutation_set(&[&policy]), &pod(json!({}), json!({})));
    assert_eq!(patch(&outcome), json!([{"op": "add", "path": "/metadata/labels/b", "value": "x"}]));
}

#[test]
fn errors_name_policy_and_expression_and_follow_the_failure_policy() {
    let rows = [
        (
            "  - overlay: {metadata: {labels: {a: \"${{ object.nothing }}\"}}}",
            "mutations[0].overlay.metadata.labels.a: no such key: nothing",
            422,
        ),
        (
            "  - jsonPatch: {expression: \"[JSONPatch{op: 'remove', path: '/nowhere'}]\"}",
            "failed to apply the patch",
            422,
        ),
        (
            "  - jsonPatch: {expression: \"['text'].map(t, JSONPatch{op: t, path: '/a'})\"}",
            "operation 0 is not a JSON patch operation",
            422,
        ),
        (
            "  - jsonPatch: {expression: \"[JSONPatch{op: 'replace', path: '', value: 1}]\"}",
            "is not an object",
            422,
        ),
        (
            "  - forEach: {list: object.metadata, as: m}\n    overlay: {metadata: {labels: {a: b}}}",
            "mutations[0].forEach.list: must give a list, not map",
            422,
        ),
    ];
    for (mutation, expected, code) in rows {
        let object = pod(json!({}), json!({}));
        let failing = mutate_pods("b-failing", "", mutation);
        let outcome = mutate(&mutation_set(&[&failing]), &object);
        assert!(message(&outcome).starts_with("policy b-failing: "), "{outcome:?}");
        assert!(message(&outcome).contains(expected), "{outcome:?}");
        assert_eq!(outcome.answer.status.as_ref().unwrap().code, code);
        assert!(outcome.answer.patch.is_empty());

        // Under Ignore the others' changes stand, and nothing of the failed one's does.
        let ignored = mutate_pods(
            "b-failing",
            "  failurePolicy: Ignore",
            &format!("  - overlay: {{metadata: {{labels: {{half: x}}}}}}\n{mutation}"),
        );
        let before = mutate_pods("a", "  failurePolicy: Ignore", "  - overlay: {metadata: {labels: {a: x}}}");
        let after = mutate_pods("c", "  failurePolicy: Ignore", "  - overlay: {metadata: {labels: {c: x}}}");
        let request = pod_request(Operation::Create);
        let outcome = mutation_set(&[&before, &ignored, &after])
            .review(&review(&request, object.to_string().as_bytes()), FailurePolicy::Ignore);
        assert_eq!(patched(&object, &outcome)["metadata"]["labels"], json!({"a": "x", "c": "x"}));
        assert_eq!(results(&outcome), [ResultKind::Applied, ResultKind::Error, ResultKind::Applied]);
    }
}

#[test]
fn elements_of_for_each_are_bounded() {
    let each = "  - forEach: {list: 'object.spec.many', as: n}\n    overlay: {metadata: {labels: {n: \"${{ n }}\"}}}";
    let policy = mutate_pods("p", "", each);
    let mut object = pod(json!({}), json!({}));
    object["spec"]["many"] = json!((0..1001).map(|n| n.to_string()).collect::<Vec<_>>());
    let outcome = mutate(&mutation_set(&[&policy]), &object);
    assert_eq!(outcome.answer.status.as_ref().unwrap().code, 500);
    assert!(message(&outcome).contains("1001 elements are more than the 1000 allowed"), "{outcome:?}");
}

#[test]
fn an_unreadable_object_is_an_error_only_where_a_policy_matches() {
    let policy = mutate_pods("p", "", "  - overlay: {metadata: {labels: {a: x}}}");
    let set = mutation_set(&[&policy]);
    let deep = format!("{{\"spec\":{}1{}}}", "[".repeat(200), "]".repeat(200));
    let mut request = pod_request(Operation::Create);
    for object in ["[]", "\"text\"", "{", &deep] {
        let outcome = set.review(&review(&request, object.as_bytes()), FailurePolicy::Fail);
        assert_eq!(outcome.answer.status.as_ref().unwrap().code, 500, "{object}");
        assert!(message(&outcome).starts_with("policy p: failed to read object: "), "{outcome:?}");
    }
    request.resource.resource = "secrets".to_owned();
    for object in ["[]", "{", &deep] {
        assert!(set.review(&review(&request, object.as_bytes()), FailurePolicy::Fail).answer.allowed);
    }
}

#[test]
fn numbers_that_nobody_touched_keep_their_text() {
    let object = br#"{"metadata":{"labels":{}},"spec":{"big":18446744073709551616,"float":1.50,"zero":-0}}"#;
    let policy = mutate_pods("p", "", "  - overlay: {metadata: {labels: {a: x}}}");
    let request = pod_request(Operation::Create);
    let outcome = mutation_set(&[&policy]).review(&review(&request, object), FailurePolicy::Fail);
    assert_eq!(patch(&outcome), json!([{"op": "add", "path": "/metadata/labels/a", "value": "x"}]));
}

#[test]
fn expressions_see_the_request() {
    let policy = mutate_pods(
        "p",
        "",
        r"  - overlay:
      metadata:
        labels:
          user: ${{ request.userInfo.username }}
          what: ${{ request.operation + ' ' + request.resource.resource + '/' + request.subResource }}
          dry: ${{ string(request.dryRun) }}
          manager: ${{ request.options.fieldManager }}
          enabled: ${{ namespaceObject.metadata.labels['sidecar-injector'] }}",
    );
    let mut request = pod_request(Operation::Create);
    request.user_info.username = "jane".to_owned();
    let object = pod(json!({}), json!({}));
    let bytes = object.to_string();
    let mut review = review(&request, bytes.as_bytes());
    review.options = br#"{"kind":"CreateOptions","fieldManager":"kubectl"}"#;
    let outcome = mutation_set(&[&policy]).review(&review, FailurePolicy::Fail);
    assert_eq!(
        patched(&object, &outcome)["metadata"]["labels"],
        json!({"user": "jane", "what": "CREATE pods/", "dry": "false", "manager": "kubectl", "enabled": "enabled"})
    );
}

#[test]
fn a_delete_has_no_object_and_no_patch() {
    let policy = mutate_pods("p", "", "  - overlay: {metadata: {labels: {a: x}}}");
    let request = pod_request(Operation::Delete);
    let old = pod(json!({}), json!({})).to_string();
    let set = mutation_set(&[&policy]);
    for object in [&b""[..], b"null"] {
        let mut review = review(&request, object);
        review.old_object = old.as_bytes();
        let outcome = set.review(&review, FailurePolicy::Fail);
        assert_eq!((outcome.answer.allowed, outcome.answer.patch.is_empty()), (true, true));
    }
}

#[test]
fn pod_templates_merge_by_the_same_keys() {
    let yaml = r"
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata: {name: templates}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]
  mutations:
  - overlay: {spec: {template: {spec: {containers: [{name: app, image: new}]}}}}
";
    let mut request = pod_request(Operation::Create);
    request.kind = sallyport_policy::GroupVersionKind {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        kind: "Deployment".to_owned(),
    };
    request.resource = crate::fixtures::resource("apps", "v1", "deployments");
    let object: Value = json!({"metadata": {}, "spec": {"template": {"spec": {"containers": [{"name": "x"}, {"name": "app", "image": "old"}]}}}});
    let outcome =
        mutation_set(&[yaml]).review(&review(&request, object.to_string().as_bytes()), FailurePolicy::Fail);
    assert_eq!(
        patch(&outcome),
        json!([{"op": "replace", "path": "/spec/template/spec/containers/1/image", "value": "new"}])
    );
}

/// Doubling, nesting and repeating what is there ends soon, and costs the request an error.
#[test]
fn patches_that_blow_up_are_an_error() {
    let operations = |source: &str, step: &str| {
        let step = format!("[{step}]");
        format!("  - jsonPatch: {{expression: \"{source}.map(i, {step}).flatten()\"}}")
    };
    let forty = "[0,0,0,0,0,0,0,0].map(a, [0,0,0,0,0]).flatten()";
    let double = operations(
        forty,
        "JSONPatch{op: 'copy', from: '/spec', path: '/metadata/x'}, JSONPatch{op: 'move', from: '/metadata/x', path: '/spec/x'}",
    );
    let nest = operations(
        "object.spec.many",
        "JSONPatch{op: 'copy', from: '/metadata', path: '/tmp'}, JSONPatch{op: 'replace', path: '/metadata', value: {}}, \
         JSONPatch{op: 'move', from: '/tmp', path: '/metadata/x'}",
    );
    let repeat = "  - forEach: {list: object.spec.many, as: n}\n    overlay: {metadata: {annotations: {a: \"${{ object.spec.pad + n }}\"}}}";
    let mut object = pod(json!({}), json!({}));
    object["spec"]["many"] = json!((0..900).map(|n| n.to_string()).collect::<Vec<_>>());
    object["spec"]["pad"] = json!("x".repeat(100_000));
    for (mutation, expected) in [
        (double.as_str(), "makes more than 16777216 bytes"),
        (&nest, "nests deeper than 256"),
        (repeat, "makes more than"),
    ] {
        let outcome = mutate(&mutation_set(&[&mutate_pods("p", "", mutation)]), &object);
        assert!(message(&outcome).contains(expected), "{outcome:?}");
    }
}

/// The bounds are for all elements of a `forEach` together, and time is one of them.
#[test]
fn elements_of_for_each_share_room_and_time() {
    let each = |operations: &str| {
        format!(
            "  - forEach: {{list: 'lists.range(1000)', as: n}}\n    jsonPatch: {{expression: \"[{operations}]\"}}"
        )
    };
    let copy = each("JSONPatch{op: 'copy', from: '/spec/pad', path: '/metadata/x' + string(n)}");
    let moving = each(
        "JSONPatch{op: 'move', from: '/spec/many', path: '/spec/x'}, JSONPatch{op: 'move', from: '/spec/x', path: '/spec/many'}",
    );
    let (mut large, mut many) = (pod(json!({}), json!({})), pod(json!({}), json!({})));
    large["spec"]["pad"] = json!("x".repeat(1_000_000));
    many["spec"]["many"] = (0..100_000).map(|n| json!({"n": n})).collect();
    for (mutation, object, expected) in [
        (copy, large, "makes more than 16777216 bytes"),
        // Each measures what it moves.
        (moving, many, "the evaluation took longer than 1000 ms"),
    ] {
        let outcome = mutate(&mutation_set(&[&mutate_pods("p", "", &mutation)]), &object);
        assert!(message(&outcome).contains(expected), "{outcome:?}");
        assert_eq!(outcome.answer.status.as_ref().unwrap().code, 500);
    }
}
