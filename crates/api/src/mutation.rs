//! The kind that changes objects.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::params::any_object;
use crate::{FailurePolicy, ForEach, MatchCondition, MatchConstraints, ParamKind, ParamRef, Variable};

/// What a MutationPolicy changes, and where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "sallyport.dev",
    version = "v1alpha1",
    kind = "MutationPolicy",
    plural = "mutationpolicies",
    category = "sallyport",
    doc = "Changes objects as they are created or updated.",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MutationPolicySpec {
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
    /// Expressions for use in mutations; evaluated anew for each mutation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub variables: Vec<Variable>,
    /// Carried out in order, each on the result of the one before.
    #[schemars(length(min = 1, max = 64))]
    pub mutations: Vec<Mutation>,
    /// Fail (default) or Ignore.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// Never (default), or IfNeeded: once more if a later policy changed the object.
    #[serde(default)]
    pub reinvocation_policy: ReinvocationPolicy,
}

/// Whether a policy runs again after others changed the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReinvocationPolicy {
    /// Once only.
    #[default]
    Never,
    /// Once more if the object changed after it ran.
    IfNeeded,
}

/// One change. Exactly one of jsonPatch, overlay and applyConfiguration is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mutation {
    /// JSONPatch, Overlay or ApplyConfiguration; may be left out, as the member that is set tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch_type: Option<PatchType>,
    /// A list of JSONPatch operations made by CEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_patch: Option<JsonPatch>,
    /// A partial object that is merged into the object by Kubernetes' rules: list entries by their key, such as
    /// containers by name. `${{ CEL }}` in strings is evaluated; a value that is one expression keeps its type.
    /// Null removes a field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub overlay: Option<Map<String, Value>>,
    /// CEL giving a partial object, merged as Kubernetes' server-side apply does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_configuration: Option<ApplyConfiguration>,
    /// Carries the mutation out for each element of a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<ForEach>,
}

/// How a mutation is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PatchType {
    /// CEL giving JSONPatch operations.
    JSONPatch,
    /// A partial object in YAML.
    Overlay,
    /// CEL giving a partial object.
    ApplyConfiguration,
}

/// A patch made by CEL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JsonPatch {
    /// CEL giving a list of `JSONPatch{op: …, path: …, value: …}`.
    #[schemars(length(min = 1, max = 8192))]
    pub expression: String,
}

/// A partial object made by CEL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyConfiguration {
    /// CEL giving an `Object{…}`.
    #[schemars(length(min = 1, max = 8192))]
    pub expression: String,
}
