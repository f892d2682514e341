//! The API server's own policies and bindings: what they mean where that differs from ours, in the API server's
//! words. The numbers are those of the facts that were observed on a real one.

use std::sync::Arc;

use sallyport_policy::{
    FailurePolicy, MutationSet, Mutations, Objects, Operation, Outcome, PolicyState, ValidationSet,
    Validations,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::fixtures::{message, namespaces, patched, pod, pod_request, review};

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn policy(kind: &str, name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    let fields = spec.as_object_mut().unwrap();
    fields.entry("matchConstraints").or_insert_with(|| {
        json!({"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}]})
    });
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn binding(kind: &str, policy: &str, mut spec: Value) -> Value {
    spec.as_object_mut().unwrap().insert("policyName".to_owned(), json!(policy));
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
           "metadata": {"name": format!("{policy}-binding")}, "spec": spec})
}

/// One validating policy with one binding.
fn validations(spec: &Value, bound: Value) -> Validations {
    Validations {
        admission_policies: vec![read(policy("ValidatingAdmissionPolicy", "p", spec))],
        bindings: vec![read(binding("ValidatingAdmissionPolicyBinding", "p", bound))],
        ..Validations::default()
    }
}

/// One mutating policy with one binding.
fn mutations(spec: &Value) -> Mutations {
    let mut spec = spec.clone();
    spec.as_object_mut().unwrap().entry("reinvocationPolicy").or_insert(json!("Never"));
    Mutations {
        admission_policies: vec![read(policy("MutatingAdmissionPolicy", "p", &spec))],
        bindings: vec![read(binding("MutatingAdmissionPolicyBinding", "p", json!({})))],
        ..Mutations::default()
    }
}

fn objects() -> Arc<Objects> {
    Arc::new(Objects::new(namespaces(), []))
}

fn validate(validations: Validations, door: FailurePolicy) -> Outcome {
    let set = ValidationSet::build(validations, objects(), None);
    assert_eq!(set.policies()[0].message, "");
    let object = pod(json!({}), json!({})).to_string();
    set.review(&review(&pod_request(Operation::Create), object.as_bytes()), door)
}

fn mutate(mutations: Mutations, door: FailurePolicy) -> Outcome {
    let set = MutationSet::build(mutations, objects(), None);
    assert_eq!(set.policies()[0].message, "");
    let object = pod(json!({}), json!({})).to_string();
    set.review(&review(&pod_request(Operation::Create), object.as_bytes()), door)
}

fn deny(spec: &Value) -> Outcome {
    validate(validations(spec, json!({"validationActions": ["Deny"]})), FailurePolicy::Fail)
}

/// Facts 8, 14, 15 and the wording of refusals: status, reason and message of one cause.
#[test]
fn refusals_are_worded_as_by_the_api_server() {
    let prefix = "ValidatingAdmissionPolicy 'p' with binding 'p-binding' denied request: ";
    let erring = "object.spec.nothing == 1";
    let rows = [
        (json!({"validations": [{"expression": " false "}]}), 422, "Invalid", "failed expression: false"),
        (json!({"validations": [{"expression": "false", "message": " no "}]}), 422, "Invalid", "no"),
        (
            json!({"validations": [{"expression": "false", "messageExpression": "'a' + 'b'", "reason": "Forbidden"}]}),
            403,
            "Forbidden",
            "ab",
        ),
        (
            json!({"validations": [{"expression": "false", "messageExpression": "' \n'", "message": "m",
                                    "reason": "RequestEntityTooLarge"}]}),
            413,
            "RequestEntityTooLarge",
            "m",
        ),
        (
            json!({"validations": [{"expression": "false", "messageExpression": "'a\\nb'"}]}),
            422,
            "Invalid",
            "failed expression: false",
        ),
        (
            json!({"validations": [{"expression": erring, "reason": "Forbidden"}]}),
            422,
            "Invalid",
            "expression 'object.spec.nothing == 1' resulted in error: no such key: nothing",
        ),
        (
            json!({"validations": [{"expression": "true"}, {"expression": "false", "message": "second"},
                                   {"expression": "false", "message": "third"}]}),
            422,
            "Invalid",
            "second",
        ),
        (
            json!({"validations": [{"expression": "true"}], "matchConditions": [
                {"name": "a", "expression": erring}, {"name": "b", "expression": "object.x == 1"}]}),
            422,
            "Invalid",
            "[expression 'object.spec.nothing == 1' resulted in error: no such key: nothing, \
             expression 'object.x == 1' resulted in error: no such key: x]",
        ),
    ];
    for (spec, code, reason, expected) in rows {
        let outcome = deny(&spec);
        let status = outcome.answer.status.as_ref().unwrap_or_else(|| panic!("{spec}"));
        let message = format!("{prefix}{expected}");
        assert_eq!(
            (status.code, status.reason.as_str(), &status.message),
            (code, reason, &message),
            "{spec}"
        );
        let causes: Vec<_> = status.causes.iter().map(|cause| &cause.message).collect();
        assert_eq!(causes, [&message], "{spec}");
    }
    let skipped = json!({"validations": [{"expression": "false"}], "matchConditions": [
        {"name": "a", "expression": erring}, {"name": "b", "expression": "false"}]});
    assert!(deny(&skipped).answer.allowed, "fact 8: a false condition beats one that errs");
    let without_settings = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "params.data.limit == '1'"}]});
    let expected =
        format!("{prefix}expression 'params.data.limit == '1'' resulted in error: no such key: data");
    assert_eq!(message(&deny(&without_settings)), expected, "fact 12");
    let sparse = json!({"validations": [{"expression": "request.subResource == 'x'"}]});
    let expected = format!(
        "{prefix}expression 'request.subResource == 'x'' resulted in error: no such key: subResource"
    );
    assert_eq!(message(&deny(&sparse)), expected, "empty fields of the request are left out");
    let blind = json!({"validations": [{"expression": "namespaceObject.metadata.name != 'default'"}],
        "matchConditions": [{"name": "a", "expression": "namespaceObject == null"}]});
    assert!(!deny(&blind).answer.allowed, "conditions do not see the namespace, validations do");
}

