//! `sallyport test`: suites that pass, fail, and cannot be read.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Run, recipes, run, sallyport};

const POLICIES: &str = r#"
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata: {name: owner}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
    namespaceSelector: {matchLabels: {team: a}}
  mutations:
  - overlay: {metadata: {labels: {owner: "${{ request.userInfo.username }}"}}}
---
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata: {name: zealous}
spec:
  failurePolicy: Ignore
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
  mutations:
  - overlay: {data: {count: "${{ object.data.count + 'x' }}"}}
---
apiVersion: sallyport.dev/v1alpha1
kind: ValidationPolicy
metadata: {name: named}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: ["*"]}]
  validations:
  - expression: request.operation == 'DELETE' || object.metadata.name != 'bad'
    message: bad is no name
---
apiVersion: sallyport.dev/v1alpha1
kind: ValidationPolicy
metadata: {name: watched}
spec:
  validationActions: [Warn, Audit]
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: ["*"]}]
  validations:
  - expression: request.operation == 'DELETE' || object.metadata.name != 'odd'
    message: odd
---
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata: {name: once}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [secrets], operations: [CREATE]}]
  mutations:
  - jsonPatch: {expression: "[JSONPatch{op: 'remove', path: '/metadata/labels/gone'}]"}
"#;

const POD: &str =
    "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: b}]}\n";

/// A folder with the policies, a pod and a suite.
fn folder(suite: &str) -> TempDir {
    let directory = TempDir::new().unwrap();
    let root = directory.path();
    fs::write(root.join("policy.yaml"), POLICIES).unwrap();
    fs::write(root.join("pod.yaml"), POD).unwrap();
    fs::write(root.join("suite.yaml"), suite).unwrap();
    directory
}

/// A suite with the Namespaces that its cases need.
fn suite(cases: &str) -> String {
    format!(
        "objects:\n- {{apiVersion: v1, kind: Namespace, metadata: {{name: default, labels: {{team: a}}}}}}\n\
         - {{apiVersion: v1, kind: Namespace, metadata: {{name: b}}}}\ncases:\n{cases}"
    )
}

fn test(path: &Path, flags: &[&str]) -> Run {
    Run::from(sallyport().arg("test").arg(path).args(flags).output().unwrap())
}

/// Case by case: what is said of the request, what is expected, and the fields that are not so.
#[test]
fn cases_pass_when_all_that_they_expect_is_so() {
    let pod = "manifest: pod.yaml";
    let bad = "manifest: pod.yaml, patch: {metadata: {name: bad}}";
    let odd = "manifest: pod.yaml, patch: {metadata: {name: odd}}, namespace: b";
    let map = "manifest: {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {count: x}}";
    let empty = "manifest: {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}";
    let request = "request: {kind: {version: v1, kind: Pod}, resource: {version: v1, resource: pods}, \
                   operation: CREATE, namespace: default, object: {metadata: {name: bad}}}";
    let gone = "manifest: pod.yaml, namespace: gone";
    let secret = "manifest: {apiVersion: v1, kind: Secret, metadata: {name: s, labels: {gone: soon}}}";
    for (case, expect, fields) in [
        (pod, "allowed: true", &[] as &[&str]),
        (pod, "unchanged: true", &["unchanged"]),
        (pod, "objectContains: {metadata: {labels: {owner: kubernetes-admin}}}", &[]),
        (&format!("{pod}, user: {{username: me}}"), "objectContains: {metadata: {labels: {owner: me}}}", &[]),
        (pod, "objectContains: {metadata: {labels: {owner: me}}}", &["objectContains.metadata.labels.owner"]),
        (pod, "object: pod.yaml", &["object"]),
        (&format!("{pod}, namespace: b"), "object: pod.yaml", &[]),
        (&format!("{pod}, operation: UPDATE, old: pod.yaml"), "unchanged: true", &[]),
        (&format!("{pod}, operation: DELETE"), "allowed: true", &[]),
        (bad, "message: bad is no name (policy named)", &[]),
        (bad, "{message: {contains: no name}, reason: Forbidden, code: 403}", &[]),
        (bad, "message: bad is no name", &["message"]),
        (bad, "allowed: true", &["allowed"]),
        (bad, "code: 404", &["code"]),
        (request, "{allowed: false, reason: Forbidden}", &[]),
        (odd, "{allowed: true, warnings: [odd (policy watched)]}", &[]),
        (odd, "{allowed: true, warnings: []}", &["warnings"]),
        (odd, "auditAnnotations: {watched.violations: odd}", &[]),
        (odd, "auditAnnotations: {}", &["auditAnnotations"]),
        (&format!("{pod}, namespace: b"), "{warnings: [], auditAnnotations: {}}", &[]),
        (map, "objectContains: {data: {count: xx}}", &["changesAgain"]),
        (map, "{objectContains: {data: {count: xx}}, changesAgain: true}", &[]),
        (pod, "{allowed: true, changesAgain: true}", &["changesAgain"]),
        (secret, "allowed: true", &["changesAgain", "errors"]),
        // Under failurePolicy Ignore an error would otherwise pass for consent.
        (empty, "unchanged: true", &["errors"]),
        (empty, "{unchanged: true, errors: [zealous]}", &[]),
        // A namespace that does not exist is an error of the policy that asks for its labels.
        (gone, "{allowed: false, errors: [owner]}", &[]),
        (gone, "allowed: false", &["errors"]),
        (
            &format!("{gone}, objects: [{{apiVersion: v1, kind: Namespace, metadata: {{name: gone}}}}]"),
            "unchanged: true",
            &[],
        ),
    ] {
        let expect = if expect.starts_with('{') { expect.to_owned() } else { format!("{{{expect}}}") };
        let folder = folder(&suite(&format!("- {{name: a, {case}, expect: {expect}}}\n")));
        let run = test(folder.path(), &["-o", "json"]).ended(i32::from(!fields.is_empty()));
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        let failures = report["suites"][0]["cases"][0]["failures"].as_array().unwrap().clone();
        let found: Vec<_> = failures.iter().map(|failure| failure["field"].as_str().unwrap()).collect();
        assert_eq!(found, fields, "{case}: {expect}: {report:#}");
    }
}

