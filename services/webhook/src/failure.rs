//! What the front says when there is no decision to pass on: an HTTP error,
//! never an allow or a deny. The API server takes it as a failed call, and the
//! failurePolicy of the registration decides. The only table of its kind (G-03).

use axum::body::Body;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use sallyport_admission::EnvelopeError;
use std::borrow::Cow;
use std::time::Duration;
use tonic::Code;

/// A review that gets no decision.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Not a review that can be answered.
    Envelope(EnvelopeError),
    /// The body broke off.
    BrokenBody(String),
    /// The body is larger than the limit, in bytes.
    TooLarge(usize),
    /// The body took longer than this.
    SlowBody(Duration),
    /// Not JSON by its own word.
    MediaType(String),
    /// No such path.
    Path(String),
    /// Not a POST.
    Method,
    /// Too much in flight here.
    Overloaded(&'static str),
    /// This door has no backend.
    NoBackend(&'static str),
    /// A backend could not decide.
    Undecided { backend: &'static str, code: Code, message: String },
    /// A backend decided something that the API server would choke on.
    BadAnswer { backend: &'static str, fault: String },
    /// A handler panicked.
    Panic,
}

impl Failure {
    /// Status, whether to come again, and the outcome in metrics.
    pub(crate) fn mapping(&self) -> (StatusCode, bool, &'static str) {
        match self {
            Self::Envelope(_) | Self::BrokenBody(_) => (StatusCode::BAD_REQUEST, false, "malformed"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, false, "malformed"),
            Self::SlowBody(_) => (StatusCode::REQUEST_TIMEOUT, false, "malformed"),
            Self::MediaType(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, false, "malformed"),
            Self::Path(_) => (StatusCode::NOT_FOUND, false, "malformed"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, false, "malformed"),
            Self::Overloaded(_) => (StatusCode::SERVICE_UNAVAILABLE, true, "overloaded"),
            // Coming again would not help: somebody has to set a flag.
            Self::NoBackend(_) => (StatusCode::SERVICE_UNAVAILABLE, false, "unavailable"),
            Self::Undecided { code, .. } => match code {
                Code::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, true, "unavailable"),
                Code::ResourceExhausted => (StatusCode::TOO_MANY_REQUESTS, true, "overloaded"),
                // tonic reports an expired call as Cancelled (G-02).
                Code::DeadlineExceeded | Code::Cancelled => (StatusCode::GATEWAY_TIMEOUT, false, "timeout"),
                _ => (StatusCode::INTERNAL_SERVER_ERROR, false, "error"),
            },
            Self::BadAnswer { .. } | Self::Panic => (StatusCode::INTERNAL_SERVER_ERROR, false, "error"),
        }
    }

    fn message(&self) -> Cow<'static, str> {
        match self {
            Self::Envelope(error) => error.to_string().into(),
            Self::BrokenBody(error) => format!("the body broke off: {error}").into(),
            Self::TooLarge(limit) => {
                format!("the review is larger than {limit} bytes (--max-body-bytes of sallyport-webhook)")
                    .into()
            }
            Self::SlowBody(limit) => format!("the body took longer than {} s", limit.as_secs()).into(),
            Self::MediaType(kind) => format!("the body is {kind}; send application/json, not encoded").into(),
            Self::Path(path) => {
                let known = crate::door::DOORS.map(|door| door.path).join(", ");
                format!("{path} is no door; known are {known}").into()
            }
            Self::Method => "send AdmissionReviews with POST".into(),
            Self::Overloaded(what) => format!("too many {what} in flight; try again").into(),
            Self::NoBackend(backend) => {
                format!("no {backend} is configured (--{backend} of sallyport-webhook)").into()
            }
            Self::Undecided { backend, code, message } => {
                format!("the {backend} could not decide: {code:?}: {message}").into()
            }
            Self::BadAnswer { backend, fault } => {
                format!("the answer of the {backend} cannot be passed on: {fault}").into()
            }
            Self::Panic => "the review could not be handled; see the logs of sallyport-webhook".into(),
        }
    }

    /// The HTTP answer. `left` is the time that the caller still has: asking it
    /// to come again makes sense only while there is some (C-09).
    pub(crate) fn response(&self, left: Duration) -> Response<Body> {
        let (status, again, _) = self.mapping();
        let mut response = Response::new(Body::from(format!("{}\n", self.message())));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if again && !left.is_zero() {
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

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.message())
    }
}

#[cfg(test)]
mod tests {
    use super::Failure;
    use http::header::RETRY_AFTER;
    use std::time::Duration;
    use tonic::Code;

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
