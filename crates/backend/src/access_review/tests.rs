//! Questions and answers as the API server has them, and reviews whose policies ask them, over an API server that
//! is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{SubjectAccessReviewSpec, SubjectAccessReviewStatus};
use kube::core::Status;
use parking_lot::Mutex;
use sallyport_policy::{Decision, MutationSet, Outcome, Resource, UserInfo, ValidationSet};
use sallyport_proto::v1alpha1::{self, GroupVersionKind, GroupVersionResource, Operation, ReviewRequest};
use sallyport_sources::Directory;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::Request;

use super::{ATTEMPTS, AccessReviews, Ask, AskError, Asking, MAX_AT_ONCE, decision, question};
use crate::authorization::{Answers, Check, Subject};
use crate::engine::PolicySet;
use crate::meters::{AccessReviewMeters, PolicyMeters};
use crate::policies::Policies;
use crate::reviewer::{LARGE, Reviewer};

/// Allows ann what she asks, refuses to speak of `broken`, and keeps silent about `silent`.
#[derive(Clone, Debug, Default)]
struct Clerk {
    asked: Arc<Mutex<Vec<SubjectAccessReviewSpec>>>,
    at_once: Arc<AtomicUsize>,
    most_at_once: Arc<AtomicUsize>,
}

impl Clerk {
    fn count(&self) -> usize {
        self.asked.lock().len()
    }
}

fn failure(code: u16) -> AskError {
    let status = Status::failure("not today", "Because").with_code(code);
    AskError::Call(Box::new(kube::Error::Api(Box::new(status))))
}