#[test]
fn failures_say_what_was_expected_and_what_came() {
    let folder = folder(&suite(
        "- name: fine
  manifest: pod.yaml
  expect: {allowed: true}
- name: wrong text
  manifest: pod.yaml
  patch: {metadata: {name: bad}}
  expect: {message: other}
- name: wrong object
  manifest: pod.yaml
  expect: {object: pod.yaml}
",
    ));
    let path = folder.path().join("suite.yaml");
    let run = test(&path, &["--verbose"]).ended(1);
    let expected = "\
FAIL  SUITE (2 of 3 failed)
      ok    fine
      FAIL  wrong text SUITE:8
            message:
              expected  other
              got       bad is no name (policy named)
      FAIL  wrong object SUITE:12
            object: it is another
            --- expected
            +++ got
            @@ -1,6 +1,8 @@
             apiVersion: v1
             kind: Pod
             metadata:
            +  labels:
            +    owner: kubernetes-admin
               name: web
             spec:
               containers:
3 cases in 1 suite: 1 passed, 2 failed
";
    assert_eq!(run.stdout.replace(path.to_str().unwrap(), "SUITE"), expected);
    assert_eq!(run.stderr, "");

    let quiet = test(&path, &["--filter", "fine"]).ended(0).stdout;
    assert_eq!(quiet.lines().last(), Some("1 case in 1 suite: 1 passed"));
    assert!(!quiet.contains("fine"), "{quiet}");
    let list = test(&path, &["--list", "--filter", "wrong"]).ended(0).stdout;
    let listed: Vec<_> = list.lines().map(|line| line.rsplit_once(": ").unwrap().1).collect();
    assert_eq!(listed, ["wrong text", "wrong object"]);

    let file = folder.path().join("report.xml");
    test(&path, &["--junit", file.to_str().unwrap()]).ended(1);
    let xml = fs::read_to_string(file).unwrap();
    assert!(xml.contains("tests=\"3\" failures=\"2\" errors=\"0\""), "{xml}");
    assert!(xml.contains("line=\"8\"") && xml.contains("expected  other"), "{xml}");
}

