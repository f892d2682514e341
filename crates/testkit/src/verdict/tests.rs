use serde_json::json;

use super::*;

const PATCH: &str = r#"[{"op":"add","path":"/foo","value":"bar"}]"#;

fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

fn v1(response: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

/// An answer without type names, as the rows for v1beta1 have it.
fn bare(response: &Value) -> Value {
    json!({"response": response})
}

/// What a row expects: an error that contains a text, or an answer.
enum Expected {
    Error(&'static str),
    Answer(Answer),
}

fn allowed() -> Answer {
    Answer {
        allowed: true,
        status: None,
        patch: Vec::new(),
        patch_type: String::new(),
        warnings: Vec::new(),
        audit_annotations: BTreeMap::new(),
    }
}

fn with_patch(patch_type: &str) -> Expected {
    Expected::Answer(Answer { patch: PATCH.into(), patch_type: patch_type.into(), ..allowed() })
}

fn with_annotation() -> Expected {
    let audit_annotations = BTreeMap::from([("foo".to_owned(), "bar".to_owned())]);
    Expected::Answer(Answer { audit_annotations, ..allowed() })
}

fn with_result() -> Expected {
    let status = Status {
        code: 401,
        message: "Foo".into(),
        reason: String::new(),
        outcome: "Failure".into(),
        details: None,
    };
    Expected::Answer(Answer { allowed: false, status: Some(status), ..allowed() })
}

/// Contract 2.13: the rows of the API server's own table for decoded answers (C-21, C-22, C-26, C-27, C-29), in
/// its order and under its names. The request's uid is "123".
#[test]
fn the_api_servers_own_table_of_answers() {
    use Door::{Mutating, Validating};
    use Expected::{Answer as Is, Error};
    use Version::{V1, V1beta1};

    let result = json!({"status": "Failure", "message": "Foo", "code": 401});
    let wrong_type = "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview";
    let named = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "response": {"uid": "123", "allowed": true}});
    let patch = base64(PATCH);
    let rows: Vec<(&str, Version, Door, Value, Expected)> = vec![
        ("v1beta1 allowed validating", V1beta1, Validating, bare(&json!({"allowed": true})), Is(allowed())),
        ("v1 allowed validating", V1, Validating, v1(&json!({"uid": "123", "allowed": true})), Is(allowed())),
        ("v1beta1 allowed mutating", V1beta1, Mutating, bare(&json!({"allowed": true})), Is(allowed())),
        ("v1 allowed mutating", V1, Mutating, v1(&json!({"uid": "123", "allowed": true})), Is(allowed())),
        (
            "v1beta1 auditAnnotations",
            V1beta1,
            Validating,
            bare(&json!({"allowed": true, "auditAnnotations": {"foo": "bar"}})),
            with_annotation(),
        ),
        (
            "v1 auditAnnotations",
            V1,
            Validating,
            v1(&json!({"uid": "123", "allowed": true, "auditAnnotations": {"foo": "bar"}})),
            with_annotation(),
        ),
        (
            "v1beta1 patch",
            V1beta1,
            Mutating,
            bare(&json!({"allowed": true, "patch": patch})),
            with_patch("JSONPatch"),
        ),
        (
            "v1 patch",
            V1,
            Mutating,
            v1(&json!({"uid": "123", "allowed": true, "patch": patch, "patchType": "JSONPatch"})),
            with_patch("JSONPatch"),
        ),
        (
            "v1beta1 result",
            V1beta1,
            Validating,
            bare(&json!({"allowed": false, "status": result})),
            with_result(),
        ),
        (
            "v1 result",
            V1,
            Validating,
            v1(&json!({"uid": "123", "allowed": false, "status": result})),
            with_result(),
        ),
        ("v1beta1 no response", V1beta1, Validating, json!({}), Error("response was absent")),
        ("v1 no response", V1, Validating, v1(&Value::Null), Error("response was absent")),
        (
            "v1 wrong group",
            V1,
            Validating,
            named("admission.k8s.io2/v1", "AdmissionReview"),
            Error(wrong_type),
        ),
        (
            "v1 wrong version",
            V1,
            Validating,
            named("admission.k8s.io/v2", "AdmissionReview"),
            Error(wrong_type),
        ),
        (
            "v1 wrong kind",
            V1,
            Validating,
            named("admission.k8s.io/v1", "AdmissionReview2"),
            Error(wrong_type),
        ),
        (
            "v1 wrong uid",
            V1,
            Validating,
            v1(&json!({"uid": "1234", "allowed": true})),
            Error("expected response.uid=\"123\""),
        ),
        (
            "v1 patch without patch type",
            V1,
            Mutating,
            v1(&json!({"uid": "123", "allowed": true, "patch": patch})),
            Error("webhook returned response.patch but not response.patchType"),
        ),
        (
            "v1 patch type without patch",
            V1,
            Mutating,
            v1(&json!({"uid": "123", "allowed": true, "patchType": "JSONPatch"})),
            Error("webhook returned response.patchType but not response.patch"),
        ),
        (
            "v1 empty patch type",
            V1,
            Mutating,
            v1(&json!({"uid": "123", "allowed": true, "patch": patch, "patchType": ""})),
            Error("webhook returned invalid response.patchType of \"\""),
        ),
        (
            "v1 invalid patch type",
            V1,
            Mutating,
            v1(&json!({"uid": "123", "allowed": true, "patch": patch, "patchType": "Foo"})),
            with_patch("Foo"),
        ),
        (
            "v1 patch for validating webhook",
            V1,
            Validating,
            v1(&json!({"uid": "123", "allowed": true, "patch": patch})),
            Error("validating webhook may not return response.patch"),
        ),
        (
            "v1 patch type for validating webhook",
            V1,
            Validating,
            v1(&json!({"uid": "123", "allowed": true, "patchType": "Foo"})),
            Error("validating webhook may not return response.patchType"),
        ),
        (
            "v1beta1 wrong group/version/kind",
            V1beta1,
            Validating,
            json!({"apiVersion": "admission.k8s.io2/v2", "kind": "AdmissionReview2", "response": {"allowed": true}}),
            Is(allowed()),
        ),
        (
            "v1beta1 wrong uid",
            V1beta1,
            Validating,
            bare(&json!({"uid": "1234", "allowed": true})),
            Is(allowed()),
        ),
        (
            "v1beta1 validating returns patch/patchType",
            V1beta1,
            Validating,
            bare(&json!({"uid": "1234", "allowed": true, "patch": patch, "patchType": "JSONPatch"})),
            Is(allowed()),
        ),
        (
            "v1beta1 empty patch type",
            V1beta1,
            Mutating,
            bare(&json!({"allowed": true, "patch": patch, "patchType": ""})),
            with_patch("JSONPatch"),
        ),
        (
            "v1beta1 invalid patchType",
            V1beta1,
            Mutating,
            bare(&json!({"allowed": true, "patch": patch, "patchType": "Foo"})),
            with_patch("JSONPatch"),
        ),
    ];
    for (name, version, door, answer, expected) in rows {
        let review = serde_json::from_value(answer).unwrap();
        let got = verify("123", door, version, review, &mut Vec::new());
        match expected {
            Is(answer) => assert_eq!(got, Ok(answer), "{name}"),
            Error(text) => {
                let error = got.expect_err(name).to_string();
                assert!(error.contains(text), "{name}: {error}");
            }
        }
    }
}

