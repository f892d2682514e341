//! The flags that every service has for its telemetry.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// How log lines are written.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// Lines for people; coloured on a terminal.
    Text,
}

/// Flags for logs and for the admin endpoint. Traces are set by the standard `OTEL_…` variables.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Telemetry")]
pub struct TelemetryArgs {
    /// Format of the log lines on standard error.
    #[arg(long, env = "SALLYPORT_LOG_FORMAT", value_enum, default_value = "json", value_name = "FORMAT")]
    pub log_format: LogFormat,

    /// What is logged: a level (error, warn, info, debug, trace) or a list of target=level.
    #[arg(long, env = "SALLYPORT_LOG_LEVEL", default_value = "info", value_name = "FILTER")]
    pub log_level: String,

    /// Where /metrics, /healthz and /readyz are served, over plain HTTP.
    #[arg(long, env = "SALLYPORT_ADMIN_ADDRESS", default_value = "[::]:9090", value_name = "ADDRESS")]
    pub admin_address: SocketAddr,
}

impl Default for TelemetryArgs {
    fn default() -> Self {
        Self {
            log_format: LogFormat::Json,
            log_level: "info".to_owned(),
            admin_address: SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 9090),
        }
    }
}
