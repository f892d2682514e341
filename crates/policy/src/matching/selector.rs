//! Selectors over labels.

use sallyport_api::{LabelSelector, LabelSelectorOperator};
use sallyport_document::{Node, Object};

use crate::error::DefinitionError;
use crate::matching::qualified_name;
use crate::review::namespaces::NAME_LABEL;

/// A selector that was found to be well formed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Requirement {
    key: String,
    operator: LabelSelectorOperator,
    values: Vec<String>,
}

impl Selector {
    /// Checks a selector; `field` is where it stands. None at all matches everything, as an empty one does.
    pub(crate) fn compile(field: &str, selector: Option<&LabelSelector>) -> Result<Self, DefinitionError> {
        let Some(selector) = selector else { return Ok(Self::default()) };
        let mut requirements: Vec<Requirement> = selector
            .match_labels
            .iter()
            .map(|(key, value)| Requirement {
                key: key.clone(),
                operator: LabelSelectorOperator::In,
                values: vec![value.clone()],
            })
            .collect();
        for (index, expression) in selector.match_expressions.iter().enumerate() {
            let takes_values =
                matches!(expression.operator, LabelSelectorOperator::In | LabelSelectorOperator::NotIn);
            if takes_values == expression.values.is_empty() {
                let must = if takes_values { "must not be empty" } else { "must be empty" };
                let operator = expression.operator;
                return Err(DefinitionError::field(
                    format!("{field}.matchExpressions[{index}].values"),
                    format!("{must} for the operator {operator:?}"),
                ));
            }
            requirements.push(Requirement {
                key: expression.key.clone(),
                operator: expression.operator,
                values: expression.values.clone(),
            });
        }
        for Requirement { key, values, .. } in &requirements {
            let is_wrong = |value: &&String| !qualified_name::is_label_value(value);
            let wrong = if qualified_name::is_qualified_name(key) {
                values.iter().find(is_wrong).map(|value| ("value", value))
            } else {
                Some(("key", key))
            };
            if let Some((what, text)) = wrong {
                return Err(DefinitionError::field(
                    field,
                    format!("{text:?} cannot be the {what} of a label"),
                ));
            }
        }
        Ok(Self { requirements })
    }

    /// Returns whether it matches everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns whether the labels in the metadata of `object` match.
    pub(crate) fn matches_object(&self, object: Node<'_>) -> bool {
        self.matches(object.at(&["metadata", "labels"]).and_then(Node::as_object))
    }

    /// Returns whether a namespace known by nothing but its name matches; `None` if its other labels matter.
    pub(crate) fn matches_name(&self, name: &str) -> Option<bool> {
        let mut open = false;
        for requirement in &self.requirements {
            if requirement.key != NAME_LABEL {
                open = true;
            } else if !requirement.holds(Some(name)) {
                return Some(false);
            }
        }
        (!open).then_some(true)
    }

    /// Returns whether these labels match.
    pub(crate) fn matches(&self, labels: Option<Object<'_>>) -> bool {
        self.requirements.iter().all(|requirement| {
            let label = labels.and_then(|labels| labels.get(&requirement.key)).and_then(Node::as_str);
            requirement.holds(label)
        })
    }
}

impl Requirement {
    fn holds(&self, label: Option<&str>) -> bool {
        let listed = || label.is_some_and(|label| self.values.iter().any(|value| value == label));
        match self.operator {
            LabelSelectorOperator::In => listed(),
            LabelSelectorOperator::NotIn => !listed(),
            LabelSelectorOperator::Exists => label.is_some(),
            LabelSelectorOperator::DoesNotExist => label.is_none(),
        }
    }
}
