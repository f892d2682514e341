//! Validations: messages, causes, actions, annotations, errors.

use sallyport_policy::{Cause, FailurePolicy, Operation, ResultKind};
use serde_json::json;

use crate::fixtures::{DENY_ENV, message, pod, pod_request, review, validate, validate_pods, validation_set};

#[test]
fn one_offender_has_the_compatible_message_and_code_sys8() {
    let set = validation_set(&[DENY_ENV]);
    let mut object = pod(json!({}), json!({}));
    assert!(validate(&set, &object).answer.allowed);
    object["spec"]["containers"][0]["name"] = json!("nginx-with-env");
    object["spec"]["containers"][0]["env"] = json!([]);
    let outcome = validate(&set, &object);
    assert_eq!(message(&outcome), "nginx-with-env is using env vars (policy deny-env)");
    let status = outcome.answer.status.unwrap();
    assert_eq!((status.code, status.reason.as_str()), (402, "Forbidden"));
}

/// C-42.
#[test]
fn all_offenders_are_reported_with_their_fields_sys8() {
    let mut object = pod(json!({}), json!({}));
    object["spec"]["containers"] =
        json!([{"name": "a", "env": [{"name": "X"}]}, {"name": "b"}, {"name": "c", "env": [{"name": "Y"}]}]);
    let outcome = validate(&validation_set(&[DENY_ENV]), &object);
    assert_eq!(message(&outcome), "a is using env vars; c is using env vars (policy deny-env)");
    let cause = |name: &str| Cause {
        reason: "FieldValueForbidden".to_owned(),
        message: format!("{name} is using env vars"),
        field: format!("spec.containers[{name}].env"),
    };
    assert_eq!(outcome.answer.status.unwrap().causes, [cause("a"), cause("c")]);
}

#[test]
fn messages_follow_the_author_then_upstream() {
    let long = format!("messageExpression: \"'{}'\"", "x".repeat(5121));
    let rows = [
        ("message: no way", "no way (policy p)"),
        ("message: '  '", "failed expression: 1 == 2 (policy p)"),
        ("messageExpression: \"'pod ' + object.metadata.name\"", "pod sleep (policy p)"),
        // upstream 15
        ("messageExpression: \"' '\", message: plan b", "plan b (policy p)"),
        ("messageExpression: \"'a\\\\nb'\", message: plan b", "plan b (policy p)"),
        ("messageExpression: string(object.nothing), message: plan b", "plan b (policy p)"),
        ("messageExpression: string(object.nothing)", "failed expression: 1 == 2 (policy p)"),
        (&long, "failed expression: 1 == 2 (policy p)"),
    ];
    for (fields, expected) in rows {
        let policy = validate_pods("p", &format!("  validations: [{{expression: 1 == 2, {fields}}}]"));
        let outcome = validate(&validation_set(&[&policy]), &pod(json!({}), json!({})));
        assert_eq!(message(&outcome), expected, "{fields}");
    }
}

#[test]
fn every_refusal_of_every_policy_is_told_once() {
    let a = validate_pods(
        "a",
        "  validations: [{expression: 'false', message: one}, {expression: 'false', message: two}, {expression: 'false', message: one}]",
    );
    let b = validate_pods(
        "b",
        "  validations: [{expression: 'true'}, {expression: 'false', message: three, reason: Invalid}]",
    );
    let outcome = validate(&validation_set(&[&b, &a]), &pod(json!({}), json!({})));
    assert_eq!(message(&outcome), "one; two (policy a); three (policy b)");
    assert_eq!(outcome.answer.status.unwrap().code, 403);
    assert!(outcome.results.iter().all(|result| result.result == ResultKind::Denied));
}

#[test]
fn reasons_have_their_codes() {
    for (fields, code, reason) in [
        ("", 403, "Forbidden"),
        (", reason: Invalid", 422, "Invalid"),
        (", reason: Unauthorized", 401, "Unauthorized"),
        (", reason: RequestEntityTooLarge", 413, "RequestEntityTooLarge"),
        (", reason: Invalid, code: 409", 409, "Invalid"),
    ] {
        let policy = validate_pods("p", &format!("  validations: [{{expression: 'false'{fields}}}]"));
        let status = validate(&validation_set(&[&policy]), &pod(json!({}), json!({}))).answer.status.unwrap();
        assert_eq!((status.code, status.reason.as_str()), (code, reason));
    }
}

