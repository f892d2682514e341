//! What of a review reaches the backend: everything that C-12 lists, in one neutral model (G-05).

use sallyport_proto::v1alpha1::{
    ExtraValue, FailurePolicy, GroupVersionKind, GroupVersionResource, Operation, ReviewRequest, UserInfo,
};
use serde_json::{Value, json};

use crate::admission::{UID, bytes, pod, review, with};
use crate::suite::{Suite, VALIDATE, judge};

async fn seen(suite: &Suite, path: &str, review: &Value) -> ReviewRequest {
    suite.review(path, review).await;
    suite.backend(path).script.last().review
}

#[tokio::test]
async fn every_field_arrives_c12_g05() {
    let suite = Suite::start().await;
    let mut review = review();
    let request = &mut review["request"];
    request["kind"] = json!({"group": "apps", "version": "v1", "kind": "Deployment"});
    request["resource"] = json!({"group": "apps", "version": "v1", "resource": "deployments"});
    request["subResource"] = json!("scale");
    request["requestKind"] = json!({"group": "extensions", "version": "v1beta1", "kind": "Deployment"});
    request["requestResource"] =
        json!({"group": "extensions", "version": "v1beta1", "resource": "deployments"});
    request["requestSubResource"] = json!("status");
    request["name"] = json!("rose");
    request["operation"] = json!("UPDATE");
    request["oldObject"] = json!({"old": true});
    request["dryRun"] = json!(true);
    let extra = |values: &[&str]| ExtraValue { values: values.iter().map(ToString::to_string).collect() };
    let expected = ReviewRequest {
        uid: UID.into(),
        kind: Some(GroupVersionKind {
            group: "apps".into(),
            version: "v1".into(),
            kind: "Deployment".into(),
        }),
        resource: Some(GroupVersionResource {
            group: "apps".into(),
            version: "v1".into(),
            resource: "deployments".into(),
        }),
        sub_resource: "scale".into(),
        request_kind: Some(GroupVersionKind {
            group: "extensions".into(),
            version: "v1beta1".into(),
            kind: "Deployment".into(),
        }),
        request_resource: Some(GroupVersionResource {
            group: "extensions".into(),
            version: "v1beta1".into(),
            resource: "deployments".into(),
        }),
        request_sub_resource: "status".into(),
        name: "rose".into(),
        namespace: "garden".into(),
        operation: Operation::Update.into(),
        user_info: Some(UserInfo {
            username: "system:serviceaccount:kube-system:replicaset-controller".into(),
            uid: "90b1c7a2-0000-4000-8000-000000000001".into(),
            groups: vec!["system:serviceaccounts".into(), "system:authenticated".into()],
            extra: [
                ("authentication.kubernetes.io/credential-id".to_owned(), extra(&["JTI=1", "JTI=2"])),
                ("none".to_owned(), extra(&[])),
            ]
            .into(),
        }),
        object: bytes(&pod()).into(),
        old_object: r#"{"old":true}"#.into(),
        options: bytes(&review["request"]["options"]).into(),
        dry_run: true,
        failure_policy: FailurePolicy::Fail.into(),
    };
    for (path, failure_policy) in [
        ("/mutate/fail", FailurePolicy::Fail),
        ("/mutate/ignore", FailurePolicy::Ignore),
        ("/validate/fail", FailurePolicy::Fail),
        ("/validate/ignore", FailurePolicy::Ignore),
    ] {
        let expected = ReviewRequest { failure_policy: failure_policy.into(), ..expected.clone() };
        assert_eq!(seen(&suite, path, &review).await, expected, "{path}");
    }
}

#[tokio::test]
async fn what_is_absent_or_null_is_empty_c12() {
    let suite = Suite::start().await;
    let null = |field: &str| with(field, Value::Null);
    let absent = |field: &str| {
        let mut review = review();
        review["request"].as_object_mut().unwrap().remove(field);
        review
    };
    for field in [
        "object",
        "oldObject",
        "options",
        "dryRun",
        "name",
        "namespace",
        "subResource",
        "requestKind",
        "requestResource",
        "requestSubResource",
        "userInfo",
        "kind",
        "resource",
        "operation",
    ] {
        let (null, absent) =
            (seen(&suite, VALIDATE, &null(field)).await, seen(&suite, VALIDATE, &absent(field)).await);
        assert_eq!(null, absent, "{field}");
        match field {
            "object" => assert!(null.object.is_empty()),
            "options" => assert!(null.options.is_empty()),
            "requestKind" => assert_eq!(null.request_kind, None),
            "requestResource" => assert_eq!(null.request_resource, None),
            "operation" => assert_eq!(null.operation(), Operation::Unspecified),
            "userInfo" => assert_eq!(null.user_info, Some(UserInfo::default())),
            _ => {}
        }
    }
    // As Go writes a user without groups and extra.
    let user =
        seen(&suite, VALIDATE, &with("userInfo", json!({"username": "u", "groups": null, "extra": null})))
            .await;
    assert_eq!(user.user_info.unwrap(), UserInfo { username: "u".into(), ..UserInfo::default() });
    let user = seen(&suite, VALIDATE, &with("userInfo", json!({"extra": {"k": null}}))).await;
    assert_eq!(user.user_info.unwrap().extra["k"], ExtraValue::default());
}

#[tokio::test]
async fn operations_c12_c11() {
    let suite = Suite::start().await;
    for (text, operation) in [
        ("CREATE", Operation::Create),
        ("UPDATE", Operation::Update),
        ("DELETE", Operation::Delete),
        ("CONNECT", Operation::Connect),
        ("PATCH", Operation::Unspecified),
        ("create", Operation::Unspecified),
        ("", Operation::Unspecified),
    ] {
        assert_eq!(
            seen(&suite, VALIDATE, &with("operation", json!(text))).await.operation(),
            operation,
            "{text}"
        );
    }
}

#[tokio::test]
async fn unknown_fields_of_the_envelope_are_tolerated_c11() {
    let suite = Suite::start().await;
    let mut review = review();
    let plain = seen(&suite, VALIDATE, &review).await;
    review["fromTheFuture"] = json!({"a": [1, {"b": null}]});
    review["request"]["fromTheFuture"] = json!([1e300, "x"]);
    review["request"]["kind"]["fromTheFuture"] = json!(true);
    review["request"]["userInfo"]["fromTheFuture"] = json!({});
    assert_eq!(seen(&suite, VALIDATE, &review).await, plain);
}

#[tokio::test]
async fn escaped_names_arrive_as_what_they_mean() {
    let suite = Suite::start().await;
    let body =
        String::from_utf8(bytes(&with("name", json!("NAME")))).unwrap().replace("NAME", r"r\u00f6s\/e\n");
    judge(VALIDATE, body.as_bytes(), &suite.post(VALIDATE, body.as_bytes()).await);
    assert_eq!(suite.validator.script.last().review.name, "rös/e\n");
}
