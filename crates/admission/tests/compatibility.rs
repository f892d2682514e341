//! kube's own admission types as the other end, in both directions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use kube::core::DynamicObject;
use kube::core::admission::AdmissionReview;
use sallyport_admission::{Answer, ApiVersion, Cause, Operation, Review, Status};
use serde_json::{Value, json};

fn review(version: &str) -> Value {
    json!({
        "apiVersion": version, "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "web", "namespace": "shop", "operation": "CREATE",
            "userInfo": {"username": "admin", "uid": "1", "groups": ["system:masters"], "extra": {"k": ["v"]}},
            "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}},
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
            "dryRun": false
        }
    })
}

/// C-10, C-12: what kube writes is read.
#[test]
fn a_review_that_kube_writes_is_read_alike() {
    for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
        let typed: AdmissionReview<DynamicObject> = serde_json::from_value(review(version)).unwrap();
        let (theirs, ours) = (serde_json::to_vec(&typed).unwrap(), review(version).to_string());
        let (theirs, ours) = (Review::parse(&theirs).unwrap(), Review::parse(ours.as_bytes()).unwrap());
        assert_eq!(theirs.api_version.as_str(), version);
        assert_eq!(theirs.request, ours.request);
        assert_eq!(theirs.request.operation, Operation::Create);
        let object =
            |review: &Review<'_>| serde_json::from_str::<Value>(review.object.unwrap().get()).unwrap();
        assert_eq!(object(&theirs), object(&ours));
    }
}

/// C-20…C-23, C-25, C-40, C-42, C-50, C-51: a denial is read by kube. (Only a denial: kube's type wants a
/// status when allowed, too, and takes a patch as a list of numbers, where the API has base64.)
#[test]
fn a_denial_is_read_by_kube() {
    let mut deny = Answer::deny(Status {
        code: 422,
        reason: "Invalid".into(),
        message: "spec.x is wrong".into(),
        causes: vec![Cause {
            reason: "FieldValueInvalid".into(),
            message: "m".into(),
            field: "spec.x".into(),
        }],
    });
    deny.warnings = vec!["w".into()];
    deny.audit_annotations.insert("policy".into(), "p".into());
    assert!(deny.clean().is_empty());
    let body = deny.render(ApiVersion::V1, "u-1");
    let read: AdmissionReview<DynamicObject> = serde_json::from_slice(&body).unwrap();
    assert!(read.request.is_none());
    assert_eq!(
        (read.types.api_version.as_str(), read.types.kind.as_str()),
        ("admission.k8s.io/v1", "AdmissionReview")
    );
    let response = read.response.unwrap();
    assert_eq!((response.uid.as_str(), response.allowed, response.patch), ("u-1", false, None));
    assert_eq!((response.result.code, response.result.reason.as_str()), (422, "Invalid"));
    assert_eq!(response.result.message, "spec.x is wrong");
    assert_eq!(response.result.details.unwrap().causes[0].field, "spec.x");
    assert_eq!(response.warnings.unwrap(), ["w"]);
    assert_eq!(response.audit_annotations["policy"], "p");
}