/// Contract 2.13, "no supported versions", "no known supported versions": the API server then sends nothing, so
/// a request of another version cannot have come from it.
#[test]
fn a_request_of_an_unknown_version_is_no_request() {
    for api_version in ["", "admission.k8s.io/v2", "admission.k8s.io2/v1", "v1"] {
        let request =
            json!({"apiVersion": api_version, "kind": "AdmissionReview", "request": {"uid": "123"}});
        let answer = v1(&json!({"uid": "123", "allowed": true}));
        let got = check(
            Door::Validating,
            request.to_string().as_bytes(),
            200,
            Some("application/json"),
            answer.to_string().as_bytes(),
        );
        assert!(matches!(got, Err(Broken::Request(_))), "{api_version}: {got:?}");
    }
}

fn request(version: &str) -> Vec<u8> {
    json!({
        "apiVersion": format!("admission.k8s.io/{version}"),
        "kind": "AdmissionReview",
        "request": {"uid": "123", "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}},
    })
    .to_string()
    .into_bytes()
}

fn answered(door: Door, answer: &Value) -> Result<Verdict, Broken> {
    check(door, &request("v1"), 200, Some("application/json"), answer.to_string().as_bytes())
}

fn mutated(operations: &str) -> Result<Verdict, Broken> {
    answered(
        Door::Mutating,
        &v1(&json!({
            "uid": "123", "allowed": true, "patch": base64(operations), "patchType": "JSONPatch",
        })),
    )
}

/// C-08, C-20, C-24: what is decided before the body is looked at.
#[test]
fn http_status_and_content_type_come_first() {
    let answer = v1(&json!({"uid": "123", "allowed": true})).to_string();
    let rows = [
        (200, Some("application/json"), Ok(0)),
        (200, Some("application/json; charset=utf-8"), Ok(0)),
        (200, Some("Application/JSON;charset=\"utf-8\""), Ok(0)),
        (200, None, Ok(1)),
        (200, Some(""), Ok(1)),
        (200, Some("application/json;"), Ok(0)),
        (200, Some("text/plain"), Ok(1)),
        (200, Some("nonsense"), Ok(1)),
        (201, Some("application/json"), Ok(1)),
        (206, Some("application/json"), Ok(1)),
        (207, Some("application/json"), Err("HTTP status 207")),
        (302, Some("application/json"), Err("HTTP status 302")),
        (400, Some("application/json"), Err("HTTP status 400")),
        (503, Some("text/plain"), Err("HTTP status 503")),
        (200, Some("application/json/json"), Err("Content-Type")),
        (200, Some("/json"), Err("Content-Type")),
        (200, Some("application/json; charset"), Err("Content-Type")),
        (200, Some("application/json; a=1; a=2"), Err("Content-Type")),
        (200, Some("application/json; a=\"1"), Err("Content-Type")),
        (200, Some("application/json; a=b c"), Err("Content-Type")),
        (200, Some("application/json; =b"), Err("Content-Type")),
        (200, Some("application/ json"), Err("Content-Type")),
    ];
    for (status, content_type, expected) in rows {
        let got = check(Door::Validating, &request("v1"), status, content_type, answer.as_bytes());
        match expected {
            Ok(remarks) => assert_eq!(got.unwrap().remarks.len(), remarks, "{status} {content_type:?}"),
            Err(text) => {
                let error = got.unwrap_err();
                assert!(matches!(error, Broken::Call(_)), "{status} {content_type:?}: {error}");
                assert!(error.to_string().contains(text), "{status} {content_type:?}: {error}");
            }
        }
    }
}

/// C-10, C-21: an answer of the other version, or without its names, to either version.
#[test]
fn the_answers_version_is_the_requests() {
    let rows = [
        ("v1", json!("admission.k8s.io/v1"), Some(0)),
        ("v1", json!("admission.k8s.io/v1beta1"), None),
        ("v1", json!(null), None),
        ("v1beta1", json!("admission.k8s.io/v1beta1"), Some(0)),
        ("v1beta1", json!("admission.k8s.io/v1"), None),
        ("v1beta1", json!(null), Some(1)),
    ];
    for (version, api_version, remarks) in rows {
        let answer = json!({
            "apiVersion": api_version, "kind": "AdmissionReview", "response": {"uid": "123", "allowed": true},
        });
        let got = check(
            Door::Validating,
            &request(version),
            200,
            Some("application/json"),
            answer.to_string().as_bytes(),
        );
        match (remarks, got) {
            (Some(remarks), Ok(verdict)) => assert_eq!(verdict.remarks.len(), remarks, "{verdict:?}"),
            (None, Err(Broken::Call(_))) => {}
            (_, got) => panic!("{version} answered as {api_version}: {got:?}"),
        }
    }
}

/// C-08: bodies that do not decode.
#[test]
fn an_undecodable_answer_fails_the_call() {
    let bodies = [
        String::new(),
        "nonsense".to_owned(),
        "[]".to_owned(),
        v1(&json!({"uid": 123, "allowed": true})).to_string(),
        v1(&json!({"uid": "123", "allowed": "true"})).to_string(),
        v1(&json!({"uid": "123", "allowed": true, "warnings": "text"})).to_string(),
        v1(&json!({"uid": "123", "allowed": false, "status": {"code": "403"}})).to_string(),
        v1(&json!({"uid": "123", "allowed": false, "status": {"code": 4_294_967_296_u64}})).to_string(),
        v1(&json!({"uid": "123", "allowed": false, "status": {"details": []}})).to_string(),
        v1(&json!({"uid": "123", "allowed": true, "patch": "%%%", "patchType": "JSONPatch"})).to_string(),
        v1(&json!({"uid": "123", "allowed": true, "patch": [], "patchType": "JSONPatch"})).to_string(),
    ];
    for body in bodies {
        let got = check(Door::Mutating, &request("v1"), 200, Some("application/json"), body.as_bytes());
        assert!(matches!(got, Err(Broken::Call(_))), "{body}: {got:?}");
    }
}

/// C-26, C-30, C-31: which patches fail the call, which fail the request, and what an applied one gives.
#[test]
fn patches_are_applied_to_the_requests_object() {
    let verdict = mutated(r#"[{"op":"add","path":"/metadata/labels","value":{"a/b":"c"}}]"#).unwrap();
    assert_eq!(verdict.remarks, Vec::<String>::new());
    let Decision::Allowed { patch: Some(_), object: Some(object) } = verdict.decision else {
        panic!("{verdict:?}");
    };
    assert_eq!(object["metadata"], json!({"name": "a", "labels": {"a/b": "c"}}));

    // C-28: legal, and nothing.
    for nothing in ["[]", "null"] {
        let verdict = mutated(nothing).unwrap();
        assert_eq!(verdict.decision, Decision::Allowed { patch: None, object: None }, "{nothing}");
    }
    for undecodable in ["{}", "nonsense", "[1]", "\"add\""] {
        let got = mutated(undecodable);
        assert!(matches!(got, Err(Broken::Call(_))), "{undecodable}: {got:?}");
    }
    let unapplicable = [
        r#"[{"op":"add","path":"/metadata/labels/a","value":"b"}]"#,
        r#"[{"op":"remove","path":"/metadata/labels"}]"#,
        r#"[{"op":"replace","path":"/spec","value":{}}]"#,
        r#"[{"op":"test","path":"/metadata/name","value":"b"}]"#,
        r#"[{"op":"frobnicate","path":"/metadata/name"}]"#,
        r#"[{"path":"/metadata/name"}]"#,
        r#"[{"op":"replace","path":"","value":[]}]"#,
        r#"[{"op":"replace","path":"/kind","value":"Secret"}]"#,
    ];
    for patch in unapplicable {
        let got = mutated(patch);
        assert!(matches!(got, Err(Broken::Internal(_))), "{patch}: {got:?}");
    }
}

/// C-26, C-31: an unknown patch type fails the call, a patch without an object (DELETE) the request.
#[test]
fn a_patch_needs_a_known_type_and_an_object() {
    let answer = |patch_type: &str| {
        v1(&json!({"uid": "123", "allowed": true, "patch": base64(PATCH), "patchType": patch_type}))
    };
    let got = answered(Door::Mutating, &answer("Foo"));
    assert!(matches!(&got, Err(Broken::Call(reason)) if reason.contains("Foo")), "{got:?}");

    let request = br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"123","object":null}}"#;
    let body = answer("JSONPatch").to_string();
    let got = check(Door::Mutating, request, 200, Some("application/json"), body.as_bytes());
    assert!(matches!(got, Err(Broken::Internal(_))), "{got:?}");
}

