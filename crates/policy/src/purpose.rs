//! What a policy is for.

/// What a policy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Mutation,
    Validation,
}
