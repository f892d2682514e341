//! A review's way through the backend.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use sallyport_policy::{Authorizer, Outcome, ResultKind, Unconnected};
use sallyport_proto::v1alpha1::ReviewRequest;
use sallyport_telemetry::trace;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::{Request, Status};
use tracing::{Instrument, Span};

use crate::access_review::AccessReviews;
use crate::authorization::Answers;
use crate::engine::PolicySet;
use crate::fault::Fault;
use crate::gate::Place;
use crate::policies::{Loaded, Policies};
use crate::question::Question;

/// Objects larger than this are evaluated apart from the threads that serve connections: parsing 256 KiB takes
/// about a millisecond, which is as long as others may be held up.
pub(crate) const LARGE: usize = 256 << 10;

/// The API group of the questions themselves.
const ASKING: &str = "authorization.k8s.io";
/// Longest that the answers of the API server are waited for, in all rounds of a review.
const MAX_ASKING: Duration = Duration::from_secs(5);

/// Answers reviews with the policies in force. Cheap to clone.
#[derive(Debug)]
pub struct Reviewer<S> {
    policies: Arc<Policies<S>>,
    /// Who answers what policies ask of `authorizer`, if anybody does.
    access_reviews: Option<AccessReviews>,
    /// As many large evaluations at once as there are cores.
    large: Arc<Semaphore>,
}

impl<S> Clone for Reviewer<S> {
    fn clone(&self) -> Self {
        Self {
            policies: self.policies.clone(),
            access_reviews: self.access_reviews.clone(),
            large: self.large.clone(),
        }
    }
}

impl<S: PolicySet> Reviewer<S> {
    pub(crate) fn new(policies: Arc<Policies<S>>, access_reviews: Option<AccessReviews>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { policies, access_reviews, large: Arc::new(Semaphore::new(cores)) }
    }

    /// Decides one review.
    ///
    /// # Errors
    /// A status where there is no decision: `INVALID_ARGUMENT` for a malformed review, `DEADLINE_EXCEEDED` when
    /// the caller no longer waits, `INTERNAL` for a panic.
    pub async fn review(&self, request: Request<ReviewRequest>) -> Result<Outcome, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let place = extensions.get::<Arc<Place>>().cloned();
        let span = trace::server_span("evaluate", metadata.as_ref());
        let decided = self.decide(message, place).instrument(span.clone()).await;
        if let Err(fault) = &decided {
            span.record("outcome", Verdict::Fault.as_str());
            tracing::warn!(parent: &span, %fault, "review not decided");
        }
        Ok(decided?)
    }

    async fn decide(&self, message: ReviewRequest, place: Option<Arc<Place>>) -> Result<Outcome, Fault> {
        let started = Instant::now();
        let question = Question::read(message)?;
        let span = Span::current();
        span.record("uid", question.request().uid.as_str());
        span.record("operation", question.request().operation.as_str());
        span.record("resource", question.request().resource.resource.as_str());
        let loaded = self.policies.current();
        let mut case = Case { question, answers: Answers::default() };
        let mut deadline = None;
        let outcome = loop {
            let outcome;
            (case, outcome) = self.evaluate(&loaded, case, place.as_ref()).await?;
            let open = case.answers.take_open();
            let Some(access_reviews) = self.access_reviews.as_ref().filter(|_| !open.is_empty()) else {
                break outcome;
            };
            // With questions open nothing is decided: the outcome is no more than how far it went.
            let deadline = *deadline.get_or_insert_with(|| authorizer_deadline(place.as_deref()));
            access_reviews.settle(open, &mut case.answers, deadline).await;
        };
        let Case { question, .. } = case;
        count_results(&loaded, &question, &outcome);
        let verdict = Verdict::of(&outcome);
        span.record("outcome", verdict.as_str());
        log_decision(&question, &outcome, verdict, started);
        Ok(outcome)
    }

    /// Evaluates once, large objects apart.
    async fn evaluate(
        &self,
        loaded: &Arc<Loaded<S>>,
        case: Case,
        place: Option<&Arc<Place>>,
    ) -> Result<(Case, Outcome), Fault> {
        let in_time = || place.map_or(Ok(()), |place| place.in_time());
        // A question about a question would have no end.
        let connected = self.access_reviews.is_some() && case.question.request().resource.group != ASKING;
        if case.question.size() <= LARGE {
            in_time()?;
            let outcome = case.evaluate(loaded, connected)?;
            return Ok((case, outcome));
        }
        let permit = self.large.clone().acquire_owned().await.map_err(|_| Fault::Ending)?;
        in_time()?;
        let (loaded, place) = (loaded.clone(), place.cloned());
        let evaluation = move || {
            let outcome = case.evaluate(&loaded, connected);
            // The place is held to the end, also when the caller has gone: the bytes are still in use.
            drop((permit, place));
            outcome.map(|outcome| (case, outcome))
        };
        tokio::task::spawn_blocking(evaluation).await.map_err(|_| Fault::Ending)?
    }
}

/// A review and what its policies ask of `authorizer`.
struct Case {
    question: Question,
    answers: Answers,
}

impl Case {
    fn evaluate<S: PolicySet>(&self, loaded: &Loaded<S>, connected: bool) -> Result<Outcome, Fault> {
        let authorizer: &dyn Authorizer = if connected { &self.answers } else { &Unconnected };
        // A set has no interior state that a panic could leave half changed.
        let review = || loaded.set.review(&self.question.review(authorizer), self.question.failure_policy());
        catch_unwind(AssertUnwindSafe(review)).map_err(|_| Fault::Panicked)
    }
}

