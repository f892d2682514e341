//! The policy kinds of `sallyport.dev/v1alpha1`, as they are written by users and stored by the API server, and
//! Kubernetes' own policy kinds, as they stand in files.
//!
//! What and why: the types hold what a manifest says and nothing else; meaning is given to them by the policy
//! engine. Field names and defaults are those of Kubernetes' own admission policies, so that what a user knows
//! carries over. Doc comments become the descriptions of the custom resource definitions.
//!
//! Invariant: an unknown field is an error that names the field, at every depth. A misspelt `matchConstraints`
//! must never turn into a policy that matches everything.

// Doc comments become plain text in the custom resource definitions, where backticks only get in the way.
#![allow(clippy::doc_markdown)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod admission_policy;
mod constraints;
mod expression;
mod mutation;
mod params;
mod validation;

pub use admission_policy::{
    ADMISSION_GROUP, AdmissionMutation, AdmissionObject, AdmissionPatchType, AdmissionValidation,
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingAdmissionPolicyBindingSpec,
    MutatingAdmissionPolicySpec, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
};
pub use constraints::{
    FailurePolicy, LabelSelector, LabelSelectorOperator, LabelSelectorRequirement, MatchConstraints,
    MatchPolicy, OperationType, ResourceRule, ResourceScope,
};
pub use expression::{ForEach, MatchCondition, Variable};
pub use mutation::{
    ApplyConfiguration, JsonPatch, Mutation, MutationPolicy, MutationPolicySpec, PatchType,
    ReinvocationPolicy,
};
pub use params::{ParamKind, ParamRef, ParameterNotFoundAction};
pub use validation::{
    AuditAnnotation, Reason, Validation, ValidationAction, ValidationPolicy, ValidationPolicySpec,
};

/// API group of the policy kinds.
pub const GROUP: &str = "sallyport.dev";
/// The only version so far.
pub const VERSION: &str = "v1alpha1";
/// Longest list in a policy (rules, conditions, variables, validations, mutations).
pub const MAX_ITEMS: usize = 64;
/// Longest CEL expression, in bytes.
pub const MAX_EXPRESSION_LENGTH: usize = 8 * 1024;
