//! The webhook's four endpoints, in the order in which an API server calls them.

use sallyport_api::FailurePolicy;

/// An endpoint of the webhook: where entries of this kind and failurePolicy send their reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/mutate/fail`.
    MutateFail,
    /// `/mutate/ignore`.
    MutateIgnore,
    /// `/validate/fail`.
    ValidateFail,
    /// `/validate/ignore`.
    ValidateIgnore,
}

impl Endpoint {
    /// All endpoints: mutation before validation.
    pub const ALL: [Self; 4] =
        [Self::MutateFail, Self::MutateIgnore, Self::ValidateFail, Self::ValidateIgnore];

    /// The endpoint at which policies of this kind and failurePolicy run.
    pub const fn of(mutates: bool, policy: FailurePolicy) -> Self {
        match (mutates, policy) {
            (true, FailurePolicy::Fail) => Self::MutateFail,
            (true, FailurePolicy::Ignore) => Self::MutateIgnore,
            (false, FailurePolicy::Fail) => Self::ValidateFail,
            (false, FailurePolicy::Ignore) => Self::ValidateIgnore,
        }
    }

    /// The endpoint's path without the first slash.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MutateFail => "mutate/fail",
            Self::MutateIgnore => "mutate/ignore",
            Self::ValidateFail => "validate/fail",
            Self::ValidateIgnore => "validate/ignore",
        }
    }

    /// Whether patches are taken here.
    pub const fn mutates(self) -> bool {
        matches!(self, Self::MutateFail | Self::MutateIgnore)
    }

    /// The failurePolicy of entries that lead here.
    pub const fn failure_policy(self) -> &'static str {
        if self.tolerates_failure() { "Ignore" } else { "Fail" }
    }

    /// Whether a request goes on when no decision could be had here.
    pub const fn tolerates_failure(self) -> bool {
        matches!(self, Self::MutateIgnore | Self::ValidateIgnore)
    }
}