/// What cannot be looked at ends with 2, what is wrong with policies with 1.
#[test]
fn what_cannot_be_run_never_passes() {
    let fine = "  expect: {allowed: true}\n";
    for (suite, status, messages) in [
        ("cases: []\n".to_owned(), 2, &["no cases"] as &[&str]),
        (
            "cases:\n- name: a\n  manifest: pod.yaml\n  expect: {alowed: true}\n".into(),
            2,
            &["alowed", "line 4"],
        ),
        (
            format!("cases:\n- name: a\n  manifest: none.yaml\n{fine}"),
            2,
            &["none.yaml", "case \"a\"", "line 2"],
        ),
        (format!("cases:\n- name: a\n  manifest: policy.yaml\n{fine}"), 2, &["one document is needed"]),
        (format!("cases:\n- name: a\n  manifest: {{kind: Pod}}\n{fine}"), 2, &["apiVersion and kind"]),
        (
            format!("cases:\n- name: a\n  manifest: {{apiVersion: v1, kind: AdmissionReview}}\n{fine}"),
            2,
            &["under request"],
        ),
        (
            format!(
                "cases:\n- name: a\n  request: {{kind: {{}}, resource: {{}}, operatoin: CREATE}}\n{fine}"
            ),
            2,
            &["operatoin"],
        ),
        (
            format!("cases:\n- name: a\n  request: {{kind: {{}}, resource: {{}}}}\n{fine}"),
            2,
            &["no operation"],
        ),
        (
            format!(
                "cases:\n- name: a\n  operation: UPDATE\n  manifest: pod.yaml\n  old: {{apiVersion: v1, kind: Pod}}\n{fine}"
            ),
            2,
            &["not the same object"],
        ),
        (
            format!("policies: [none.yaml]\ncases:\n- name: a\n  manifest: pod.yaml\n{fine}"),
            2,
            &["none.yaml"],
        ),
        (format!("policies: [pod.yaml]\ncases:\n- name: a\n  manifest: pod.yaml\n{fine}"), 2, &["no policy"]),
        (format!("objects: [none.yaml]\ncases:\n- name: a\n  manifest: pod.yaml\n{fine}"), 2, &["none.yaml"]),
        (format!("objects:\ncases:\n- name: a\n  manifest: pod.yaml\n{fine}"), 2, &["null"]),
        (format!("cases:\n- name: a\n  manifest: pod.yaml\n  user: {{username: }}\n{fine}"), 2, &["null"]),
        (format!("cases:\n- name: a\n  manifest: pod.yaml\n  user: {{extra: }}\n{fine}"), 2, &["null"]),
        ("cases:\n- name: a\n  manifest: pod.yaml\n  expect: {causes: [{field: }]}\n".into(), 2, &["null"]),
        (
            format!("policies: [broken.yaml]\ncases:\n- name: a\n  manifest: pod.yaml\n{fine}"),
            1,
            &["policies cannot be used", "broken.yaml: ValidationPolicy broken", "1:4"],
        ),
        (
            format!("policies: [unread.yaml]\ncases:\n- name: a\n  manifest: pod.yaml\n{fine}"),
            1,
            &["policies cannot be used", "unread.yaml:4", "mutation"],
        ),
    ] {
        let folder = folder(&suite);
        let broken = "apiVersion: sallyport.dev/v1alpha1\nkind: ValidationPolicy\nmetadata: {name: broken}\n\
                      spec: {matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods]}]}, \
                      validations: [{expression: 1 +}]}\n";
        let unread = "apiVersion: sallyport.dev/v1alpha1\nkind: MutationPolicy\nmetadata: {name: unread}\n\
                      spec: {matchConstraints: {}, mutation: []}\n";
        if suite.contains("broken.yaml") || suite.contains("unread.yaml") {
            fs::write(folder.path().join("broken.yaml"), broken).unwrap();
            fs::write(folder.path().join("unread.yaml"), unread).unwrap();
        }
        let run = test(folder.path(), &[]).ended(status);
        for message in messages {
            assert!(run.stdout.contains(message), "{suite}: {message}: {}", run.stdout);
        }
        if status == 2 {
            let run = test(folder.path(), &["--list", "-o", "json"]).ended(2);
            assert!(run.stderr.contains(messages[0]), "{suite}: {}", run.stderr);
        }
    }
    let folder = folder(&suite("- {name: a, manifest: pod.yaml, expect: {allowed: true}}\n"));
    let empty = TempDir::new().unwrap();
    for (path, flags, message) in [
        (folder.path().join("none"), &[] as &[&str], "does not exist"),
        (empty.path().to_owned(), &[], "no suite.yaml"),
        (folder.path().to_owned(), &["--filter", "b!"], "no case"),
        (folder.path().to_owned(), &["--junit", "/nonexistent/report.xml"], "failed to write"),
        (folder.path().to_owned(), &["--output", "xml"], "xml"),
    ] {
        let run = test(&path, flags).ended(2);
        assert!(run.stderr.contains(message), "{path:?}: {}", run.stderr);
    }
    run(["test"]).ended(2);
}

/// One bad suite does not keep the others from being run.
#[test]
fn all_suites_are_run_and_the_worst_decides() {
    let directory = TempDir::new().unwrap();
    let case = "cases:\n- {name: a, manifest: {apiVersion: v1, kind: Pod, metadata: {name: web}}, expect: ";
    for (name, expect) in [("a", "{allowed: true}}"), ("b", "{allowed: false}}"), ("c", "{alowed: true}}")] {
        let folder = directory.path().join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("policy.yaml"), POLICIES.split("---").nth(2).unwrap()).unwrap();
        fs::write(folder.join("suite.yaml"), format!("{case}{expect}\n")).unwrap();
    }
    let run = test(directory.path(), &["-o", "json"]).ended(2);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let counts = ["passed", "failed", "brokenSuites", "unreadableSuites"].map(|name| report[name].clone());
    assert_eq!(counts, [json!(1), json!(1), json!(0), json!(1)], "{report:#}");
    fs::remove_dir_all(directory.path().join("c")).unwrap();
    test(directory.path(), &[]).ended(1);
}

#[test]
fn the_recipes_do_what_their_suites_say() {
    let run = test(&recipes(), &[]).ended(0);
    for recipe in fs::read_dir(recipes()).unwrap() {
        let recipe = recipe.unwrap().path();
        if recipe.is_dir() {
            let suite = recipe.join("suite.yaml");
            assert!(run.stdout.contains(suite.to_str().unwrap()), "{} has no suite", recipe.display());
        }
    }
}
