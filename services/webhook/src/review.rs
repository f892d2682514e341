//! One review, from the body to the answer.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Request, Response};
use sallyport_admission::{Answer, Operation, Patch, Review, Status};
use sallyport_net::Balancer;
use sallyport_proto::conversion::Objects;
use sallyport_proto::v1alpha1::ReviewRequest;
use sallyport_proto::v1alpha1::mutator_client::MutatorClient;
use sallyport_proto::v1alpha1::validator_client::ValidatorClient;
use sallyport_telemetry::trace;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tonic::Code;
use tracing::{Instrument, Span};

use crate::body;
use crate::deadline;
use crate::door::{Door, Side};
use crate::failure::{AnswerFault, Failure, Mapping};
use crate::metrics::Up;
use crate::outcome::Outcome;
use crate::state::State;

/// Answers a request at a door.
pub(crate) async fn handle(state: Arc<State>, door: &'static Door, request: Request<Body>) -> Response<Body> {
    let begun = Instant::now();
    let span = trace::server_span("review", request.headers());
    let mut record = Record { state: &state, door, begun, operation: Operation::Unknown, outcome: None };
    let granted = deadline::granted(request.uri().query(), state.default_timeout);
    let decided = decide(&state, door, request, begun + granted, &mut record).instrument(span.clone()).await;
    let (outcome, response) = match decided {
        Ok((outcome, body)) => {
            let mut response = Response::new(Body::from(body));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            (outcome, response)
        }
        Err(failure) => {
            let Mapping { status, outcome, .. } = failure.mapping();
            span.in_scope(|| {
                tracing::warn!(door = door.name, status = status.as_u16(), outcome = outcome.as_str(), error = %failure, "no decision");
            });
            let left = (begun + granted).saturating_duration_since(Instant::now());
            (outcome, failure.response(left))
        }
    };
    span.record("outcome", outcome.as_str());
    record.outcome = Some(outcome);
    response
}

/// Counts a review when it ends, whether answered or given up by its sender.
struct Record<'a> {
    state: &'a State,
    door: &'static Door,
    begun: Instant,
    operation: Operation,
    outcome: Option<Outcome>,
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        let outcome = self.outcome.unwrap_or(Outcome::Cancelled);
        self.state.metrics.record_review(self.door, self.operation, outcome, self.begun.elapsed());
    }
}

async fn decide(
    state: &Arc<State>,
    door: &'static Door,
    request: Request<Body>,
    deadline: Instant,
    record: &mut Record<'_>,
) -> Result<(Outcome, Vec<u8>), Failure> {
    body::check_media_type(request.headers())?;
    let _permit = state.permits.try_acquire().map_err(|_| Failure::Overloaded("reviews"))?;
    let _up = Up::new(&state.metrics.reviews_in_flight);
    let (body, _reservation) = body::read(request.into_body(), state.max_body_bytes, &state.budget).await?;
    let review = Review::parse(&body).map_err(Failure::Envelope)?;
    let message = ReviewRequest::new(&review.request, objects(&review, &body), door.failure_policy);
    record.operation = review.request.operation;
    let span = Span::current();
    span.record("uid", review.request.uid.as_ref());
    span.record("operation", review.operation.as_ref());
    span.record("resource", review.request.resource.resource.as_ref());

    let called = call(state, door, message, deadline).await;
    let mut answer = match called {
        Ok(answer) => answer,
        // The object itself is at fault: that is the user's to know, not the operator's (G-03).
        Err(Failure::Undecided { code: Code::InvalidArgument, message, .. }) => {
            Answer::deny(Status { code: 400, reason: "BadRequest".into(), message, causes: Vec::new() })
        }
        Err(failure) => {
            log_failure(&review, door, &failure, record.begun.elapsed());
            return Err(failure);
        }
    };
    check_answer(&mut answer, &review, door).map_err(|fault| {
        let failure = Failure::BadAnswer { backend: door.side.backend(), fault };
        log_failure(&review, door, &failure, record.begun.elapsed());
        failure
    })?;
    let dropped = answer.clean();
    if !dropped.is_empty() {
        state.metrics.dropped_annotations.inc_by(dropped.len() as u64);
        tracing::warn!(uid = %review.request.uid, keys = ?dropped, "dropped audit annotations with invalid keys");
    }
    let outcome = match (answer.allowed, answer.patch.is_empty()) {
        (false, _) => Outcome::Denied,
        (true, false) => Outcome::Patched,
        (true, true) => Outcome::Allowed,
    };
    log_decision(&review, door, outcome, &answer, record.begun.elapsed());
    Ok((outcome, answer.render(review.api_version, &review.request.uid)))
}

/// The objects of a review that was read from `body`, as slices of it.
fn objects(review: &Review<'_>, body: &Bytes) -> Objects {
    let slice =
        |raw: Option<&RawValue>| raw.map(|raw| body.slice_ref(raw.get().as_bytes())).unwrap_or_default();
    Objects {
        object: slice(review.object),
        old_object: slice(review.old_object),
        options: slice(review.options),
    }
}

