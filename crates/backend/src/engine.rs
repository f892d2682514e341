//! The two policy sets as the backend sees them: the same thing with other policies.

use std::sync::Arc;

use sallyport_api::{FailurePolicy, MutationPolicy, ValidationPolicy};
use sallyport_policy::{MutationSet, Namespaces, Outcome, PolicyStatus, Review, ValidationSet};
use sallyport_sources::{Entry, PolicyKind, Snapshot};

/// A compiled set of policies of one kind.
pub trait PolicySet: Send + Sync + Sized + 'static {
    /// The kind.
    const KIND: PolicyKind;
    /// Short name of the service that evaluates such sets.
    const SERVICE: &'static str;
    /// A policy as written.
    type Policy: Clone;

    /// The policies of a snapshot.
    fn entries(snapshot: &Snapshot) -> &[Entry<Self::Policy>];

    /// Compiles policies. What does not compile stays in the form that `previous` has, or fails the requests
    /// that it matches.
    fn compile(policies: Vec<Self::Policy>, namespaces: Arc<Namespaces>, previous: Option<&Self>) -> Self;

    /// The policies with their names and states, by the index that results refer to.
    fn policies(&self) -> &[PolicyStatus];

    /// Evaluates the policies that have this failure policy.
    fn review(&self, review: &Review<'_>, failure_policy: FailurePolicy) -> Outcome;
}

impl PolicySet for MutationSet {
    const KIND: PolicyKind = PolicyKind::MutationPolicy;
    const SERVICE: &'static str = "mutator";
    type Policy = MutationPolicy;

    fn entries(snapshot: &Snapshot) -> &[Entry<MutationPolicy>] {
        &snapshot.mutations
    }

    fn compile(policies: Vec<MutationPolicy>, namespaces: Arc<Namespaces>, previous: Option<&Self>) -> Self {
        Self::compile(policies, namespaces, previous)
    }

    fn policies(&self) -> &[PolicyStatus] {
        self.policies()
    }

    fn review(&self, review: &Review<'_>, failure_policy: FailurePolicy) -> Outcome {
        self.review(review, failure_policy)
    }
}

impl PolicySet for ValidationSet {
    const KIND: PolicyKind = PolicyKind::ValidationPolicy;
    const SERVICE: &'static str = "validator";
    type Policy = ValidationPolicy;

    fn entries(snapshot: &Snapshot) -> &[Entry<ValidationPolicy>] {
        &snapshot.validations
    }

    fn compile(
        policies: Vec<ValidationPolicy>,
        namespaces: Arc<Namespaces>,
        previous: Option<&Self>,
    ) -> Self {
        Self::compile(policies, namespaces, previous)
    }

    fn policies(&self) -> &[PolicyStatus] {
        self.policies()
    }

    fn review(&self, review: &Review<'_>, failure_policy: FailurePolicy) -> Outcome {
        self.review(review, failure_policy)
    }
}
