//! Compiled sets of validation policies.

use std::sync::Arc;
use std::time::Instant;

use sallyport_api::{
    FailurePolicy, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidationPolicy,
};

use crate::outcome::{Gathering, Outcome, PolicyResult, PolicyStatus};
use crate::request::Review;
use crate::review::documents::Documents;
use crate::review::namespaces::Namespaces;
use crate::review::safety;
use crate::set::objects::Objects;
use crate::set::{Match, Set};
use crate::validate::findings::Report;
use crate::validate::policy::CompiledValidations;
use crate::validate::source::sources;

/// What a set of validation policies is compiled from: our policies, and the API server's own with their
/// bindings.
#[derive(Clone, Debug, Default)]
pub struct Validations {
    /// Our policies.
    pub policies: Vec<ValidationPolicy>,
    /// The API server's own.
    pub admission_policies: Vec<ValidatingAdmissionPolicy>,
    /// What puts those in force. A binding without its policy has no effect.
    pub bindings: Vec<ValidatingAdmissionPolicyBinding>,
}

/// A compiled set of validation policies. All that match are evaluated, and all that is wrong is reported.
#[derive(Debug)]
pub struct ValidationSet {
    set: Set<CompiledValidations>,
}

impl ValidationSet {
    /// Compiles policies. This cannot fail: a policy that is wrong stays in force as it is in `previous`, or
    /// is an error for the requests it matches, as [`ValidationSet::policies`] says.
    pub fn compile(
        policies: Vec<ValidationPolicy>,
        namespaces: Arc<Namespaces>,
        previous: Option<&Self>,
    ) -> Self {
        let validations = Validations { policies, ..Validations::default() };
        Self::build(validations, Arc::new(Objects::new(namespaces, [])), previous)
    }

    /// Compiles policies of all kinds, with the objects that they may see, likewise.
    pub fn build(validations: Validations, objects: Arc<Objects>, previous: Option<&Self>) -> Self {
        let Validations { policies, admission_policies, bindings } = validations;
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

    /// Evaluates the policies with the failure policy `door` that match.
    pub fn review(&self, review: &Review<'_>, door: FailurePolicy) -> Outcome {
        let mut gathering = Gathering::default();
        let candidates = self.set.candidates(review.request, door);
        if candidates.is_empty() {
            return gathering.finish(None);
        }
        let documents = Documents::new(review, self.set.objects().namespaces());
        if matches!(safety::is_mirror_pod(&documents), Ok(true)) {
            return gathering.finish(None);
        }
        let matches = self.set.select(&candidates, &documents);
        gathering.results.reserve_exact(matches.len());
        let mut started = Instant::now();
        for Match { index, name, family, request, policy } in matches {
            let mut report = Report { name, family, door, gathering: &mut gathering };
            let objects = self.set.objects();
            let result = match (policy, &request) {
                (Ok(policy), None) => policy.review(&documents, objects, &mut report),
                (Ok(policy), Some(request)) => {
                    policy.review(&documents.converted(request), objects, &mut report)
                }
                (Err(error), _) => Some(report.add_misconfiguration(None, &error)),
            };
            // The end of one is the beginning of the next.
            let ended = Instant::now();
            let duration = ended.duration_since(std::mem::replace(&mut started, ended));
            if let Some(result) = result {
                gathering.results.push(PolicyResult { policy: index, result, duration });
            }
        }
        gathering.finish(None)
    }
}
