//! Contract §6, *Answers*: what of a backend's answer reaches the API server, and what is never passed on.

use sallyport_proto::v1alpha1::{Cause, MutateResponse, Status};
use sallyport_testkit::verdict::{Decision, Refusal, Verdict};
use serde_json::{Value, json};

use crate::admission::{bytes, review, with};
use crate::suite::{MUTATE, Suite, VALIDATE, undecided};

pub fn allowed() -> MutateResponse {
    MutateResponse { allowed: true, ..MutateResponse::default() }
}

pub fn denied(message: &str) -> MutateResponse {
    let status = Status { code: 403, reason: "Forbidden".into(), message: message.into(), causes: vec![] };
    MutateResponse { status: Some(status), ..MutateResponse::default() }
}

fn patched(patch: &Value) -> MutateResponse {
    MutateResponse { json_patch: patch.to_string().into_bytes().into(), ..allowed() }
}

fn warned(warnings: &[String], answer: MutateResponse) -> MutateResponse {
    MutateResponse { warnings: warnings.to_vec(), ..answer }
}

fn refusal(verdict: Verdict) -> Refusal {
    match verdict.decision {
        Decision::Denied(refusal) => refusal,
        Decision::Allowed { .. } => panic!("allowed"),
    }
}

#[tokio::test]
async fn allow_without_a_patch_c20_c23_c28() {
    let suite = Suite::start().await;
    for path in [MUTATE, VALIDATE] {
        let verdict = suite.review(path, &review()).await;
        assert_eq!(verdict.decision, Decision::Allowed { patch: None, object: None });
        assert!(verdict.warnings.is_empty() && verdict.audit_annotations.is_empty());
    }
}

#[tokio::test]
async fn allow_with_a_patch_c26_c30_c34() {
    let suite = Suite::start().await;
    let patch = json!([
        {"op": "test", "path": "/metadata/annotations/a~1b~0c", "value": "x"},
        {"op": "replace", "path": "/metadata/annotations/a~1b~0c", "value": "y"},
        {"op": "add", "path": "/spec/volumes", "value": []},
        {"op": "add", "path": "/spec/volumes/-", "value": {"name": "v", "emptyDir": {}}},
        {"op": "remove", "path": "/metadata/labels/app"},
    ]);
    suite.mutator.script.answer(patched(&patch));
    for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
        let mut review = review();
        review["apiVersion"] = json!(version);
        let verdict = suite.review(MUTATE, &review).await;
        let Decision::Allowed { patch: Some(sent), object: Some(object) } = verdict.decision else {
            panic!("no patch")
        };
        assert_eq!(sent, patch.to_string().into_bytes(), "passed on as it came");
        assert_eq!(object["metadata"]["annotations"]["a/b~c"], "y");
        assert_eq!(object["spec"]["volumes"], json!([{"name": "v", "emptyDir": {}}]));
        assert_eq!(object["metadata"]["labels"], json!({"app.kubernetes.io/name": "rose"}));
        assert_eq!(object["spec"]["initContainers"][0]["restartPolicy"], "Always", "C-11");
    }
}

#[tokio::test]
async fn an_empty_patch_is_left_out_c28() {
    let suite = Suite::start().await;
    for patch in ["[]", " [ ] "] {
        suite.mutator.script.answer(MutateResponse { json_patch: patch.as_bytes().into(), ..allowed() });
        for review in [review(), with("object", Value::Null)] {
            let answer = suite.post(MUTATE, &bytes(&review)).await;
            let body: Value = serde_json::from_slice(&answer.body).unwrap();
            assert!(
                body["response"].get("patch").is_none() && body["response"].get("patchType").is_none(),
                "{body}"
            );
            suite.review(MUTATE, &review).await;
        }
    }
}

