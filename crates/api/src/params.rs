//! Objects that a policy takes its settings from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::LabelSelector;

/// The kind of the objects that hold a policy's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParamKind {
    /// API group and version, such as v1 or example.dev/v1.
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// The kind, such as ConfigMap.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
}

/// Which objects of the paramKind hold a policy's settings: the one with a name, or all with certain labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParamRef {
    /// Name of the object. Excludes selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// Namespace of the objects; by default that of the request. Not for kinds without a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Labels of the objects; the policy is evaluated once for each. An empty one selects all. Excludes name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// Deny (default): the request is refused when there is no such object. Allow: the policy is passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter_not_found_action: Option<ParameterNotFoundAction>,
}

/// What follows when no object holds a policy's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ParameterNotFoundAction {
    /// The policy is passed over.
    Allow,
    /// An error of the policy, which its failurePolicy decides on.
    Deny,
}

/// The schema of a field that takes any object.
pub(crate) fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}
