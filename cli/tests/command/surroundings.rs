//! `sallyport test`: what exists besides the object under review. Settings of policies, definitions of custom
//! kinds, what users may do; given by the suite, by a case, or in a file beside the policies.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Run, sallyport};

/// Both families of validations with settings in objects, and mutations of a custom kind.
const POLICIES: &str = r#"
apiVersion: sallyport.dev/v1alpha1
kind: ValidationPolicy
metadata: {name: limited}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  paramRef: {name: limits, namespace: policies, parameterNotFoundAction: Deny}
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}]
  validations:
  - expression: object.spec.replicas <= int(params.data.most)
    messageExpression: "'at most ' + params.data.most"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: zoned}
spec:
  paramKind: {apiVersion: example.dev/v1, kind: Zone}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  validations:
  - expression: object.spec.nodeName.startsWith(params.spec.prefix)
    messageExpression: "'not in ' + params.metadata.name"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: zoned}
spec:
  policyName: zoned
  validationActions: [Deny]
  paramRef: {selector: {}, parameterNotFoundAction: Allow}
---
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata: {name: overlaid}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [example.dev], apiVersions: [v1], resources: [geese], operations: [CREATE]}]
  mutations:
  - overlay: {spec: {eggs: [{name: b, size: 2}]}}
---
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata: {name: configured}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [example.dev], apiVersions: [v1], resources: [geese], operations: [UPDATE]}]
  mutations:
  - applyConfiguration:
      expression: "Object{spec: Object.spec{tags: ['x'], eggs: [Object.spec.eggs{name: 'b', size: 2}]}}"
---
apiVersion: sallyport.dev/v1alpha1
kind: ValidationPolicy
metadata: {name: approved}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [secrets], operations: [CREATE]}]
  variables:
  - {name: approval, expression: authorizer.requestResource.check('approve')}
  validations:
  - expression: variables.approval.allowed()
    messageExpression: "'<' + variables.approval.reason() + '|' + variables.approval.error() + '>'"
"#;

/// A ConfigMap with the greatest number of replicas.
fn most(most: u32) -> String {
    let metadata = "metadata: {name: limits, namespace: policies}";
    format!("{{apiVersion: v1, kind: ConfigMap, {metadata}, data: {{most: '{most}'}}}}")
}

/// A definition with versions of these conversions: a kind with a list of its own merge rules, without a namespace.
fn goose(scope: &str, conversion: &str) -> String {
    let schema = "{type: object, properties: {spec: {type: object, properties: {\
                  tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}, \
                  eggs: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], \
                  items: {type: object, properties: {name: {type: string}, size: {type: integer}, \
                  color: {type: string}}}}}}}}";
    let version =
        |name: &str| format!("{{name: {name}, served: true, schema: {{openAPIV3Schema: {schema}}}}}");
    format!(
        "{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, \
         metadata: {{name: geese.example.dev}}, spec: {{group: example.dev, scope: {scope}, \
         names: {{plural: geese, kind: Goose}}, conversion: {{strategy: {conversion}}}, \
         versions: [{}, {}]}}}}",
        version("v1"),
        version("v2")
    )
}