#[test]
fn warn_and_audit_let_pass_sys8() {
    let policy = validate_pods(
        "soft",
        "  validationActions: [Warn, Audit]\n  validations: [{expression: 'false', message: mind this}]",
    );
    let outcome = validate(&validation_set(&[&policy]), &pod(json!({}), json!({})));
    assert!(outcome.answer.allowed && outcome.answer.status.is_none());
    assert_eq!(outcome.answer.warnings, ["mind this (policy soft)"]);
    assert_eq!(outcome.answer.audit_annotations["soft.violations"], "mind this");
    assert_eq!(outcome.results[0].result, ResultKind::Warned);

    let policy =
        validate_pods("quiet", "  validationActions: [Audit]\n  validations: [{expression: 'false'}]");
    let outcome = validate(&validation_set(&[&policy]), &pod(json!({}), json!({})));
    assert!(outcome.answer.allowed && outcome.answer.warnings.is_empty());
    assert_eq!(outcome.results[0].result, ResultKind::Audited);
}

/// C-51.
#[test]
fn audit_keys_are_valid_however_long_the_name_c51() {
    let name = "a-very-long.name-of-a-policy.".repeat(7) + "end";
    let policy = validate_pods(
        &name,
        "  validationActions: [Audit]\n  validations: [{expression: 'false'}]\n  auditAnnotations: [{key: who, valueExpression: string(object.metadata.name)}, {key: none, valueExpression: 'null'}]",
    );
    let outcome = validate(&validation_set(&[&policy]), &pod(json!({}), json!({})));
    let keys: Vec<&String> = outcome.answer.audit_annotations.keys().collect();
    assert_eq!(keys.len(), 2);
    for key in keys {
        assert!(key.len() <= 63, "{key}");
        assert!(key.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)), "{key}");
        assert!(
            key.starts_with("a-very-long")
                && ["violations", "who"].contains(&key.rsplit('.').next().unwrap()),
            "{key}"
        );
    }
}

/// upstream 10, 14, 17 in the order of the rows.
#[test]
fn evaluation_errors_obey_the_actions_and_those_of_annotations_do_not() {
    let object = pod(json!({}), json!({}));
    let denied =
        validate_pods("p", "  validations: [{expression: object.nothing == 1, reason: Unauthorized}]");
    let outcome = validate(&validation_set(&[&denied]), &object);
    assert_eq!(message(&outcome), "policy p: validations[0].expression: no such key: nothing");
    let status = outcome.answer.status.unwrap();
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));

    let warned =
        validate_pods("p", "  validationActions: [Warn]\n  validations: [{expression: object.nothing == 1}]");
    let outcome = validate(&validation_set(&[&warned]), &object);
    assert!(outcome.answer.allowed);
    assert_eq!(outcome.answer.warnings, ["policy p: validations[0].expression: no such key: nothing"]);
    assert_eq!(outcome.results[0].result, ResultKind::Error);

    let annotated = validate_pods(
        "p",
        "  validationActions: [Warn]\n  validations: [{expression: 'true'}]\n  auditAnnotations: [{key: k, valueExpression: string(object.nothing)}]",
    );
    assert!(!validate(&validation_set(&[&annotated]), &object).answer.allowed);
}

#[test]
fn errors_under_ignore_pass_but_failures_do_not() {
    let policy = validate_pods(
        "p",
        "  failurePolicy: Ignore\n  validations: [{expression: object.nothing == 1}, {expression: 'object.metadata.name == \"x\"', message: m}]",
    );
    let set = validation_set(&[&policy]);
    let request = pod_request(Operation::Create);
    let (sleep, x) = (pod(json!({}), json!({})), json!({"metadata": {"name": "x"}}));
    let door =
        |object: &serde_json::Value, door| set.review(&review(&request, object.to_string().as_bytes()), door);
    assert_eq!(message(&door(&sleep, FailurePolicy::Ignore)), "m (policy p)");
    let passed = door(&x, FailurePolicy::Ignore);
    assert!(passed.answer.allowed);
    assert_eq!(passed.results[0].result, ResultKind::Error);
    assert!(door(&sleep, FailurePolicy::Fail).results.is_empty());
}

