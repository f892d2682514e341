//! Kubernetes' own policy kinds of `admissionregistration.k8s.io`, as they stand in files.
//!
//! The shapes of `v1`, `v1beta1` and `v1alpha1` are the same. What the API server would refuse because of its
//! shape is refused here; what it would refuse because of its meaning is refused by the policy engine.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ApplyConfiguration, AuditAnnotation, FailurePolicy, JsonPatch, MatchCondition, MatchConstraints,
    ParamKind, ParamRef, Reason, ReinvocationPolicy, ValidationAction, Variable,
};

/// API group of Kubernetes' own policy kinds.
pub const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";

/// An object of one of Kubernetes' policy kinds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdmissionObject<S> {
    /// Group and version.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// Name, labels and so on.
    pub metadata: ObjectMeta,
    /// What it says.
    pub spec: S,
    /// What the API server found; of no meaning here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
}

/// Accepts or refuses objects.
pub type ValidatingAdmissionPolicy = AdmissionObject<ValidatingAdmissionPolicySpec>;
/// Puts a ValidatingAdmissionPolicy in force.
pub type ValidatingAdmissionPolicyBinding = AdmissionObject<ValidatingAdmissionPolicyBindingSpec>;
/// Changes objects.
pub type MutatingAdmissionPolicy = AdmissionObject<MutatingAdmissionPolicySpec>;
/// Puts a MutatingAdmissionPolicy in force.
pub type MutatingAdmissionPolicyBinding = AdmissionObject<MutatingAdmissionPolicyBindingSpec>;

/// What a ValidatingAdmissionPolicy demands, and of which requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ValidatingAdmissionPolicySpec {
    /// Kind of the objects with settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param_kind: Option<ParamKind>,
    /// Which requests the policy is about.
    pub match_constraints: MatchConstraints,
    /// All must be true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validations: Vec<AdmissionValidation>,
    /// Fail (default) or Ignore.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// Written into the API server's audit log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audit_annotations: Vec<AuditAnnotation>,
    /// All must be true, or the policy is skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_conditions: Vec<MatchCondition>,
    /// Expressions for use in the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<Variable>,
}

/// A demand on the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdmissionValidation {
    /// CEL giving a bool; false is a failure.
    pub expression: String,
    /// What the user is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Machine-readable reason; Invalid by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// CEL giving what the user is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_expression: Option<String>,
}

/// How and where a ValidatingAdmissionPolicy is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ValidatingAdmissionPolicyBindingSpec {
    /// Name of the policy.
    pub policy_name: String,
    /// The objects with settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param_ref: Option<ParamRef>,
    /// Narrows the policy's matchConstraints; here the rules may be empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_resources: Option<MatchConstraints>,
    /// What follows from a failed validation.
    pub validation_actions: Vec<ValidationAction>,
}

/// What a MutatingAdmissionPolicy changes, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MutatingAdmissionPolicySpec {
    /// Kind of the objects with settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param_kind: Option<ParamKind>,
    /// Which requests the policy is about.
    pub match_constraints: MatchConstraints,
    /// Expressions for use in the others; evaluated anew for each mutation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<Variable>,
    /// Carried out in order, each on the result of the one before.
    pub mutations: Vec<AdmissionMutation>,
    /// Fail (default) or Ignore.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// All must be true, or the policy is skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_conditions: Vec<MatchCondition>,
    /// Never or IfNeeded.
    pub reinvocation_policy: ReinvocationPolicy,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdmissionMutation {
    /// JSONPatch or ApplyConfiguration.
    pub patch_type: AdmissionPatchType,
    /// For ApplyConfiguration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_configuration: Option<ApplyConfiguration>,
    /// For JSONPatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_patch: Option<JsonPatch>,
}

/// How a change is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdmissionPatchType {
    /// CEL giving a partial object.
    ApplyConfiguration,
    /// CEL giving JSONPatch operations.
    JSONPatch,
}

/// How and where a MutatingAdmissionPolicy is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MutatingAdmissionPolicyBindingSpec {
    /// Name of the policy.
    pub policy_name: String,
    /// The objects with settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param_ref: Option<ParamRef>,
    /// Narrows the policy's matchConstraints; here the rules may be empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_resources: Option<MatchConstraints>,
}
