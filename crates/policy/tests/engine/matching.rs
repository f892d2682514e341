//! Which requests a policy is about.

use sallyport_policy::{FailurePolicy, Operation, Request, ValidationSet};
use serde_json::{Value, json};

use crate::fixtures::{message, namespaces, pod_request, resource, review, validations};

/// A set with one policy that refuses what it matches.
fn refuse(constraints: &str) -> ValidationSet {
    let yaml = format!(
        "apiVersion: sallyport.dev/v1alpha1\nkind: ValidationPolicy\nmetadata: {{name: p}}\nspec:\n  matchConstraints: {constraints}\n  validations: [{{expression: 'false', message: matched}}]"
    );
    ValidationSet::compile(validations(&[&yaml]), namespaces(), None)
}

fn matches(set: &ValidationSet, request: &Request, object: &Value) -> bool {
    let bytes = object.to_string();
    !set.review(&review(request, bytes.as_bytes()), FailurePolicy::Fail).results.is_empty()
}

#[test]
fn rules_match_as_those_of_kubernetes() {
    let rule = |fields: &str| refuse(&format!("{{resourceRules: [{{{fields}}}]}}"));
    let core = "apiGroups: [''], apiVersions: [v1]";
    // rule, resource, subresource, operation, matches
    let rows = [
        (format!("{core}, resources: [pods]"), "pods", "", Operation::Create, true),
        (format!("{core}, resources: [pods]"), "pods", "", Operation::Update, true),
        (format!("{core}, resources: [pods]"), "pods", "", Operation::Delete, false),
        (format!("{core}, resources: [pods]"), "pods", "", Operation::Unknown, false),
        (format!("{core}, resources: [pods]"), "pods", "exec", Operation::Create, false),
        (
            format!("{core}, resources: [pods/exec], operations: [CONNECT]"),
            "pods",
            "exec",
            Operation::Connect,
            true,
        ),
        (
            format!("{core}, resources: [pods/exec], operations: [CONNECT]"),
            "pods",
            "",
            Operation::Connect,
            false,
        ),
        (format!("{core}, resources: ['pods/*']"), "pods", "status", Operation::Update, true),
        (format!("{core}, resources: ['*']"), "secrets", "", Operation::Create, true),
        (format!("{core}, resources: ['*']"), "pods", "status", Operation::Update, false),
        (format!("{core}, resources: ['*/*']"), "pods", "status", Operation::Update, true),
        (format!("{core}, resources: ['*/scale']"), "pods", "scale", Operation::Update, true),
        (format!("{core}, resources: ['*/scale']"), "pods", "", Operation::Update, false),
        (
            "apiGroups: ['*'], apiVersions: ['*'], resources: ['*'], operations: ['*']".to_owned(),
            "pods",
            "",
            Operation::Unknown,
            true,
        ),
        (
            "apiGroups: [apps], apiVersions: [v1], resources: [pods]".to_owned(),
            "pods",
            "",
            Operation::Create,
            false,
        ),
        (
            "apiGroups: [''], apiVersions: [v2], resources: [pods]".to_owned(),
            "pods",
            "",
            Operation::Create,
            false,
        ),
        (format!("{core}, resources: [pods], resourceNames: [other]"), "pods", "", Operation::Create, false),
        (format!("{core}, resources: [pods], resourceNames: [one]"), "pods", "", Operation::Create, true),
        (format!("{core}, resources: [pods], scope: Namespaced"), "pods", "", Operation::Create, true),
        (format!("{core}, resources: [pods], scope: Cluster"), "pods", "", Operation::Create, false),
        (
            format!("{core}, resources: [namespaces], scope: Cluster"),
            "namespaces",
            "",
            Operation::Create,
            true,
        ),
    ];
    for (fields, name, sub_resource, operation, expected) in rows {
        let mut request = pod_request(operation);
        request.resource = resource("", "v1", name);
        request.sub_resource = sub_resource.to_owned();
        request.name = "one".to_owned();
        let found = matches(&rule(&fields), &request, &json!({}));
        assert_eq!(found, expected, "{fields} for {name}/{sub_resource} {operation:?}");
    }
}