/// Facts 10 and 11.
#[test]
fn actions_apply_to_failures_and_errors_alike() {
    let spec = json!({"validations": [
        {"expression": "object.x == 1"}, {"expression": "false", "message": "a < b"}]});
    let warned =
        validate(validations(&spec, json!({"validationActions": ["Warn", "Audit"]})), FailurePolicy::Fail);
    assert!(warned.answer.allowed);
    let told = |text: &str| {
        format!("Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-binding': {text}")
    };
    assert_eq!(
        warned.answer.warnings,
        [told("expression 'object.x == 1' resulted in error: no such key: x"), told("a < b")]
    );
    let expected = r#"[{"message":"expression 'object.x == 1' resulted in error: no such key: x","policy":"p","binding":"p-binding","expressionIndex":0,"validationActions":["Warn","Audit"]}]"#;
    assert_eq!(warned.answer.audit_annotations["validation_failure"], expected);

    let mut ignored = spec.clone();
    ignored["failurePolicy"] = json!("Ignore");
    let audited = validations(&ignored, json!({"validationActions": ["Audit"]}));
    let audited = validate(audited, FailurePolicy::Ignore);
    let expected = r#"[{"message":"a \u003c b","policy":"p","binding":"p-binding","expressionIndex":1,"validationActions":["Audit"]}]"#;
    assert_eq!(audited.answer.audit_annotations["validation_failure"], expected);

    let annotated = json!({"auditAnnotations": [
        {"key": "bad", "valueExpression": "string(object.x)"}, {"key": "good", "valueExpression": "'v'"}]});
    let bound = json!({"validationActions": ["Warn"]});
    let outcome = validate(validations(&annotated, bound), FailurePolicy::Fail);
    assert!(message(&outcome).contains("expression 'string(object.x)' resulted in error: no such key: x"));
    assert_eq!(outcome.answer.audit_annotations["p.good"], "v");
}

