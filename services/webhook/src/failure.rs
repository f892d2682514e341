//! What the front says when there is no decision to pass on: an HTTP error,
//! never an allow or a deny. The API server takes it as a failed call, and the
//! failurePolicy of the registration decides. The only table of its kind (G-03).

use std::time::Duration;

use axum::body::Body;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use sallyport_admission::{EnvelopeError, PatchError};
use tonic::Code;

use crate::door::DOORS;
use crate::outcome::Outcome;

/// A review that gets no decision.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Not a review that can be answered.
    #[error(transparent)]
    Envelope(EnvelopeError),
    /// The body broke off.
    #[error("the body broke off: {0}")]
    BrokenBody(String),
    /// The body is larger than the limit, in bytes.
    #[error("the review is larger than {0} bytes (--max-body-bytes of sallyport-webhook)")]
    TooLarge(usize),
    /// The body took longer than this.
    #[error("the body took longer than {} s", .0.as_secs())]
    SlowBody(Duration),
    /// Not JSON by its own word.
    #[error("the body is {0}; send application/json, not encoded")]
    MediaType(String),
    /// No such path.
    #[error("{0} is no door; known are {known}", known = DOORS.map(|door| door.path).join(", "))]
    Path(String),
    /// Not a POST.
    #[error("send AdmissionReviews with POST")]
    Method,
    /// Too much in flight here.
    #[error("too many {0} in flight; try again")]
    Overloaded(&'static str),
    /// This door has no backend.
    #[error("no {0} is configured (--{0} of sallyport-webhook)")]
    NoBackend(&'static str),
    /// A backend could not decide.
    #[error("the {backend} could not decide: {code:?}: {message}")]
    Undecided { backend: &'static str, code: Code, message: String },
    /// A backend decided something that the API server would choke on.
    #[error("the answer of the {backend} cannot be passed on: {fault}")]
    BadAnswer { backend: &'static str, fault: AnswerFault },
    /// A handler panicked.
    #[error("the review could not be handled; see the logs of sallyport-webhook")]
    Panic,
}

/// Why an answer of a backend cannot be passed on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerFault {
    /// C-27; the message has no such field today.
    #[error("a patch at a validating door")]
    PatchFromValidator,
    #[error("a patch together with a denial")]
    PatchWithDenial,
    #[error(transparent)]
    Patch(#[from] PatchError),
}

/// How a failure is answered and counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    pub(crate) status: StatusCode,
    /// Whether another attempt may end otherwise.
    pub(crate) retry: bool,
    pub(crate) outcome: Outcome,
}

impl Mapping {
    const fn new(status: StatusCode, outcome: Outcome) -> Self {
        Self { status, retry: false, outcome }
    }

    const fn with_retry(self) -> Self {
        Self { retry: true, ..self }
    }
}

const UNAVAILABLE: Mapping = Mapping::new(StatusCode::SERVICE_UNAVAILABLE, Outcome::Unavailable);
const TIMEOUT: Mapping = Mapping::new(StatusCode::GATEWAY_TIMEOUT, Outcome::Timeout);
const INTERNAL: Mapping = Mapping::new(StatusCode::INTERNAL_SERVER_ERROR, Outcome::Error);

/// A backend's gRPC codes that are not answered as [`INTERNAL`].
const CODES: [(Code, Mapping); 4] = [
    (Code::Unavailable, UNAVAILABLE.with_retry()),
    (Code::ResourceExhausted, Mapping::new(StatusCode::TOO_MANY_REQUESTS, Outcome::Overloaded).with_retry()),
    (Code::DeadlineExceeded, TIMEOUT),
    // tonic reports an expired call as Cancelled (G-02).
    (Code::Cancelled, TIMEOUT),
];

impl Failure {
    /// How the failure is answered and counted.
    pub(crate) fn mapping(&self) -> Mapping {
        let malformed = |status| Mapping::new(status, Outcome::Malformed);
        match self {
            Self::Envelope(_) | Self::BrokenBody(_) => malformed(StatusCode::BAD_REQUEST),
            Self::TooLarge(_) => malformed(StatusCode::PAYLOAD_TOO_LARGE),
            Self::SlowBody(_) => malformed(StatusCode::REQUEST_TIMEOUT),
            Self::MediaType(_) => malformed(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            Self::Path(_) => malformed(StatusCode::NOT_FOUND),
            Self::Method => malformed(StatusCode::METHOD_NOT_ALLOWED),
            Self::Overloaded(_) => {
                Mapping::new(StatusCode::SERVICE_UNAVAILABLE, Outcome::Overloaded).with_retry()
            }
            // A retry would not help: a flag has to be set.
            Self::NoBackend(_) => UNAVAILABLE,
            Self::Undecided { code, .. } => {
                CODES.iter().find(|(known, _)| known == code).map_or(INTERNAL, |(_, mapping)| *mapping)
            }
            Self::BadAnswer { .. } | Self::Panic => INTERNAL,
        }
    }

    /// The HTTP answer. `left` is the time that the caller still has: asking it
    /// to come again makes sense only while there is some (C-09).
    pub(crate) fn response(&self, left: Duration) -> Response<Body> {
        let Mapping { status, retry, .. } = self.mapping();
        let mut response = Response::new(Body::from(format!("{self}\n")));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if retry && !left.is_zero() {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if matches!(self, Self::Method) {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        if matches!(self, Self::TooLarge(_) | Self::SlowBody(_) | Self::BrokenBody(_)) {
            // What is left of the body is not worth reading.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::header::RETRY_AFTER;
    use tonic::Code;

    use super::Failure;

    fn undecided(code: Code) -> Failure {
        Failure::Undecided { backend: "mutator", code, message: "m".into() }
    }

    #[test]
    fn a_backends_status_becomes_a_failed_call_g03() {
        for (code, status, again) in [
            (Code::Unavailable, 503, true),
            (Code::ResourceExhausted, 429, true),
            (Code::DeadlineExceeded, 504, false),
            (Code::Cancelled, 504, false),
            (Code::Internal, 500, false),
            (Code::Unknown, 500, false),
            (Code::Unimplemented, 500, false),
            (Code::PermissionDenied, 500, false),
            (Code::Ok, 500, false),
        ] {
            let response = undecided(code).response(Duration::from_secs(1));
            assert_eq!(response.status(), status, "{code:?}");
            assert_eq!(
                response.headers().get(RETRY_AFTER).is_some_and(|value| value == "1"),
                again,
                "{code:?}"
            );
        }
    }

    #[test]
    fn nobody_is_asked_to_come_again_when_time_is_up_c09() {
        let response = undecided(Code::Unavailable).response(Duration::ZERO);
        assert!(response.headers().get(RETRY_AFTER).is_none());
    }
}
