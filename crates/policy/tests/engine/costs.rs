//! What the expressions of a policy may cost together, and what `authorizer` answers.

use sallyport_policy::{AuthorizerTable, FailurePolicy, Operation, ResultKind, Review};
use serde_json::{Value, json};

use crate::fixtures::{message, pod, pod_request, review, validate, validate_pods, validation_set};

/// Two questions to the authorizer: 700,010 of the API server's units, and next to no work.
const DEAR: &str =
    "!authorizer.path('/a').check('get').allowed() && !authorizer.path('/b').check('get').allowed()";
const SPENT: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Code and message of the refusal, if there is one.
fn judged(spec: &str) -> Option<(u16, String)> {
    let outcome = validate(&validation_set(&[&validate_pods("p", spec)]), &pod(json!({}), json!({})));
    if outcome.answer.allowed {
        assert!(outcome.results.iter().all(|result| result.result == ResultKind::Allowed));
        return None;
    }
    let text = message(&outcome).to_owned();
    outcome.answer.status.map(|status| (status.code, text))
}

fn repeated(count: usize, item: &str) -> String {
    format!("[{}]", vec![item; count].join(", "))
}

#[test]
fn validations_share_a_budget_of_ten_million_and_running_out_is_422() {
    let validations =
        |count| format!("  validations: {}", repeated(count, &format!("{{expression: \"{DEAR}\"}}")));
    assert_eq!(judged(&validations(14)), None);
    let (code, text) = judged(&validations(15)).unwrap();
    assert!(code == 422 && text.contains(SPENT), "{code} {text}");
}

#[test]
fn the_elements_of_a_for_each_share_the_budget_with_the_other_validations() {
    let spec = |elements| {
        let each = format!("forEach: {{list: 'lists.range({elements})', as: i}}");
        format!("  validations: [{{expression: \"{DEAR}\"}}, {{{each}, expression: \"{DEAR}\"}}]")
    };
    assert_eq!(judged(&spec(13)), None);
    let (code, text) = judged(&spec(14)).unwrap();
    assert!(code == 422 && text.contains(SPENT), "{code} {text}");
}

#[test]
fn match_conditions_have_a_budget_of_two_and_a_half_million_of_their_own() {
    let spec = |count| {
        let condition = |index| format!("{{name: c{index}, expression: \"{DEAR}\"}}");
        let conditions: Vec<String> = (0..count).map(condition).collect();
        let validations = repeated(14, &format!("{{expression: \"{DEAR}\"}}"));
        format!("  matchConditions: [{}]\n  validations: {validations}", conditions.join(", "))
    };
    assert_eq!(judged(&spec(3)), None);
    let (code, text) = judged(&spec(4)).unwrap();
    assert!(code == 422 && text.contains(SPENT), "{code} {text}");
}

#[test]
fn an_expression_beyond_its_limit_is_the_policys_fault() {
    let spec = format!("  validations: [{{expression: \"{DEAR} && {DEAR}\"}}]");
    let (code, text) = judged(&spec).unwrap();
    assert!(code == 422 && text.contains("actual cost limit exceeded"), "{code} {text}");
}

/// The answers are those of the review's authorizer, about its user and its object.
#[test]
fn the_authorizer_of_a_review_answers() {
    let expression = "authorizer.requestResource.check('approve').allowed()";
    let set = validation_set(&[&validate_pods(
        "p",
        &format!(
            "  matchConditions: [{{name: c, expression: \"authorizer.path('/').check('get').reason() == 'so'\"}}]\n  \
             validations: [{{expression: \"{expression}\"}}]"
        ),
    )]);
    let table = |rule: Value| -> AuthorizerTable {
        serde_json::from_value(json!({"allow": [rule], "reason": "so"})).unwrap()
    };
    let mut request = pod_request(Operation::Create);
    request.user_info.username = "alice".to_owned();
    let object = pod(json!({}), json!({})).to_string();
    for (rule, allowed) in [
        (json!({"user": "alice", "verb": "approve", "resource": "pods", "namespace": "default"}), true),
        (json!({"user": "bob"}), false),
        (json!({"namespace": "other"}), false),
    ] {
        let table = table(rule.clone());
        let review = Review { authorizer: &table, ..review(&request, object.as_bytes()) };
        assert_eq!(set.review(&review, FailurePolicy::Fail).answer.allowed, allowed, "{rule}");
    }
    // The condition is false then.
    let silent = AuthorizerTable::default();
    let review = Review { authorizer: &silent, ..review(&request, object.as_bytes()) };
    assert!(set.review(&review, FailurePolicy::Fail).answer.allowed);
}

/// A policy that depends on an answer can see that there is none.
#[test]
fn the_authorizer_has_no_opinion_and_says_why() {
    for expression in [
        "!authorizer.group('').resource('pods').namespace('a').check('get').allowed()",
        "authorizer.requestResource.check('get').errored()",
        "authorizer.serviceAccount('a', 'b').path('/').check('get').error().startsWith('no authorizer is connected')",
        "authorizer.path('/').check('get').reason() == ''",
    ] {
        assert_eq!(
            judged(&format!("  validations: [{{expression: \"{expression}\"}}]")),
            None,
            "{expression}"
        );
    }
}