/// Audit annotations that spend the budget: one decision in place of all others, which obeys failure policy and
/// actions, where another error of an annotation refuses the request whatever the actions are.
#[test]
fn annotations_that_spend_the_budget_are_one_decision() {
    // 810,000 each.
    let dear = "string(object.spec.pad.contains(object.spec.pad))";
    let annotations = |count: usize| -> Value {
        let one = |index| json!({"key": format!("a{index}"), "valueExpression": dear});
        (0..count).map(one).collect()
    };
    let mut object = pod(json!({}), json!({}));
    object["spec"]["pad"] = json!("x".repeat(9_000));
    let object = object.to_string();
    let judged = |count: usize, action: &str, door: FailurePolicy| {
        let spec = json!({"validations": [{"expression": "false", "message": "no"}],
            "auditAnnotations": annotations(count), "failurePolicy": format!("{door:?}")});
        let set =
            ValidationSet::build(validations(&spec, json!({"validationActions": [action]})), objects(), None);
        assert_eq!(set.policies()[0].message, "");
        set.review(&review(&pod_request(Operation::Create), object.as_bytes()), door)
    };
    let spent =
        "validation failed due to running out of cost budget, no further validation rules will be run";
    let affordable = judged(12, "Deny", FailurePolicy::Fail);
    assert!(message(&affordable).ends_with("denied request: no"), "{affordable:?}");
    assert_eq!(affordable.answer.audit_annotations.len(), 12);

    let denied = judged(13, "Deny", FailurePolicy::Fail);
    assert!(message(&denied).contains(spent) && !message(&denied).ends_with("no"), "{denied:?}");
    assert_eq!(
        (denied.answer.status.as_ref().unwrap().code, denied.answer.audit_annotations.len()),
        (422, 0)
    );
    let warned = judged(13, "Warn", FailurePolicy::Fail);
    assert!(warned.answer.allowed && warned.answer.warnings.len() == 1, "{warned:?}");
    assert!(warned.answer.warnings[0].contains(spent), "{warned:?}");
    let ignored = judged(13, "Deny", FailurePolicy::Ignore);
    assert!(ignored.answer.allowed && ignored.answer.warnings.is_empty(), "{ignored:?}");
}

