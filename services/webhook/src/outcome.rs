//! How a review ended, as metrics, spans and log lines say it.

/// How a review ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    Patched,
    Denied,
    Malformed,
    Overloaded,
    Unavailable,
    Timeout,
    Error,
    /// The caller has gone.
    Cancelled,
}

impl Outcome {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 9] = [
        Self::Allowed,
        Self::Patched,
        Self::Denied,
        Self::Malformed,
        Self::Overloaded,
        Self::Unavailable,
        Self::Timeout,
        Self::Error,
        Self::Cancelled,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Patched => "patched",
            Self::Denied => "denied",
            Self::Malformed => "malformed",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome;

    #[test]
    fn outcomes_are_numbered_in_their_order() {
        for (number, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, number, "{outcome:?}");
        }
    }
}