/// upstream 8.
#[test]
fn a_false_match_condition_beats_one_that_errs() {
    let with = |conditions: &str| {
        validate_pods(
            "p",
            &format!("  matchConditions:\n{conditions}\n  validations: [{{expression: 'false'}}]"),
        )
    };
    let errs = "  - {name: errs, expression: object.nothing == 1}";
    let errs_too = "  - {name: errs-too, expression: object.neither == 1}";
    let no = "  - {name: 'no', expression: 'false'}";
    let object = pod(json!({}), json!({}));
    for conditions in [format!("{errs}\n{no}"), format!("{no}\n{errs}")] {
        let outcome = validate(&validation_set(&[&with(&conditions)]), &object);
        assert_eq!(outcome.results[0].result, ResultKind::Skipped);
    }
    let outcome = validate(&validation_set(&[&with(&format!("{errs}\n{errs_too}"))]), &object);
    assert_eq!(
        message(&outcome),
        "policy p: [matchConditions[\"errs\"]: no such key: nothing, matchConditions[\"errs-too\"]: no such key: neither]"
    );
}

#[test]
fn a_delete_is_judged_by_the_old_object() {
    let policy = validate_pods(
        "p",
        "  validations: [{expression: 'object == null && oldObject.metadata.name == \"sleep\"'}]",
    );
    let request = pod_request(Operation::Delete);
    let old = pod(json!({}), json!({})).to_string();
    let mut review = review(&request, b"null");
    review.old_object = old.as_bytes();
    assert!(validation_set(&[&policy]).review(&review, FailurePolicy::Fail).answer.allowed);
}

#[test]
fn messages_and_warnings_are_bounded() {
    let each = "forEach: {list: object.spec.many, as: n}, expression: 'false'";
    let deny = validate_pods(
        "p",
        &format!("  validations: [{{{each}, messageExpression: \"string(n + object.spec.pad)\"}}]"),
    );
    let warn = validate_pods(
        "p",
        &format!(
            "  validationActions: [Warn]\n  validations: [{{{each}, messageExpression: \"string(n + object.spec.pad)\"}}]"
        ),
    );
    let mut object = pod(json!({}), json!({}));
    object["spec"]["many"] = json!((0..900).map(|n| n.to_string()).collect::<Vec<_>>());
    object["spec"]["pad"] = json!("ü".repeat(1000));
    let outcome = validate(&validation_set(&[&deny]), &object);
    assert!(message(&outcome).len() < 9 * 1024);
    assert!(message(&outcome).contains(" more (policy p)"), "{}", message(&outcome));
    assert_eq!(outcome.answer.status.unwrap().causes.len(), 256);
    let outcome = validate(&validation_set(&[&warn]), &object);
    assert_eq!(outcome.answer.warnings.len(), 64);
    assert!(outcome.answer.warnings.iter().all(|warning| warning.chars().count() == 256));
}

/// upstream 17.
#[test]
fn a_namespace_has_no_namespace_object() {
    let yaml = r#"
apiVersion: sallyport.dev/v1alpha1
kind: ValidationPolicy
metadata: {name: ns}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [namespaces]}]
  validations: [{expression: "namespaceObject == null && request.namespace == 'new'"}]
"#;
    let mut request = pod_request(Operation::Create);
    request.resource.resource = "namespaces".to_owned();
    request.namespace = "new".to_owned();
    request.name = "new".to_owned();
    let outcome = validation_set(&[yaml])
        .review(&review(&request, br#"{"metadata":{"name":"new"}}"#), FailurePolicy::Fail);
    assert!(outcome.answer.allowed, "{outcome:?}");
}

#[test]
fn an_object_that_no_expression_looks_at_is_not_read() {
    let request = pod_request(Operation::Create);
    for (expression, allowed) in [("request.operation == 'CREATE'", true), ("has(object.kind)", false)] {
        let policy = validate_pods("p", &format!("  validations: [{{expression: \"{expression}\"}}]"));
        let outcome = validation_set(&[&policy]).review(&review(&request, b"{"), FailurePolicy::Fail);
        assert_eq!(outcome.answer.allowed, allowed, "{expression}: {outcome:?}");
    }
}