#[test]
fn a_binding_narrows_and_a_policy_without_one_is_not_in_force() {
    let spec = json!({"validations": [{"expression": "false"}]});
    let rows = [
        (json!({}), false),
        (json!({"namespaceSelector": {"matchLabels": {"sidecar-injector": "enabled"}}}), false),
        (json!({"namespaceSelector": {"matchLabels": {"sidecar-injector": "off"}}}), true),
        (json!({"objectSelector": {"matchLabels": {"a": "b"}}}), true),
        (
            json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                                   "resources": ["pods"]}]}),
            false,
        ),
        (
            json!({"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"],
                                   "resources": ["*"]}]}),
            true,
        ),
        (
            json!({"excludeResourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"],
                                          "resources": ["pods"]}]}),
            true,
        ),
    ];
    for (resources, allowed) in rows {
        let bound = json!({"validationActions": ["Deny"], "matchResources": resources});
        assert_eq!(
            validate(validations(&spec, bound), FailurePolicy::Fail).answer.allowed,
            allowed,
            "{resources}"
        );
    }
    let mut unbound = validations(&spec, json!({"validationActions": ["Deny"]}));
    unbound.bindings.clear();
    let outcome = validate(unbound, FailurePolicy::Fail);
    assert!(outcome.answer.allowed && outcome.results.is_empty());
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// Facts 4, 7, 26 and 27.
#[test]
fn a_failing_mutation_does_not_stop_the_others() {
    let spec = json!({"mutations": [
        patch("[JSONPatch{op: 'add', path: '/spec/none/x', value: 1}]"),
        patch("[JSONPatch{op: 'test', path: '/spec/x', value: 2}, JSONPatch{op: 'add', path: '/spec/y', value: 1}]"),
        patch("[JSONPatch{op: 'replace', path: '/metadata/labels/a', value: 'b'}]"),
        patch("[JSONPatch{op: 'remove', path: '/spec/none'}]"),
    ]});
    let refused = mutate(mutations(&spec), FailurePolicy::Fail);
    let status = refused.answer.status.unwrap();
    let told = |text: &str| format!("policy 'p' with binding 'p-binding' denied request: JSON Patch: {text}");
    let first = told("add operation does not apply: doc is missing path: \"/spec/none/x\": missing value");
    assert_eq!((status.code, status.reason.as_str(), &status.message), (403, "Invalid", &first));
    let causes: Vec<_> = status.causes.into_iter().map(|cause| cause.message).collect();
    let second =
        told("error in remove for path: '/spec/none': Unable to remove nonexistent key: none: missing value");
    assert_eq!(causes, [first, second]);

    let mut ignored = spec.clone();
    ignored["failurePolicy"] = json!("Ignore");
    let outcome = mutate(mutations(&ignored), FailurePolicy::Ignore);
    let object = patched(&pod(json!({}), json!({})), &outcome);
    // The empty map of annotations is gone: the API server drops it after a mutation.
    let mut expected = pod(json!({}), json!({"a": "b"}));
    expected["metadata"].as_object_mut().unwrap().remove("annotations");
    assert_eq!(object, expected);
}

/// The library finds elements in ways that RFC 6902 does not know: what is copied is weighed all the same.
#[test]
fn copies_are_bounded_however_their_paths_are_written() {
    let mut object = pod(json!({}), json!({}));
    object["spec"]["containers"][0]["image"] = json!("x".repeat(10_000));
    let object = object.to_string();
    for from in ["/spec/containers/0", "/spec/containers/-1", "/spec/containers/00", "text/spec/containers/0"]
    {
        let copies = format!(
            "lists.range(40).map(n, JSONPatch{{op: 'copy', from: '{from}', path: '{from}/x' + string(n)}})"
        );
        let set = MutationSet::build(mutations(&json!({"mutations": [patch(&copies)]})), objects(), None);
        assert_eq!(set.policies()[0].message, "");
        let request = pod_request(Operation::Create);
        let outcome = set.review(&review(&request, object.as_bytes()), FailurePolicy::Fail);
        assert!(message(&outcome).ends_with("makes more than 16777216 bytes"), "{from}: {outcome:?}");
    }
}

/// Fact 6, and an unknown kind, which is no error of a policy either.
#[test]
fn what_the_api_server_cannot_decode_is_refused_also_under_ignore() {
    let refused = |mutation: Value, kind: &str| {
        let spec = json!({"failurePolicy": "Ignore", "mutations": [
            patch("[JSONPatch{op: 'remove', path: '/spec/none'}]"), mutation,
            patch("[JSONPatch{op: 'remove', path: '/spec/other'}]")]});
        let set = MutationSet::build(mutations(&spec), objects(), None);
        let mut request = pod_request(Operation::Create);
        kind.clone_into(&mut request.kind.kind);
        let object = pod(json!({}), json!({})).to_string();
        let status =
            set.review(&review(&request, object.as_bytes()), FailurePolicy::Ignore).answer.status.unwrap();
        let causes: Vec<String> = status.causes.into_iter().map(|cause| cause.message).collect();
        (status.code, status.message, causes)
    };
    let text = "strict decoding error: unknown field \"spec.nodes\"".to_owned();
    let unknown = patch("[JSONPatch{op: 'add', path: '/spec/nodes', value: 'a'}]");
    assert_eq!(refused(unknown, "Pod"), (500, text.clone(), vec![text]));
    let configuration = json!({"patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'a': 'c'}}}"}});
    let text = "Resource kind /v1, Kind=Unheard not found. There can be a delay between when \
                CustomResourceDefinitions are created and when they are available.";
    assert_eq!(refused(configuration, "Unheard"), (503, text.to_owned(), Vec::new()));
}

