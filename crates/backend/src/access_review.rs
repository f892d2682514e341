//! The API server, asked by `SubjectAccessReview`s what somebody may do.
//!
//! The invariant: a review that fails is an error of the question and never a decision, and asking ends in time.

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    FieldSelectorAttributes, LabelSelectorAttributes, NonResourceAttributes, ResourceAttributes,
    SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client};
use sallyport_policy::{Decision, Resource};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Instrument;

use crate::authorization::{Answers, Check, Subject, errored};
use crate::meters::{AccessReviewMeters, AccessReviewResult};

/// Most questions that the process has before the API server at once; each is a connection.
const MAX_AT_ONCE: usize = 32;
/// How often a question is put when the API server cannot be reached, or is too busy.
const ATTEMPTS: u32 = 3;
/// How long one attempt may take; a connection that hangs is not used again.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// Wait before the second attempt; it doubles.
const BACKOFF: Duration = Duration::from_millis(50);
/// What a question gets for an answer when it cannot be waited for.
const TOO_MANY: &str = "too many reviews wait for the API server already";
/// Longest part of an error that expressions see, in characters.
const MAX_ERROR: usize = 1024;

/// Why the API server cannot be asked at all.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file cannot be used.
    #[error("failed to read --kubeconfig (SALLYPORT_KUBECONFIG) {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<KubeconfigError>,
    },
    /// Nothing says where the API server is.
    #[error(
        "failed to find an API server; inside a cluster a ServiceAccount is needed, outside --kubeconfig"
    )]
    Nowhere(#[source] Box<kube::config::InferConfigError>),
    /// The client cannot be made.
    #[error("failed to make a client of the API server")]
    Client(#[source] Box<kube::Error>),
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("failed to ask the API server")]
    Call(#[source] Box<kube::Error>),
    #[error("the API server answered without a status")]
    Empty,
    #[error("the API server did not answer in time")]
    Late,
    /// A defect in this program.
    #[error("asking the API server panicked")]
    Panicked,
}

impl AskError {
    /// Whether another attempt may end otherwise.
    fn is_passing(&self) -> bool {
        match self {
            Self::Call(error) => match &**error {
                kube::Error::Api(status) => matches!(status.code, 429 | 500 | 502 | 503 | 504),
                kube::Error::SerdeError(_) => false,
                _ => true,
            },
            Self::Late => true,
            Self::Empty | Self::Panicked => false,
        }
    }

    /// The error and its sources in one line.
    fn explain(&self) -> String {
        let mut text = sallyport_error_chain::format_chain(self);
        if let Some((end, _)) = text.char_indices().nth(MAX_ERROR) {
            text.truncate(end);
        }
        text
    }
}

/// An answer that is on its way.
pub(crate) type Asking<'a> =
    Pin<Box<dyn Future<Output = Result<SubjectAccessReviewStatus, AskError>> + Send + 'a>>;

/// Who is asked.
pub(crate) trait Ask: fmt::Debug + Send + Sync + 'static {
    /// Puts one question once.
    fn ask<'a>(&'a self, check: &'a Check) -> Asking<'a>;
}

/// The API server's endpoint for such questions.
#[derive(Debug)]
pub(crate) struct ApiServer(Api<SubjectAccessReview>);

impl ApiServer {
    /// The API server of `kubeconfig` if one is given, else as the environment says. Calls nobody yet.
    pub(crate) async fn connect(kubeconfig: Option<&Path>) -> Result<Self, ConnectError> {
        let mut config = match kubeconfig {
            Some(path) => {
                let failed =
                    |source| ConnectError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
                let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
                kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                    .await
                    .map_err(failed)?
            }
            None => kube::Config::infer().await.map_err(|source| ConnectError::Nowhere(Box::new(source)))?,
        };
        // Its patience would outlast every request.
        config.default_retry = false;
        let client = Client::try_from(config).map_err(|source| ConnectError::Client(Box::new(source)))?;
        Ok(Self(Api::all(client)))
    }
}

impl Ask for ApiServer {
    fn ask<'a>(&'a self, check: &'a Check) -> Asking<'a> {
        Box::pin(async move {
            let created = self.0.create(&PostParams::default(), &question(check)).await;
            created.map_err(|source| AskError::Call(Box::new(source)))?.status.ok_or(AskError::Empty)
        })
    }
}

/// Puts questions to the API server: some at once, each a few times, all in time. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AccessReviews {
    asked: Arc<dyn Ask>,
    places: Arc<Semaphore>,
    /// Of reviews that wait for answers: those that ask nothing need places in the gate too.
    waiting: Arc<Semaphore>,
    meters: AccessReviewMeters,
}

impl AccessReviews {
    /// At most `waiting` reviews wait for answers at once.
    pub(crate) fn new(asked: impl Ask, waiting: usize, meters: AccessReviewMeters) -> Self {
        let semaphore = |places: usize| Arc::new(Semaphore::new(places.clamp(1, Semaphore::MAX_PERMITS)));
        Self { asked: Arc::new(asked), places: semaphore(MAX_AT_ONCE), waiting: semaphore(waiting), meters }
    }

    /// Gives open questions their answers, until `deadline` at the latest. With too many reviews waiting already each
    /// is an error.
    pub(crate) async fn settle(&self, open: Vec<Check>, answers: &mut Answers, deadline: Instant) {
        let Ok(_place) = self.waiting.try_acquire() else {
            tracing::warn!(checks = open.len(), "too many reviews wait for what the authorizer says");
            for check in open {
                self.meters.observe(AccessReviewResult::Error, Duration::ZERO);
                answers.settle(check, errored(TOO_MANY.to_owned()));
            }
            return;
        };
        let span = tracing::info_span!("authorize", otel.kind = "client", checks = open.len());
        let decisions = self.ask_all(&open, deadline).instrument(span).await;
        for (check, decision) in open.into_iter().zip(decisions) {
            answers.settle(check, decision);
        }
    }

