//! Trace context across hops: W3C `traceparent` in, `traceparent` out.
//!
//! Works on `http::HeaderMap`, which HTTP requests have and tonic's metadata is (`MetadataMap::into_headers`,
//! `MetadataMap::from_headers`, `AsMut<HeaderMap>`). While no exporter is installed both directions return
//! at once.

use std::sync::OnceLock;

use http::HeaderMap;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Empty while nothing is exported.
static PROPAGATOR: OnceLock<TraceContextPropagator> = OnceLock::new();

/// Turns propagation on for the process.
pub(crate) fn propagate() {
    PROPAGATOR.get_or_init(TraceContextPropagator::new);
}

/// The span of a request that came in: named `name` in traces (`review` at the front, `evaluate` at a
/// backend), child of the caller's span if the headers carry one.
///
/// Its fields `uid`, `operation`, `resource` and `outcome` are empty for the caller to record. A service that
/// wants other fields makes its own span and calls [`adopt_parent`].
pub fn server_span(name: &'static str, headers: &HeaderMap) -> Span {
    let span = tracing::info_span!(
        "request",
        otel.name = name,
        otel.kind = "server",
        uid = tracing::field::Empty,
        operation = tracing::field::Empty,
        resource = tracing::field::Empty,
        outcome = tracing::field::Empty,
    );
    adopt_parent(&span, headers);
    span
}

/// Makes `span` a child of the span named in the headers, if they name one. Before the span is entered.
pub fn adopt_parent(span: &Span, headers: &HeaderMap) {
    let Some(propagator) = PROPAGATOR.get() else { return };
    if span.is_disabled() || !headers.contains_key("traceparent") {
        return;
    }
    let context = propagator.extract_with_context(&opentelemetry::Context::new(), &HeaderExtractor(headers));
    // Fails only where no trace layer is installed, and then there is nothing to be child of.
    let _ = span.set_parent(context);
}

/// The span of a call to a backend, named `backend call`; [`inject`] it into the call's metadata.
pub fn client_span(backend: &'static str) -> Span {
    tracing::info_span!("backend call", otel.kind = "client", backend, code = tracing::field::Empty)
}

/// Writes the context of `span` into the headers of an outgoing call, replacing what they had.
pub fn inject(span: &Span, headers: &mut HeaderMap) {
    let Some(propagator) = PROPAGATOR.get() else { return };
    if span.is_disabled() {
        return;
    }
    propagator.inject_context(&span.context(), &mut HeaderInjector(headers));
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use opentelemetry::trace::{TraceContextExt, TracerProvider as _};
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_opentelemetry::OpenTelemetrySpanExt;
    use tracing_subscriber::prelude::*;

    use super::{adopt_parent, client_span, inject, propagate, server_span};

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn headers(traceparent: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", traceparent.parse().unwrap());
        headers
    }

    fn traced<T>(run: impl FnOnce() -> T) -> T {
        propagate();
        let provider = SdkTracerProvider::builder().build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), run)
    }

    /// G-09: API server → front → backend stay in one trace, each the child of the one before.
    #[test]
    fn a_context_survives_both_hops() {
        traced(|| {
            let review = server_span("review", &headers(&format!("00-{TRACE}-00f067aa0ba902b7-01")));
            let call = review.in_scope(|| client_span("mutator"));
            let mut metadata = headers("00-00000000000000000000000000000001-0000000000000001-01");
            inject(&call, &mut metadata);
            let sent = metadata["traceparent"].to_str().unwrap().to_owned();
            let call_id = call.context().span().span_context().span_id().to_string();
            assert_eq!(sent, format!("00-{TRACE}-{call_id}-01"));
            let evaluate = server_span("evaluate", &metadata);
            assert_eq!(evaluate.context().span().span_context().trace_id().to_string(), TRACE);
        });
    }

    /// A caller that does not sample is not overruled.
    #[test]
    fn an_unsampled_parent_stays_unsampled() {
        traced(|| {
            let span = server_span("review", &headers(&format!("00-{TRACE}-00f067aa0ba902b7-00")));
            let mut out = HeaderMap::new();
            inject(&span, &mut out);
            let sent = out["traceparent"].to_str().unwrap();
            assert!(sent.starts_with(&format!("00-{TRACE}-")) && sent.ends_with("-00"), "{sent}");
        });
    }

    #[test]
    fn without_a_readable_parent_a_new_trace_begins() {
        let long = "0".repeat(4096);
        for hostile in
            ["", "garbage", "00-0-0-0", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", &long]
        {
            traced(|| {
                let span = server_span("review", &headers(hostile));
                let context = span.context();
                let id = context.span().span_context().trace_id();
                assert_ne!(id, opentelemetry::trace::TraceId::INVALID, "{hostile}");
                assert_ne!(id.to_string(), TRACE, "{hostile}");
            });
        }
    }

    #[test]
    fn a_disabled_span_sends_nothing() {
        propagate();
        let mut out = HeaderMap::new();
        let span = server_span("review", &HeaderMap::new());
        adopt_parent(&span, &headers(&format!("00-{TRACE}-00f067aa0ba902b7-01")));
        inject(&span, &mut out);
        assert!(out.is_empty());
    }
}
