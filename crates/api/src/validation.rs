//! The kind that accepts or refuses objects.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::params::any_object;
use crate::{FailurePolicy, ForEach, MatchCondition, MatchConstraints, ParamKind, ParamRef, Variable};

/// What a ValidationPolicy demands, and of which requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "sallyport.dev",
    version = "v1alpha1",
    kind = "ValidationPolicy",
    plural = "validationpolicies",
    category = "sallyport",
    doc = "Accepts or refuses objects.",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ValidationPolicySpec {
    /// Kind of the objects with settings; they are params in the expressions. Needs paramRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param_kind: Option<ParamKind>,
    /// The objects with settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param_ref: Option<ParamRef>,
    /// Settings that stand here themselves, in place of paramKind and paramRef; params in the expressions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub params: Option<Map<String, Value>>,
    /// Which requests the policy is about.
    pub match_constraints: MatchConstraints,
    /// All must be true, or the policy is skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub match_conditions: Vec<MatchCondition>,
    /// Expressions for use in the others; evaluated once a request, when first used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub variables: Vec<Variable>,
    /// All must be true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub validations: Vec<Validation>,
    /// What follows from a failed validation: Deny (default), Warn, Audit. Deny and Warn exclude each other.
    #[serde(default = "deny", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    pub validation_actions: Vec<ValidationAction>,
    /// Written into the API server's audit log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub audit_annotations: Vec<AuditAnnotation>,
    /// Fail (default) or Ignore.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
}

impl Default for ValidationPolicySpec {
    fn default() -> Self {
        Self {
            param_kind: None,
            param_ref: None,
            params: None,
            match_constraints: MatchConstraints::default(),
            match_conditions: Vec::new(),
            variables: Vec::new(),
            validations: Vec::new(),
            validation_actions: deny(),
            audit_annotations: Vec::new(),
            failure_policy: FailurePolicy::default(),
        }
    }
}

fn deny() -> Vec<ValidationAction> {
    vec![ValidationAction::Deny]
}

/// What follows from a failed validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ValidationAction {
    /// The request is refused.
    Deny,
    /// The client is shown a warning.
    Warn,
    /// The failure is written into the audit log.
    Audit,
}

/// A demand on the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Validation {
    /// CEL giving a bool; false is a failure.
    #[schemars(length(min = 1, max = 8192))]
    pub expression: String,
    /// What the user is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// CEL giving what the user is told; where it fails, message is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub message_expression: Option<String>,
    /// Machine-readable reason: Forbidden (default), Invalid, Unauthorized or RequestEntityTooLarge.
    #[serde(default)]
    pub reason: Reason,
    /// HTTP status of the refusal, 400 to 599; by default that of the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 400, max = 599))]
    pub code: Option<u16>,
    /// Judges each element of a list; every element that fails is reported as a cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<ForEach>,
    /// CEL giving the path of the offending field, such as `spec.containers[0].env`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub field_path: Option<String>,
}

/// Machine-readable reason of a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Reason {
    /// 401.
    Unauthorized,
    /// 403.
    #[default]
    Forbidden,
    /// 422.
    Invalid,
    /// 413.
    RequestEntityTooLarge,
}

impl Reason {
    /// The reason as Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::Invalid => "Invalid",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
        }
    }

    /// The HTTP status that goes with the reason.
    pub fn code(self) -> u16 {
        match self {
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::Invalid => 422,
            Self::RequestEntityTooLarge => 413,
        }
    }
}

/// An annotation in the API server's audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditAnnotation {
    /// A qualified name; unique in the policy.
    #[schemars(length(min = 1, max = 63))]
    pub key: String,
    /// CEL giving a string, or null for none.
    #[schemars(length(min = 1, max = 8192))]
    pub value_expression: String,
}
