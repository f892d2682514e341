//! The *Envelope* rows of the edge-case matrix that concern parsing, and C-10…C-12, C-22, G-05.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use sallyport_admission::{Answer, ApiVersion, EnvelopeError, Operation, Review};
use serde_json::{Value, json};

const HEAD: &str = r#""apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview""#;

/// A review whose request has these members after the uid.
fn with(members: &str) -> String {
    format!(r#"{{{HEAD},"request":{{"uid":"u"{members}}}}}"#)
}

#[test]
fn what_is_no_review_is_refused_with_a_message_that_says_why() {
    let truncated = &with("")[..40];
    let nested_array = format!(r#"{{{HEAD},"request":["u"]}}"#);
    let rows: [(&str, &[u8], &str); 26] = [
        ("empty", b"", "empty"),
        ("white space", b" \r\n\t", "empty"),
        ("null", b"null", "JSON object"),
        ("array", b"[]", "JSON object"),
        ("array of the fields", br#"["admission.k8s.io/v1","AdmissionReview",{"uid":"u"}]"#, "JSON object"),
        ("string", br#""AdmissionReview""#, "JSON object"),
        ("number", b"1e400", "number out of range"),
        ("object without anything", b"{}", "kind"),
        ("truncated", truncated.as_bytes(), "EOF"),
        ("one brace", b"{", "EOF"),
        ("invalid UTF-8", b"{\"kind\":\"\xff\"}", "invalid unicode"),
        ("byte order mark", b"\xef\xbb\xbf{}", "expected value"),
        ("gzip", b"\x1f\x8b\x08\x00", "expected value"),
        ("trailing garbage", br#"{"kind":"AdmissionReview"} x"#, "trailing characters"),
        ("two documents", br#"{"kind":"AdmissionReview"}{}"#, "trailing characters"),
        ("single quotes", b"{'kind':'AdmissionReview'}", "key must be a string"),
        ("duplicate key", br#"{"kind":"AdmissionReview","kind":"AdmissionReview"}"#, "duplicate field"),
        ("other kind", br#"{"apiVersion":"admission.k8s.io/v1","kind":"Pod","request":{"uid":"u"}}"#, "\"Pod\""),
        ("no kind", br#"{"apiVersion":"admission.k8s.io/v1","request":{"uid":"u"}}"#, "kind"),
        ("kind null", br#"{"apiVersion":"admission.k8s.io/v1","kind":null,"request":{"uid":"u"}}"#, "kind"),
        ("no version", br#"{"kind":"AdmissionReview","request":{"uid":"u"}}"#, "admission.k8s.io/v1beta1"),
        (
            "unknown version",
            br#"{"apiVersion":"admission.k8s.io/v2","kind":"AdmissionReview","request":{"uid":"u"}}"#,
            "admission.k8s.io/v1 and admission.k8s.io/v1beta1",
        ),
        ("no request", br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#, "no request"),
        (
            "request null",
            br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}"#,
            "no request",
        ),
        ("request an array", nested_array.as_bytes(), "JSON object"),
        (
            "a response only",
            br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true}}"#,
            "no request",
        ),
    ];
    for (name, body, expected) in rows {
        let message = Review::parse(body).expect_err(name).to_string();
        assert!(message.contains(expected), "{name}: {message}");
    }
}

/// C-22: without a uid no answer can be matched.
#[test]
fn a_uid_must_be_a_string_that_is_not_empty() {
    for uid in ["", r#""uid":null"#, r#""uid":"""#] {
        let body = format!(r#"{{{HEAD},"request":{{{uid}}}}}"#);
        assert!(matches!(Review::parse(body.as_bytes()), Err(EnvelopeError::NoUid)), "{uid}");
    }
    for uid in ["1", "true", "{}", "[\"u\"]", r#""\ud800""#] {
        let body = format!(r#"{{{HEAD},"request":{{"uid":{uid}}}}}"#);
        assert!(matches!(Review::parse(body.as_bytes()), Err(EnvelopeError::Malformed(_))), "{uid}");
    }
}

/// C-22: what was read is what is answered, whatever the escapes it was written with.
#[test]
fn an_odd_uid_is_echoed_equal_as_a_string() {
    for uid in
        [r#""\u0041\"\\\/\n\u0000""#, r#""日本 \ud83d\ude00""#, r#"" spaced ""#, r#""\u2028</script>""#]
    {
        let body = format!(r#"{{{HEAD},"request":{{"uid":{uid}}}}}"#);
        let review = Review::parse(body.as_bytes()).unwrap();
        let answer: Value =
            serde_json::from_slice(&Answer::allow().render(review.api_version, &review.request.uid)).unwrap();
        assert_eq!(answer["response"]["uid"], serde_json::from_str::<Value>(uid).unwrap());
    }
}

/// C-10, C-21.
#[test]
fn both_versions_are_read_and_told_apart() {
    for (text, version) in
        [("admission.k8s.io/v1", ApiVersion::V1), ("admission.k8s.io/v1beta1", ApiVersion::V1Beta1)]
    {
        let body =
            json!({"apiVersion": text, "kind": "AdmissionReview", "request": {"uid": "u"}}).to_string();
        assert_eq!(Review::parse(body.as_bytes()).unwrap().api_version, version);
    }
}

/// C-12: every field arrives where a backend looks for it.
#[test]
fn every_field_of_a_full_review_is_read() {
    let body = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": "forged", "allowed": true},
        "request": {
            "uid": "705ab4f5", "futureField": {"deep": [1, 2]},
            "kind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"}, "subResource": "scale",
            "requestKind": {"group": "autoscaling", "version": "v1beta1", "kind": "OldScale"},
            "requestResource": {"group": "apps", "version": "v1beta1", "resource": "olddeployments"},
            "requestSubResource": "oldscale", "name": "n", "namespace": "ns", "operation": "UPDATE",
            "userInfo": {"username": "admin", "uid": "014", "groups": ["g1", "g\"2"], "extra": {"k/e": ["a", "b"], "none": null}},
            "object": {"o": 1}, "oldObject": {"o": 0}, "options": {"kind": "UpdateOptions"}, "dryRun": true
        }
    })
    .to_string();
    let review = Review::parse(body.as_bytes()).unwrap();
    let request = &review.request;
    assert_eq!(request.uid, "705ab4f5");
    assert_eq!(
        (&*request.kind.group, &*request.kind.version, &*request.kind.kind),
        ("autoscaling", "v1", "Scale")
    );
    assert_eq!((&*request.resource.group, &*request.resource.version), ("apps", "v1"));
    assert_eq!((&*request.resource.resource, &*request.sub_resource), ("deployments", "scale"));
    let (kind, resource) =
        (request.request_kind.as_ref().unwrap(), request.request_resource.as_ref().unwrap());
    assert_eq!((&*kind.version, &*kind.kind), ("v1beta1", "OldScale"));
    assert_eq!((&*resource.version, &*resource.resource), ("v1beta1", "olddeployments"));
    assert_eq!(request.request_sub_resource, "oldscale");
    assert_eq!((&*request.name, &*request.namespace), ("n", "ns"));
    assert_eq!((request.operation, &*review.operation), (Operation::Update, "UPDATE"));
    assert_eq!((&*request.user_info.username, &*request.user_info.uid), ("admin", "014"));
    assert_eq!(request.user_info.groups, ["g1", "g\"2"]);
    assert_eq!(request.user_info.extra["k/e"], ["a", "b"]);
    assert!(request.user_info.extra["none"].is_empty());
    assert_eq!(review.object.unwrap().get(), r#"{"o":1}"#);
    assert_eq!(review.old_object.unwrap().get(), r#"{"o":0}"#);
    assert_eq!(review.options.unwrap().get(), r#"{"kind":"UpdateOptions"}"#);
    assert!(request.dry_run);
    let owned = review.request.clone().into_owned();
    assert_eq!(owned.uid, "705ab4f5");
    assert_eq!(format!("{owned:?}"), format!("{:?}", review.request), "nothing is lost when it is owned");
}

/// C-12, G-10: absent and null are the same for every optional field.
#[test]
fn every_optional_field_may_be_absent_or_null() {
    let nulls: String = [
        "kind",
        "resource",
        "subResource",
        "requestKind",
        "requestResource",
        "requestSubResource",
        "name",
        "namespace",
        "operation",
        "userInfo",
        "object",
        "oldObject",
        "options",
        "dryRun",
    ]
    .map(|field| format!(r#","{field}":null"#))
    .concat();
    let inner = r#","userInfo":{"username":null,"groups":null,"extra":null},"kind":{"group":null}"#;
    for members in ["", &nulls, inner] {
        let body = with(members);
        let review = Review::parse(body.as_bytes()).unwrap();
        assert!(review.object.is_none() && review.old_object.is_none() && review.options.is_none());
        let request = review.request;
        assert!(!request.dry_run);
        assert!(request.request_kind.is_none() && request.request_resource.is_none());
        assert!(request.name.is_empty() && request.user_info.username.is_empty());
        assert_eq!((request.operation, &*review.operation), (Operation::Unknown, ""));
    }
}

/// C-11: an operation of a later Kubernetes is passed on, not refused.
#[test]
fn operations_are_read_and_unknown_ones_kept() {
    for text in ["CREATE", "UPDATE", "DELETE", "CONNECT", "PROXY", "create"] {
        let body = with(&format!(r#","operation":"{text}""#));
        let review = Review::parse(body.as_bytes()).unwrap();
        assert_eq!(review.operation, text);
        let expected = if text == "PROXY" || text == "create" { "" } else { text };
        assert_eq!(review.request.operation.as_str(), expected);
    }
}

#[test]
fn dry_run_must_be_a_boolean() {
    assert!(!Review::parse(with(r#","dryRun":false"#).as_bytes()).unwrap().request.dry_run);
    for value in ["\"true\"", "1", "[]"] {
        assert!(Review::parse(with(&format!(r#","dryRun":{value}"#)).as_bytes()).is_err(), "{value}");
    }
}

/// C-11: objects are passed on as they came, to the byte.
#[test]
fn an_object_keeps_its_text_whatever_it_is() {
    for object in [
        r#"{"n":1e400,"i":9223372036854775808,"f":1.10,"z":-0}"#,
        r#"{ "a" : "\u0041" ,"a":2}"#,
        "[1, 2]",
        "\"text\"",
        "18446744073709551616",
        "false",
    ] {
        let body = with(&format!(r#","object":{object}"#));
        assert_eq!(Review::parse(body.as_bytes()).unwrap().object.unwrap().get(), object);
    }
}

/// Only the envelope is bounded here (design §2): depth costs no stack, wherever it is.
#[test]
fn a_million_levels_overflow_nothing() {
    const LEVELS: usize = 1_000_000;
    let deep = format!("{}{}", "[".repeat(LEVELS), "]".repeat(LEVELS));
    for member in ["object", "options", "unknown"] {
        let body = with(&format!(r#","{member}":{deep}"#));
        assert!(Review::parse(body.as_bytes()).is_ok(), "{member}");
    }
    let objects = format!("{}1{}", r#"{"a":"#.repeat(LEVELS), "}".repeat(LEVELS));
    let body = with(&format!(r#","oldObject":{objects}"#));
    assert_eq!(Review::parse(body.as_bytes()).unwrap().old_object.unwrap().get().len(), objects.len());
    for member in ["uid", "kind", "userInfo", "dryRun"] {
        let body = format!(r#"{{{HEAD},"request":{{"{member}":{deep}}}}}"#);
        assert!(Review::parse(body.as_bytes()).is_err(), "{member}");
    }
}

/// A message goes into an answer and a log line: it must not carry the body along.
#[test]
fn messages_are_short_however_long_the_fault() {
    let long = "x".repeat(1 << 20);
    for body in [
        with(&format!(r#","dryRun":"{long}""#)),
        format!(r#"{{"apiVersion":"admission.k8s.io/v1","kind":"{long}","request":{{"uid":"u"}}}}"#),
        format!(r#"{{"apiVersion":"{long}","kind":"AdmissionReview","request":{{"uid":"u"}}}}"#),
    ] {
        let message = Review::parse(body.as_bytes()).unwrap_err().to_string();
        assert!(message.len() < 500, "{} bytes", message.len());
    }
}