    /// The answers in the order of the questions.
    async fn ask_all(&self, open: &[Check], deadline: Instant) -> Vec<Decision> {
        // Dropped with the review when its caller has gone, and the questions with it.
        let mut asking = JoinSet::new();
        for (index, check) in open.iter().enumerate() {
            let (this, check) = (self.clone(), check.clone());
            asking.spawn(async move { (index, this.ask(&check, deadline).await) }.in_current_span());
        }
        let mut results: Vec<_> = open.iter().map(|_| Err(AskError::Panicked)).collect();
        while let Some(ended) = asking.join_next().await {
            if let Ok((index, result)) = ended
                && let Some(place) = results.get_mut(index)
            {
                *place = result;
            }
        }
        let failed = || results.iter().filter_map(|result| result.as_ref().err());
        if let Some(error) = failed().next() {
            let failed = failed().count();
            tracing::warn!(
                error = error.explain(),
                failed,
                "the API server did not answer what policies ask of the authorizer"
            );
        }
        let decide = |result: Result<_, AskError>| match result {
            Ok(status) => decision(status),
            Err(error) => errored(error.explain()),
        };
        results.into_iter().map(decide).collect()
    }

    async fn ask(&self, check: &Check, deadline: Instant) -> Result<SubjectAccessReviewStatus, AskError> {
        let begun = Instant::now();
        // What went wrong before the time was up tells more than that it is.
        let mut last = AskError::Late;
        let result = match timeout_at(deadline, self.attempts(check, &mut last)).await {
            Ok(result) => result,
            Err(_) => Err(last),
        };
        let outcome = match &result {
            Ok(status) if status.denied == Some(true) => AccessReviewResult::Denied,
            Ok(status) if status.allowed => AccessReviewResult::Allowed,
            Ok(_) => AccessReviewResult::NoOpinion,
            Err(AskError::Late) => AccessReviewResult::Timeout,
            Err(_) => AccessReviewResult::Error,
        };
        self.meters.observe(outcome, begun.elapsed());
        result
    }

    async fn attempts(
        &self,
        check: &Check,
        last: &mut AskError,
    ) -> Result<SubjectAccessReviewStatus, AskError> {
        let (mut attempt, mut backoff) = (1, BACKOFF);
        loop {
            let place = self.places.acquire().await;
            let error = match timeout(ATTEMPT_TIMEOUT, self.asked.ask(check)).await {
                Ok(Ok(status)) => return Ok(status),
                Ok(Err(error)) => error,
                Err(_) => AskError::Late,
            };
            drop(place);
            if attempt >= ATTEMPTS || !error.is_passing() {
                return Err(error);
            }
            *last = error;
            tokio::time::sleep(backoff).await;
            attempt += 1;
            backoff *= 2;
        }
    }
}

/// A question as the API server reads it.
fn question(check: &Check) -> SubjectAccessReview {
    let Check { user, verb, subject } = check;
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    let verb = Some(verb.clone());
    let mut spec = SubjectAccessReviewSpec {
        user: text(&user.username),
        uid: text(&user.uid),
        groups: (!user.groups.is_empty()).then(|| user.groups.clone()),
        extra: (!user.extra.is_empty()).then(|| user.extra.clone()),
        ..SubjectAccessReviewSpec::default()
    };
    match subject {
        Subject::Path(path) => {
            let path = Some(path.clone());
            spec.non_resource_attributes = Some(NonResourceAttributes { path, verb });
        }
        Subject::Resource(resource) => {
            let Resource { group, resource, subresource, namespace, name, field_selector, label_selector } =
                resource;
            // Left to the API server to parse, as it parses those of its own expressions.
            let field_selector = text(field_selector).map(|raw| FieldSelectorAttributes {
                raw_selector: Some(raw),
                ..FieldSelectorAttributes::default()
            });
            let label_selector = text(label_selector).map(|raw| LabelSelectorAttributes {
                raw_selector: Some(raw),
                ..LabelSelectorAttributes::default()
            });
            spec.resource_attributes = Some(ResourceAttributes {
                group: text(group),
                resource: text(resource),
                subresource: text(subresource),
                namespace: text(namespace),
                name: text(name),
                verb,
                // Any.
                version: None,
                field_selector,
                label_selector,
            });
        }
    }
    SubjectAccessReview { spec, ..SubjectAccessReview::default() }
}

/// An answer as expressions see it.
fn decision(status: SubjectAccessReviewStatus) -> Decision {
    let SubjectAccessReviewStatus { allowed, denied, evaluation_error, reason } = status;
    let denied = denied.unwrap_or_default();
    let mut errors: Vec<&str> = evaluation_error.as_deref().unwrap_or_default().split("; ").collect();
    // A selector that it cannot parse the API server ignores; only here it says so, in its own expressions not.
    errors.retain(|error| !error.is_empty() && !is_ignored_selector(error));
    if allowed && denied {
        errors.push("the API server both allowed and denied it");
    }
    let error = (!errors.is_empty()).then(|| errors.join("; "));
    Decision { allowed: allowed && !denied, reason: reason.unwrap_or_default(), error }
}

fn is_ignored_selector(error: &str) -> bool {
    ["fieldSelector", "labelSelector"].iter().any(|selector| {
        let rest = error.strip_prefix("spec.resourceAttributes.").and_then(|it| it.strip_prefix(selector));
        rest.is_some_and(|rest| rest.ends_with("ignored due to parse error"))
    })
}

#[cfg(test)]
mod tests;
