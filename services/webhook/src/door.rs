//! The four doors. A door's path says what a registration wants (mutate or
//! validate) and its failurePolicy, so that each policy runs where a failed
//! call has the consequence that the policy's author chose.

use sallyport_proto::v1alpha1::FailurePolicy;

/// Which backend a door leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Mutate,
    Validate,
}

impl Side {
    /// The backend's name in metrics, spans and messages.
    pub(crate) const fn backend(self) -> &'static str {
        match self {
            Self::Mutate => "mutator",
            Self::Validate => "validator",
        }
    }
}

/// One door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Door {
    pub(crate) side: Side,
    pub(crate) failure_policy: FailurePolicy,
    /// The path that registrations name. Once released, a path stays (C-105).
    pub(crate) path: &'static str,
    /// The door's name in metrics and logs.
    pub(crate) name: &'static str,
    /// Position in [`DOORS`].
    pub(crate) index: usize,
}

/// All doors.
pub(crate) const DOORS: [Door; 4] = [
    door(0, Side::Mutate, FailurePolicy::Fail, "/mutate/fail", "mutate-fail"),
    door(1, Side::Mutate, FailurePolicy::Ignore, "/mutate/ignore", "mutate-ignore"),
    door(2, Side::Validate, FailurePolicy::Fail, "/validate/fail", "validate-fail"),
    door(3, Side::Validate, FailurePolicy::Ignore, "/validate/ignore", "validate-ignore"),
];

const fn door(
    index: usize,
    side: Side,
    failure_policy: FailurePolicy,
    path: &'static str,
    name: &'static str,
) -> Door {
    Door { side, failure_policy, path, name, index }
}

#[cfg(test)]
mod tests {
    use super::DOORS;

    #[test]
    fn a_released_path_stays_known_c105() {
        assert_eq!(
            DOORS.map(|door| door.path),
            ["/mutate/fail", "/mutate/ignore", "/validate/fail", "/validate/ignore"]
        );
        assert!(DOORS.iter().enumerate().all(|(index, door)| door.index == index));
    }
}
