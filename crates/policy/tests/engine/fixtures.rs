//! Builders and the recipes-like policies that several tests share.

use std::sync::Arc;

use sallyport_api::{MutationPolicy, ValidationPolicy};
use sallyport_policy::{
    FailurePolicy, GroupVersionKind, GroupVersionResource, MutationSet, Namespaces, Operation, Outcome,
    Request, Review, ValidationSet,
};
use serde_json::{Value, json};

/// Opt-in sidecar by annotation (seed 000).
pub const SIDECAR: &str = r#"
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata: {name: sidecar-nginx}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
    namespaceSelector: {matchLabels: {sidecar-injector: enabled}}
  matchConditions:
  - name: asked-for
    expression: >-
      object.metadata.?annotations[?'example.dev/inject'].orValue('no').lowerAscii() in ['y', 'yes', 'true', 'on']
  - name: not-done
    expression: object.metadata.?annotations[?'example.dev/status'].orValue('').lowerAscii() != 'injected'
  mutations:
  - overlay:
      metadata:
        annotations: {example.dev/status: injected}
      spec:
        containers:
        - name: sidecar-nginx
          image: nginx:1.12.2
          imagePullPolicy: IfNotPresent
          ports: [{containerPort: 80}]
          volumeMounts: [{name: nginx-conf, mountPath: /etc/nginx}]
        volumes:
        - name: nginx-conf
          configMap: {name: nginx-configmap}
"#;

/// A file in every container (seed 001), also in those that policies after it add.
pub const HELLO: &str = r#"
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata: {name: hello-file}
spec:
  reinvocationPolicy: IfNeeded
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods]}
    objectSelector: {matchLabels: {hello: "true"}}
  mutations:
  - overlay:
      metadata: {labels: {hello-added: OK}}
      spec:
        volumes: [{name: hello-volume, configMap: {name: hello-configmap}}]
  - forEach: {list: object.spec.containers, as: c}
    overlay:
      spec:
        containers:
        - name: ${{ c.name }}
          volumeMounts: [{name: hello-volume, mountPath: /etc/config}]
"#;

/// No environment variables (SYS-8).
pub const DENY_ENV: &str = r#"
apiVersion: sallyport.dev/v1alpha1
kind: ValidationPolicy
metadata: {name: deny-env}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods, pods/ephemeralcontainers]}
  validations:
  - forEach: {list: object.spec.containers, as: c}
    expression: "!has(c.env)"
    messageExpression: c.name + ' is using env vars'
    fieldPath: "'spec.containers[' + c.name + '].env'"
    code: 402
"#;

pub fn mutations(yaml: &[&str]) -> Vec<MutationPolicy> {
    yaml.iter().map(|yaml| serde_saphyr::from_str(yaml).expect("a policy")).collect()
}

pub fn validations(yaml: &[&str]) -> Vec<ValidationPolicy> {
    yaml.iter().map(|yaml| serde_saphyr::from_str(yaml).expect("a policy")).collect()
}

/// `default` has the label `sidecar-injector: enabled`, `plain` has none.
pub fn namespaces() -> Arc<Namespaces> {
    let objects = [
        json!({"metadata": {"name": "default", "labels": {"sidecar-injector": "enabled"}}}),
        json!({"metadata": {"name": "plain"}}),
    ];
    Arc::new(objects.into_iter().collect())
}

pub fn mutation_set(yaml: &[&str]) -> MutationSet {
    let set = MutationSet::compile(mutations(yaml), namespaces(), None);
    for policy in set.policies() {
        assert_eq!(policy.message, "", "{}", policy.name);
    }
    set
}

pub fn validation_set(yaml: &[&str]) -> ValidationSet {
    let set = ValidationSet::compile(validations(yaml), namespaces(), None);
    for policy in set.policies() {
        assert_eq!(policy.message, "", "{}", policy.name);
    }
    set
}

/// A mutation policy for new and changed pods in all namespaces with this `mutations` list.
pub fn mutate_pods(name: &str, extra: &str, mutations: &str) -> String {
    format!(
        r#"
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods, "pods/*"]}}
{extra}
  mutations:
{mutations}
"#
    )
}

/// A validation policy for pods with these fields of the spec.
pub fn validate_pods(name: &str, fields: &str) -> String {
    format!(
        r#"
apiVersion: sallyport.dev/v1alpha1
kind: ValidationPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods, "pods/*"]}}
{fields}
"#
    )
}

pub fn pod_request(operation: Operation) -> Request {
    Request {
        uid: "u".to_owned(),
        kind: GroupVersionKind { group: String::new(), version: "v1".to_owned(), kind: "Pod".to_owned() },
        resource: resource("", "v1", "pods"),
        namespace: "default".to_owned(),
        operation,
        ..Request::default()
    }
}

pub fn resource(group: &str, version: &str, resource: &str) -> GroupVersionResource {
    GroupVersionResource {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: resource.to_owned(),
    }
}

/// A pod as a user writes it, with these annotations and labels.
#[allow(clippy::needless_pass_by_value)] // reads better with literals
pub fn pod(annotations: Value, labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "sleep", "annotations": annotations, "labels": labels},
        "spec": {"containers": [{"name": "sleep", "image": "curl"}]},
    })
}

pub fn review<'a>(request: &'a Request, object: &'a [u8]) -> Review<'a> {
    Review { object, ..Review::of(request) }
}

/// Sends a new object through the `Fail` door.
pub fn mutate(set: &MutationSet, object: &Value) -> Outcome {
    let request = pod_request(Operation::Create);
    set.review(&review(&request, object.to_string().as_bytes()), FailurePolicy::Fail)
}

/// Sends a new object through the `Fail` door.
pub fn validate(set: &ValidationSet, object: &Value) -> Outcome {
    let request = pod_request(Operation::Create);
    set.review(&review(&request, object.to_string().as_bytes()), FailurePolicy::Fail)
}

/// The patch of an outcome; an empty list for none.
pub fn patch(outcome: &Outcome) -> Value {
    assert!(outcome.answer.allowed, "{:?}", outcome.answer.status);
    match &outcome.answer.patch[..] {
        [] => json!([]),
        patch => serde_json::from_slice(patch).unwrap(),
    }
}

/// The object with the outcome's patch applied by the oracle.
pub fn patched(object: &Value, outcome: &Outcome) -> Value {
    let operations: json_patch::Patch = serde_json::from_value(patch(outcome)).unwrap();
    let mut result = object.clone();
    json_patch::patch(&mut result, &operations).unwrap();
    result
}

/// The message of a refusal.
pub fn message(outcome: &Outcome) -> &str {
    assert!(!outcome.answer.allowed);
    &outcome.answer.status.as_ref().unwrap().message
}
