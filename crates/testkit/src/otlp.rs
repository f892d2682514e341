//! An OTLP/gRPC trace receiver on loopback that keeps the spans it is sent.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// One finished span, as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The resource's `service.name`; empty when it has none.
    pub service: String,
    /// The span's name.
    pub name: String,
    /// `SPAN_KIND_SERVER` and so on.
    pub kind: &'static str,
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// 16 hexadecimal digits.
    pub span_id: String,
    /// 16 hexadecimal digits, or empty for a root span.
    pub parent_span_id: String,
    /// Attributes; values that are no strings are rendered in their usual notation.
    pub attributes: BTreeMap<String, String>,
    /// Whether the span's status is an error.
    pub failed: bool,
    /// Nanoseconds from start to end.
    pub duration_ns: u64,
}

/// A running receiver. Dropping it stops it.
pub struct TraceReceiver {
    address: SocketAddr,
    spans: watch::Receiver<Vec<Span>>,
    serving: JoinHandle<()>,
}

impl TraceReceiver {
    /// Listens on a free loopback port.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("failed to bind the trace receiver")?;
        let address = listener.local_addr().context("failed to read the trace receiver's address")?;
        let (sender, spans) = watch::channel(Vec::new());
        let service = TraceServiceServer::new(Collector(sender));
        let serving = tokio::spawn(async move {
            // A receiver that has failed receives nothing more, which is what the tests look at.
            let _ =
                Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener)).await;
        });
        Ok(Self { address, spans, serving })
    }

    /// Host and port, as the API server's tracing configuration wants it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Everything received so far, in order of arrival.
    pub fn spans(&self) -> Vec<Span> {
        self.spans.borrow().clone()
    }

    /// Waits until the spans received satisfy `predicate` and returns them all. Fails, naming the spans that did
    /// come, after `timeout`.
    pub async fn wait_for(
        &self,
        timeout: Duration,
        mut predicate: impl FnMut(&[Span]) -> bool,
    ) -> Result<Vec<Span>> {
        let mut spans = self.spans.clone();
        match time::timeout(timeout, spans.wait_for(|spans| predicate(spans))).await {
            Ok(Ok(spans)) => return Ok(spans.clone()),
            Ok(Err(_)) => return Err(anyhow!("the trace receiver has stopped")),
            Err(_) => {}
        }
        let mut message = format!("the spans wanted have not come within {timeout:?}; received:");
        for span in self.spans() {
            let (service, name) = (&span.service, &span.name);
            // Writing to a string cannot fail.
            let _ = write!(message, "\n  {} {service}: {name}", span.trace_id);
        }
        Err(anyhow!(message))
    }
}

impl Drop for TraceReceiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

struct Collector(watch::Sender<Vec<Span>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut received = Vec::new();
        for resource in request.into_inner().resource_spans {
            let described =
                attributes(resource.resource.map(|resource| resource.attributes).unwrap_or_default());
            let service = described.get("service.name").cloned().unwrap_or_default();
            for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                received.push(Span {
                    service: service.clone(),
                    kind: span.kind().as_str_name(),
                    failed: span.status.as_ref().is_some_and(|status| status.code == ERROR),
                    name: span.name,
                    trace_id: hex(&span.trace_id),
                    span_id: hex(&span.span_id),
                    parent_span_id: hex(&span.parent_span_id),
                    attributes: attributes(span.attributes),
                    duration_ns: span.end_time_unix_nano.saturating_sub(span.start_time_unix_nano),
                });
            }
        }
        self.0.send_modify(|spans| spans.append(&mut received));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// `STATUS_CODE_ERROR`.
const ERROR: i32 = 2;

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|pair| (pair.key, text(pair.value))).collect()
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(Any::StringValue(value)) => value,
        Some(Any::BoolValue(value)) => value.to_string(),
        Some(Any::IntValue(value)) => value.to_string(),
        Some(Any::DoubleValue(value)) => value.to_string(),
        Some(other) => format!("{other:?}"),
        None => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
