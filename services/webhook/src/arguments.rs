//! Flags of the front; each is also read from the environment.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use sallyport_telemetry::TelemetryArgs;

use crate::deadline::go_duration;

/// Takes AdmissionReviews from the Kubernetes API server over HTTPS and has
/// them decided by the mutator and the validator over gRPC.
#[derive(Clone, Debug, Parser)]
#[command(name = "sallyport-webhook", version)]
pub struct Args {
    /// Where AdmissionReviews are served over HTTPS.
    #[arg(long, env = "SALLYPORT_LISTEN", default_value = "[::]:8443", value_name = "ADDRESS")]
    pub listen: SocketAddr,

    /// Directory with tls.crt, tls.key and ca.crt: the serving certificate, which
    /// is also shown to backends, and the bundle that backends are verified with.
    #[arg(long, env = "SALLYPORT_TLS_DIR", value_name = "DIR")]
    pub tls_dir: PathBuf,

    /// How often the certificate files are read for changes.
    #[arg(long, env = "SALLYPORT_TLS_RELOAD", default_value = "10s", value_parser = go_duration, value_name = "DURATION")]
    pub tls_reload: Duration,

    /// host:port of the mutator. The name of a headless Service stands for all its
    /// replicas; give it absolute, with a trailing dot. Several are separated by commas.
    #[arg(
        long,
        env = "SALLYPORT_MUTATOR",
        value_delimiter = ',',
        value_name = "HOST:PORT",
        required_unless_present = "validator"
    )]
    pub mutator: Vec<String>,

    /// host:port that leads to any mutator, called as long as none of --mutator answers: a Service with an
    /// address. Cluster DNS may remember for 30 s that the headless one had no pods, or had others.
    #[arg(long, env = "SALLYPORT_MUTATOR_FALLBACK", value_delimiter = ',', value_name = "HOST:PORT")]
    pub mutator_fallback: Vec<String>,

    /// Name that the mutator's certificate must be valid for [default: the host of --mutator].
    #[arg(long, env = "SALLYPORT_MUTATOR_NAME", value_name = "NAME")]
    pub mutator_name: Option<String>,

    /// host:port of the validator; see --mutator.
    #[arg(long, env = "SALLYPORT_VALIDATOR", value_delimiter = ',', value_name = "HOST:PORT")]
    pub validator: Vec<String>,

    /// host:port that leads to any validator; see --mutator-fallback.
    #[arg(long, env = "SALLYPORT_VALIDATOR_FALLBACK", value_delimiter = ',', value_name = "HOST:PORT")]
    pub validator_fallback: Vec<String>,

    /// Name that the validator's certificate must be valid for [default: the host of --validator].
    #[arg(long, env = "SALLYPORT_VALIDATOR_NAME", value_name = "NAME")]
    pub validator_name: Option<String>,

    /// How often the backends' names are looked up.
    #[arg(long, env = "SALLYPORT_RESOLVE", default_value = "5s", value_parser = go_duration, value_name = "DURATION")]
    pub resolve: Duration,

    /// Largest review, in bytes. Backends must take this and 1 MiB more.
    #[arg(long, env = "SALLYPORT_MAX_BODY_BYTES", default_value_t = 8 << 20, value_name = "BYTES",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1024..=1 << 30))]
    pub max_body_bytes: usize,

    /// Bytes of reviews in flight together; more are asked to come again.
    #[arg(long, env = "SALLYPORT_MAX_BYTES_IN_FLIGHT", default_value_t = 64 << 20, value_name = "BYTES",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1024..))]
    pub max_bytes_in_flight: usize,

    /// Reviews in flight together; more are asked to come again.
    #[arg(long, env = "SALLYPORT_MAX_REVIEWS_IN_FLIGHT", default_value_t = 1024, value_name = "COUNT",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub max_reviews_in_flight: usize,

    /// Connections open together; more wait to be accepted.
    #[arg(long, env = "SALLYPORT_MAX_CONNECTIONS", default_value_t = 4096, value_name = "COUNT",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub max_connections: usize,

    /// Time for a review when the API server names none (it sends ?timeout=).
    #[arg(long, env = "SALLYPORT_DEFAULT_TIMEOUT", default_value = "10s", value_parser = go_duration, value_name = "DURATION")]
    pub default_timeout: Duration,

    /// After about this long a connection is retired, by "Connection: close" on its next answer, so that
    /// replicas added later get their share. 0s: after each answer.
    #[arg(long, env = "SALLYPORT_CONNECTION_LIFE", default_value = "60s", value_parser = go_duration, value_name = "DURATION")]
    pub connection_life: Duration,

    /// After SIGTERM, how long new connections are served at least.
    #[arg(long, env = "SALLYPORT_DRAIN_LEAST", default_value = "5s", value_parser = go_duration, value_name = "DURATION")]
    pub drain_least: Duration,

    /// After SIGTERM, how long open connections are waited for at most.
    #[arg(long, env = "SALLYPORT_DRAIN_MOST", default_value = "100s", value_parser = go_duration, value_name = "DURATION")]
    pub drain_most: Duration,

    /// Logs and the admin endpoint.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Args;

    #[test]
    fn the_flags_are_consistent_and_a_missing_one_is_named_r13() {
        Args::command().debug_assert();
        let error = Args::try_parse_from(["sallyport-webhook"]).unwrap_err().to_string();
        assert!(error.contains("--tls-dir") && error.contains("--mutator"), "{error}");
        let args = Args::try_parse_from(["x", "--tls-dir", "t", "--validator", "a:1,b:2"]).unwrap();
        assert_eq!(args.validator, ["a:1", "b:2"]);
        for bad in [["--default-timeout", "soon"], ["--max-body-bytes", "1"], ["--listen", "8443"]] {
            let given = ["x", "--tls-dir", "t", "--mutator", "a:1", bad[0], bad[1]];
            assert!(Args::try_parse_from(given).unwrap_err().to_string().contains(bad[0]), "{bad:?}");
        }
    }
}