#[test]
fn excluded_rules_win() {
    let set = refuse(
        "{resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}], excludeResourceRules: [{apiGroups: [''], apiVersions: ['*'], resources: [secrets]}]}",
    );
    let mut request = pod_request(Operation::Create);
    assert!(matches(&set, &request, &json!({})));
    request.resource.resource = "secrets".to_owned();
    assert!(!matches(&set, &request, &json!({})));
}

#[test]
fn object_selectors_match_the_new_or_the_old_object() {
    let rules = "resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: ['*']}]";
    let selectors = [
        ("{matchLabels: {a: x}}", json!({"a": "x"}), json!({"a": "y"})),
        ("{matchLabels: {a: ''}}", json!({"a": ""}), json!({})),
        ("{matchExpressions: [{key: a, operator: In, values: [x, y]}]}", json!({"a": "y"}), json!({})),
        ("{matchExpressions: [{key: a, operator: NotIn, values: [x]}]}", json!({}), json!({"a": "x"})),
        ("{matchExpressions: [{key: a, operator: Exists}]}", json!({"a": ""}), json!({})),
        ("{matchExpressions: [{key: a, operator: DoesNotExist}]}", json!({}), json!({"a": "x"})),
    ];
    for (selector, yes, no) in selectors {
        let set = refuse(&format!("{{{rules}, objectSelector: {selector}}}"));
        let labelled = |labels: &Value| json!({"metadata": {"labels": labels}});
        let (yes, no) = (labelled(&yes), labelled(&no));
        let request = pod_request(Operation::Update);
        for (object, old, expected) in [(&yes, &no, true), (&no, &yes, true), (&no, &no, false)] {
            let (object, old) = (object.to_string(), old.to_string());
            let mut review = review(&request, object.as_bytes());
            review.old_object = old.as_bytes();
            let found = !set.review(&review, FailurePolicy::Fail).results.is_empty();
            assert_eq!(found, expected, "{selector} {object} {old}");
        }
    }
}

/// Kubernetes: an object that cannot have labels is not considered to match.
#[test]
fn object_selectors_do_not_match_what_cannot_have_labels() {
    let rules = "resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods/exec], operations: [CONNECT]}]";
    let mut request = pod_request(Operation::Connect);
    "exec".clone_into(&mut request.sub_resource);
    let options = json!({"kind": "PodExecOptions", "apiVersion": "v1", "command": ["sh"]});
    for (selector, expected) in
        [("{}", true), ("{matchExpressions: [{key: a, operator: DoesNotExist}]}", false)]
    {
        let set = refuse(&format!("{{{rules}, objectSelector: {selector}}}"));
        assert_eq!(matches(&set, &request, &options), expected, "{selector}");
    }
}

/// C-93.
#[test]
fn namespace_selectors_look_at_the_namespace_of_the_request_c93() {
    let set = |selector: &str| {
        refuse(&format!(
            "{{resourceRules: [{{apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}}], namespaceSelector: {selector}}}"
        ))
    };
    let enabled = set("{matchLabels: {sidecar-injector: enabled}}");
    let mut request = pod_request(Operation::Create);
    // Made from a template: the object itself names no namespace.
    assert!(matches(&enabled, &request, &json!({"metadata": {}})));
    request.namespace = "plain".to_owned();
    assert!(!matches(&enabled, &request, &json!({"metadata": {"namespace": "default"}})));
    // Cluster-scoped objects match; Namespaces are judged by their own labels.
    request.namespace = String::new();
    request.resource.resource = "nodes".to_owned();
    assert!(matches(&enabled, &request, &json!({})));
    request.resource.resource = "namespaces".to_owned();
    request.namespace = "new".to_owned();
    assert!(matches(&enabled, &request, &json!({"metadata": {"labels": {"sidecar-injector": "enabled"}}})));
    assert!(!matches(&enabled, &request, &json!({"metadata": {}})));
}