/// Has a backend decide.
async fn call(
    state: &State,
    door: &'static Door,
    message: ReviewRequest,
    deadline: Instant,
) -> Result<Answer, Failure> {
    let side = door.side;
    let backend = side.backend();
    let balancer: &Arc<Balancer> = state.backend(side).ok_or(Failure::NoBackend(backend))?;
    let span = trace::client_span(backend);
    let limit = state.max_message_bytes;
    let attempt = |channel: tonic::transport::Channel, left: Duration| {
        let request = prepare_request(message.clone(), &span, left);
        async move {
            match side {
                Side::Mutate => {
                    let mut client = MutatorClient::new(channel).max_decoding_message_size(limit);
                    client.mutate(request).await.map(|answer| answer.into_inner().into())
                }
                Side::Validate => {
                    let mut client = ValidatorClient::new(channel).max_decoding_message_size(limit);
                    client.validate(request).await.map(|answer| answer.into_inner().into())
                }
            }
        }
    };
    let begun = Instant::now();
    let up = Up::new(state.metrics.calls_in_flight(side));
    let answer = balancer.call(deadline, attempt).instrument(span.clone()).await;
    drop(up);
    let code = answer.as_ref().map_or_else(tonic::Status::code, |_| Code::Ok);
    state.metrics.record_call(side, code, begun.elapsed());
    span.record("code", tracing::field::debug(code));
    answer.map_err(|status| Failure::Undecided { backend, code, message: status.message().to_owned() })
}

/// The request with its deadline and trace context (G-02, G-09).
fn prepare_request(message: ReviewRequest, span: &Span, left: Duration) -> tonic::Request<ReviewRequest> {
    let mut headers = HeaderMap::new();
    trace::inject(span, &mut headers);
    let metadata = tonic::metadata::MetadataMap::from_headers(headers);
    let mut request = tonic::Request::from_parts(metadata, http::Extensions::new(), message);
    request.set_timeout(left);
    request
}

/// Holds a backend's answer against what the API server takes (G-04).
fn check_answer(answer: &mut Answer, review: &Review<'_>, door: &Door) -> Result<(), AnswerFault> {
    if answer.patch.is_empty() {
        return Ok(());
    }
    if door.side == Side::Validate {
        return Err(AnswerFault::PatchFromValidator);
    }
    if !answer.allowed {
        return Err(AnswerFault::PatchWithDenial);
    }
    let patch = Patch::parse(&answer.patch)?;
    if patch.is_empty() {
        answer.patch = Vec::new(); // C-28
        return Ok(());
    }
    Ok(patch.verify(review.object)?)
}

fn log_decision(review: &Review<'_>, door: &Door, outcome: Outcome, answer: &Answer, took: Duration) {
    macro_rules! line {
        ($level:ident, $($more:tt)*) => {
            tracing::$level!(
                uid = %review.request.uid,
                door = door.name,
                operation = review.operation.as_ref(),
                resource = %Resource(review),
                namespace = %review.request.namespace,
                name = %Name(review),
                user = %review.request.user_info.username,
                dry_run = review.request.dry_run,
                outcome = outcome.as_str(),
                duration = took.as_secs_f64(),
                $($more)*
            )
        };
    }
    match &answer.status {
        Some(status) => line!(info, code = status.code, message_shown = %status.message, "reviewed"),
        None if outcome == Outcome::Allowed => line!(debug, "reviewed"),
        None => line!(info, "reviewed"),
    }
}

fn log_failure(review: &Review<'_>, door: &Door, failure: &Failure, took: Duration) {
    tracing::warn!(
        uid = %review.request.uid,
        door = door.name,
        operation = review.operation.as_ref(),
        resource = %Resource(review),
        namespace = %review.request.namespace,
        name = %Name(review),
        user = %review.request.user_info.username,
        dry_run = review.request.dry_run,
        error = %failure,
        duration = took.as_secs_f64(),
        "review failed"
    );
}

/// `resource.group/subresource` as in audit logs.
struct Resource<'a, 'b>(&'a Review<'b>);

impl std::fmt::Display for Resource<'_, '_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sallyport_admission::Request { resource, sub_resource, .. } = &self.0.request;
        formatter.write_str(&resource.resource)?;
        if !resource.group.is_empty() {
            write!(formatter, ".{}", resource.group)?;
        }
        if !sub_resource.is_empty() {
            write!(formatter, "/{sub_resource}")?;
        }
        Ok(())
    }
}

/// The name, or what the API server will make it from.
struct Name<'a, 'b>(&'a Review<'b>);

impl std::fmt::Display for Name<'_, '_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            #[serde(default)]
            generate_name: String,
        }
        #[derive(serde::Deserialize)]
        struct Named {
            metadata: Metadata,
        }
        if !self.0.request.name.is_empty() {
            return formatter.write_str(&self.0.request.name);
        }
        let named = self.0.object.and_then(|object| serde_json::from_str::<Named>(object.get()).ok());
        match named.map(|named| named.metadata.generate_name) {
            Some(prefix) if !prefix.is_empty() => write!(formatter, "{prefix}*"),
            _ => Ok(()),
        }
    }
}

/// Responds 404 Not Found to a path that is no door.
pub(crate) fn respond_unknown_path(path: &str) -> Response<Body> {
    Failure::Path(path.chars().take(200).collect()).response(Duration::ZERO)
}

/// Responds 405 Method Not Allowed to any method other than POST.
pub(crate) fn respond_wrong_method() -> Response<Body> {
    Failure::Method.response(Duration::ZERO)
}

/// Responds 500 Internal Server Error for a handler that panicked.
pub(crate) fn respond_panic() -> Response<Body> {
    Failure::Panic.response(Duration::ZERO)
}
