//! Named CEL expressions that both kinds of policy share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A CEL condition on the request: the policy is skipped where one is false.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MatchCondition {
    /// Named in messages.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// CEL giving a bool. Sees object, oldObject, request and namespaceObject, not variables.
    #[schemars(length(min = 1, max = 8192))]
    pub expression: String,
}

/// A CEL expression that others use as `variables.NAME`. It is evaluated when first used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// A CEL identifier.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// CEL of any type; sees the variables before it.
    #[schemars(length(min = 1, max = 8192))]
    pub expression: String,
}

/// Repeats something for each element of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForEach {
    /// CEL giving a list.
    #[schemars(length(min = 1, max = 8192))]
    pub list: String,
    /// The name that the element has in the expressions.
    #[serde(rename = "as")]
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}
