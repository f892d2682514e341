//! What the recipes' suites cannot show: their knobs and documented variants, the shape of their patches, and
//! how they do together. SYS-1 (sidecar-nginx), SYS-2 (hello-file), SYS-8 (deny-env).
//!
//! Each fixture is sent as the creation of a pod.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sallyport_api::{MatchCondition, MutationPolicy, ValidationAction, ValidationPolicy};
use sallyport_backend::PolicySet;
use sallyport_policy::{
    FailurePolicy, GroupVersionKind, GroupVersionResource, MutationSet, Namespaces, Operation, Outcome,
    PolicyState, Request, Review, ValidationSet,
};
use sallyport_sources::{Directory, Snapshot};
use serde_json::{Value, json};

fn recipe(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies").join(name)
}

fn snapshot(name: &str) -> Snapshot {
    let snapshot = Directory::new(recipe(name)).load(None).unwrap();
    assert_eq!(snapshot.problems, [], "{name}");
    snapshot
}

fn mutation(name: &str) -> MutationPolicy {
    let [entry] = snapshot(name).mutations.try_into().unwrap();
    entry.object
}

fn validation(name: &str) -> ValidationPolicy {
    let [entry] = snapshot(name).validations.try_into().unwrap();
    entry.object
}

/// A set that can be made of one policy.
trait Single: PolicySet {
    type Policy;
    fn of(policy: Self::Policy) -> Self;
}

impl Single for MutationSet {
    type Policy = MutationPolicy;
    fn of(policy: MutationPolicy) -> Self {
        Self::compile(vec![policy], Arc::new(Namespaces::default()), None)
    }
}

impl Single for ValidationSet {
    type Policy = ValidationPolicy;
    fn of(policy: ValidationPolicy) -> Self {
        Self::compile(vec![policy], Arc::new(Namespaces::default()), None)
    }
}

fn compile<S: Single>(policy: S::Policy) -> S {
    let set = S::of(policy);
    for policy in set.policies() {
        assert_eq!((policy.state, policy.message.as_str()), (PolicyState::Active, ""), "{}", policy.name);
    }
    set
}

fn yaml(path: &Path) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The fixtures in a folder of a recipe whose names end in `suffix`, with what is before that.
fn fixtures(name: &str, folder: &str, suffix: &str) -> Vec<(String, PathBuf)> {
    let folder = recipe(name).join("fixtures").join(folder);
    let mut found: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter_map(|path| {
            let stem = path.file_name()?.to_str()?.strip_suffix(suffix)?.to_owned();
            (!stem.contains('.')).then_some((stem, path))
        })
        .collect();
    found.sort();
    assert!(!found.is_empty(), "{}", folder.display());
    found
}

fn request(object: &Value) -> Request {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let namespace = text("/metadata/namespace");
    Request {
        uid: "705ab4f5-6393-11e8-b7cc-42010a800002".into(),
        kind: GroupVersionKind { version: "v1".into(), kind: "Pod".into(), ..Default::default() },
        resource: GroupVersionResource {
            version: "v1".into(),
            resource: "pods".into(),
            ..Default::default()
        },
        name: text("/metadata/name"),
        namespace: if namespace.is_empty() { "default".into() } else { namespace },
        operation: Operation::Create,
        ..Request::default()
    }
}

fn create<S: PolicySet>(set: &S, object: &Value) -> Outcome {
    let (request, object) = (request(object), object.to_string());
    let review = Review { object: object.as_bytes(), ..Review::of(&request) };
    set.review(&review, FailurePolicy::Fail)
}

fn operations(outcome: &Outcome) -> Value {
    match &outcome.answer.patch[..] {
        [] => Value::Null,
        patch => serde_json::from_slice(patch).unwrap(),
    }
}

fn apply(object: &Value, outcome: &Outcome) -> Value {
    let mut patched = object.clone();
    let patch: json_patch::Patch = serde_json::from_value(operations(outcome)).unwrap();
    json_patch::patch(&mut patched, &patch).unwrap();
    patched
}

