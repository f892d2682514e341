//! Policies that are wrong: reported, kept in their last good form, or an error for what they match.

use sallyport_policy::{FailurePolicy, MutationSet, Operation, PolicyState, ValidationSet};
use serde_json::json;

use crate::fixtures::{
    message, mutate, mutate_pods, mutations, namespaces, patch, pod, pod_request, review, validate_pods,
    validations,
};

fn problem(yaml: &str) -> String {
    let set = MutationSet::compile(mutations(&[yaml]), namespaces(), None);
    assert_eq!(set.policies()[0].state, PolicyState::Broken);
    set.policies()[0].message.clone()
}

#[test]
fn mistakes_in_mutations_are_named() {
    let rows = [
        (
            "  - overlay: {spec: {containers: [{image: x}]}}",
            "mutations[0].overlay.spec.containers[0]: lacks name",
        ),
        (
            "  - overlay: {spec: {containers: [{name: a, volumeMounts: [{name: v}]}]}}",
            "volumeMounts[0]: lacks mountPath",
        ),
        (
            "  - overlay: {spec: {containers: {name: a}}}",
            "mutations[0].overlay.spec.containers: must be a list",
        ),
        (
            "  - overlay: {metadata: {labels: {a: '${{ 1 + }}'}}}",
            "mutations[0].overlay.metadata.labels.a: 1:",
        ),
        ("  - overlay: {metadata: {labels: {a: '${{ 1'}}}", "\"${{\" without \"}}\""),
        ("  - overlay: {kind: Pod}", "mutations[0].overlay.kind: must be left out"),
        ("  - overlay: {}", "mutations[0].overlay: must not be empty"),
        (
            "  - {overlay: {a: b}, jsonPatch: {expression: '[]'}}",
            "exactly one of jsonPatch, applyConfiguration and overlay",
        ),
        ("  - patchType: Overlay", "exactly one of jsonPatch, applyConfiguration and overlay"),
        ("  - {patchType: JSONPatch, overlay: {a: b}}", "mutations[0].patchType: does not agree"),
        (
            "  - {patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{'}}",
            "mutations[0].applyConfiguration.expression: 1:",
        ),
        ("  - {patchType: ApplyConfiguration, overlay: {a: b}}", "mutations[0].patchType: does not agree"),
        (
            "  - {applyConfiguration: {expression: 'Object{}'}, overlay: {a: b}}",
            "exactly one of jsonPatch, applyConfiguration and overlay",
        ),
        ("  - {forEach: {list: '[]', as: object}, overlay: {a: b}}", "mutations[0].forEach.as"),
        ("  - {overlay: {a: '${{ unknown }}'}}", "mutations[0].overlay.a"),
        (
            "  - jsonPatch: {expression: '[]'}",
            "mutations[0].jsonPatch.expression: 1:1: must evaluate to list(JSONPatch) but got list(dyn)",
        ),
        ("  - jsonPatch: {expression: '[{\"op\": \"add\"}]'}", "must evaluate to list(JSONPatch)"),
    ];
    for (mutation, expected) in rows {
        let found = problem(&mutate_pods("p", "", mutation));
        assert!(found.contains(expected), "{expected} in {found}");
    }
    let variables = "  variables: [{name: a, expression: '1 +'}]";
    assert!(problem(&mutate_pods("p", variables, "  - overlay: {a: b}")).starts_with("variables.a: 1:"));
}

#[test]
fn mistakes_in_validations_are_named() {
    let rows = [
        ("  validations: []", "validations: must not be empty"),
        ("  validationActions: [Deny, Warn]\n  validations: [{expression: 'true'}]", "exclude each other"),
        ("  validations: [{expression: 'true', code: 200}]", "validations[0].code: 200"),
        ("  validations: [{expression: 'a b'}]", "validations[0].expression: 1:"),
        ("  auditAnnotations: [{key: 'a*b', valueExpression: \"'x'\"}]", "auditAnnotations[0].key"),
        (
            "  matchConditions: [{name: c, expression: 'variables.x'}]\n  variables: [{name: x, expression: '1'}]\n  validations: [{expression: 'true'}]",
            "matchConditions[\"c\"]: 1:1: undeclared reference to 'variables' (in container '')",
        ),
        ("  validations: [{expression: object.spec.flag}]", "must evaluate to bool but got dyn"),
        ("  validations: [{expression: '1'}]", "must evaluate to bool but got int"),
        (
            "  matchConditions: [{name: c, expression: object.x}]\n  validations: [{expression: 'true'}]",
            "matchConditions[\"c\"]: 1:1: must evaluate to bool but got dyn",
        ),
        (
            "  validations: [{expression: 'true', messageExpression: object.x}]",
            "messageExpression: 1:1: must evaluate to string but got dyn",
        ),
        (
            "  validations: [{expression: 'true', fieldPath: '1'}]",
            "fieldPath: 1:1: must evaluate to string but got int",
        ),
        (
            "  auditAnnotations: [{key: k, valueExpression: object.x}]",
            "must evaluate to one of [string null_type] but got dyn",
        ),
        (
            "  variables: [{name: x, expression: '1'}]\n  validations: [{expression: \"variables.x == 'a'\"}]",
            "1:13: found no matching overload for '_==_' applied to '(int, string)'",
        ),
        ("  validations: [{expression: request.nothing == 1}]", "1:8: undefined field 'nothing'"),
        (
            "  validations: [{forEach: {list: request.userInfo.groups, as: g}, expression: g}]",
            "must evaluate to bool but got string",
        ),
        (
            "  validations: [{forEach: {list: request.name, as: g}, expression: 'true'}]",
            "forEach.list: must evaluate to list but got string",
        ),
        ("  validations: [{expression: 'Object{} == Object{}'}]", "undeclared reference to 'Object'"),
    ];
    for (fields, expected) in rows {
        let set = ValidationSet::compile(validations(&[&validate_pods("p", fields)]), namespaces(), None);
        let found = &set.policies()[0].message;
        assert!(found.contains(expected), "{expected} in {found}");
    }
}

