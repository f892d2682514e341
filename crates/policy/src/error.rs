//! What can be wrong with a policy as written, and what can go wrong when it is evaluated.

mod configuration;
mod merge;
mod params;

use sallyport_cel::{CompileError, EvalError};
use sallyport_error_chain::format_chain;
use thiserror::Error;

pub(crate) use self::configuration::ConfigurationError;
pub(crate) use self::merge::MergeError;
pub(crate) use self::params::ParamError;

/// A policy that cannot be put in force.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DefinitionError {
    /// An expression does not compile.
    #[error("{0}")]
    Expression(String, #[source] CompileError),
    /// A field has a value that makes no sense.
    #[error("{field}: {problem}")]
    Field {
        /// Path of the field below `spec`.
        field: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A binding of the policy is wrong.
    #[error("binding {0}")]
    Binding(String, #[source] Box<Self>),
    /// Two policies have the same name.
    #[error("another policy of the same kind has this name; only the first is in force")]
    Duplicate,
    /// A policy without a name.
    #[error("metadata.name is missing")]
    Unnamed,
}

impl DefinitionError {
    pub(crate) fn field(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field { field: field.into(), problem: problem.into() }
    }

    /// The error and its sources in one line.
    pub(crate) fn explain(&self) -> String {
        format_chain(self)
    }
}

/// A policy that could not be evaluated for one review.
#[derive(Clone, Debug, Error)]
pub(crate) enum PolicyError {
    #[error("the policy is not valid: {0}")]
    Broken(String),
    #[error("failed to read {document}: {problem}")]
    Document { document: &'static str, problem: String },
    #[error("namespace {0} is not known to this source")]
    Namespace(String),
    #[error("{0}")]
    Evaluation(String, #[source] EvalError),
    #[error("{what}: must give {expected}, not {found}")]
    Type { what: String, expected: &'static str, found: String },
    #[error("[{}]", .0.iter().map(Self::explain).collect::<Vec<_>>().join(", "))]
    Several(Vec<PolicyError>),
    #[error("{what}: operation {index} is not a JSON patch operation: {problem}")]
    Operation { what: String, index: usize, problem: String },
    #[error("{what}: failed to apply the patch: {problem}")]
    Patch { what: String, problem: String },
    /// In the words of the API server's patch library.
    #[error("JSON Patch: {0}")]
    Library(String),
    /// In the words of the API server's decoder.
    #[error("strict decoding error: {0}")]
    Decoding(String),
    /// Likewise: a value that its field cannot take.
    #[error("{0}")]
    Undecodable(String),
    /// In the words of the API server.
    #[error(
        "JSONPath valueExpression evaluated to a type that could not marshal to JSON: type conversion error from \
         '{0}' to '*structpb.Value'"
    )]
    NotJson(&'static str),
    #[error(transparent)]
    Params(#[from] ParamError),
    #[error("{0}")]
    Merge(String, #[source] MergeError),
    #[error("{0}")]
    Configuration(String, #[source] ConfigurationError),
    #[error(
        "the object is in {present}, the policy is for {wanted}, and it cannot be converted here; name both \
         versions in resourceRules, or register the webhook for the one alone"
    )]
    Version { present: String, wanted: String },
    #[error("{what}: {found} elements are more than the {limit} allowed")]
    TooMany { what: String, found: usize, limit: usize },
    #[error("{what}: makes more than {limit} bytes")]
    TooLarge { what: String, limit: usize },
    #[error("the evaluation took longer than {0} ms")]
    TooLong(u128),
}

impl PolicyError {
    /// HTTP status and reason. An expression that fails on this object is 422 Invalid, as in Kubernetes; what
    /// the engine cannot do (bounds, unreadable objects, broken policies) is 500 `InternalError`.
    pub(crate) fn status(&self) -> (u16, &'static str) {
        let internal = match self {
            Self::Broken(_)
            | Self::Document { .. }
            | Self::Namespace(_)
            | Self::TooMany { .. }
            | Self::TooLarge { .. }
            | Self::Version { .. }
            | Self::Decoding(_)
            | Self::Undecodable(_)
            | Self::TooLong(_) => true,
            Self::Configuration(_, ConfigurationError::UnknownKind(_)) => return (503, "ServiceUnavailable"),
            // As in Kubernetes, what costs too much is the policy's fault.
            Self::Evaluation(_, source) => {
                source.is_limit() && !matches!(source, EvalError::CostExceeded | EvalError::BudgetExceeded)
            }
            Self::Several(errors) => errors.iter().any(|error| error.status().0 == 500),
            Self::Type { .. }
            | Self::Operation { .. }
            | Self::Patch { .. }
            | Self::Library(_)
            | Self::NotJson(_)
            | Self::Params(_)
            | Self::Merge(..)
            | Self::Configuration(..) => false,
        };
        if internal { (500, "InternalError") } else { (422, "Invalid") }
    }

    /// Returns whether the policy's expressions have spent their budget, which ends the policy.
    pub(crate) fn is_out_of_budget(&self) -> bool {
        matches!(self, Self::Evaluation(_, EvalError::BudgetExceeded))
    }

    /// What the API server answers in place of everything that its mutating policies say, and whatever their
    /// failure policy is.
    pub(crate) fn in_place_of_policies(&self) -> Option<String> {
        match self {
            Self::Configuration(_, cause @ ConfigurationError::UnknownKind(_)) => Some(cause.to_string()),
            Self::Decoding(_) | Self::Undecodable(_) => Some(self.to_string()),
            _ => None,
        }
    }

    /// The error in one line, without the expression where the API server leaves that out.
    pub(crate) fn explain_as_upstream(&self) -> String {
        match self {
            Self::Configuration(_, cause) => cause.to_string(),
            other => other.explain(),
        }
    }

    /// The error and its sources in one line.
    pub(crate) fn explain(&self) -> String {
        format_chain(self)
    }
}