/// C-35: patches touch what they change and nothing around it.
#[test]
fn patches_replace_no_part_of_the_pod_as_a_whole() {
    for name in ["sidecar-nginx", "hello-file"] {
        let set: MutationSet = compile(mutation(name));
        for (case, path) in fixtures(name, "changed", ".before.yaml") {
            for operation in operations(&create(&set, &yaml(&path))).as_array().unwrap() {
                let whole = ["/spec", "/spec/containers", "/spec/initContainers", "/metadata"];
                assert!(!whole.contains(&operation["path"].as_str().unwrap()), "{name}/{case}: {operation}");
            }
        }
    }
}

fn sleep_pod() -> Value {
    yaml(&recipe("sidecar-nginx").join("fixtures/changed/sleep.before.yaml"))
}

const INJECT: &str = "sidecar-injector-webhook.morven.me/inject";

fn with_annotation(value: &str) -> Value {
    let mut pod = sleep_pod();
    pod["metadata"]["annotations"] = json!({ INJECT: value });
    pod
}

/// SYS-1.4, SYS-2.2: whatever is absent or null is made.
#[test]
fn absent_null_empty_and_filled_lists_are_all_extended() {
    let set: MutationSet = compile(mutation("sidecar-nginx"));
    let hello: MutationSet = compile(mutation("hello-file"));
    for (volumes, expected) in [
        (None, 1),
        (Some(json!(null)), 1),
        (Some(json!([])), 1),
        (Some(json!([{"name": "a", "emptyDir": {}}])), 2),
        (Some(json!([{"name": "nginx-conf", "configMap": {"name": "nginx-configmap"}}])), 1),
    ] {
        let mut pod = sleep_pod();
        if let Some(volumes) = &volumes {
            pod["spec"]["volumes"] = volumes.clone();
        }
        let patched = apply(&pod, &create(&set, &pod));
        assert_eq!(patched["spec"]["volumes"].as_array().unwrap().len(), expected, "{volumes:?}");
        assert_eq!(patched["spec"]["containers"].as_array().unwrap().len(), 2, "{volumes:?}");
    }
    for mounts in [json!([]), json!([{"name": "a", "mountPath": "/a"}])] {
        let mut pod = yaml(&recipe("hello-file").join("fixtures/changed/busybox-1.before.yaml"));
        pod["spec"]["containers"][0]["volumeMounts"] = mounts.clone();
        let patched = apply(&pod, &create(&hello, &pod));
        let mounts = patched["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
        assert_eq!(mounts.last().unwrap()["mountPath"], "/etc/config", "{mounts:?}");
    }
}

/// SYS-1.4: a pod without annotations asks for nothing and is no error. (The API server never sends null here.)
#[test]
fn absent_and_empty_annotations_ask_for_nothing() {
    let set: MutationSet = compile(mutation("sidecar-nginx"));
    for annotations in [None, Some(json!({}))] {
        let mut pod = sleep_pod();
        let metadata = pod["metadata"].as_object_mut().unwrap();
        metadata.remove("annotations");
        metadata.extend(annotations.clone().map(|annotations| ("annotations".to_owned(), annotations)));
        let outcome = create(&set, &pod);
        assert_eq!(
            (outcome.answer.allowed, outcome.answer.patch.is_empty()),
            (true, true),
            "{annotations:?}: {:?}",
            outcome.answer.status
        );
    }
}

/// The matchConditions in the YAML blocks of a recipe's README.
fn documented_conditions(name: &str) -> Vec<MatchCondition> {
    let readme = fs::read_to_string(recipe(name).join("README.md")).unwrap();
    let blocks = readme.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks
        .filter(|block| block.starts_with("- name:"))
        .flat_map(|block| serde_saphyr::from_str::<Vec<MatchCondition>>(block).unwrap())
        .collect()
}

/// SYS-1.1: opt-out, and labels instead of annotations, as the README says.
#[test]
fn the_variants_in_the_readme_work() {
    let [opt_out, by_label] = documented_conditions("sidecar-nginx").try_into().unwrap();
    let with = |condition: MatchCondition| -> MutationSet {
        let mut policy = mutation("sidecar-nginx");
        assert_eq!(policy.spec.match_conditions[0].name, "asks-for-it");
        policy.spec.match_conditions[0] = condition;
        compile(policy)
    };
    let set = with(opt_out);
    for (word, injected) in [
        ("n", false),
        ("no", false),
        ("not", false),
        ("FALSE", false),
        ("off", false),
        ("yes", true),
        ("", true),
    ] {
        assert_eq!(create(&set, &with_annotation(word)).answer.patch.is_empty(), !injected, "{word:?}");
    }
    let mut silent = sleep_pod();
    silent["metadata"].as_object_mut().unwrap().remove("annotations");
    assert!(!create(&set, &silent).answer.patch.is_empty());

    let set = with(by_label);
    assert!(create(&set, &sleep_pod()).answer.patch.is_empty());
    silent["metadata"]["labels"] = json!({"inject-nginx": "true"});
    assert!(!create(&set, &silent).answer.patch.is_empty());
}

/// SYS-2.1: init containers only as long as the variable says so.
#[test]
fn hello_file_leaves_init_containers_alone_when_told_to() {
    let mut policy = mutation("hello-file");
    set_variable(&mut policy.spec.variables, "withInitContainers", "false");
    let set: MutationSet = compile(policy);
    let pod = yaml(&recipe("hello-file").join("fixtures/changed/many-containers.before.yaml"));
    let patched = apply(&pod, &create(&set, &pod));
    assert_eq!(patched["spec"]["initContainers"], pod["spec"]["initContainers"]);
    assert_ne!(patched["spec"]["containers"], pod["spec"]["containers"]);
}

fn set_variable(variables: &mut [sallyport_api::Variable], name: &str, expression: &str) {
    let variable = variables.iter_mut().find(|variable| variable.name == name).unwrap();
    variable.expression = expression.into();
}

/// SYS-8.1: each knob does what the README says.
#[test]
fn every_knob_of_deny_env_works() {
    let fixture = |path: &str| yaml(&recipe("deny-env").join("fixtures").join(path));
    let count = |knobs: &[(&str, &str)], pod: &Value| {
        let mut policy = validation("deny-env");
        for (name, expression) in knobs {
            set_variable(&mut policy.spec.variables, name, expression);
        }
        create(&compile::<ValidationSet>(policy), pod).answer.status.map_or(0, |status| status.causes.len())
    };
    let many = fixture("denied/many.yaml");
    assert_eq!(count(&[], &many), 3);
    assert_eq!(count(&[("checkInitContainers", "false")], &many), 2);
    assert_eq!(count(&[("checkEphemeralContainers", "false")], &many), 2);
    assert_eq!(count(&[("allowedNames", "['A', 'C']")], &many), 1);
    let empty = fixture("denied/empty-list.yaml");
    assert_eq!(count(&[("emptyListCounts", "false")], &empty), 0);
    assert_eq!(count(&[("allowedNames", "['A']")], &empty), 1);
    let from = fixture("allowed/env-from-a-config-map.yaml");
    assert_eq!(count(&[("checkEnvFrom", "true")], &from), 1);
}

/// SYS-8.5.
#[test]
fn deny_env_can_warn_or_write_to_the_audit_log_instead() {
    let pod = yaml(&recipe("deny-env").join("fixtures/denied/nginx-with-env.yaml"));
    let with = |actions: &[ValidationAction]| {
        let mut policy = validation("deny-env");
        policy.spec.validation_actions = actions.to_vec();
        create(&compile::<ValidationSet>(policy), &pod)
    };
    let warned = with(&[ValidationAction::Warn]);
    assert!(warned.answer.allowed);
    assert_eq!(warned.answer.warnings, ["nginx-with-env is using env vars (policy deny-env)"]);
    let audited = with(&[ValidationAction::Audit]);
    assert!(audited.answer.allowed && audited.answer.warnings.is_empty());
    assert_eq!(audited.answer.audit_annotations.len(), 1);
}

/// The folder of all recipes is itself a policy directory.
#[test]
fn all_recipes_load_together() {
    let snapshot = Directory::new(recipe("")).load(None).unwrap();
    assert_eq!(snapshot.problems, []);
    let names: Vec<_> =
        snapshot.mutations.iter().map(|entry| entry.object.metadata.name.as_deref().unwrap()).collect();
    for name in ["sidecar-nginx", "hello-file"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(
        snapshot.validations.iter().any(|entry| entry.object.metadata.name.as_deref() == Some("deny-env"))
    );
}
