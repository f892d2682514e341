//! What users write and misspell, and what the custom resource definitions say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use kube::CustomResourceExt;
use sallyport_api::{
    FailurePolicy, MatchPolicy, MutationPolicy, PatchType, Reason, ResourceScope, ValidationAction,
    ValidationPolicy,
};

const MUTATION: &str = r#"
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata: {name: m}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods]}
    objectSelector: {matchLabels: {a: b}}
  mutations:
  - overlay: {metadata: {labels: {a: "1", b: null}}}
    forEach: {list: object.spec.containers, as: c}
  - patchType: JSONPatch
    jsonPatch: {expression: "[]"}
"#;

const VALIDATION: &str = r#"
apiVersion: sallyport.dev/v1alpha1
kind: ValidationPolicy
metadata: {name: v}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, "*"], resources: [pods]}
  validations:
  - {expression: "true", messageExpression: "'x'", reason: Invalid, code: 402}
  auditAnnotations: [{key: k, valueExpression: "'v'"}]
"#;

#[test]
fn policies_read_as_written_with_kubernetes_defaults() {
    let policy: MutationPolicy = serde_saphyr::from_str(MUTATION).unwrap();
    assert_eq!(policy.spec.failure_policy, FailurePolicy::Fail);
    assert_eq!(policy.spec.match_constraints.match_policy, MatchPolicy::Equivalent);
    assert_eq!(policy.spec.match_constraints.resource_rules[0].scope, ResourceScope::All);
    assert_eq!(policy.spec.mutations[0].patch_type, None);
    assert_eq!(policy.spec.mutations[1].patch_type, Some(PatchType::JSONPatch));
    assert!(policy.spec.mutations[0].overlay.as_ref().unwrap()["metadata"]["labels"]["b"].is_null());
    let policy: ValidationPolicy = serde_saphyr::from_str(VALIDATION).unwrap();
    assert_eq!(policy.spec.validation_actions, [ValidationAction::Deny]);
    assert_eq!(policy.spec.validations[0].reason, Reason::Invalid);
    let again: ValidationPolicy = serde_json::from_str(&serde_json::to_string(&policy).unwrap()).unwrap();
    assert_eq!(again, policy);
}

#[test]
fn a_misspelt_field_is_an_error_that_names_it() {
    for (right, wrong) in [
        ("matchConstraints:", "matchConstraint:"),
        ("resourceRules:", "resourceRule:"),
        ("apiGroups:", "apiGroup:"),
        ("objectSelector:", "objectselector:"),
        ("matchLabels:", "matchlabels:"),
        ("overlay:", "overlays:"),
        ("forEach:", "foreach:"),
        ("as: c", "var: c"),
        ("jsonPatch:", "jsonpatch:"),
    ] {
        let error = serde_saphyr::from_str::<MutationPolicy>(&MUTATION.replace(right, wrong)).unwrap_err();
        let field = wrong.split(':').next().unwrap();
        assert!(error.to_string().contains(field), "{wrong}: {error}");
    }
    for (right, wrong) in [
        ("messageExpression:", "messageExpr:"),
        ("valueExpression:", "value:"),
        ("reason: Invalid", "reason: Wrong"),
        ("CREATE", "CREATED"),
    ] {
        let text = VALIDATION.replace(right, wrong);
        assert!(serde_saphyr::from_str::<ValidationPolicy>(&text).is_err(), "{wrong}");
    }
}

#[test]
fn the_definitions_are_structural_and_cluster_scoped() {
    for (definition, plural) in
        [(MutationPolicy::crd(), "mutationpolicies"), (ValidationPolicy::crd(), "validationpolicies")]
    {
        assert_eq!(definition.spec.scope, "Cluster");
        assert_eq!(definition.metadata.name.as_deref(), Some(format!("{plural}.sallyport.dev").as_str()));
        let text = serde_json::to_string(&definition).unwrap();
        assert!(!text.contains("\"additionalProperties\":false"), "{plural}");
        assert!(text.contains("\"maxItems\":64") && text.contains("\"maxLength\":8192"), "{plural}");
    }
    let text = serde_json::to_string(&MutationPolicy::crd()).unwrap();
    assert!(text.contains("\"x-kubernetes-preserve-unknown-fields\":true"));
}

#[test]
fn settings_are_written_out_or_referred_to() {
    let fields = "  params: {most: 5}\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n  \
                  paramRef: {name: c, parameterNotFoundAction: Allow}\n";
    for text in [MUTATION, VALIDATION] {
        let with = text.replace("spec:\n", &format!("spec:\n{fields}"));
        let spec = |text: &str| -> Result<serde_json::Value, String> {
            if text.contains("MutationPolicy") {
                let policy: MutationPolicy =
                    serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
                Ok(serde_json::to_value(policy.spec).unwrap())
            } else {
                let policy: ValidationPolicy =
                    serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
                Ok(serde_json::to_value(policy.spec).unwrap())
            }
        };
        let read = spec(&with).unwrap();
        assert_eq!(read["params"]["most"], 5);
        assert_eq!(read["paramKind"]["apiVersion"], "v1");
        assert_eq!(read["paramRef"]["parameterNotFoundAction"], "Allow");
        let misspelt = with.replace("parameterNotFoundAction", "notFoundAction");
        assert!(spec(&misspelt).unwrap_err().contains("notFoundAction"));
        assert!(spec(&with.replace("Allow", "Ignore")).is_err());
    }
}
