//! `ApplyConfiguration` through a real API server and through the policy engine: the same object or the same
//! refusal, for every kind of list and map. The table of types is compared with that API server's, too.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::too_many_lines)] // a table or a scenario is read from top to bottom

mod cases;
mod subjects;
mod versions;

use std::sync::Arc;
use std::time::Duration;

use sallyport_policy::{FailurePolicy, MutationSet, Mutations, Objects, Operation, Request, Review};
use sallyport_tests::oracle::{IN_FORCE, NAMESPACES, Oracle, cleaned};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::subjects::Subject;

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";

/// What came of an object: the object, or code and message.
type Answer = Result<Value, (u16, String)>;

struct World {
    oracle: Oracle,
}

impl World {
    /// An API server with the definitions in force, and two namespaces: in `judged` policies apply, in `plain` not.
    async fn start() -> Self {
        let oracle = Oracle::start().await;
        for name in ["judged", "plain"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"policies": name}}});
            oracle.create(NAMESPACES, &namespace).await;
        }
        oracle.define(&subjects::definitions()).await;
        Self { oracle }
    }

    /// Creates an object without keeping it.
    async fn try_create(&self, subject: &Subject, namespace: &str, object: &Value) -> Answer {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(namespace);
        self.oracle.post(&format!("{}?dryRun=All", subject.path(namespace)), &object).await.map(cleaned)
    }

    /// Puts a policy in force in `judged`.
    async fn bind(&self, policy: &Value) -> Answer {
        self.oracle.post(POLICIES, policy).await?;
        let name = &policy["metadata"]["name"];
        let selector = json!({"namespaceSelector": {"matchLabels": {"policies": "judged"}}});
        let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name}, "spec": {"policyName": name, "matchResources": selector}});
        self.oracle.post(BINDINGS, &binding).await
    }

    /// Waits until what was bound last changes an object.
    async fn wait_for(&self, subject: &Subject, object: &Value, label: &str) {
        let deadline = Instant::now() + IN_FORCE;
        loop {
            let answer = self.try_create(subject, "judged", object).await;
            if answer.as_ref().is_ok_and(|object| object["metadata"]["labels"].get(label).is_some()) {
                return;
            }
            assert!(Instant::now() < deadline, "not in force: {answer:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// A policy of the API server's that changes the objects of one case.
fn policy(name: &str, subject: &Subject, expression: &str) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name}, "spec": spec(name, subject, expression)})
}

fn spec(name: &str, subject: &Subject, expression: &str) -> Value {
    json!({
        "matchConstraints": {
            "resourceRules": [{"apiGroups": [subject.group], "apiVersions": [subject.version],
                               "operations": ["CREATE"], "resources": [subject.resource]}],
            "objectSelector": {"matchLabels": {"case": name}},
        },
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    })
}

/// The same policies compiled by the engine.
fn engine<'c>(cases: impl IntoIterator<Item = (String, &'c Subject, &'c str)>) -> MutationSet {
    let policies = cases.into_iter().map(|(name, subject, expression)| {
        let policy = json!({"apiVersion": "sallyport.dev/v1alpha1", "kind": "MutationPolicy",
            "metadata": {"name": name}, "spec": spec(&name, subject, expression)});
        serde_json::from_value(policy).unwrap()
    });
    let namespaces = Arc::new([json!({"metadata": {"name": "judged"}})].into_iter().collect());
    let objects = Objects::new(namespaces, subjects::definitions());
    assert!(objects.problems().is_empty(), "{:?}", objects.problems());
    let policies = Mutations { policies: policies.collect(), ..Mutations::default() };
    MutationSet::build(policies, Arc::new(objects), None)
}

/// What the engine makes of an object.
fn mutated(set: &MutationSet, subject: &Subject, object: &Value) -> Answer {
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
    if let Some(status) = outcome.answer.status.filter(|_| !outcome.answer.allowed) {
        return Err((status.code, status.message));
    }
    let mut result = object.clone();
    if !outcome.answer.patch.is_empty() {
        let patch: json_patch::Patch = serde_json::from_slice(&outcome.answer.patch).unwrap();
        json_patch::patch(&mut result, &patch).unwrap();
    }
    Ok(result)
}