/// Facts 2, 3 and 5.
#[test]
fn a_policy_is_reinvoked_after_its_own_change_but_not_one_that_was_skipped() {
    let count = "[JSONPatch{op: 'replace', path: '/metadata/labels/n', \
                 value: variables.next}]";
    let patch = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": count}});
    let variables = json!([{"name": "next", "expression":
        "object.metadata.?labels[?'n'].orValue('') + 'x'"}]);
    for (mutations_of_it, policy, expected) in
        [(1, "Never", "x"), (1, "IfNeeded", "xx"), (2, "Never", "xx"), (2, "IfNeeded", "xxxx")]
    {
        let spec = json!({"variables": variables, "mutations": vec![patch.clone(); mutations_of_it],
                          "reinvocationPolicy": policy});
        let outcome = mutate(mutations(&spec), FailurePolicy::Fail);
        let object = patched(&pod(json!({}), json!({})), &outcome);
        assert_eq!(object["metadata"]["labels"]["n"], expected, "{mutations_of_it} {policy}");
    }
    let skipped = json!({"variables": variables, "mutations": [patch], "reinvocationPolicy": "IfNeeded",
        "matchConditions": [{"name": "late", "expression": "has(object.metadata.labels.n)"}]});
    assert!(mutate(mutations(&skipped), FailurePolicy::Fail).answer.patch.is_empty());
}

/// Both families of one name are two policies; ours keep their words.
#[test]
fn policies_of_both_families_stand_side_by_side() {
    let ours = read(json!({"apiVersion": "sallyport.dev/v1alpha1", "kind": "ValidationPolicy",
        "metadata": {"name": "p"}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]},
            "validations": [{"expression": "false", "message": "ours"}]}}));
    let theirs = validations(
        &json!({"validations": [{"expression": "false", "message": "theirs"}]}),
        json!({"validationActions": ["Deny"]}),
    );
    let outcome = validate(Validations { policies: vec![ours], ..theirs }, FailurePolicy::Fail);
    let expected =
        "ours (policy p); ValidatingAdmissionPolicy 'p' with binding 'p-binding' denied request: theirs";
    assert_eq!(message(&outcome), expected);
    assert_eq!(outcome.results.len(), 2);
}

