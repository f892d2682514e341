//! What the expressions of a policy may cost together, and what `authorizer` answers.

use sallyport_policy::ResultKind;
use serde_json::json;

use crate::fixtures::{message, pod, validate, validate_pods, validation_set};

/// Two questions to the authorizer: 700,010 of the API server's units, and next to no work.
const DEAR: &str =
    "!authorizer.path('/a').check('get').allowed() && !authorizer.path('/b').check('get').allowed()";
const SPENT: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Code and message of the refusal, if there is one.
fn judged(spec: &str) -> Option<(u16, String)> {
    let outcome = validate(&validation_set(&[&validate_pods("p", spec)]), &pod(json!({}), json!({})));
    if outcome.allowed {
        assert!(outcome.results.iter().all(|result| result.result == ResultKind::Allowed));
        return None;
    }
    let text = message(&outcome).to_owned();
    outcome.status.map(|status| (status.code, text))
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