/// The message alone, without the policy's name before it. Of several problems the order is undefined there.
fn reason(message: &str) -> String {
    let after = |mark: &str| message.split_once(mark).map(|(_, rest)| rest);
    let text =
        after("denied request: ").or_else(|| after("applyConfiguration.expression: ")).unwrap_or(message);
    let mut parts: Vec<&str> = text.split(['\n', ' ']).map(|part| part.trim_end_matches(',')).collect();
    parts.sort_unstable();
    parts.join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn configurations_merge_as_on_a_real_api_server() {
    let world = World::start().await;
    let subjects = subjects::all();
    let mut bound = Vec::new();
    for (index, (subject, expression)) in cases::all().into_iter().enumerate() {
        let subject = subjects.iter().find(|it| it.name == subject).expect(subject);
        let name = format!("case-{index}");
        match world.bind(&policy(&name, subject, &expression)).await {
            Ok(_) => bound.push((name, subject, expression)),
            Err(refused) => panic!("{expression}: {refused:?}"),
        }
    }
    let first = &subjects[0];
    let last = "Object{metadata: Object.metadata{labels: {'last': 'yes'}}}";
    world.bind(&policy("last", first, last)).await.unwrap();
    world.wait_for(first, &first.object("last"), "last").await;
    // Custom kinds take a moment longer to be known for merging.
    for subject in &subjects {
        let deadline = Instant::now() + IN_FORCE;
        let name = format!("ready-{}", subject.name);
        world.bind(&policy(&name, subject, last)).await.unwrap();
        while !matches!(&world.try_create(subject, "judged", &subject.object(&name)).await,
                        Ok(object) if object["metadata"]["labels"].get("last").is_some())
        {
            assert!(Instant::now() < deadline, "{} is not ready", subject.name);
            sleep(Duration::from_millis(100)).await;
        }
    }

    let set =
        engine(bound.iter().map(|(name, subject, expression)| (name.clone(), *subject, expression.as_str())));
    for status in set.policies() {
        assert_eq!(status.message, "", "{}", status.name);
    }
    let (mut objects, mut refusals, mut differences) = (0, 0, Vec::new());
    for (name, subject, expression) in &bound {
        let written = subject.object(name);
        let theirs = world.try_create(subject, "judged", &written).await;
        // What the API server hands to webhooks: the object with its defaults.
        let received = world.try_create(subject, "plain", &written).await.unwrap();
        let ours = match mutated(&set, subject, &received) {
            Ok(object) => world.try_create(subject, "plain", &object).await,
            refused => refused,
        };
        let same = match (&theirs, &ours) {
            (Ok(theirs), Ok(ours)) => theirs == ours,
            (Err((_, theirs)), Err((_, ours))) => reason(theirs) == reason(ours),
            _ => false,
        };
        if theirs.is_ok() {
            objects += 1;
        } else {
            refusals += 1;
        }
        if !same {
            let shown = |answer: &Answer| match answer {
                Ok(object) => object.to_string(),
                Err((code, message)) => format!("{code} {message}"),
            };
            differences.push(format!(
                "{expression}\n  theirs: {}\n  ours:   {}",
                shown(&theirs),
                shown(&ours)
            ));
        }
    }
    println!("{objects} objects and {refusals} refusals compared");
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    world.oracle.plane.stop().unwrap();
}

/// `make schema` writes the table anew.
#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_types_is_that_of_the_api_server() {
    let committed = std::fs::read_to_string(sallyport_tests::schema::path()).unwrap();
    let generated = sallyport_tests::schema::generate().await.unwrap();
    let differing = committed.lines().zip(generated.lines()).find(|(one, other)| one != other);
    assert!(committed == generated, "make schema would change the table, first here: {differing:?}");
}