/// When asking has to end: so soon that the policies can still make something of what is not answered.
fn authorizer_deadline(place: Option<&Place>) -> Instant {
    let left = place.and_then(Place::time_left).map_or(MAX_ASKING, |left| left / 10 * 9);
    Instant::now() + left.min(MAX_ASKING)
}

/// Counts what each policy did.
fn count_results<S: PolicySet>(loaded: &Loaded<S>, question: &Question, outcome: &Outcome) {
    for result in &outcome.results {
        if let Some(meter) = loaded.meters.get(result.policy) {
            meter.observe(result.result, result.duration);
        }
        if result.result == ResultKind::Error {
            let name = loaded.set.policies().get(result.policy).map(|policy| policy.name.as_str());
            tracing::warn!(
                uid = question.request().uid.as_str(),
                policy = name,
                "policy could not be evaluated"
            );
        }
    }
}

/// How a review ended, as spans and log lines say it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allowed,
    Changed,
    Denied,
    /// Nothing was decided.
    Fault,
}

impl Verdict {
    fn of(outcome: &Outcome) -> Self {
        match (outcome.answer.allowed, outcome.answer.patch.is_empty()) {
            (false, _) => Self::Denied,
            (true, false) => Self::Changed,
            (true, true) => Self::Allowed,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Changed => "changed",
            Self::Denied => "denied",
            Self::Fault => "fault",
        }
    }
}

/// One line a decision that denies or changes; debug for the others. Never what is in the object.
fn log_decision(question: &Question, outcome: &Outcome, verdict: Verdict, started: Instant) {
    let status = outcome.answer.status.as_ref().filter(|_| verdict == Verdict::Denied);
    macro_rules! line {
        ($level:expr) => {
            tracing::event!(
                $level,
                uid = question.request().uid.as_str(),
                operation = question.request().operation.as_str(),
                resource = question.request().resource.resource.as_str(),
                namespace = question.request().namespace.as_str(),
                name = question.request().name.as_str(),
                generate_name = generate_name(question).as_deref(),
                user = question.request().user_info.username.as_str(),
                dry_run = question.request().dry_run,
                outcome = verdict.as_str(),
                code = status.map(|status| status.code),
                duration_seconds = started.elapsed().as_secs_f64(),
                "review decided"
            )
        };
    }
    if verdict == Verdict::Allowed { line!(tracing::Level::DEBUG) } else { line!(tracing::Level::INFO) }
}

/// The prefix that the API server makes a name of, where there is no name yet.
fn generate_name(question: &Question) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata<'a> {
        #[serde(borrow)]
        generate_name: Option<Cow<'a, str>>,
    }
    if !question.request().name.is_empty() {
        return None;
    }
    serde_json::from_slice::<Object<'_>>(question.object()).ok()?.metadata.generate_name
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sallyport_policy::{Answer, FailurePolicy, Objects, Outcome, PolicyStatus, Review};
    use sallyport_proto::v1alpha1::{GroupVersionKind, GroupVersionResource, ReviewRequest};
    use sallyport_sources::{PolicyKind, Snapshot};
    use tonic::{Code, Request};

    use super::{LARGE, Question, Reviewer, generate_name};
    use crate::engine::{PolicySet, Source};
    use crate::meters::PolicyMeters;
    use crate::policies::Policies;

    /// Allows what is said to be good, and panics otherwise.
    struct Fragile;

    impl PolicySet for Fragile {
        const KIND: PolicyKind = PolicyKind::MutationPolicy;
        const ADMISSION_KIND: PolicyKind = PolicyKind::MutatingAdmissionPolicy;
        const SERVICE: &'static str = "fragile";

        fn compile(_: &Snapshot, _: Option<&Self>) -> Self {
            Self
        }

        fn sources(_: &Snapshot) -> Vec<Source<'_>> {
            Vec::new()
        }

        fn policies(&self) -> &[PolicyStatus] {
            &[]
        }

        fn objects(&self) -> Option<&Objects> {
            None
        }

        fn review(&self, review: &Review<'_>, _: FailurePolicy) -> Outcome {
            assert_eq!(review.request.name, "good");
            Outcome { answer: Answer::allow(), ..Outcome::default() }
        }
    }

    fn message(name: &str, object: Vec<u8>) -> ReviewRequest {
        ReviewRequest {
            uid: "u".into(),
            kind: Some(GroupVersionKind::default()),
            resource: Some(GroupVersionResource::default()),
            name: name.into(),
            object: object.into(),
            ..ReviewRequest::default()
        }
    }

    /// G-03: a panic costs one request, whether it happens on the spot or apart.
    #[tokio::test]
    async fn a_panic_is_the_status_internal_and_the_next_review_is_answered() {
        let policies = Policies::<Fragile>::new(&Snapshot::default(), PolicyMeters::new().unwrap(), false);
        let reviewer = Reviewer::new(Arc::new(policies), None);
        for size in [0, LARGE + 1] {
            let review = |name| reviewer.review(Request::new(message(name, vec![b' '; size])));
            assert_eq!(review("bad").await.unwrap_err().code(), Code::Internal, "{size} bytes");
            assert!(review("good").await.unwrap().answer.allowed, "{size} bytes");
        }
    }

    #[test]
    fn generate_name_is_read_where_there_is_no_name() {
        for (name, object, expected) in [
            ("", r#"{"metadata": {"generateName": "a-"}}"#, Some("a-")),
            ("n", r#"{"metadata": {"generateName": "a-"}}"#, None),
            ("", r#"{"metadata": {"generateName": 1}}"#, None),
            ("", r#"{"metadata": null}"#, None),
            ("", "[", None),
            ("", "", None),
        ] {
            let question = Question::read(message(name, object.into())).unwrap();
            assert_eq!(generate_name(&question).as_deref(), expected, "{object}");
        }
    }
}