impl Ask for Clerk {
    fn ask<'a>(&'a self, check: &'a Check) -> Asking<'a> {
        Box::pin(async move {
            let spec = question(check).spec;
            let name = spec.resource_attributes.as_ref().and_then(|it| it.name.clone()).unwrap_or_default();
            self.asked.lock().push(spec);
            let at_once = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_at_once.fetch_max(at_once, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            match name.as_str() {
                "silent" => std::future::pending().await,
                "broken" => Err(failure(503)),
                "forbidden" => Err(failure(403)),
                "panics" => panic!("a defect"),
                _ => {
                    let allowed = check.user.username == "ann";
                    let reason = Some(format!("because of {}", check.user.username));
                    Ok(SubjectAccessReviewStatus { allowed, reason, ..SubjectAccessReviewStatus::default() })
                }
            }
        })
    }
}

fn access_reviews(clerk: &Clerk) -> AccessReviews {
    AccessReviews::new(clerk.clone(), 100, AccessReviewMeters::new().unwrap())
}

fn check(user: &str, name: &str) -> Check {
    Check {
        user: Arc::new(UserInfo { username: user.to_owned(), ..UserInfo::default() }),
        verb: "get".to_owned(),
        subject: Subject::Resource(Resource { name: name.to_owned(), ..Resource::default() }),
    }
}

/// An API server that hangs leaves room for the reviews that do not ask it.
#[tokio::test(start_paused = true)]
async fn reviews_that_wait_are_bounded_and_the_others_questions_are_errors() {
    let clerk = Clerk::default();
    let reviews = AccessReviews::new(clerk.clone(), 2, AccessReviewMeters::new().unwrap());
    let settled = async |name: &str| {
        let mut answers = Answers::default();
        let deadline = Instant::now() + Duration::from_secs(5);
        let begun = Instant::now();
        reviews.settle(vec![check("ann", name)], &mut answers, deadline).await;
        begun.elapsed()
    };
    let (first, second, third) = tokio::join!(settled("silent"), settled("silent"), settled("pod"));
    assert!(first >= Duration::from_secs(5) && second >= Duration::from_secs(5), "{first:?} {second:?}");
    assert_eq!(third, Duration::ZERO);
    // The place is free again.
    assert!(settled("pod").await > Duration::ZERO);
}

#[test]
fn a_question_is_a_subject_access_review() {
    let user = UserInfo {
        username: "ann".into(),
        uid: "1".into(),
        groups: vec!["a".into(), "b".into()],
        extra: [("scopes".into(), vec!["x".into()])].into(),
    };
    let resource = Resource {
        group: "apps".into(),
        resource: "deployments".into(),
        subresource: "scale".into(),
        namespace: "shop".into(),
        name: "till".into(),
        field_selector: "a=b".into(),
        label_selector: "c in (d)".into(),
    };
    let spec = |user: UserInfo, subject| {
        let check = Check { user: Arc::new(user), verb: "patch".into(), subject };
        serde_json::to_value(question(&check).spec).unwrap()
    };
    let expected = json!({
        "user": "ann", "uid": "1", "groups": ["a", "b"], "extra": {"scopes": ["x"]},
        "resourceAttributes": {
            "group": "apps", "resource": "deployments", "subresource": "scale", "namespace": "shop",
            "name": "till", "verb": "patch",
            "fieldSelector": {"rawSelector": "a=b"}, "labelSelector": {"rawSelector": "c in (d)"},
        },
    });
    assert_eq!(spec(user, Subject::Resource(resource)), expected);
    let pods = Resource { resource: "pods".into(), ..Resource::default() };
    let expected = json!({"user": "ann", "resourceAttributes": {"resource": "pods", "verb": "patch"}});
    let ann = UserInfo { username: "ann".into(), ..UserInfo::default() };
    assert_eq!(spec(ann.clone(), Subject::Resource(pods)), expected);
    let expected = json!({"user": "ann", "nonResourceAttributes": {"path": "/healthz", "verb": "patch"}});
    assert_eq!(spec(ann, Subject::Path("/healthz".into())), expected);
}

#[test]
fn an_answer_is_a_decision_as_the_api_servers_own_expressions_see_it() {
    let selector = "spec.resourceAttributes.labelSelector ignored due to parse error";
    let partly = "spec.resourceAttributes.fieldSelector partially ignored due to parse error";
    let rows = [
        (json!({"allowed": true, "reason": "r"}), true, "r", None),
        (json!({"allowed": false}), false, "", None),
        (json!({"allowed": false, "denied": true, "reason": "no"}), false, "no", None),
        (json!({"allowed": true, "evaluationError": "e"}), true, "", Some("e".to_owned())),
        (json!({"allowed": false, "evaluationError": ""}), false, "", None),
        (json!({"allowed": true, "evaluationError": selector}), true, "", None),
        (json!({"allowed": true, "evaluationError": format!("{partly}; {selector}")}), true, "", None),
        (
            json!({"allowed": true, "evaluationError": format!("a; b; {selector}")}),
            true,
            "",
            Some("a; b".to_owned()),
        ),
        (
            json!({"allowed": true, "denied": true}),
            false,
            "",
            Some("the API server both allowed and denied it".to_owned()),
        ),
    ];
    for (status, allowed, reason, error) in rows {
        let expected = Decision { allowed, reason: reason.to_owned(), error };
        assert_eq!(decision(serde_json::from_value(status.clone()).unwrap()), expected, "{status}");
    }
}

/// What cannot be answered is an error of its question, after as many attempts as may help, in time.
#[tokio::test(start_paused = true)]
async fn a_question_without_an_answer_is_an_error() {
    for (name, attempts, seconds, error) in [
        ("fine", 1, 1, None),
        ("broken", ATTEMPTS, 1, Some("failed to ask the API server: ApiError: not today: Because")),
        ("forbidden", 1, 1, Some("failed to ask the API server: ApiError: not today: Because")),
        ("silent", 2, 4, Some("the API server did not answer in time")),
        ("panics", 1, 1, Some("asking the API server panicked")),
    ] {
        let clerk = Clerk::default();
        let mut answers = Answers::default();
        let begun = Instant::now();
        let deadline = begun + Duration::from_secs(4);
        let check = check("ann", name);
        access_reviews(&clerk).settle(vec![check.clone()], &mut answers, deadline).await;
        assert!(begun.elapsed() <= Duration::from_secs(seconds), "{name}: {:?}", begun.elapsed());
        assert_eq!(clerk.count(), usize::try_from(attempts).unwrap(), "{name}");
        let Subject::Resource(resource) = &check.subject else { panic!("{check:?}") };
        let asked = sallyport_policy::Attributes {
            user: &check.user,
            verb: &check.verb,
            target: sallyport_policy::Target::Resource(resource),
        };
        let decision = sallyport_policy::Authorizer::check(&answers, &asked).unwrap();
        assert_eq!(decision.allowed, error.is_none(), "{name}");
        match (error, &decision.error) {
            (Some(expected), Some(error)) => assert!(error.starts_with(expected), "{name}: {error}"),
            (expected, error) => assert_eq!(expected.is_some(), error.is_some(), "{name}: {error:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_so_many_are_asked_at_once() {
    let clerk = Clerk::default();
    let reviews = access_reviews(&clerk);
    let deadline = Instant::now() + Duration::from_secs(4);
    let review = || async {
        let open = (0..60).map(|index| check("ann", &index.to_string())).collect();
        reviews.settle(open, &mut Answers::default(), deadline).await;
    };
    tokio::join!(review(), review(), review());
    assert_eq!((clerk.count(), clerk.most_at_once.load(Ordering::SeqCst)), (180, MAX_AT_ONCE));
}

/// Results are counted by what they are.
#[tokio::test(start_paused = true)]
async fn every_result_is_measured() {
    let meters = AccessReviewMeters::new().unwrap();
    let registry = prometheus::Registry::new();
    meters.register(&registry).unwrap();
    let reviews = AccessReviews::new(Clerk::default(), 100, meters);
    let open = [("ann", "a"), ("bob", "a"), ("bob", "b"), ("ann", "broken"), ("ann", "silent")];
    let open = open.map(|(user, name)| check(user, name)).into();
    reviews.settle(open, &mut Answers::default(), Instant::now() + Duration::from_secs(1)).await;
    let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for (result, count) in [("allowed", 1), ("denied", 0), ("no_opinion", 2), ("error", 1), ("timeout", 1)] {
        let line = format!(
            "sallyport_subject_access_review_duration_seconds_count{{result=\"{result}\"}} {count}\n"
        );
        assert!(text.contains(&line), "{line}{text}");
    }
}

/// A pod of this size that `user` makes.
fn message(user: &str, size: usize) -> ReviewRequest {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "x", "annotations": {"filling": "x".repeat(size)}},
    });
    ReviewRequest {
        uid: "u".into(),
        kind: Some(GroupVersionKind {
            version: "v1".into(),
            kind: "Pod".into(),
            ..GroupVersionKind::default()
        }),
        resource: Some(GroupVersionResource {
            version: "v1".into(),
            resource: "pods".into(),
            ..GroupVersionResource::default()
        }),
        operation: Operation::Create.into(),
        name: "x".into(),
        namespace: "shop".into(),
        user_info: Some(v1alpha1::UserInfo { username: user.into(), ..v1alpha1::UserInfo::default() }),
        object: object.to_string().into(),
        ..ReviewRequest::default()
    }
}

/// What policies of these specs decide about a pod that `user` makes, and how often the API server was asked.
async fn decide<S: PolicySet>(kind: &str, specs: &[Value], user: &str, size: usize) -> (Outcome, usize) {
    decide_about::<S>(kind, specs, message(user, size)).await
}

async fn decide_about<S: PolicySet>(kind: &str, specs: &[Value], message: ReviewRequest) -> (Outcome, usize) {
    let directory = tempfile::tempdir().unwrap();
    for (index, spec) in specs.iter().enumerate() {
        let mut spec = spec.clone();
        spec["matchConstraints"] =
            json!({"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["v1"], "resources": ["*"]}]});
        let policy = json!({
            "apiVersion": "sallyport.dev/v1alpha1", "kind": kind,
            "metadata": {"name": format!("policy-{index:02}")}, "spec": spec,
        });
        std::fs::write(directory.path().join(format!("{index}.json")), policy.to_string()).unwrap();
    }
    let snapshot = Directory::new(directory.path()).load(None).unwrap();
    let policies = Policies::<S>::new(&snapshot, PolicyMeters::new().unwrap(), true);
    for policy in policies.current().set.policies() {
        assert_eq!(policy.message, "");
    }
    let clerk = Clerk::default();
    let reviewer = Reviewer::new(Arc::new(policies), Some(access_reviews(&clerk)));
    (reviewer.review(Request::new(message)).await.unwrap(), clerk.count())
}

fn named(name: &str) -> String {
    format!("authorizer.group('').resource('pods').name('{name}').check('get')")
}

/// Ann may, Bob may not. What is open decides nothing, whatever stands around it; what is answered is asked once.
#[tokio::test(start_paused = true)]
async fn expressions_get_the_api_servers_answers() {
    let (a, b) = (named("a"), named("b"));
    let everybody = "['ann', 'bob'].exists(name, ";
    let rows = [
        // No question, no answer.
        ("true".to_owned(), true, true, 0),
        (format!("true || {a}.allowed()"), true, true, 0),
        (format!("{a}.allowed()"), true, false, 1),
        (format!("!{a}.allowed()"), false, true, 1),
        (format!("{a}.allowed() || true"), true, true, 1),
        (format!("{a}.allowed() && false"), false, false, 1),
        (format!("{a}.allowed() ? false : true"), false, true, 1),
        (format!("{everybody} {a}.allowed())"), true, false, 1),
        (format!("{a}.allowed() == {a}.allowed()"), true, true, 1),
        (format!("{a}.allowed() || {b}.allowed()"), true, false, 2),
        (format!("optional.of({a}.allowed()).orValue(true)"), true, false, 1),
        (format!("{a}.reason() == 'because of ann'"), true, false, 1),
        (format!("{a}.errored()"), false, false, 1),
        (format!("{}.errored()", named("forbidden")), true, true, 1),
        (format!("{}.allowed()", named("forbidden")), false, false, 1),
        ("authorizer.path('/healthz').check('get').allowed()".to_owned(), true, false, 1),
        ("authorizer.requestResource.check('create').allowed()".to_owned(), true, false, 1),
        (
            "authorizer.serviceAccount('shop', 'till').path('/a').check('get').allowed()".to_owned(),
            false,
            false,
            1,
        ),
    ];
    for (expression, ann, bob, asked) in rows {
        for (user, expected) in [("ann", ann), ("bob", bob)] {
            for size in [0, LARGE + 1] {
                let spec = json!({"validations": [{"expression": expression}]});
                let (outcome, count) = decide::<ValidationSet>("ValidationPolicy", &[spec], user, size).await;
                assert_eq!(
                    outcome.answer.allowed, expected,
                    "{user}: {expression}: {:?}",
                    outcome.answer.status
                );
                // A service account's first name is not `ann`, and `||` asks on when the first says no.
                let asked = if user == "ann" && expression.contains("||") { asked.min(1) } else { asked };
                assert_eq!(count, asked, "{user}: {expression}");
            }
        }
    }
}

/// A question about a question would have no end.
#[tokio::test(start_paused = true)]
async fn questions_themselves_are_reviewed_without_asking() {
    let mut message = message("ann", 0);
    message.resource = Some(GroupVersionResource {
        group: "authorization.k8s.io".into(),
        version: "v1".into(),
        resource: "subjectaccessreviews".into(),
    });
    let check = named("a");
    let expression =
        format!("!{check}.allowed() && {check}.error().startsWith('no authorizer is connected')");
    let spec = json!({"validations": [{"expression": expression}]});
    let (outcome, count) = decide_about::<ValidationSet>("ValidationPolicy", &[spec], message).await;
    assert!(outcome.answer.allowed && count == 0, "{outcome:?}");
}

/// Wherever in a policy a question is asked, and however many ask it.
#[tokio::test(start_paused = true)]
async fn every_field_of_a_policy_may_ask() {
    let allowed = format!("{}.allowed()", named("a"));
    let rows = [
        (
            "matchCondition",
            json!({
                "matchConditions": [{"name": "asks", "expression": allowed}],
                "validations": [{"expression": "false", "message": "no"}],
            }),
            1,
        ),
        (
            "variable",
            json!({
                "variables": [{"name": "may", "expression": allowed}, {"name": "also", "expression": "variables.may"}],
                "validations": [{"expression": "!variables.also && !variables.may", "message": "no"}],
            }),
            1,
        ),
        (
            "messageExpression",
            json!({
                "validations": [{"expression": "false", "messageExpression": format!("{allowed} ? 'no' : 'never'")}],
            }),
            1,
        ),
        (
            "forEach",
            json!({
                "validations": [{
                    "forEach": {"list": "['a', 'b', 'c']", "as": "name"}, "message": "no",
                    "expression": "!authorizer.group('').resource('pods').name(name).check('get').allowed()",
                }],
            }),
            3,
        ),
        (
            "error",
            json!({
                "validations": [{"expression": format!("{}.error() == ''", named("forbidden")), "message": "no"}],
            }),
            1,
        ),
    ];
    for (field, spec, asked) in rows {
        let specs = [spec.clone(), spec];
        let (outcome, count) = decide::<ValidationSet>("ValidationPolicy", &specs, "ann", 0).await;
        let message = outcome.answer.status.unwrap().message;
        assert!(
            message.contains("no (policy policy-00)") && message.contains("no (policy policy-01)"),
            "{field}: {message}"
        );
        assert_eq!(count, asked, "{field}");
    }
}

/// An expression that asks three times has no budget for the third, as upstream; a request has 64 questions.
#[tokio::test(start_paused = true)]
async fn a_request_asks_so_many_questions_and_no_more() {
    let specs: Vec<Value> = (0..70)
        .map(|index| {
            let expression = format!("{}.allowed()", named(&index.to_string()));
            let message_expression = format!("{}.error()", named(&index.to_string()));
            json!({"validations": [{"expression": expression, "messageExpression": message_expression}]})
        })
        .collect();
    let (outcome, count) = decide::<ValidationSet>("ValidationPolicy", &specs, "ann", 0).await;
    assert_eq!(count, 64);
    let message = outcome.answer.status.unwrap().message;
    assert!(message.contains("more than 64 different questions"), "{message}");
    assert!(message.contains("policy-64") && !message.contains("policy-63)"), "{message}");
}

/// Mutations see what those before them made, reinvoked ones what those after them made, however often a round is
/// thrown away.
#[tokio::test(start_paused = true)]
async fn mutations_ask_about_what_mutations_made() {
    let label = |key: &str, value: &str| {
        json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
            format!("Object{{metadata: Object.metadata{{labels: {{'{key}': {value}}}}}}}")}}])
    };
    let may = |name: &str| {
        format!("string(authorizer.group('').resource('pods').name({name}).check('get').allowed())")
    };
    let seen = "has(object.metadata.labels) && 'second' in object.metadata.labels ? object.metadata.labels.second : 'x'";
    let specs = [
        json!({"reinvocationPolicy": "IfNeeded", "mutations": label("first", &may(seen))}),
        json!({"mutations": label("second", &may("object.metadata.labels.first"))}),
        json!({"mutations": label("third", &format!("{}.errored() ? 'errored' : 'fine'", named("forbidden")))}),
    ];
    for (user, answer, size) in [("ann", "true", 0), ("bob", "false", 0), ("ann", "true", LARGE + 1)] {
        let (outcome, count) = decide::<MutationSet>("MutationPolicy", &specs, user, size).await;
        let patch: Value = serde_json::from_slice(&outcome.answer.patch).unwrap();
        let expected = json!({"first": answer, "second": answer, "third": "errored"});
        assert_eq!(patch[0]["value"], expected, "{user}");
        // `x`, what the first said, what the third asks; the reinvoked one asks what the second did.
        assert_eq!(count, 3, "{user}");
    }
}
