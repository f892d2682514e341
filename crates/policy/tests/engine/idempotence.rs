//! f∘f = f (C-70), over what a pod can look like before (C-33, C-34, C-72).

use serde_json::{Value, json};

use crate::fixtures::{HELLO, SIDECAR, mutate, mutation_set, patch, patched, pod};

/// Values of `metadata.annotations` and `metadata.labels`, besides what opts in.
fn maps() -> Vec<Value> {
    vec![json!({}), json!({"other": "kept"}), json!({"a/b~c": "x", "a~1b": "y"})]
}

/// Shapes of the spec that the recipes are merged into.
fn specs() -> Vec<Value> {
    let container = json!({"name": "sleep", "image": "curl"});
    vec![
        json!({"containers": [container]}),
        json!({"containers": [container], "volumes": null}),
        json!({"containers": [container], "volumes": []}),
        json!({"containers": [container], "volumes": [{"name": "own", "emptyDir": {}}]}),
        json!({"containers": [container], "volumes": [{"name": "nginx-conf", "configMap": {"name": "mine"}}]}),
        json!({"containers": [container, {"name": "sidecar-nginx", "image": "mine"}]}),
        json!({"containers": [{"name": "sleep", "volumeMounts": null, "env": []}]}),
        json!({"containers": [{"name": "sleep", "volumeMounts": [{"name": "own", "mountPath": "/etc/config"}]}]}),
        json!({"containers": [container], "initContainers": [{"name": "native", "restartPolicy": "Always"}]}),
        json!({"containers": (0..100).map(|n| json!({"name": format!("c{n}")})).collect::<Vec<_>>()}),
        json!({"containers": [container], "hostNetwork": true, "os": {"name": "windows"}, "restartPolicy": "Never"}),
        json!({"containers": [container], "ephemeralContainers": [{"name": "debug"}], "unknown": {"x": 1.50}}),
    ]
}

fn pods() -> Vec<Value> {
    let mut pods = Vec::new();
    for spec in specs() {
        for extra in maps() {
            let mut object = pod(extra.clone(), extra);
            object["metadata"]["annotations"]["example.dev/inject"] = json!("Yes");
            object["metadata"]["labels"]["hello"] = json!("true");
            object["spec"] = spec.clone();
            pods.push(object);
        }
    }
    pods
}

#[test]
fn a_second_run_makes_no_patch_c70() {
    let counting = crate::fixtures::mutate_pods(
        "z-patch",
        "",
        r"  - jsonPatch:
      expression: >-
        has(object.metadata.labels.seen) ? [] :
        [JSONPatch{op: 'add', path: '/metadata/labels/seen', value: string(size(object.spec.containers))}]",
    );
    for policies in [vec![SIDECAR], vec![HELLO], vec![SIDECAR, HELLO], vec![SIDECAR, HELLO, &counting]] {
        let set = mutation_set(&policies);
        for object in pods() {
            let first = mutate(&set, &object);
            let once = patched(&object, &first);
            assert_ne!(once, object);
            let second = mutate(&set, &once);
            assert_eq!(patch(&second), json!([]), "{object}");
        }
    }
}

#[test]
fn what_nobody_asked_about_is_untouched_c11() {
    let set = mutation_set(&[SIDECAR, HELLO]);
    for object in pods() {
        let result = patched(&object, &mutate(&set, &object));
        for (key, value) in object["metadata"]["annotations"].as_object().unwrap() {
            assert_eq!(&result["metadata"]["annotations"][key], value);
        }
        for (key, value) in object["spec"].as_object().unwrap() {
            if !matches!(key.as_str(), "containers" | "volumes") {
                assert_eq!(&result["spec"][key], value);
            }
        }
    }
}

#[test]
fn a_status_annotation_removed_or_forged_does_no_harm_c72() {
    let set = mutation_set(&[SIDECAR]);
    let mut object = pod(json!({"example.dev/inject": "yes"}), json!({}));
    object = patched(&object, &mutate(&set, &object));
    let injected = object.clone();
    object["metadata"]["annotations"].as_object_mut().unwrap().remove("example.dev/status");
    assert_eq!(patched(&object, &mutate(&set, &object)), injected);
    object["metadata"]["annotations"]["example.dev/status"] = json!("{\"cut");
    assert_eq!(patched(&object, &mutate(&set, &object)), injected);
}

#[test]
fn a_container_added_by_another_webhook_survives_the_second_run_c72() {
    let set = mutation_set(&[SIDECAR, HELLO]);
    let object = pod(json!({"example.dev/inject": "yes"}), json!({"hello": "true"}));
    let mut object = patched(&object, &mutate(&set, &object));
    object["spec"]["containers"].as_array_mut().unwrap().insert(0, json!({"name": "other"}));
    let outcome = mutate(&set, &object);
    assert_eq!(
        patch(&outcome),
        json!([{"op": "add", "path": "/spec/containers/0/volumeMounts",
                "value": [{"name": "hello-volume", "mountPath": "/etc/config"}]}])
    );
}