/// Facts 9 and 16, and what else the API server refuses at creation.
#[test]
fn what_the_api_server_refuses_is_refused_at_load() {
    let rule = |change: Value| {
        let mut rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
        rule.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!({"validations": [{"expression": "true"}], "matchConstraints": {"resourceRules": [rule]}})
    };
    let actions = json!({"validationActions": ["Deny"]});
    let rows = [
        (rule(json!({"operations": []})), actions.clone(), "operations"),
        (rule(json!({"operations": ["*", "CREATE"]})), actions.clone(), "operations"),
        (rule(json!({"apiGroups": ["*", ""]})), actions.clone(), "apiGroups"),
        (rule(json!({"resources": ["*/*", "pods"]})), actions.clone(), "resources"),
        (rule(json!({"resources": ["*", "pods"]})), actions.clone(), "resources"),
        (rule(json!({"resources": ["pods/*", "pods/exec"]})), actions.clone(), "resources"),
        (
            json!({"validations": [{"expression": "false", "reason": "Unauthorized"}]}),
            actions.clone(),
            "validations[0].reason",
        ),
        (
            json!({"validations": [{"expression": "false",
                                    "messageExpression": "authorizer.path('/').check('get').reason()"}]}),
            actions.clone(),
            "undeclared reference to 'authorizer'",
        ),
        (
            json!({"validations": [{"expression": "true"}]}),
            json!({"validationActions": ["Deny"], "matchResources": {"objectSelector": {"matchLabels": {"a b": "c"}}}}),
            "key of a label",
        ),
        (
            json!({"validations": [{"expression": "true"}]}),
            json!({"validationActions": ["Deny"], "matchResources": {"objectSelector": {"matchLabels": {"a": "b c"}}}}),
            "value of a label",
        ),
        (json!({"validations": []}), actions.clone(), "validations"),
        (json!({"validations": [{"expression": "true", "message": "a\nb"}]}), actions.clone(), "line breaks"),
        (json!({"validations": [{"expression": "variables.x"}]}), actions.clone(), "validations[0]"),
        (
            json!({"validations": [{"expression": "true"}], "variables": [{"name": "x", "expression": "1"}],
                   "matchConditions": [{"name": "c", "expression": "variables.x == 1"}]}),
            actions.clone(),
            "matchConditions",
        ),
        (
            json!({"validations": [{"expression": "true"}],
                   "matchConditions": [{"name": "not a name", "expression": "true"}]}),
            actions.clone(),
            "qualified name",
        ),
        (
            json!({"validations": [{"expression": "true"}], "variables": [{"name": "in", "expression": "1"}]}),
            actions.clone(),
            "variables[0].name",
        ),
        (json!({"validations": [{"expression": "params.x"}]}), actions.clone(), "params"),
        (
            json!({"validations": [{"expression": "true"}]}),
            json!({"validationActions": ["Deny", "Warn"]}),
            "binding p-binding: validationActions",
        ),
        (
            json!({"validations": [{"expression": "true"}]}),
            json!({"validationActions": []}),
            "validationActions",
        ),
        (
            json!({"validations": [{"expression": "true"}]}),
            json!({"validationActions": ["Deny"], "paramRef": {"name": "x"}}),
            "parameterNotFoundAction",
        ),
        (
            json!({"validations": [{"expression": "true"}]}),
            json!({"validationActions": ["Deny"], "paramRef": {"name": "x", "selector": {},
                                                               "parameterNotFoundAction": "Deny"}}),
            "name or a selector",
        ),
    ];
    for (spec, bound, expected) in rows {
        let set = ValidationSet::build(validations(&spec, bound), objects(), None);
        let status = &set.policies()[0];
        assert_eq!(status.state, PolicyState::Broken, "{spec}");
        assert!(status.message.contains(expected), "{spec}: {}", status.message);
    }
    // The API server looks at the last one alone.
    let last = rule(json!({"resources": ["pods", "*"]}));
    let set = ValidationSet::build(validations(&last, actions), objects(), None);
    assert_eq!(set.policies()[0].message, "");
    let patch = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/x'}]"}});
    for (operation, state) in [("DELETE", PolicyState::Broken), ("*", PolicyState::Active)] {
        let mut spec = rule(json!({"operations": [operation]}));
        spec.as_object_mut().unwrap().remove("validations");
        spec["mutations"] = json!([patch]);
        let set = MutationSet::build(mutations(&spec), objects(), None);
        assert_eq!(set.policies()[0].state, state, "{operation}");
    }
}

/// A policy that is broken is an error of the requests it matches.
#[test]
fn a_broken_policy_denies_under_fail() {
    let spec = json!({"validations": [{"expression": "nothing"}]});
    let set =
        ValidationSet::build(validations(&spec, json!({"validationActions": ["Audit"]})), objects(), None);
    let object = pod(json!({}), json!({})).to_string();
    let outcome =
        set.review(&review(&pod_request(Operation::Create), object.as_bytes()), FailurePolicy::Fail);
    assert!(
        message(&outcome)
            .starts_with("ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: ")
    );
    assert_eq!(outcome.answer.status.unwrap().code, 422);
}
