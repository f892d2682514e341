//! Contract §6, *Envelope*: what is no review is a 400 that says why, and no backend hears of it.

use sallyport_testkit::verdict::Decision;
use serde_json::{Value, json};

use crate::admission::{UID, bytes, review, with, with_object_text};
use crate::client::head;
use crate::suite::{MUTATE, Suite, VALIDATE, judge, undecided};

/// A review with a top-level field set, or taken away.
fn envelope(field: &str, value: Option<Value>) -> Vec<u8> {
    let mut review = review();
    match value {
        Some(value) => review[field] = value,
        None => drop(review.as_object_mut().unwrap().remove(field)),
    }
    bytes(&review)
}

/// A review with its text changed.
fn text(from: &str, to: &str) -> Vec<u8> {
    let text = review().to_string();
    assert_eq!(text.matches(from).count(), 1, "{from}");
    text.replace(from, to).into_bytes()
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[tokio::test]
async fn what_is_no_review_is_a_bad_request_c08_g03() {
    let good = bytes(&review());
    let uid = format!(r#""uid":"{UID}""#);
    let twice = format!("{uid},{uid}");
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nothing", vec![], "empty"),
        ("white space", b" \n\t ".to_vec(), "empty"),
        ("null", b"null".to_vec(), "not an AdmissionReview"),
        ("a list", b"[]".to_vec(), "not an AdmissionReview"),
        (
            "a list of the fields",
            br#"["admission.k8s.io/v1","AdmissionReview",{}]"#.to_vec(),
            "not an AdmissionReview",
        ),
        ("an empty object", b"{}".to_vec(), "kind is \"\""),
        ("a string", b"\"review\"".to_vec(), "not an AdmissionReview"),
        ("a number", b"1".to_vec(), "not an AdmissionReview"),
        ("garbage", b"kind: AdmissionReview".to_vec(), "not an AdmissionReview"),
        (
            "invalid UTF-8 in the envelope",
            joined(&[br#"{"kind":""#, b"\xff\xfe", br#""}"#]),
            "not an AdmissionReview",
        ),
        ("invalid UTF-8 in the object", with_object_bytes(b"{\"a\":\"\xff\"}"), "not an AdmissionReview"),
        ("something behind it", joined(&[&good, b"x"]), "trailing characters"),
        ("another one behind it", joined(&[&good, &good]), "trailing characters"),
        ("a byte order mark", joined(&[b"\xef\xbb\xbf", &good]), "not an AdmissionReview"),
        ("UTF-16", good.iter().flat_map(|byte| [*byte, 0]).collect(), "not an AdmissionReview"),
        ("no end to the nesting", vec![b'['; 100_000], "not an AdmissionReview"),
        ("nesting where a name belongs", envelope_nested(), "not an AdmissionReview"),
        ("another kind", envelope("kind", Some(json!("Pod"))), "kind is \"Pod\""),
        (
            "kind in lower case",
            envelope("kind", Some(json!("admissionreview"))),
            "kind is \"admissionreview\"",
        ),
        ("no kind", envelope("kind", None), "kind is \"\""),
        ("null as kind", envelope("kind", Some(Value::Null)), "kind is \"\""),
        ("a number as kind", envelope("kind", Some(json!(1))), "not an AdmissionReview"),
        (
            "a later version",
            envelope("apiVersion", Some(json!("admission.k8s.io/v2"))),
            "admission.k8s.io/v1beta1",
        ),
        ("a version without group", envelope("apiVersion", Some(json!("v1"))), "\"v1\" is not known"),
        (
            "a version with a space",
            envelope("apiVersion", Some(json!("admission.k8s.io/v1 "))),
            "is not known",
        ),
        ("no version", envelope("apiVersion", None), "apiVersion \"\" is not known"),
        ("no request", envelope("request", None), "has no request"),
        ("null as request", envelope("request", Some(Value::Null)), "has no request"),
        ("a list as request", envelope("request", Some(json!([]))), "not an AdmissionReview"),
        ("an empty request", envelope("request", Some(json!({}))), "request.uid"),
        ("no uid", text(&uid, r#""u":1"#), "request.uid"),
        ("an empty uid", bytes(&with("uid", json!(""))), "request.uid"),
        ("null as uid", bytes(&with("uid", Value::Null)), "request.uid"),
        ("a number as uid", bytes(&with("uid", json!(7))), "not an AdmissionReview"),
        ("a huge number as uid", text(&uid, r#""uid":1e400"#), "not an AdmissionReview"),
        ("two uids", text(&uid, &twice), "duplicate field"),
        ("two requests", text(r#""request":{"#, r#""request":null,"request":{"#), "duplicate field"),
        (
            "a number beyond all bounds as dryRun",
            text(r#""dryRun":false"#, r#""dryRun":9223372036854775808"#),
            "not an",
        ),
    ];
    let suite = Suite::start().await;
    for path in [MUTATE, VALIDATE] {
        let mut client = suite.client().await;
        for (what, body, message) in &rows {
            let answer = client.post(path, body).await;
            assert_eq!(answer.status, 400, "{what}: {}", answer.text());
            let said = undecided(&answer, 400);
            assert!(said.contains(message), "{what}: {said}");
            assert!(said.len() < 400, "{what}: {} bytes", said.len());
            assert!(answer.header("retry-after").is_none(), "{what} would be the same again (C-09)");
        }
        assert_eq!(suite.backend(path).script.calls(), 0);
    }
}

fn with_object_bytes(object: &[u8]) -> Vec<u8> {
    let body = with_object_text("\"here\"");
    let at = body.windows(6).position(|window| window == b"\"here\"").unwrap();
    joined(&[&body[..at], object, &body[at + 6..]])
}

fn envelope_nested() -> Vec<u8> {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    text(r#""name":"""#, &format!(r#""name":{deep}"#))
}

#[tokio::test]
async fn a_review_cut_off_anywhere_is_a_bad_request() {
    let suite = Suite::start().await;
    let good = bytes(&review());
    let mut client = suite.client().await;
    for length in (1..good.len()).step_by(41) {
        undecided(&client.post(MUTATE, &good[..length]).await, 400);
    }
    assert_eq!(suite.mutator.script.calls(), 0);
    judge(MUTATE, &good, &client.post(MUTATE, &good).await);
}

#[tokio::test]
async fn no_body_at_all_is_a_bad_request() {
    let suite = Suite::start().await;
    for lengths in ["", "Content-Length: 0\r\n", "Transfer-Encoding: chunked\r\n"] {
        let end = if lengths.contains("chunked") { "0\r\n\r\n" } else { "" };
        let request = format!("{}{lengths}\r\n{end}", head(MUTATE, &[("Content-Type", "application/json")]));
        let answer = suite.client().await.exchange(request.as_bytes()).await;
        assert!(undecided(&answer, 400).contains("empty"), "{lengths:?}");
    }
}

/// However odd the object is: it is the backend's to judge, and arrives byte for byte (G-04, C-11).
#[tokio::test]
async fn objects_pass_untouched_however_odd_c11_g04() {
    let suite = Suite::start().await;
    let nested = |depth: usize| format!(r#"{{"deep":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    let deep_objects = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    for (what, object) in [
        ("1000 deep", nested(1000)),
        ("100,000 deep", nested(100_000)),
        ("100,000 objects deep", deep_objects),
        ("huge numbers", r#"{"a":1e400,"b":9223372036854775808,"c":-0,"d":1.0,"e":1E+2}"#.into()),
        ("members twice", r#"{"a":1,"a":2,"metadata":{"name":"x","name":"y"}}"#.into()),
        ("white space", "{ \"a\" :\n\t[ 1 ,2 ] }".into()),
        ("escapes", r#"{"a\/b":"\u00e9\ud83d\ude00\u0000\u2028"}"#.into()),
        ("unknown fields", r#"{"kind":"Pod","spec":{"fromTheFuture":{"x":[null,true]}},"alsoNew":0}"#.into()),
        ("a string", r#""not an object""#.into()),
        ("a list", "[1,2]".into()),
        ("a number", "12".into()),
    ] {
        let body = with_object_text(&object);
        for path in [MUTATE, VALIDATE] {
            let verdict = judge(path, &body, &suite.post(path, &body).await);
            assert!(matches!(verdict.decision, Decision::Allowed { patch: None, .. }), "{what}");
            assert_eq!(suite.backend(path).script.last().review.object, object.as_bytes(), "{what}");
        }
    }
}

#[tokio::test]
async fn a_response_in_the_request_is_ignored() {
    let suite = Suite::start().await;
    let mut review = review();
    review["response"] = json!({"uid": UID, "allowed": true, "patch": "W10=", "warnings": ["forged"]});
    suite.mutator.script.answer(crate::answers::denied("no"));
    let verdict = suite.review(MUTATE, &review).await;
    assert!(matches!(&verdict.decision, Decision::Denied(refusal) if refusal.message == "no"));
    assert!(verdict.warnings.is_empty());
}

#[tokio::test]
async fn both_versions_are_answered_in_kind_c10_c21() {
    let suite = Suite::start().await;
    for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
        for path in [MUTATE, VALIDATE, "/mutate/ignore", "/validate/ignore"] {
            let mut review = review();
            review["apiVersion"] = json!(version);
            let body = bytes(&review);
            let answer = suite.post(path, &body).await;
            judge(path, &body, &answer);
            let answered: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(answered["apiVersion"], version);
            assert_eq!(answered["kind"], "AdmissionReview");
            assert!(answered.get("request").is_none(), "C-25");
        }
    }
}

#[tokio::test]
async fn an_odd_uid_is_echoed_byte_for_byte_c22() {
    let suite = Suite::start().await;
    for uid in ["a b", "\"quoted\\\"", "日本", "\u{0}\u{7f}", &"long".repeat(5000)] {
        suite.review(VALIDATE, &with("uid", json!(uid))).await;
        assert_eq!(suite.validator.script.last().review.uid, uid);
    }
}

#[tokio::test]
async fn content_types_c05() {
    let suite = Suite::start().await;
    let body = bytes(&review());
    for kind in ["application/json", "application/json; charset=utf-8", "APPLICATION/json"] {
        let answer = suite.client().await.post_with(MUTATE, &[("Content-Type", kind)], &body).await;
        judge(MUTATE, &body, &answer);
    }
    judge(MUTATE, &body, &suite.client().await.post_with(MUTATE, &[], &body).await);
    let calls = suite.mutator.script.calls();
    for headers in [
        [("Content-Type", "text/plain"), ("X", "1")],
        [("Content-Type", "application/yaml"), ("X", "1")],
        [("Content-Type", "application/jsonl"), ("X", "1")],
        [("Content-Type", ""), ("X", "1")],
        [("Content-Type", "application/json"), ("Content-Encoding", "gzip")],
        [("Content-Type", "application/json"), ("Content-Encoding", "br")],
    ] {
        let answer = suite.client().await.post_with(MUTATE, &headers, &body).await;
        assert!(undecided(&answer, 415).contains("application/json"), "{headers:?}");
    }
    assert_eq!(suite.mutator.script.calls(), calls);
}

#[tokio::test]
async fn other_methods_and_paths() {
    let suite = Suite::start().await;
    for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"] {
        let request = format!("{method} {MUTATE} HTTP/1.1\r\nHost: front\r\nContent-Length: 0\r\n\r\n");
        let answer = suite.client().await.exchange(request.as_bytes()).await;
        undecided(&answer, 405);
        assert_eq!(answer.header("allow"), Some("POST"), "{method}");
    }
    let request = format!("HEAD {MUTATE} HTTP/1.1\r\nHost: front\r\nConnection: close\r\n\r\n");
    let mut client = suite.client().await;
    client.send(request.as_bytes()).await.unwrap();
    assert!(client.status().await.unwrap().contains(" 405 "));

    let body = bytes(&review());
    for path in [
        "/",
        "/mutate",
        "/mutate/fail/",
        "//mutate/fail",
        "/MUTATE/fail",
        "/mutate/fail/x",
        "/validate",
        "/metrics",
    ] {
        let answer = suite.post(path, &body).await;
        let said = undecided(&answer, 404);
        assert!(said.contains(MUTATE) && said.contains("/validate/ignore"), "{path}: {said}");
    }
    assert_eq!(suite.mutator.script.calls() + suite.validator.script.calls(), 0);
}