/// C-40, C-41: the code is an error's, and the message falls back on the reason and then on nothing.
#[test]
fn refusals_reach_the_user_as_errors() {
    let rows = [
        (json!(null), 400, " without explanation"),
        (json!({"code": 403, "message": "no", "reason": "Forbidden"}), 403, ": no"),
        (json!({"code": 200, "status": "Success", "message": "no"}), 400, ": no"),
        (json!({"code": 399, "reason": "Because"}), 400, ": Because"),
        (json!({"code": -5, "reason": ""}), 400, " without explanation"),
        (json!({"code": 422, "message": "no", "details": {"causes": []}}), 422, ": no"),
    ];
    for (status, code, text) in rows {
        let verdict =
            answered(Door::Validating, &v1(&json!({"uid": "123", "allowed": false, "status": status})))
                .unwrap();
        let Decision::Denied(refusal) = &verdict.decision else { panic!("{verdict:?}") };
        assert_eq!(refusal.code, code, "{status}");
        assert_eq!(refusal.text("a.b.c"), format!("admission webhook \"a.b.c\" denied the request{text}"));
        assert_eq!(verdict.remarks, Vec::<String>::new(), "{status}");
    }
}

/// C-23, C-25, C-32, C-51: what the API server passes over in silence is remarked on.
#[test]
fn departures_that_the_api_server_tolerates_are_remarked_on() {
    let patch = base64(PATCH);
    let rows = [
        ("C-23", v1(&json!({"uid": "123"}))),
        ("C-32", v1(&json!({"uid": "123", "allowed": true, "status": {"message": "fine"}}))),
        ("C-32", v1(&json!({"uid": "123", "allowed": false, "patch": patch, "patchType": "JSONPatch"}))),
        ("C-50", v1(&json!({"uid": "123", "allowed": true, "warnings": ["a", "a"]}))),
        ("C-51", v1(&json!({"uid": "123", "allowed": true, "auditAnnotations": {"a*b": "c"}}))),
        ("C-51", v1(&json!({"uid": "123", "allowed": true, "auditAnnotations": {"a/b": "c"}}))),
        (
            "C-25",
            json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "request": {"uid": "123"}, "response": {"uid": "123", "allowed": true},
            }),
        ),
    ];
    for (id, answer) in rows {
        let verdict = answered(Door::Mutating, &answer).unwrap();
        assert!(
            matches!(verdict.remarks.as_slice(), [remark] if remark.starts_with(id)),
            "{id}: {verdict:?}"
        );
        assert_eq!(verdict.audit_annotations, BTreeMap::new());
    }
}

/// C-50: empty, repeated and unprintable warnings are dropped; past 4,096 characters each is cut to 256.
#[test]
fn warnings_are_those_that_the_client_sees() {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(shown(&texts(&["a", "", "b", "a", "c\nd"])), texts(&["a", "b"]));

    let fitting: Vec<String> = (0..4).map(|n| format!("{n}{}", "ü".repeat(1023))).collect();
    assert_eq!(shown(&fitting), fitting);

    let many: Vec<String> = (0..40).map(|n| format!("{n:02}{}", "ü".repeat(298))).collect();
    let got = shown(&many);
    assert_eq!(got.len(), 16);
    assert!(got.iter().all(|text| text.chars().count() == 256));
}