#[test]
fn an_unknown_namespace_is_an_error_unless_its_name_decides() {
    let set = |selector: &str| {
        refuse(&format!(
            "{{resourceRules: [{{apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}}], namespaceSelector: {selector}}}"
        ))
    };
    let mut request = pod_request(Operation::Create);
    request.namespace = "elsewhere".to_owned();
    let by_name =
        "matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]";
    let outcome = set(&format!("{{{by_name}}}")).review(&review(&request, b"{}"), FailurePolicy::Fail);
    assert_eq!(message(&outcome), "matched (policy p)");
    let both = set(&format!("{{{by_name}, matchLabels: {{a: b}}}}"));
    let outcome = both.review(&review(&request, b"{}"), FailurePolicy::Fail);
    assert_eq!(message(&outcome), "policy p: namespace elsewhere is not known to this source");
    assert_eq!(outcome.answer.status.unwrap().code, 500);
    request.namespace = "kube-system".to_owned();
    assert!(!matches(&both, &request, &json!({})));
    // Known namespaces have the label of their name.
    request.namespace = "plain".to_owned();
    assert!(matches(&set("{matchLabels: {kubernetes.io/metadata.name: plain}}"), &request, &json!({})));
}

/// Kubernetes: that the namespace is not known counts only where everything else matches.
#[test]
fn an_object_selector_that_does_not_match_beats_an_unknown_namespace() {
    let set = refuse(
        "{resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}], namespaceSelector: {matchLabels: {a: b}}, objectSelector: {matchLabels: {a: x}}}",
    );
    let mut request = pod_request(Operation::Create);
    let labelled = json!({"metadata": {"labels": {"a": "x"}}});
    let other = json!({"metadata": {"labels": {"a": "y"}}});
    // Known, and it does not match.
    assert!(!matches(&set, &request, &labelled));
    request.namespace = "elsewhere".to_owned();
    assert!(!matches(&set, &request, &other));
    let outcome = set.review(&review(&request, labelled.to_string().as_bytes()), FailurePolicy::Fail);
    assert_eq!(message(&outcome), "policy p: namespace elsewhere is not known to this source");
    // An object that cannot be read is an error as well, unless the namespace does not match.
    for (namespace, matched) in [("elsewhere", true), ("plain", false)] {
        request.namespace = namespace.to_owned();
        let outcome = set.review(&review(&request, b"[]"), FailurePolicy::Fail);
        assert_eq!(!outcome.results.is_empty(), matched, "{namespace}");
    }
}

/// Kubernetes: what is sent to a subresource of a Namespace changes no label.
#[test]
fn subresources_of_namespaces_are_judged_by_the_labels_that_are_stored() {
    let set = refuse(
        "{resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}], namespaceSelector: {matchLabels: {sidecar-injector: enabled}}}",
    );
    let enabled = json!({"metadata": {"labels": {"sidecar-injector": "enabled"}}}).to_string();
    let plain = json!({"metadata": {"name": "plain"}}).to_string();
    let rows = [
        // Subresource, name, object, old object, whether it matches.
        ("", "new", &enabled, &plain, true),
        ("", "new", &plain, &enabled, false),
        ("finalize", "new", &enabled, &plain, false),
        ("finalize", "new", &plain, &enabled, true),
        ("status", "new", &plain, &enabled, true),
        // Without an old object, as the source knows it.
        ("status", "default", &plain, &String::new(), true),
        ("status", "plain", &enabled, &String::new(), false),
    ];
    for (sub_resource, name, object, old, expected) in rows {
        let mut request = pod_request(Operation::Update);
        request.resource.resource = "namespaces".to_owned();
        request.kind.kind = "Namespace".to_owned();
        request.sub_resource = sub_resource.to_owned();
        request.name = name.to_owned();
        request.namespace = name.to_owned();
        let mut review = review(&request, object.as_bytes());
        review.old_object = old.as_bytes();
        let found = !set.review(&review, FailurePolicy::Fail).results.is_empty();
        assert_eq!(found, expected, "{sub_resource} {name} {object} {old}");
    }
}
