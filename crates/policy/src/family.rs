//! Whose meaning a policy has: ours, or that of the API server's own policies.
//!
//! Both are compiled to the same form and evaluated by the same code. Where they mean different things, the
//! code asks here, so that this is the list of what differs. The wording that only the API server's policies
//! use stands here too.

/// Whose kind a policy is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    /// `sallyport.dev`.
    Sallyport,
    /// `admissionregistration.k8s.io`: the meaning is that of the API server, to the letter.
    Kubernetes,
}

impl Family {
    fn is_ours(self) -> bool {
        self == Self::Sallyport
    }

    /// Returns whether a policy under `Ignore` that fails half way leaves no trace. The API server keeps what the
    /// other mutations did.
    pub(crate) fn rolls_back(self) -> bool {
        self.is_ours()
    }

    /// Returns whether changes that the API server would refuse, to the spec of an existing pod, are taken back.
    pub(crate) fn keeps_immutable_fields(self) -> bool {
        self.is_ours()
    }

    /// Returns whether its failure policy says what follows from every error. The API server lets some through it.
    pub(crate) fn is_bound_by_failure_policy(self) -> bool {
        self.is_ours()
    }

    /// Returns whether `IfNeeded` means another policy's change. The API server runs such policies once more after
    /// any mutation that succeeded, be it their own and be it without effect.
    pub(crate) fn ignores_own_changes(self) -> bool {
        self.is_ours()
    }

    /// Returns whether matchConditions see the request's namespace; at the API server `namespaceObject` is null
    /// there.
    pub(crate) fn shows_namespace_to_conditions(self) -> bool {
        self.is_ours()
    }

    /// Returns whether `request` has its fields also when they are empty, as `namespace` is for an object without
    /// one. The API server leaves most of them out.
    pub(crate) fn shows_empty_fields_of_requests(self) -> bool {
        self.is_ours()
    }

    /// Returns whether a messageExpression may ask the authorizer; the API server does not declare it there.
    pub(crate) fn shows_authorizer_to_messages(self) -> bool {
        self.is_ours()
    }

    /// Returns whether JSON patches are read as RFC 6902 has it, not as the API server's library does.
    pub(crate) fn reads_patches_strictly(self) -> bool {
        self.is_ours()
    }

    /// Returns whether an expression that fails is named by its place in the policy. The API server repeats its text.
    pub(crate) fn names_expressions_by_field(self) -> bool {
        self.is_ours()
    }
}

/// What the API server puts before the message of a `ValidatingAdmissionPolicy`. Without `binding`, the policy
/// itself is at fault.
pub(crate) fn denied_by_validation(policy: &str, binding: Option<&str>, message: &str) -> String {
    match binding {
        Some(binding) => {
            format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}")
        }
        None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {message}"),
    }
}

/// What the API server puts before the message of a `MutatingAdmissionPolicy`, likewise.
pub(crate) fn denied_by_mutation(policy: &str, binding: Option<&str>, message: &str) -> String {
    match binding {
        Some(binding) => format!("policy '{policy}' with binding '{binding}' denied request: {message}"),
        None => format!("policy \"{policy}\" denied request: {message}"),
    }
}

/// A warning of a `ValidatingAdmissionPolicy`.
pub(crate) fn warned_by_validation(policy: &str, binding: &str, message: &str) -> String {
    format!("Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {message}")
}

/// What could not be set up: a policy, or a binding.
pub(crate) fn misconfigured(binding: Option<&str>, message: &str) -> String {
    let what = if binding.is_some() { "binding" } else { "policy" };
    format!("failed to configure {what}: {message}")
}
