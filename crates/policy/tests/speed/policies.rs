//! The policies that are measured.

use std::path::Path;
use std::sync::Arc;

use sallyport_api::{MutationPolicy, ValidationPolicy};
use sallyport_policy::{MutationSet, Namespaces, ValidationSet};
use serde_json::json;

/// A policy that needs nothing but the object.
pub const TRIVIAL: &str = r#"
apiVersion: sallyport.dev/v1alpha1
kind: ValidationPolicy
metadata: {name: trivial}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - expression: "true"
"#;

/// What keeps policies from matching a new pod of the namespace `shop`, and the fields that say so, in which `INDEX`
/// is another for each.
pub const MATCHING_NOTHING: &[(&str, &str)] = &[
    (
        "for other resources",
        r"
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], resources: [deployments]}
",
    ),
    (
        "for other operations",
        r#"
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [pods]}
"#,
    ),
    (
        "for subresources",
        r#"
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/scale"]}
"#,
    ),
    (
        "all for another namespace",
        r#"
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods]}
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: elsewhere}}
"#,
    ),
    (
        "each for another namespace",
        r#"
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods]}
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: elsewhere-INDEX}}
"#,
    ),
    (
        "each for other labels",
        r#"
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods]}
    objectSelector: {matchLabels: {team: team-INDEX}}
"#,
    ),
    (
        "all excluding it",
        r#"
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], resources: ["*"]}
    excludeResourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods]}
"#,
    ),
    (
        "each excluding it with another",
        r#"
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], resources: ["*"]}
    excludeResourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [kind-INDEX, pods]}
"#,
    ),
    (
        "under the other failure policy",
        r#"
  failurePolicy: Ignore
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods]}
"#,
    ),
];

/// Mutations that change the pod.
pub const MUTATIONS: &[(&str, &str)] = &[
    (
        "jsonPatch, one label",
        r#"
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata: {name: label}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods]}
  mutations:
  - jsonPatch:
      expression: "[JSONPatch{op: 'add', path: '/metadata/labels/reviewed', value: 'yes'}]"
"#,
    ),
    (
        "overlay, one container and volume",
        r#"
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata: {name: sidecar}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods]}
  matchConditions:
  - name: has-none
    expression: "!object.spec.containers.exists(c, c.name == 'sidecar')"
  mutations:
  - overlay:
      spec:
        containers:
        - name: sidecar
          image: nginx:1.12.2
          ports: [{containerPort: 80}]
          volumeMounts: [{name: sidecar-config, mountPath: /etc/nginx}]
        volumes:
        - {name: sidecar-config, configMap: {name: sidecar-config}}
"#,
    ),
    (
        "applyConfiguration, one container",
        r#"
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata: {name: sidecar}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods]}
  mutations:
  - applyConfiguration:
      expression: >-
        Object{spec: Object.spec{containers: [Object.spec.containers{name: 'sidecar', image: 'nginx:1.12.2'}]}}
"#,
    ),
];

/// The Pod Security Standard `restricted`, all of its controls and those of `baseline`, a policy each.
pub fn restricted() -> Vec<String> {
    let recipe = |name: &str| {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies").join(name).join("policy.yaml");
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let texts = ["pod-security-baseline", "pod-security-restricted"].map(recipe);
    texts.iter().flat_map(|text| text.split("\n---\n")).map(str::to_owned).collect()
}

/// A policy that would refuse whatever it matched.
pub fn other(index: usize, constraints: &str) -> String {
    let constraints = constraints.replace("INDEX", &index.to_string());
    format!(
        r"
apiVersion: sallyport.dev/v1alpha1
kind: ValidationPolicy
metadata: {{name: other-{index}}}
spec:{constraints}
  validations:
  - expression: object.metadata.name == ''
"
    )
}

pub fn validations(policies: &[impl AsRef<str>]) -> ValidationSet {
    let policies: Vec<ValidationPolicy> = read(policies);
    let set = ValidationSet::compile(policies, namespaces(), None);
    for policy in set.policies() {
        assert_eq!(policy.message, "", "{}", policy.name);
    }
    set
}

pub fn mutations(policies: &[impl AsRef<str>]) -> MutationSet {
    let policies: Vec<MutationPolicy> = read(policies);
    let set = MutationSet::compile(policies, namespaces(), None);
    for policy in set.policies() {
        assert_eq!(policy.message, "", "{}", policy.name);
    }
    set
}

fn read<T: serde::de::DeserializeOwned>(policies: &[impl AsRef<str>]) -> Vec<T> {
    policies.iter().map(|text| serde_saphyr::from_str(text.as_ref()).expect("a policy")).collect()
}

fn namespaces() -> Arc<Namespaces> {
    let shop = json!({"metadata": {"name": "shop", "labels": {"team": "payments", "stage": "production"}}});
    Arc::new([shop].into_iter().collect())
}
