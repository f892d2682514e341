//! `sallyport review`, with an embedded suite: real TLS and gRPC on loopback.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Run, recipes, run, run_with_input, sallyport};

fn fixture(path: &str) -> PathBuf {
    recipes().join(path)
}

/// A directory with a policy that changes pods and one that denies some.
fn hello_and_deny() -> TempDir {
    let directory = TempDir::new().unwrap();
    for recipe in ["hello-file", "deny-env"] {
        let to = directory.path().join(format!("{recipe}.yaml"));
        fs::copy(fixture(&format!("{recipe}/policy.yaml")), to).unwrap();
    }
    directory
}

/// Runs a review with policies of the recipes.
fn review<'a>(recipe: &str, arguments: impl IntoIterator<Item = &'a str>) -> Run {
    let policies = recipes().join(recipe);
    let flags = ["review".into(), "--policy-dir".into(), policies.into_os_string()];
    run(flags.into_iter().chain(arguments.into_iter().map(OsString::from)))
}

fn yaml(path: &Path) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn pod(name: &str, labels: &Value) -> Value {
    sallyport_testkit::pod(name, labels.clone(), json!({}))
}

fn admission(uid: &str, object: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": uid, "operation": "CREATE", "namespace": "default",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "object": object}})
}

#[test]
fn recipes_change_pods_as_their_fixtures_say_sys1_sys2() {
    for (recipe, name) in
        [("sidecar-nginx", "sleep"), ("hello-file", "busybox-1"), ("hello-file", "many-containers")]
    {
        let before = fixture(&format!("{recipe}/fixtures/changed/{name}.before.yaml"));
        let after = yaml(&fixture(&format!("{recipe}/fixtures/changed/{name}.after.yaml")));
        let output = review(recipe, ["-o", "json", before.to_str().unwrap()]).ended(0).stdout;
        let outcome: Value = serde_json::from_str(&output).unwrap();
        assert_eq!(outcome[0]["object"], after, "{recipe} {name}");
        assert_eq!(outcome[0]["allowed"], true);
        let doors: Vec<_> =
            outcome[0]["decisions"].as_array().unwrap().iter().map(|d| d["door"].as_str().unwrap()).collect();
        assert_eq!(doors, ["mutate/fail", "mutate/ignore", "validate/fail", "validate/ignore"]);
        assert!(!outcome[0]["decisions"][0]["patch"].as_array().unwrap().is_empty());

        let text = review(recipe, [before.to_str().unwrap()]).ended(0).stdout;
        assert!(
            text.contains("allowed, changed") && text.contains("+++ changed") && text.contains("\n+"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'), "no colours off a terminal: {text}");
        // What was made passes unchanged: a second run changes nothing.
        let again = fixture(&format!("{recipe}/fixtures/changed/{name}.after.yaml"));
        let text = review(recipe, [again.to_str().unwrap()]).ended(0).stdout;
        assert!(!text.contains("changed"), "{text}");
    }
}

#[test]
fn a_denial_is_shown_with_its_code_message_and_fields_and_ends_with_3_sys8() {
    let denied = fixture("deny-env/fixtures/denied/nginx-with-env.yaml");
    let denied = denied.to_str().unwrap();
    let text = review("deny-env", [denied]).ended(3).stdout;
    for part in ["denied 402", "is using env vars", "spec.containers[0].env"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output = review("deny-env", ["-o", "yaml", denied]).ended(3).stdout;
    let outcome: Value = serde_saphyr::from_str(&output).unwrap();
    let decision = outcome[0]["decisions"].as_array().unwrap().last().unwrap();
    assert_eq!((&decision["door"], &decision["allowed"]), (&json!("validate/fail"), &json!(false)));
    assert_eq!(decision["status"]["code"], 402);
    assert_eq!(outcome[0]["allowed"], false);

    let allowed = fixture("deny-env/fixtures/allowed/nginx-no-env.yaml");
    review("deny-env", [allowed.to_str().unwrap()]).ended(0);
    // One refused among others is enough.
    review("deny-env", [allowed.to_str().unwrap(), denied]).ended(3);
    // The mutating side alone has nothing against it.
    review("deny-env", ["--door", "mutate", denied]).ended(0);
}

#[test]
fn colours_are_for_terminals_and_no_color_is_honoured() {
    let file = fixture("hello-file/fixtures/changed/busybox-1.before.yaml");
    let colours = |variables: &[(&str, &str)]| {
        let mut command = sallyport();
        command.args(["review", "--policy-dir"]).arg(recipes().join("hello-file")).arg(&file);
        let output = command.env_remove("NO_COLOR").envs(variables.iter().copied()).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().contains('\u{1b}')
    };
    assert!(colours(&[("CLICOLOR_FORCE", "1")]));
    assert!(!colours(&[("NO_COLOR", "1")]));
}

#[test]
fn validation_sees_what_mutation_made_and_an_earlier_mutation_is_asked_again() {
    let directory = TempDir::new().unwrap();
    let policy = |name: &str, failure: &str, condition: &str, label: &str| {
        format!(
            "apiVersion: sallyport.dev/v1alpha1\nkind: MutationPolicy\nmetadata: {{name: {name}}}\nspec:\n  failurePolicy: {failure}\n  \
             reinvocationPolicy: IfNeeded\n  matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], resources: [pods]}}]}}\n  \
             matchConditions: [{{name: c, expression: \"{condition}\"}}]\n  \
             mutations: [{{overlay: {{metadata: {{labels: {{{label}: 'yes'}}}}}}}}]\n"
        )
    };
    let has = |label: &str| format!("object.metadata.?labels['{label}'].hasValue()");
    fs::write(
        directory.path().join("policies.yaml"),
        [
            policy("second", "Fail", &has("first"), "second"),
            policy("first", "Ignore", "true", "first"),
            "apiVersion: sallyport.dev/v1alpha1\nkind: ValidationPolicy\nmetadata: {name: check}\nspec:\n  \
             matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods]}]}\n  \
             validationActions: [Warn]\n  validations: [{expression: \"!('second' in object.metadata.labels)\", message: seen}]\n"
                .to_owned(),
        ]
        .join("---\n"),
    )
    .unwrap();
    let manifest = directory.path().join("list.json");
    let list =
        json!({"apiVersion": "v1", "kind": "List", "items": [pod("a", &json!({})), pod("b", &json!({}))]});
    fs::write(&manifest, list.to_string()).unwrap();
    let policies = directory.path().join("policies");
    fs::create_dir(&policies).unwrap();
    fs::rename(directory.path().join("policies.yaml"), policies.join("policies.yaml")).unwrap();
    let run =
        run(["review", "-o", "json", "--policy-dir", policies.to_str().unwrap(), manifest.to_str().unwrap()])
            .ended(0);
    assert_eq!(run.stderr, "");
    let outcome: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(outcome.as_array().unwrap().len(), 2);
    let doors: Vec<_> =
        outcome[1]["decisions"].as_array().unwrap().iter().map(|d| d["door"].as_str().unwrap()).collect();
    assert_eq!(
        doors,
        ["mutate/fail", "mutate/ignore", "mutate/fail", "mutate/ignore", "validate/fail", "validate/ignore"]
    );
    assert_eq!(outcome[1]["object"]["metadata"]["labels"], json!({"first": "yes", "second": "yes"}));
    let warnings = outcome[1]["decisions"][4]["warnings"].to_string();
    assert!(warnings.contains("seen"), "{warnings}");
}

#[test]
fn a_broken_policy_is_told_and_fails_what_it_matches() {
    let directory = TempDir::new().unwrap();
    let policies = directory.path().join("policies");
    fs::create_dir(&policies).unwrap();
    let policy = fs::read_to_string(fixture("deny-env/policy.yaml")).unwrap();
    fs::write(policies.join("a.yaml"), policy.replace("has(container.spec.env)", "has(container.spec.env"))
        .unwrap();
    fs::write(
        policies.join("b.yaml"),
        "apiVersion: sallyport.dev/v1alpha1\nkind: MutationPolicy\nmetadata: {name: b}\nspce: {}\n",
    )
    .unwrap();
    let manifest = fixture("deny-env/fixtures/allowed/nginx-no-env.yaml");
    let flags = ["review", "--policy-dir", policies.to_str().unwrap(), manifest.to_str().unwrap()];
    let run = run(flags);
    assert_ne!(run.status, Some(0), "{run:?}");
    for part in ["a.yaml: ValidationPolicy deny-env", "b.yaml", "spce"] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
}

#[test]
fn operations_put_the_object_where_an_api_server_would() {
    let directory = TempDir::new().unwrap();
    let file = |name: &str, object: &Value| {
        let path = directory.path().join(name);
        fs::write(&path, object.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let plain = pod("a", &json!({}));
    let mut with_env = plain.clone();
    with_env["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "b"}]);
    let (plain, with_env) = (file("plain.json", &plain), file("env.json", &with_env));
    review("deny-env", ["--operation", "UPDATE", "--old", &plain, &with_env]).ended(3);
    // What did not change is let be.
    review("deny-env", ["--operation", "update", "--old", &with_env, &with_env]).ended(0);
    review("deny-env", ["--operation", "DELETE", &with_env]).ended(0);
    review("deny-env", ["--dry-run", "--user", "eve", "--group", "a,b", "--namespace", "x", &with_env])
        .ended(3);
    review("deny-env", ["--operation", "UPDATE", &with_env]).ended(2);
    let other = file("other.json", &pod("b", &json!({})));
    let missing = review("deny-env", ["--operation", "UPDATE", "--old", &other, &with_env]).ended(1);
    assert!(missing.stderr.contains("--old has no Pod a"), "{}", missing.stderr);
}

#[test]
fn what_cannot_be_reviewed_is_an_error_that_names_the_file() {
    let directory = TempDir::new().unwrap();
    let bad = directory.path().join("bad.yaml");
    for text in ["a: [", "just text", "kind: Pod", "", "# nothing\n"] {
        fs::write(&bad, text).unwrap();
        let run = review("deny-env", [bad.to_str().unwrap()]).ended(1);
        assert!(run.stderr.contains("bad.yaml") && run.stdout.is_empty(), "{text}: {run:?}");
    }
    let good = fixture("deny-env/fixtures/allowed/nginx-no-env.yaml");
    let good = good.to_str().unwrap();
    for (flags, message) in [
        (vec!["--policy-dir", "/nonexistent"], "/nonexistent"),
        (vec!["--state-dir", "/nonexistent"], "is sallyport dev running there?"),
        (vec!["--server", "http://127.0.0.1:1", "--ca-file", good], "https://"),
        (vec!["--server", "https://127.0.0.1:1", "--ca-file", good], "no certificate"),
    ] {
        let run = run(["review", good].into_iter().chain(flags)).ended(1);
        assert!(run.stderr.contains(message), "{}", run.stderr);
    }
    for flags in [vec![], vec!["--server", "https://x"], vec!["--policy-dir", "a", "--state-dir", "b"]] {
        run(["review", good].into_iter().chain(flags)).ended(2);
    }
    review("deny-env", ["-", good]).ended(1);
}

/// A review that no answer could be matched with.
const NO_UID: &str = "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{}}\n";

#[test]
fn json_lines_are_answered_in_order_and_a_bad_line_costs_only_itself() {
    let policies = hello_and_deny();
    let arguments = ["review", "--policy-dir", policies.path().to_str().unwrap(), "-"];
    let mut input = String::new();
    let count = 500;
    for index in 0..count {
        match index {
            100 => input += "not JSON\n",
            200 => input += NO_UID,
            300 => input += "[]\n",
            _ => {
                let mut object = pod("a", &json!({"hello": "true"}));
                if index % 7 == 0 {
                    object["spec"]["containers"][0]["env"] = json!([{"name": "A"}]);
                }
                let mut line = admission(&format!("u-{index}"), &object);
                if index == 3 {
                    line["apiVersion"] = json!("admission.k8s.io/v1beta1");
                }
                input.push_str(&line.to_string());
                input.push('\n');
                if index == 400 {
                    input += "\n  \n";
                }
            }
        }
    }
    let run = run_with_input(arguments, input.into_bytes()).ended(1);
    let answers: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), count);
    for (index, answer) in answers.iter().enumerate() {
        if [100, 200, 300].contains(&index) {
            assert_eq!(
                (&answer["error"]["code"], &answer["error"]["line"]),
                (&json!(400), &json!(index + 1)),
                "{answer}"
            );
            assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
            continue;
        }
        let response = &answer["response"];
        assert_eq!(answer["kind"], "AdmissionReview");
        assert_eq!(response["uid"], format!("u-{index}"));
        let version = if index == 3 { "admission.k8s.io/v1beta1" } else { "admission.k8s.io/v1" };
        assert_eq!(answer["apiVersion"], version);
        if index % 7 == 0 {
            assert_eq!(
                (&response["allowed"], &response["status"]["code"]),
                (&json!(false), &json!(402)),
                "{answer}"
            );
            assert!(response.get("patch").is_none(), "C-25: {answer}");
        } else {
            assert_eq!(
                (&response["allowed"], &response["patchType"]),
                (&json!(true), &json!("JSONPatch")),
                "{answer}"
            );
        }
    }
}

#[test]
fn json_lines_go_through_one_door_if_asked_and_tell_a_denial() {
    let policies = hello_and_deny();
    let line = |env: bool| {
        let mut object = pod("a", &json!({"hello": "true"}));
        if env {
            object["spec"]["containers"][0]["env"] = json!([]);
        }
        format!("{}\n", admission("u", &object)).into_bytes()
    };
    let door = |door: &str, env: bool, status: i32| -> Value {
        let arguments = ["review", "--policy-dir", policies.path().to_str().unwrap(), "--door", door, "-"];
        serde_json::from_str(&run_with_input(arguments, line(env)).ended(status).stdout).unwrap()
    };
    assert!(door("mutate/fail", true, 0)["response"]["patch"].is_string());
    assert!(door("mutate/ignore", true, 0)["response"].get("patch").is_none());
    assert!(door("validate", false, 0)["response"].get("patch").is_none());
    assert_eq!(door("validate/fail", true, 3)["response"]["allowed"], false);
    assert_eq!(door("validate-ignore", true, 0)["response"]["allowed"], true);
    // No input is no error.
    let arguments = ["review", "--policy-dir", policies.path().to_str().unwrap(), "-"];
    assert_eq!(run_with_input(arguments, Vec::new()).ended(0).stdout, "");
}