#[test]
fn a_policy_that_never_was_good_is_an_error_for_what_it_matches() {
    let broken = mutate_pods("p", "", "  - overlay: {metadata: {labels: {a: '${{ 1 + }}'}}}");
    let set = MutationSet::compile(mutations(&[&broken]), namespaces(), None);
    let object = pod(json!({}), json!({}));
    let outcome = mutate(&set, &object);
    assert!(message(&outcome).starts_with("policy p: the policy is not valid: mutations[0].overlay"));
    assert_eq!(outcome.answer.status.unwrap().code, 500);
    let mut request = pod_request(Operation::Create);
    request.resource.resource = "secrets".to_owned();
    assert!(set.review(&review(&request, b"{}"), FailurePolicy::Fail).answer.allowed);

    let ignored =
        mutate_pods("p", "  failurePolicy: Ignore", "  - overlay: {metadata: {labels: {a: '${{ 1 + }}'}}}");
    let set = MutationSet::compile(mutations(&[&ignored]), namespaces(), None);
    let request = pod_request(Operation::Create);
    let bytes = object.to_string();
    assert!(set.review(&review(&request, bytes.as_bytes()), FailurePolicy::Ignore).answer.allowed);
}

#[test]
fn a_policy_that_was_good_stays_in_its_last_good_form() {
    let good = mutate_pods("p", "", "  - overlay: {metadata: {labels: {a: good}}}");
    let bad =
        mutate_pods("p", "  failurePolicy: Ignore", "  - overlay: {metadata: {labels: {a: '${{ 1 + }}'}}}");
    let better = mutate_pods("p", "", "  - overlay: {metadata: {labels: {a: better}}}");
    let object = pod(json!({}), json!({}));
    let mut set = MutationSet::compile(mutations(&[&good]), namespaces(), None);
    for _ in 0..2 {
        set = MutationSet::compile(mutations(&[&bad]), namespaces(), Some(&set));
        let status = &set.policies()[0];
        assert_eq!((status.state, status.failure_policy), (PolicyState::Stale, FailurePolicy::Fail));
        assert!(status.message.starts_with("mutations[0].overlay"), "{}", status.message);
        assert_eq!(patch(&mutate(&set, &object))[0]["value"], "good");
    }
    set = MutationSet::compile(mutations(&[&better]), namespaces(), Some(&set));
    assert_eq!(set.policies()[0].state, PolicyState::Active);
    assert_eq!(patch(&mutate(&set, &object))[0]["value"], "better");
    set = MutationSet::compile(Vec::new(), namespaces(), Some(&set));
    assert!(mutate(&set, &object).answer.patch.is_empty());
}

#[test]
fn constraints_that_cannot_be_read_match_nothing_and_say_so() {
    let yaml = "apiVersion: sallyport.dev/v1alpha1\nkind: ValidationPolicy\nmetadata: {name: p}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods]}], objectSelector: {matchExpressions: [{key: a, operator: In}]}}\n  validations: [{expression: 'false'}]";
    let set = ValidationSet::compile(validations(&[yaml]), namespaces(), None);
    let status = &set.policies()[0];
    assert_eq!(status.state, PolicyState::Broken);
    assert!(
        status.message.contains("matchConstraints.objectSelector.matchExpressions[0].values"),
        "{}",
        status.message
    );
    assert!(status.message.contains("matches nothing"));
    let request = pod_request(Operation::Create);
    assert!(set.review(&review(&request, b"{}"), FailurePolicy::Fail).answer.allowed);
}

#[test]
fn of_two_policies_with_one_name_the_second_is_an_error() {
    let first = mutate_pods("p", "", "  - overlay: {metadata: {labels: {a: x}}}");
    let set = MutationSet::compile(mutations(&[&first, &first]), namespaces(), None);
    let states: Vec<PolicyState> = set.policies().iter().map(|policy| policy.state).collect();
    assert_eq!(states, [PolicyState::Active, PolicyState::Broken]);
}
