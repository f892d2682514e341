//! The front's four doors, in the order in which an API server comes to them.

use clap::ValueEnum;

/// A door of a front: where a registration with this side and failurePolicy sends its reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    MutateFail,
    MutateIgnore,
    ValidateFail,
    ValidateIgnore,
}

impl Door {
    /// All doors: mutation before validation.
    pub(crate) const ALL: [Self; 4] =
        [Self::MutateFail, Self::MutateIgnore, Self::ValidateFail, Self::ValidateIgnore];

    /// The door's name, which is its path without the first slash.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::MutateFail => "mutate/fail",
            Self::MutateIgnore => "mutate/ignore",
            Self::ValidateFail => "validate/fail",
            Self::ValidateIgnore => "validate/ignore",
        }
    }

    /// Whether patches are taken here.
    pub(crate) const fn mutates(self) -> bool {
        matches!(self, Self::MutateFail | Self::MutateIgnore)
    }

    /// The failurePolicy of registrations that lead here.
    pub(crate) const fn failure_policy(self) -> &'static str {
        if self.tolerates_failure() { "Ignore" } else { "Fail" }
    }

    /// Whether a request goes on when no decision could be had here.
    pub(crate) const fn tolerates_failure(self) -> bool {
        matches!(self, Self::MutateIgnore | Self::ValidateIgnore)
    }
}

/// The doors that a review is sent through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Doors {
    /// mutate/fail, mutate/ignore, validate/fail, validate/ignore: what an API server does
    All,
    /// mutate/fail and mutate/ignore
    Mutate,
    /// validate/fail and validate/ignore
    Validate,
    /// mutate/fail alone
    #[value(name = "mutate/fail", alias = "mutate-fail")]
    MutateFail,
    /// mutate/ignore alone
    #[value(name = "mutate/ignore", alias = "mutate-ignore")]
    MutateIgnore,
    /// validate/fail alone
    #[value(name = "validate/fail", alias = "validate-fail")]
    ValidateFail,
    /// validate/ignore alone
    #[value(name = "validate/ignore", alias = "validate-ignore")]
    ValidateIgnore,
}

impl Doors {
    /// The doors, in order.
    pub(crate) fn doors(self) -> &'static [Door] {
        const ALL: [Door; 4] = Door::ALL;
        match self {
            Self::All => &ALL,
            Self::Mutate => &[Door::MutateFail, Door::MutateIgnore],
            Self::Validate => &[Door::ValidateFail, Door::ValidateIgnore],
            Self::MutateFail => &[Door::MutateFail],
            Self::MutateIgnore => &[Door::MutateIgnore],
            Self::ValidateFail => &[Door::ValidateFail],
            Self::ValidateIgnore => &[Door::ValidateIgnore],
        }
    }
}