/// Each of these would be an internal error to the user, whatever the failurePolicy (C-31).
#[tokio::test]
async fn a_patch_that_does_not_apply_is_never_sent_c31_g04() {
    let suite = Suite::start().await;
    let add = |path: &str| json!([{"op": "add", "path": path, "value": 1}]).to_string();
    let rows = [
        ("a missing parent", add("/spec/nowhere/x"), json!({"spec": {}})),
        ("null as parent", add("/metadata/labels/x"), json!({"metadata": {"labels": null}})),
        ("a scalar as parent", add("/spec/x"), json!({"spec": 1})),
        ("an index beyond the end", add("/list/2"), json!({"list": [0]})),
        ("a negative index", add("/list/-1"), json!({"list": [0]})),
        ("an index with a leading zero", add("/list/00"), json!({"list": [0]})),
        ("a path without a slash", add("spec"), json!({"spec": 1})),
        ("a bad escape", add("/spec/~2"), json!({"spec": {}})),
        ("remove of what is not there", r#"[{"op":"remove","path":"/x"}]"#.into(), json!({})),
        ("replace of what is not there", r#"[{"op":"replace","path":"/x","value":1}]"#.into(), json!({})),
        ("a test that fails", r#"[{"op":"test","path":"/x","value":1}]"#.into(), json!({"x": 2})),
        ("a move into itself", r#"[{"op":"move","from":"/x","path":"/x/y"}]"#.into(), json!({"x": {}})),
        ("no value", r#"[{"op":"add","path":"/x"}]"#.into(), json!({})),
        ("an unknown operation", r#"[{"op":"merge","path":"/x","value":1}]"#.into(), json!({})),
        (
            "the second operation",
            r#"[{"op":"add","path":"/x","value":1},{"op":"remove","path":"/y"}]"#.into(),
            json!({}),
        ),
        ("the whole document", r#"[{"op":"replace","path":"","value":{}}]"#.into(), json!({})),
        ("an object", r#"{"op":"add","path":"/x","value":1}"#.into(), json!({})),
        ("null", "null".into(), json!({})),
        ("no JSON", "patch".into(), json!({})),
        ("a null object", add("/x"), Value::Null),
        ("an object that is a list", add("/0"), json!([1])),
        ("an object that is a string", add("/x"), json!("text")),
    ];
    for (what, patch, object) in rows {
        suite.mutator.script.answer(MutateResponse { json_patch: patch.into_bytes().into(), ..allowed() });
        let answer = suite.post(MUTATE, &bytes(&with("object", object))).await;
        assert_eq!(answer.status, 500, "{what}: {}", answer.text());
        let said = undecided(&answer, 500);
        assert!(said.contains("answer of the mutator cannot be passed on"), "{what}: {said}");
        assert!(answer.header("retry-after").is_none(), "{what}");
    }
}

#[tokio::test]
async fn a_patch_with_a_denial_is_never_sent_c32_g04() {
    let suite = Suite::start().await;
    let patch = json!([{"op": "add", "path": "/x", "value": 1}]).to_string();
    suite.mutator.script.answer(MutateResponse { json_patch: patch.into_bytes().into(), ..denied("no") });
    let answer = suite.post(MUTATE, &bytes(&review())).await;
    assert!(undecided(&answer, 500).contains("denial"));
}

#[tokio::test]
async fn a_denial_with_code_message_and_causes_c40_c41_c42() {
    let suite = Suite::start().await;
    for path in [MUTATE, VALIDATE] {
        let cause = |field: &str| Cause {
            reason: "FieldValueInvalid".into(),
            message: "bad".into(),
            field: field.into(),
        };
        let status = Status {
            code: 422,
            reason: "Invalid".into(),
            message: "env HOST in container \"rose\": remove it\nor ask".into(),
            causes: vec![cause("spec.containers[0].env[0]"), cause("spec.containers[1].env[0]")],
        };
        suite
            .backend(path)
            .script
            .answer(MutateResponse { status: Some(status.clone()), ..MutateResponse::default() });
        let refusal = refusal(suite.review(path, &review()).await);
        assert_eq!(
            (refusal.code, refusal.reason.as_str(), &refusal.message),
            (422, "Invalid", &status.message)
        );
        let causes = &refusal.details.unwrap()["causes"];
        assert_eq!(causes.as_array().unwrap().len(), 2);
        assert_eq!(
            causes[0],
            json!({"reason": "FieldValueInvalid", "message": "bad", "field": "spec.containers[0].env[0]"})
        );
    }
}

#[tokio::test]
async fn a_denials_code_is_an_errors_and_it_always_says_something_c40() {
    let suite = Suite::start().await;
    for (code, reason, message, expected) in [
        (0, "", "", (403, "the policy gave no reason")),
        (200, "Success", "m", (403, "m")),
        (399, "Forbidden", "", (403, "Forbidden")),
        (400, "", "m", (400, "m")),
        (403, "", "m", (403, "m")),
        (599, "", "m", (599, "m")),
        (600, "", "m", (403, "m")),
        (70_000, "", "m", (403, "m")),
        (u32::MAX, "", "m", (403, "m")),
    ] {
        let status = Status { code, reason: reason.into(), message: message.into(), causes: vec![] };
        suite.validator.script.answer(MutateResponse { status: Some(status), ..MutateResponse::default() });
        let refusal = refusal(suite.review(VALIDATE, &review()).await);
        assert_eq!((refusal.code, refusal.message.as_str()), expected, "{code}");
    }
    suite.validator.script.answer(MutateResponse::default());
    let refusal = refusal(suite.review(VALIDATE, &review()).await);
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (403, "the policy gave no reason"),
        "no status at all"
    );
}

#[tokio::test]
async fn a_status_is_left_out_of_an_allow_c32() {
    let suite = Suite::start().await;
    suite.validator.script.answer(MutateResponse { allowed: true, ..denied("not so") });
    suite.review(VALIDATE, &review()).await; // the verdict remarks on a status
}

#[tokio::test]
async fn warnings_on_allow_and_deny_c50() {
    let suite = Suite::start().await;
    let many: Vec<String> = (0..100).map(|number| format!("warning number {number}")).collect();
    let text = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<String>>();
    let cut = "w".repeat(255) + "…";
    for (what, given, expected) in [
        ("none", vec![], vec![]),
        ("one", text(&["beware"]), text(&["beware"])),
        ("a hundred", many.clone(), many),
        ("121 characters", vec!["w".repeat(121)], vec!["w".repeat(121)]),
        ("257 characters", vec!["w".repeat(257)], vec![cut.clone()]),
        ("5000 characters", vec!["w".repeat(5000)], vec![cut]),
        ("257 characters of several bytes", vec!["é".repeat(257)], vec!["é".repeat(255) + "…"]),
        ("control characters", text(&["a\nb\tc\u{0}d\u{7f}e\u{85}f"]), text(&["a b c d e f"])),
        ("empty ones", text(&["", " ", "\n", "x"]), text(&["x"])),
        ("the same twice", text(&["x", "y", "x"]), text(&["x", "y"])),
        ("the prefix", text(&["Warning: x", "warning: y"]), text(&["x", "y"])),
    ] {
        for answer in [allowed(), denied("no")] {
            for path in [MUTATE, VALIDATE] {
                suite.backend(path).script.answer(warned(&given, answer.clone()));
                let verdict = suite.review(path, &review()).await;
                assert_eq!(verdict.warnings, expected, "{what}");
                assert_eq!(matches!(verdict.decision, Decision::Allowed { .. }), answer.allowed, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn warnings_beyond_the_total_are_counted_c50() {
    let suite = Suite::start().await;
    let given: Vec<String> = (0..100).map(|number| format!("{number:03} {}", "w".repeat(300))).collect();
    suite.mutator.script.answer(warned(&given, allowed()));
    let verdict = suite.review(MUTATE, &review()).await; // no remark: the API server cuts nothing
    let last = verdict.warnings.last().unwrap();
    assert_eq!(last, &format!("{} more warnings were left out", 101 - verdict.warnings.len()));
}

#[tokio::test]
async fn audit_annotations_with_valid_keys_pass_and_others_are_counted_c51() {
    let suite = Suite::start().await;
    let rows = [
        ("policy", true),
        ("deny-env.v1_x", true),
        ("a*b", false),
        ("a/b", false),
        ("", false),
        ("-a", false),
        ("é", false),
        ("0123456789012345678901234567890123456789012345678901234567890123", false),
    ];
    for answer in [allowed(), denied("no")] {
        let audit_annotations =
            rows.iter().map(|(key, _)| ((*key).to_owned(), format!("value of {key}"))).collect();
        suite.validator.script.answer(MutateResponse { audit_annotations, ..answer });
        let verdict = suite.review(VALIDATE, &review()).await;
        let expected = rows
            .iter()
            .filter(|(_, valid)| *valid)
            .map(|(key, _)| ((*key).to_owned(), format!("value of {key}")));
        assert_eq!(verdict.audit_annotations, expected.collect());
    }
    let dropped = suite.metric("sallyport_audit_annotations_dropped_total");
    assert_eq!(dropped.to_bits(), 12.0_f64.to_bits(), "{dropped}");
}

#[tokio::test]
async fn outcomes_are_counted_c110() {
    let suite = Suite::start().await;
    let patch = patched(&json!([{"op": "add", "path": "/x", "value": 1}]));
    let broken = patched(&json!([{"op": "remove", "path": "/x"}]));
    for (answer, outcome) in
        [(allowed(), "allowed"), (patch, "patched"), (denied("no"), "denied"), (broken, "error")]
    {
        suite.mutator.script.answer(answer);
        let sample = format!(
            r#"sallyport_review_duration_seconds_count{{door="mutate-fail",operation="CREATE",outcome="{outcome}"}}"#
        );
        assert_eq!(suite.metric(&sample).to_bits(), 0.0_f64.to_bits());
        suite.post(MUTATE, &bytes(&review())).await;
        assert_eq!(suite.metric(&sample).to_bits(), 1.0_f64.to_bits(), "{outcome}");
    }
}