/// A folder with the policies, further files and a suite with one case.
fn folder(files: &[(&str, &str)], suite: &str, case: &str) -> TempDir {
    let directory = TempDir::new().unwrap();
    let suite = format!("{suite}\ncases:\n- {{name: a, {case}}}\n");
    let own = [("policy.yaml", POLICIES), ("suite.yaml", suite.as_str())];
    for (name, text) in own.iter().chain(files) {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn test(folder: &TempDir) -> Run {
    Run::from(sallyport().arg("test").arg(folder.path()).args(["-o", "json"]).output().unwrap())
}

/// Runs the case, which must pass.
fn passes(files: &[(&str, &str)], suite: &str, case: &str) {
    let run = test(&folder(files, suite, case));
    assert_eq!(run.status, Some(0), "{suite}\n{case}\n{}", run.stdout);
}

#[test]
fn settings_are_found_among_objects_and_in_files() {
    let deployment =
        "manifest: {apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 4}}";
    let allowed = "expect: {unchanged: true}";
    let refused = "expect: {message: at most 3 (policy limited)}";
    let limits = |most_replicas: u32| format!("objects: [{}]", most(most_replicas));
    let beside = [("limits.yaml", most(3))];
    let beside: Vec<(&str, &str)> = beside.iter().map(|(name, text)| (*name, text.as_str())).collect();
    for (files, suite, case) in [
        (&[] as &[_], "", "expect: {allowed: false, errors: [limited]}"),
        (&[], &limits(4), allowed),
        (&[], &limits(3), refused),
        (&[], "", &format!("{}, {allowed}", limits(4))),
        (&[], "", &format!("{}, {refused}", limits(3))),
        (&beside, "", refused),
        (&beside, "policies: [policy.yaml]\nobjects: [limits.yaml]", refused),
        (&beside, "policies: [policy.yaml, limits.yaml]", refused),
    ] {
        passes(files, suite, &format!("{deployment}, {case}"));
    }

    // A custom kind without a namespace, of which a binding takes all objects.
    let pod = "manifest: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeName: n1}}";
    let zone = |name: &str, prefix: &str| {
        format!(
            "{{apiVersion: example.dev/v1, kind: Zone, metadata: {{name: {name}}}, spec: {{prefix: {prefix}}}}}"
        )
    };
    let definition = goose("Cluster", "None").replace("geese", "zones").replace("Goose", "Zone");
    let zones = |zones: &[String]| format!("objects: [{definition}, {}]", zones.join(", "));
    passes(&[], &format!("objects: [{definition}]"), &format!("{pod}, {allowed}"));
    passes(&[], &zones(&[zone("a", "n")]), &format!("{pod}, {allowed}"));
    let denied = "expect: {code: 422, message: {contains: \"denied request: not in b\"}}";
    passes(&[], &zones(&[zone("a", "n"), zone("b", "m")]), &format!("{pod}, {denied}"));
    passes(&[], &zones(&[zone("a", "n")]), &format!("{pod}, objects: [{}], {denied}", zone("b", "m")));
}

#[test]
fn definitions_give_resources_merge_rules_and_equivalent_versions() {
    let egg = "eggs: [{name: a}, {name: b, color: white}]";
    let manifest = |version: &str, fields: &str| {
        format!(
            "{{apiVersion: example.dev/{version}, kind: Goose, metadata: {{name: g}}, spec: {{{fields}}}}}"
        )
    };
    let created = |version: &str| format!("manifest: {}", manifest(version, egg));
    let merged = |version: &str| {
        let fields = "eggs: [{name: a}, {name: b, color: white, size: 2}]";
        format!("expect: {{object: {}}}", manifest(version, fields))
    };
    let changed = |version: &str| {
        let before = manifest(version, &format!("tags: [y], {egg}"));
        let after = manifest(version, "tags: [y, x], eggs: [{name: a}, {name: b, color: white, size: 2}]");
        format!("operation: UPDATE, manifest: {before}, old: {before}, expect: {{object: {after}}}")
    };
    let definition = goose("Cluster", "None");
    let suite = format!("objects: [{definition}]");
    let case = |case: &str| format!("{case}, objects: [{definition}]");
    let file = [("definition.yaml", definition.as_str())];
    for version in ["v1", "v2"] {
        let created = format!("{}, {}", created(version), merged(version));
        for wanted in [created, changed(version)] {
            passes(&[], &suite, &wanted);
            passes(&[], "", &case(&wanted));
            passes(&file, "", &wanted);
            passes(&file, "policies: [policy.yaml, definition.yaml]", &wanted);
        }
    }
    // Without the definition the resource is only guessed, and no policy is for it.
    passes(&[], "", &format!("{}, expect: {{unchanged: true}}", created("v1")));
    let request = |version: &str| {
        format!(
            "request: {{kind: {{group: example.dev, version: {version}, kind: Goose}}, resource: {{group: example.dev, \
             version: {version}, resource: geese}}, operation: CREATE, object: {}}}",
            manifest(version, egg)
        )
    };
    let replaced = manifest("v1", "eggs: [{name: b, size: 2}]");
    passes(&[], "", &format!("{}, expect: {{object: {replaced}}}", request("v1")));
    passes(&[], "", &format!("{}, expect: {{allowed: false, errors: [overlaid]}}", request("v2")));
    // What a webhook converts cannot be converted here.
    let suite = format!("objects: [{}]", goose("Namespaced", "Webhook"));
    passes(&[], &suite, &format!("{}, {}", created("v1"), merged("v1")));
    passes(&[], &suite, &format!("{}, expect: {{allowed: false, errors: [overlaid]}}", created("v2")));
}

/// Else a case would pass although what it says exists is not there.
#[test]
fn definitions_that_cannot_be_used_are_told() {
    let broken =
        goose("Cluster", "None").replace("x-kubernetes-list-type: set", "x-kubernetes-list-type: bag");
    let old = goose("Cluster", "None").replace("k8s.io/v1,", "k8s.io/v1beta1,");
    let case = "manifest: {apiVersion: v1, kind: Pod, metadata: {name: a}}, expect: {allowed: true}";
    for (definition, problem) in [
        (&broken, "CustomResourceDefinition geese.example.dev, version v1: bag is no list type"),
        (&old, "CustomResourceDefinition geese.example.dev: apiextensions.k8s.io/v1beta1 is not known"),
    ] {
        let in_file = [("definition.yaml", definition.as_str())];
        for (files, suite, case, file) in [
            (&[] as &[_], format!("objects: [{definition}]"), case.to_owned(), "objects[0]: "),
            (&in_file, String::new(), case.to_owned(), "definition.yaml: "),
            (&[], String::new(), format!("{case}, objects: [{definition}]"), "objects of the case[0]: "),
        ] {
            let run = test(&folder(files, &suite, &case)).ended(1);
            let report: Value = serde_json::from_str(&run.stdout).unwrap();
            let told = format!("{file}{problem}");
            let problems = &report["suites"][0]["problems"];
            let of_suite = problems.as_array().is_some_and(|problems| {
                problems.len() == 1 && problems.iter().any(|text| text.as_str().unwrap().starts_with(&told))
            });
            let failures = &report["suites"][0]["cases"][0]["failures"][0];
            let of_case = failures["field"] == "error" && failures["got"].as_str().unwrap().contains(&told);
            assert!(of_suite || of_case, "{told}: {report:#}");
        }
    }
}

/// A policy that was good with other definitions is looked at again.
#[test]
fn policies_are_checked_against_the_definitions_of_a_case() {
    let strict = goose("Cluster", "None").replace("[name], ", "[color], ");
    let case = "manifest: {apiVersion: v1, kind: Service, metadata: {name: a}}, expect: {allowed: true}";
    passes(&[], "", case);
    let run = test(&folder(&[], "", &format!("{case}, objects: [{strict}]"))).ended(1);
    assert!(run.stdout.contains("mutations[0].overlay.spec.eggs[0]: lacks color"), "{}", run.stdout);
}

#[test]
fn the_authorizer_answers_from_the_table_of_the_case_or_the_suite() {
    let secret = "manifest: {apiVersion: v1, kind: Secret, metadata: {name: s}}, namespace: shop";
    let by = |user: &str| format!("{secret}, user: {{username: {user}}}");
    let alice = "authorizer: {allow: [{user: alice, verb: approve, resource: secrets, namespace: shop}]}";
    let fine = "expect: {unchanged: true}";
    let denied = |answer: &str| format!("expect: {{message: '{answer} (policy approved)'}}");
    let unconnected = denied("<|no authorizer is connected: what users may do cannot be asked here>");
    for (suite, case) in [
        ("", format!("{secret}, {unconnected}")),
        (alice, format!("{}, {fine}", by("alice"))),
        (alice, format!("{}, {}", by("bob"), denied("<|>"))),
        (
            alice,
            format!("{}, namespace: other, {}", by("alice").replace(", namespace: shop", ""), denied("<|>")),
        ),
        ("", format!("{}, {alice}, {fine}", by("alice"))),
        (alice, format!("{}, authorizer: {{reason: closed}}, {}", by("alice"), denied("<closed|>"))),
        (alice, format!("{}, authorizer: {{error: gone}}, {}", by("alice"), denied("<|gone>"))),
        ("authorizer: {}", format!("{}, {}", by("alice"), denied("<|>"))),
        ("authorizer: {}", format!("{}, authorizer: {{allow: [{{}}]}}, {fine}", by("alice"))),
        (
            alice,
            format!(
                "request: {{kind: {{version: v1, kind: Secret}}, resource: {{version: v1, resource: secrets}}, \
                 operation: CREATE, namespace: shop, userInfo: {{username: alice}}, object: {{metadata: {{name: s}}}}}}, \
                 {fine}"
            ),
        ),
    ] {
        passes(&[], suite, &case);
    }
}

#[test]
fn kubernetes_own_policies_alone_are_a_suite_too() {
    let policies: Vec<&str> = POLICIES.split("---").skip(1).take(2).collect();
    let case = "manifest: {apiVersion: v1, kind: Pod, metadata: {name: a}}, expect: {unchanged: true}";
    let definition = goose("Cluster", "None").replace("geese", "zones").replace("Goose", "Zone");
    let suite = format!("policies: [theirs.yaml]\nobjects: [{definition}]");
    passes(&[("theirs.yaml", &policies.join("---"))], &suite, case);
}
