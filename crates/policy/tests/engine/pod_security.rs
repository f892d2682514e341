//! The Pod Security Standards: our recipes give every pod of Kubernetes' own test data the verdict of the folder it
//! lies in. The data are those recorded under `corpora/recorded` (source `psa`).

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sallyport_policy::{FailurePolicy, Operation, ValidationSet};
use serde_json::{Value, json};

use crate::fixtures::{namespaces, pod_request, review, validations};

fn corpus(name: &str) -> Vec<Value> {
    let root = std::env::var("SALLYPORT_CORPORA").expect("SALLYPORT_CORPORA names the conformance data");
    let path = Path::new(&root).join("recorded/data").join(name);
    let output = Command::new("gzip").arg("-dc").arg(&path).output().expect("gzip");
    assert!(output.status.success(), "{}", path.display());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn recipe(name: &str) -> Vec<String> {
    let path: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies").join(name).join("policy.yaml");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.split("\n---\n").map(str::to_owned).collect()
}

fn set(policies: &[String]) -> ValidationSet {
    let texts: Vec<&str> = policies.iter().map(String::as_str).collect();
    let set = ValidationSet::compile(validations(&texts), namespaces(), None);
    for policy in set.policies() {
        assert_eq!(policy.message, "", "{}", policy.name);
    }
    set
}

/// Denied or not, and by what; errors count as neither.
fn verdict(set: &ValidationSet, pod: &Value) -> Result<bool, String> {
    let request = pod_request(Operation::Create);
    let bytes = pod.to_string();
    let outcome = set.review(&review(&request, bytes.as_bytes()), FailurePolicy::Fail);
    let message = outcome.answer.status.as_ref().map(|status| status.message.clone()).unwrap_or_default();
    if message.contains("no such") || message.contains("failed to") {
        return Err(message);
    }
    Ok(outcome.answer.allowed)
}

#[test]
fn pod_security_recipes_agree_with_kubernetes_own_test_data() {
    let baseline = recipe("pod-security-baseline");
    let restricted = [baseline.clone(), recipe("pod-security-restricted")].concat();
    let sets = HashMap::from([("baseline", set(&baseline)), ("restricted", set(&restricted))]);
    let objects: HashMap<String, Value> = corpus("psa.objects.jsonl.gz")
        .into_iter()
        .map(|mut line| (line["h"].as_str().unwrap().to_owned(), line["o"].take()))
        .collect();
    let mut judged = 0;
    let mut wrong = Vec::new();
    for case in corpus("psa.cases.jsonl.gz") {
        let directory = case["meta"]["directory"].as_str().unwrap();
        let object = &case["review"]["request"]["object"];
        let pod = object["$ref"].as_str().map_or(object, |hash| &objects[hash]);
        let expected = case["meta"]["directoryVerdict"] == "pass";
        match verdict(&sets[directory], pod) {
            Ok(allowed) if allowed == expected => judged += 1,
            other => wrong.push(format!("{}: {other:?}", case["id"])),
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(judged >= 300, "{judged}");
}

/// Namespace, operation, subresource, new, old; what of the message must be there, if it is refused.
type Row<'a> = (&'a str, Operation, &'a str, &'a Value, Option<&'a Value>, Option<&'a str>);

/// What a user can count on beyond the verdicts: which requests are looked at at all, and what they are told.
#[test]
fn pods_from_before_can_be_changed_and_kube_system_is_left_alone() {
    let texts = ["pod-security-baseline", "pod-security-restricted"].map(recipe).concat();
    let set = set(&texts);
    let pod = |privileged: bool, label: &str| {
        json!({
            "metadata": {"name": "p", "labels": {"l": label}},
            "spec": {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": privileged}}]},
        })
    };
    let debugged = json!({
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "ephemeralContainers": [{"name": "debug", "image": "i", "securityContext": {"privileged": true}}],
        },
    });
    let (bad, labelled, fair) = (pod(true, "a"), pod(true, "b"), pod(false, "a"));
    let create = Operation::Create;
    let update = Operation::Update;
    let rows: &[Row<'_>] = &[
        ("default", create, "", &bad, None, Some("privileged containers are forbidden: c")),
        ("default", create, "", &fair, None, Some("must set allowPrivilegeEscalation to false: c")),
        ("default", create, "", &bad, None, Some("(policy pod-security-baseline-privileged)")),
        ("kube-system", create, "", &bad, None, None),
        ("default", update, "", &labelled, Some(&bad), None),
        ("default", update, "", &bad, Some(&fair), Some("privileged containers are forbidden: c")),
        ("default", update, "ephemeralcontainers", &debugged, Some(&fair), Some("are forbidden: debug")),
    ];
    for (namespace, operation, sub_resource, new, old, message) in rows {
        let mut request = pod_request(*operation);
        (*namespace).clone_into(&mut request.namespace);
        (*sub_resource).clone_into(&mut request.sub_resource);
        let (new, old) = (new.to_string(), old.map(ToString::to_string));
        let mut review = review(&request, new.as_bytes());
        review.old_object = old.as_deref().unwrap_or_default().as_bytes();
        let outcome = set.review(&review, FailurePolicy::Fail);
        let given = outcome.answer.status.as_ref().map(|status| status.message.as_str());
        match message {
            None => assert_eq!(given, None, "{namespace} {operation:?} {new}"),
            Some(part) => {
                assert!(given.is_some_and(|given| given.contains(part)), "{namespace} {new}: {given:?}");
            }
        }
    }
}
