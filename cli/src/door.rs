//! The front's four doors, in the order in which an API server comes to them.

use clap::ValueEnum;
pub(crate) use sallyport_registration::Endpoint as Door;

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
