//! Compiled sets of mutation policies.

use std::sync::Arc;

use sallyport_api::{FailurePolicy, MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutationPolicy};

use crate::mutate::policy::CompiledMutations;
use crate::mutate::round::Run;
use crate::mutate::source::sources;
use crate::outcome::{Gathering, Outcome, PolicyStatus};
use crate::request::Review;
use crate::review::documents::Documents;
use crate::review::namespaces::Namespaces;
use crate::review::safety;
use crate::set::Set;
use crate::set::objects::Objects;

/// What a mutation set is compiled from: our policies, and the API server's own with their bindings.
#[derive(Clone, Debug, Default)]
pub struct Mutations {
    /// Our policies.
    pub policies: Vec<MutationPolicy>,
    /// The API server's own.
    pub admission_policies: Vec<MutatingAdmissionPolicy>,
    /// What puts those in force. A binding without its policy has no effect.
    pub bindings: Vec<MutatingAdmissionPolicyBinding>,
}

/// A compiled set of mutation policies.
///
/// They run in the order of their names, each on the result of the one before. A policy under `Fail` that
/// cannot be evaluated refuses the request; one under `Ignore` leaves no trace.
///
/// ```
/// use std::sync::Arc;
///
/// use sallyport_policy::{
///     FailurePolicy, GroupVersionKind, GroupVersionResource, MutationSet, Namespaces, Operation, Request, Review,
/// };
/// use serde_json::{Value, json};
///
/// let policy = serde_saphyr::from_str(
///     r#"
/// apiVersion: sallyport.dev/v1alpha1
/// kind: MutationPolicy
/// metadata: {name: team}
/// spec:
///   matchConstraints:
///     resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods]}]
///   mutations:
///   - overlay: {metadata: {labels: {team: "${{ request.namespace }}"}}}
/// "#,
/// )?;
/// let set = MutationSet::compile(vec![policy], Arc::new(Namespaces::default()), None);
///
/// let core = String::new;
/// let request = Request {
///     kind: GroupVersionKind { group: core(), version: "v1".to_owned(), kind: "Pod".to_owned() },
///     resource: GroupVersionResource { group: core(), version: "v1".to_owned(), resource: "pods".to_owned() },
///     operation: Operation::Create,
///     namespace: "web".to_owned(),
///     ..Request::default()
/// };
/// let review = Review { object: br#"{"metadata": {"labels": {}}}"#, ..Review::of(&request) };
/// let outcome = set.review(&review, FailurePolicy::Fail);
/// let patch: Value = serde_json::from_slice(&outcome.answer.patch)?;
/// assert_eq!(patch, json!([{"op": "add", "path": "/metadata/labels/team", "value": "web"}]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MutationSet {
    set: Set<CompiledMutations>,
}

impl MutationSet {
    /// Compiles policies. This cannot fail: a policy that is wrong stays in force as it is in `previous`, or
    /// is an error for the requests it matches, as [`MutationSet::policies`] says.
    pub fn compile(
        policies: Vec<MutationPolicy>,
        namespaces: Arc<Namespaces>,
        previous: Option<&Self>,
    ) -> Self {
        let mutations = Mutations { policies, ..Mutations::default() };
        Self::build(mutations, Arc::new(Objects::new(namespaces, [])), previous)
    }

    /// Compiles policies of all kinds, with the objects that they may see, likewise.
    pub fn build(mutations: Mutations, objects: Arc<Objects>, previous: Option<&Self>) -> Self {
        let Mutations { policies, admission_policies, bindings } = mutations;
        let sources = sources(policies, admission_policies, bindings);
        Self { set: Set::compile(sources, objects, previous.map(|previous| &previous.set)) }
    }

    /// The policies in the order of their names; results refer to them by index.
    pub fn policies(&self) -> &[PolicyStatus] {
        self.set.statuses()
    }

    /// The objects that they may see.
    pub fn objects(&self) -> &Objects {
        self.set.objects()
    }

    /// Runs the policies with the failure policy `door` that match.
    pub fn review(&self, review: &Review<'_>, door: FailurePolicy) -> Outcome {
        let candidates = self.set.candidates(review.request, door);
        if candidates.is_empty() {
            return Gathering::default().finish(None);
        }
        let documents = Documents::new(review, self.set.objects().namespaces());
        if matches!(safety::is_mirror_pod(&documents), Ok(true)) {
            return Gathering::default().finish(None);
        }
        Run::new(&self.set, &documents, door).evaluate(&candidates)
    }
}
