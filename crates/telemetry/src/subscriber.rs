//! Logs and traces of the process: one subscriber, installed once.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::panic::PanicHookInfo;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use sallyport_error_chain::format_chain;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{EnvFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

use crate::arguments::{LogFormat, TelemetryArgs};
use crate::trace;

/// How long the last spans may take to be sent at the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// What can go wrong when telemetry starts.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// `--log-level` is not a filter.
    #[error("--log-level (SALLYPORT_LOG_LEVEL) {value:?} is neither a level nor a list of target=level")]
    LogLevel {
        /// What was given.
        value: String,
        /// Why it was refused.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The `OTEL_EXPORTER_OTLP_…` variables do not make an exporter.
    #[error("failed to make the OTLP exporter from the OTEL_EXPORTER_OTLP_… variables")]
    Exporter(#[source] opentelemetry_otlp::ExporterBuildError),
    /// An exporter was asked for outside a tokio runtime.
    #[error("OTLP export needs a tokio runtime: telemetry must be installed inside it")]
    NoRuntime,
    /// The process has a subscriber already.
    #[error("logs and traces of this process are installed already")]
    AlreadyInstalled(#[source] tracing_subscriber::util::TryInitError),
    /// The admin address cannot be bound.
    #[error("failed to serve --admin-address (SALLYPORT_ADMIN_ADDRESS) {address}")]
    Admin {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Holds what must be flushed at the end of the process.
#[derive(Debug)]
pub struct Tracing {
    provider: Option<SdkTracerProvider>,
}

impl Tracing {
    /// Whether spans are exported.
    pub fn exports(&self) -> bool {
        self.provider.is_some()
    }

    /// Sends the spans that are still buffered, for at most five seconds, and ends the export.
    pub async fn shutdown(self) {
        let Some(provider) = self.provider else { return };
        // The SDK blocks its caller; a worker thread of the runtime must not be it.
        let flushed =
            tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_TIMEOUT)).await;
        if let Ok(Err(error)) = flushed {
            tracing::warn!(error = format_chain(&error), "failed to send the last spans");
        }
    }
}

/// Installs logs, traces and the panic hook for the whole process. Call once, inside a tokio runtime.
///
/// Logs go to standard error. Spans are exported over OTLP/gRPC when `OTEL_EXPORTER_OTLP_ENDPOINT` or
/// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set and `OTEL_SDK_DISABLED` is not `true`; `OTEL_TRACES_SAMPLER`
/// with `OTEL_TRACES_SAMPLER_ARG` (default `parentbased_always_on`), `OTEL_SERVICE_NAME` (default
/// `sallyport-<service>`) and `OTEL_RESOURCE_ATTRIBUTES` mean what OpenTelemetry says.
pub fn install(service: &'static str, args: &TelemetryArgs) -> Result<Tracing, TelemetryError> {
    let filter = log_filter(&args.log_level)?;
    let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let provider = if export_wanted(|name| std::env::var(name).ok()) {
        Some(exporting_provider(service)?)
    } else {
        None
    };
    let traces = provider.as_ref().map(|provider| {
        // Without location, thread, target and idle times a span costs a third less.
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("sallyport"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(trace_filter())
    });
    Registry::default()
        .with(log_layer(args.log_format, ansi, std::io::stderr).with_filter(filter))
        .with(traces)
        .try_init()
        .map_err(TelemetryError::AlreadyInstalled)?;
    if provider.is_some() {
        trace::propagate();
    }
    std::panic::set_hook(Box::new(log_panic));
    Ok(Tracing { provider })
}

fn log_filter(value: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::builder()
        .parse(value)
        .map_err(|source| TelemetryError::LogLevel { value: value.to_owned(), source })
}

/// The libraries under the exporter would otherwise be traced by the exporter, without end.
fn trace_filter() -> Targets {
    ["h2", "hyper", "hyper_util", "opentelemetry", "rustls", "tonic", "tower"]
        .into_iter()
        .fold(Targets::new().with_default(LevelFilter::INFO), |targets, name| {
            targets.with_target(name, LevelFilter::OFF)
        })
}

/// Whether the environment asks for export. Empty values count as unset, as OpenTelemetry says.
fn export_wanted(variable: impl Fn(&str) -> Option<String>) -> bool {
    let is = |name: &str, value: &str| variable(name).is_some_and(|v| v.trim().eq_ignore_ascii_case(value));
    let has = |name: &str| variable(name).is_some_and(|v| !v.trim().is_empty());
    !is("OTEL_SDK_DISABLED", "true")
        && !is("OTEL_TRACES_EXPORTER", "none")
        && (has("OTEL_EXPORTER_OTLP_ENDPOINT") || has("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))
}

fn exporting_provider(service: &'static str) -> Result<SdkTracerProvider, TelemetryError> {
    // The exporter's channel spawns its connection on the current runtime and panics without one.
    tokio::runtime::Handle::try_current().map_err(|_| TelemetryError::NoRuntime)?;
    let exporter = SpanExporter::builder().with_tonic().build().map_err(TelemetryError::Exporter)?;
    // The sampler comes from OTEL_TRACES_SAMPLER: the builder's default reads it.
    Ok(SdkTracerProvider::builder().with_resource(resource(service)).with_batch_exporter(exporter).build())
}

/// The resource from the environment; the service's own name where the environment has none.
fn resource(service: &str) -> Resource {
    let detected = Resource::builder().build();
    let name = detected.get(&"service.name".into()).map(|value| value.to_string()).unwrap_or_default();
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    // Attributes of the environment win over a default of ours.
    let mut builder = Resource::builder_empty().with_attribute(version);
    builder = builder.with_attributes(detected.iter().map(|(k, v)| KeyValue::new(k.clone(), v.clone())));
    if name.is_empty() || name.starts_with("unknown_service") {
        builder = builder.with_service_name(format!("sallyport-{service}"));
    }
    builder.build()
}

/// The layer that writes log lines.
fn log_layer<S, W>(format: LogFormat, ansi: bool, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        LogFormat::Json => {
            layer.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed()
        }
        LogFormat::Text => layer.with_ansi(ansi).boxed(),
    }
}

/// A panic is one log line like any other, so that it is found where logs are read.
fn log_panic(info: &PanicHookInfo<'_>) {
    let payload = info.payload();
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    // Empty unless RUST_BACKTRACE asks for it.
    let backtrace = std::backtrace::Backtrace::capture();
    let backtrace =
        (backtrace.status() == std::backtrace::BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(panic = message, location, thread = thread.name(), backtrace, "a thread panicked");
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::prelude::*;

    use super::{export_wanted, log_filter, log_layer, log_panic, trace_filter};
    use crate::arguments::LogFormat;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, filter: &str, run: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = log_layer(format, false, move || writer.clone()).with_filter(log_filter(filter).unwrap());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), run);
        let bytes = lines.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_json_line_is_one_object_with_the_events_fields_at_the_top() {
        let text = logged(LogFormat::Json, "info", || {
            let span = tracing::info_span!("review", uid = "u-1");
            let _entered = span.enter();
            tracing::info!(outcome = "deny", dry_run = true, "line\nbreak");
        });
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["message"], "line\nbreak");
        assert_eq!(line["outcome"], "deny");
        assert_eq!(line["dry_run"], true);
        assert_eq!(line["span"]["uid"], "u-1");
        let time = line["timestamp"].as_str().unwrap();
        assert!(time.ends_with('Z') && time.contains('T'), "{time}");
        assert!(line["target"].is_string());
    }

    #[test]
    fn a_text_line_is_readable_and_without_colour_off_a_terminal() {
        let text = logged(LogFormat::Text, "info", || tracing::warn!(uid = "u-1", "refused"));
        assert!(text.contains("WARN") && text.contains("refused") && text.contains("uid=\"u-1\""), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn the_level_filters_by_target() {
        let emit = || {
            tracing::debug!(target: "sallyport_net", "a");
            tracing::debug!(target: "h2", "b");
            tracing::info!(target: "h2", "c");
        };
        assert_eq!(logged(LogFormat::Text, "info", emit).lines().count(), 1);
        assert_eq!(logged(LogFormat::Text, "warn,sallyport_net=debug", emit).lines().count(), 1);
        assert_eq!(logged(LogFormat::Text, "off", emit).lines().count(), 0);
    }

    #[test]
    fn a_bad_level_names_the_flag() {
        let message = log_filter("info,=,x=loud").unwrap_err().to_string();
        assert!(message.contains("--log-level") && message.contains("x=loud"), "{message}");
    }

    #[test]
    fn a_panic_becomes_one_line_that_says_where() {
        // The hook is process-wide, so it is put back at once; other tests do not panic on purpose.
        let text = logged(LogFormat::Json, "info", || {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(log_panic));
            let caught = std::panic::catch_unwind(|| panic!("broken {}", "thing"));
            std::panic::set_hook(previous);
            assert!(caught.is_err());
        });
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "ERROR");
        assert_eq!(line["panic"], "broken thing");
        assert!(line["location"].as_str().unwrap().contains("subscriber.rs:"), "{line}");
    }

    #[test]
    fn export_is_off_unless_the_standard_variables_ask_for_it() {
        let rows: [(&[(&str, &str)], bool); 8] = [
            (&[], false),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317")], true),
            (&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4317")], true),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")], false),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317"), ("OTEL_SDK_DISABLED", "TRUE")], false),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317"), ("OTEL_SDK_DISABLED", "false")], true),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317"), ("OTEL_TRACES_EXPORTER", "none")], false),
            (&[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c:4317")], false),
        ];
        for (environment, wanted) in rows {
            let variable = |name: &str| {
                environment.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(export_wanted(variable), wanted, "{environment:?}");
        }
    }

    #[test]
    fn the_exporters_own_libraries_are_not_traced() {
        let filter = trace_filter();
        for target in ["h2::codec", "hyper::proto", "hyper_util::client", "tonic::transport", "tower::buffer"]
        {
            assert!(!filter.would_enable(target, &tracing::Level::INFO), "{target}");
        }
        assert!(filter.would_enable("sallyport_webhook::front", &tracing::Level::INFO));
        assert!(!filter.would_enable("sallyport_webhook::front", &tracing::Level::DEBUG));
    }
}
