//! `matchPolicy` on a real API server and in the engine.

use std::sync::Arc;

use sallyport_policy::{FailurePolicy, Objects, Operation, Request, Review, ValidationSet, Validations};
use sallyport_tests::oracle::IN_FORCE;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::World;
use crate::subjects::{self, Subject};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// What a policy says in which version it saw an object.
const SEEN: &str = "object.apiVersion + ' ' + request.kind.version + ' ' + request.resource.resource + '/' + \
                    request.resource.version + ' asked ' + request.requestKind.version + ' ' + \
                    request.requestResource.version";

/// A rule's group, versions and resource, the match policy, and the subject sent; `None` where the engine cannot
/// convert and refuses, while the API server converts.
struct Row {
    rule: (&'static str, &'static str, &'static str),
    policy: &'static str,
    subject: &'static str,
    convertible: bool,
}

fn rows() -> Vec<Row> {
    let row = |rule, policy, subject| Row { rule, policy, subject, convertible: true };
    let things = ["v1", "v2", "*"].map(|version| ("example.dev", version, "things"));
    let mut rows = Vec::new();
    for policy in ["Exact", "Equivalent"] {
        for subject in ["thing-1", "thing-2"] {
            rows.extend(things.map(|rule| row(rule, policy, subject)));
            rows.push(row(("*", "v1", "*"), policy, subject));
            rows.push(row(("example.dev", "v3", "things"), policy, subject));
        }
        rows.push(row(("apps", "v1beta1", "deployments"), policy, "deployment"));
        rows.push(row(("apps", "v1", "deployments"), policy, "deployment"));
        rows.push(row(("extensions", "v1beta1", "deployments"), policy, "deployment"));
        rows.push(row(("autoscaling", "v2", "horizontalpodautoscalers"), policy, "autoscaler"));
        rows.push(row(("autoscaling", "*", "horizontalpodautoscalers"), policy, "autoscaler"));
        rows.push(Row {
            convertible: policy == "Exact",
            ..row(("autoscaling", "v1", "horizontalpodautoscalers"), policy, "autoscaler")
        });
    }
    rows
}

fn spec(row: &Row, name: &str) -> Value {
    let (group, version, resource) = row.rule;
    json!({
        "matchConstraints": {
            "matchPolicy": row.policy,
            "resourceRules": [{"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE"], "resources": [resource]}],
            "objectSelector": {"matchLabels": {"case": name}},
        },
        "validations": [{"expression": "false", "messageExpression": SEEN}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_match_versions_as_on_a_real_api_server() {
    let world = World::start().await;
    let mut subjects = subjects::all();
    subjects.extend(subjects::things());
    let subject = |name: &str| subjects.iter().find(|subject| subject.name == name).unwrap();
    let rows: Vec<(String, Row)> =
        rows().into_iter().enumerate().map(|(index, row)| (format!("case-{index}"), row)).collect();
    let last = Row {
        rule: ("apps", "v1", "deployments"),
        policy: "Exact",
        subject: "deployment",
        convertible: true,
    };
    for (name, row) in rows.iter().chain([&("last".to_owned(), last)]) {
        let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name}, "spec": spec(row, name)});
        world.oracle.post(POLICIES, &policy).await.unwrap();
        let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
        world.oracle.post(BINDINGS, &binding).await.unwrap();
    }
    let deadline = Instant::now() + IN_FORCE;
    while world
        .try_create(subject("deployment"), "judged", &subject("deployment").object("last"))
        .await
        .is_ok()
    {
        assert!(Instant::now() < deadline, "the policies are not in force");
        sleep(Duration::from_millis(100)).await;
    }

    let policies = rows.iter().map(|(name, row)| {
        let policy = json!({"apiVersion": "sallyport.dev/v1alpha1", "kind": "ValidationPolicy",
            "metadata": {"name": name}, "spec": spec(row, name)});
        serde_json::from_value(policy).unwrap()
    });
    let objects = Objects::new(Arc::default(), subjects::definitions());
    let policies = Validations { policies: policies.collect(), ..Validations::default() };
    let set = ValidationSet::build(policies, Arc::new(objects), None);
    for (name, row) in &rows {
        let subject = subject(row.subject);
        let object = subject.object(name);
        let theirs = world.try_create(subject, "judged", &object).await;
        let ours = validated(&set, subject, &object);
        let said = |message: &str| {
            message.rsplit_once("denied request: ").map_or(message, |(_, rest)| rest).to_owned()
        };
        let theirs = theirs.err().map(|(_, message)| said(&message));
        let shown = format!("{:?} {} {}", row.rule, row.policy, row.subject);
        if row.convertible {
            let ours = ours.map(|message| message.replace(&format!(" (policy {name})"), ""));
            assert_eq!(ours, theirs, "{shown}");
        } else {
            assert!(theirs.is_some_and(|message| message.starts_with("autoscaling/v1 v1")), "{shown}");
            assert!(ours.is_some_and(|message| message.contains("cannot be converted here")), "{shown}");
        }
    }
    println!("{} rows compared", rows.len());
    world.oracle.plane.stop().unwrap();
}

fn validated(set: &ValidationSet, subject: &Subject, object: &Value) -> Option<String> {
    let request = Request {
        kind: subject.kind(),
        resource: subject.gvr(),
        namespace: "judged".to_owned(),
        operation: Operation::Create,
        ..Request::default()
    };
    let bytes = object.to_string();
    let review = Review { object: bytes.as_bytes(), ..Review::of(&request) };
    let outcome = set.review(&review, FailurePolicy::Fail);
    outcome.answer.status.filter(|_| !outcome.answer.allowed).map(|status| status.message)
}
