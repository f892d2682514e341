//! Which requests a policy is about.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens when a policy cannot be evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum FailurePolicy {
    /// The request is refused.
    #[default]
    Fail,
    /// The policy is passed over.
    Ignore,
}

/// Whether a rule also matches other versions of the resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum MatchPolicy {
    /// Only the resource as the rule names it.
    Exact,
    /// The same resource through another API version too.
    #[default]
    Equivalent,
}

/// An operation of the API server, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OperationType {
    /// A new object.
    #[serde(rename = "CREATE")]
    Create,
    /// A change of an object.
    #[serde(rename = "UPDATE")]
    Update,
    /// The end of an object.
    #[serde(rename = "DELETE")]
    Delete,
    /// A connection such as exec, attach or port-forward.
    #[serde(rename = "CONNECT")]
    Connect,
    /// All operations.
    #[serde(rename = "*")]
    All,
}

/// Which objects a rule covers by their scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ResourceScope {
    /// Objects without a namespace; Namespaces themselves are such.
    Cluster,
    /// Objects in a namespace.
    Namespaced,
    /// All objects.
    #[default]
    #[serde(rename = "*")]
    All,
}

/// Which requests a policy is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MatchConstraints {
    /// The policy concerns a request that any of these rules matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub resource_rules: Vec<ResourceRule>,
    /// Requests that any of these rules matches are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub exclude_resource_rules: Vec<ResourceRule>,
    /// Labels of the object's Namespace; a Namespace is judged by its own labels, other cluster-scoped objects
    /// always match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Labels of the object; the new or the old one must match. Users can edit labels: do not use it where it
    /// matters for security.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_selector: Option<LabelSelector>,
    /// Exact or Equivalent (default).
    #[serde(default)]
    pub match_policy: MatchPolicy,
}

/// Resources and operations. `*` stands for all groups, versions or resources, `*/*` for all resources and
/// subresources, `pods/*` for all subresources of pods, `*/scale` for all scale subresources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceRule {
    /// API groups; "" is the core group.
    #[schemars(length(min = 1, max = 64))]
    pub api_groups: Vec<String>,
    /// API versions.
    #[schemars(length(min = 1, max = 64))]
    pub api_versions: Vec<String>,
    /// Operations. Default: CREATE for mutations, CREATE and UPDATE for validations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub operations: Vec<OperationType>,
    /// Plural resource names, with the subresource after a slash.
    #[schemars(length(min = 1, max = 64))]
    pub resources: Vec<String>,
    /// Object names; none means all. A generated name is not known at creation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub resource_names: Vec<String>,
    /// Cluster, Namespaced or * (default).
    #[serde(default)]
    pub scope: ResourceScope,
}

/// A selector over labels; all its requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels with exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelectorRequirement {
    /// The label's key.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How the label relates to the values.
    pub operator: LabelSelectorOperator,
    /// Values for In and NotIn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub values: Vec<String>,
}

/// How a label relates to the values of its requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum LabelSelectorOperator {
    /// The label is there and has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
}
