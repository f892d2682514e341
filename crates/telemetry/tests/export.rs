//! Export to a real OTLP receiver. The subscriber and the `OTEL_…` variables belong to a process, so each
//! test runs this same program again as a child with the environment it is about.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::{Command, Output};
use std::time::Duration;

use sallyport_telemetry::{LogFormat, TelemetryArgs, install, trace};
use sallyport_testkit::otlp::TraceReceiver;

const CHILD: &str = "TELEMETRY_TEST_CHILD";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// What the child does: one request with one call, then the end. Nothing when run as a test of its own.
#[tokio::test(flavor = "multi_thread")]
async fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let args = TelemetryArgs { log_format: LogFormat::Json, ..TelemetryArgs::default() };
    let tracing = install("webhook", &args).unwrap();
    assert!(install("webhook", &args).is_err(), "a second subscriber was accepted");
    let mut headers = http::HeaderMap::new();
    headers.insert("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01").parse().unwrap());
    let review = trace::server_span("review", &headers);
    let call = review.in_scope(|| trace::client_span("mutator"));
    let mut sent = http::HeaderMap::new();
    trace::inject(&call, &mut sent);
    println!("exports={} sent={:?}", tracing.exports(), sent.get("traceparent"));
    drop((call, review));
    tracing.shutdown().await;
}

async fn run_child(environment: Vec<(&'static str, String)>) -> Output {
    let run = move || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).env(CHILD, "1");
        for name in
            ["OTEL_SERVICE_NAME", "OTEL_SDK_DISABLED", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"]
        {
            command.env_remove(name);
        }
        command.env_remove("OTEL_EXPORTER_OTLP_ENDPOINT").env_remove("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        command.envs(environment).output().unwrap()
    };
    let output = tokio::time::timeout(Duration::from_secs(30), tokio::task::spawn_blocking(run)).await;
    let output = output.expect("the child did not end").unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// G-09: the receiver sees both spans in the caller's trace, under the service's own name.
#[tokio::test(flavor = "multi_thread")]
async fn spans_reach_the_receiver_in_the_callers_trace() {
    let receiver = TraceReceiver::start().await.unwrap();
    run_child(vec![("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url())]).await;
    let spans = receiver.spans();
    let find =
        |name: &str| spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("{spans:?}"));
    let (review, call) = (find("review"), find("backend call"));
    assert_eq!(spans.len(), 2, "{spans:?}");
    assert_eq!((review.trace_id.as_str(), call.trace_id.as_str()), (TRACE, TRACE));
    assert_eq!(review.parent_span_id, "00f067aa0ba902b7");
    assert_eq!(call.parent_span_id, review.span_id);
    assert_eq!(review.service, "sallyport-webhook");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_standard_variables_name_the_service_and_stop_the_export() {
    let receiver = TraceReceiver::start().await.unwrap();
    let endpoint = || ("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url());
    let output = run_child(vec![endpoint(), ("OTEL_SDK_DISABLED", "true".into())]).await;
    assert!(String::from_utf8_lossy(&output.stdout).contains("exports=false sent=None"));
    run_child(vec![endpoint(), ("OTEL_TRACES_SAMPLER", "always_off".into())]).await;
    assert!(receiver.spans().is_empty(), "{:?}", receiver.spans());
    run_child(vec![endpoint(), ("OTEL_SERVICE_NAME", "front".into())]).await;
    let spans = receiver.spans();
    assert!(spans.len() == 2 && spans.iter().all(|span| span.service == "front"), "{spans:?}");
}

/// A collector that is away costs a log line and a bounded wait, nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn an_absent_collector_shows_in_the_log() {
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let output = run_child(vec![("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"))]).await;
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.lines().any(|line| line.contains("opentelemetry") || line.contains("last spans")), "{log}");
}
