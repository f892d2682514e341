//! What a backend is told at start.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use sallyport_telemetry::TelemetryArgs;

/// Largest pair of objects that a review may carry unless told otherwise: the front's own default limit.
const MAX_BODY_BYTES: usize = 8 << 20;
/// Bytes of reviews held at once unless told otherwise.
const MAX_IN_FLIGHT_BYTES: usize = 64 << 20;
/// Reviews held at once unless told otherwise: more than a front's connections bring in practice, few enough
/// that those waiting are still answered within their timeout.
const MAX_CONCURRENT: usize = 1024;
/// Longest time that a front may still know a terminating backend: DNS caches live 30 s.
const DRAIN: Duration = Duration::from_secs(35);
/// How often policies and certificates are looked at; edits are in force within two seconds.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// Who answers what policies ask of `authorizer`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AuthorizerKind {
    /// Nobody: every check has no opinion, and an error that says so.
    #[default]
    None,
    /// The API server, by a `SubjectAccessReview` for each check.
    ApiServer,
}

/// Flags of a backend.
#[derive(clap::Args, Clone, Debug)]
pub struct BackendArgs {
    /// Directory of policies: YAML or JSON files, read again when they change.
    #[arg(long, env = "SALLYPORT_POLICY_DIR", value_name = "DIR")]
    pub policy_dir: PathBuf,

    /// Who answers what policies ask of `authorizer`. The API server is asked by `SubjectAccessReviews`, for which
    /// the ServiceAccount needs the verb create.
    #[arg(long, env = "SALLYPORT_AUTHORIZER", value_enum, default_value = "none", value_name = "WHO")]
    pub authorizer: AuthorizerKind,

    /// Kubeconfig of the API server, outside of a cluster.
    #[arg(long, env = "SALLYPORT_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Where gRPC is served, over mutual TLS.
    #[arg(long, env = "SALLYPORT_LISTEN", default_value = "[::]:9443", value_name = "ADDRESS")]
    pub listen: SocketAddr,

    /// Directory with tls.crt, tls.key and ca.crt, read again when they change.
    #[arg(long, env = "SALLYPORT_TLS_DIR", value_name = "DIR")]
    pub tls_dir: PathBuf,

    /// DNS name in the certificate of the only client that is let in: the webhook front.
    #[arg(long, env = "SALLYPORT_CLIENT_NAME", value_name = "NAME")]
    pub client_name: String,

    /// Reviews held at once; more are turned away and tried again elsewhere.
    #[arg(long, env = "SALLYPORT_MAX_CONCURRENT", default_value_t = MAX_CONCURRENT as u64, value_name = "COUNT",
          value_parser = RangedU64ValueParser::<u64>::new().range(1..=1_000_000))]
    pub max_concurrent: u64,

    /// Bytes of reviews held at once; more are turned away and tried again elsewhere.
    #[arg(long, env = "SALLYPORT_MAX_IN_FLIGHT_BYTES", default_value_t = MAX_IN_FLIGHT_BYTES as u64,
          value_name = "BYTES", value_parser = RangedU64ValueParser::<u64>::new().range(1..=1 << 40))]
    pub max_in_flight_bytes: u64,

    /// Largest review, in bytes of objects. At least the front's limit.
    #[arg(long, env = "SALLYPORT_MAX_BODY_BYTES", default_value_t = MAX_BODY_BYTES as u64, value_name = "BYTES",
          value_parser = RangedU64ValueParser::<u64>::new().range(1..=1 << 30))]
    pub max_body_bytes: u64,

    /// Seconds to go on serving after SIGTERM, until every front has stopped calling.
    #[arg(long, env = "SALLYPORT_DRAIN", default_value_t = DRAIN.as_secs(), value_name = "SECONDS",
          value_parser = RangedU64ValueParser::<u64>::new().range(0..=3600))]
    pub drain: u64,

    /// Seconds between looks at the policies and the certificates.
    #[arg(long, env = "SALLYPORT_RELOAD_INTERVAL", default_value_t = RELOAD_INTERVAL.as_secs(),
          value_name = "SECONDS", value_parser = RangedU64ValueParser::<u64>::new().range(1..=3600))]
    pub reload_interval: u64,

    /// Logs and the admin endpoint.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

/// What a backend works with. The flags give it, or whoever runs one in-process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of policies.
    pub policy_dir: PathBuf,
    /// Who answers what policies ask of `authorizer`.
    pub authorizer: AuthorizerKind,
    /// Kubeconfig of the API server; without one the environment says where it is.
    pub kubeconfig: Option<PathBuf>,
    /// Where gRPC is served; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Where the admin endpoint is served; port 0 takes any free one.
    pub admin: SocketAddr,
    /// Directory with `tls.crt`, `tls.key` and `ca.crt`.
    pub tls_dir: PathBuf,
    /// DNS name in the certificate of the only client that is let in.
    pub client_name: String,
    /// Reviews held at once.
    pub max_concurrent: usize,
    /// Bytes of reviews held at once.
    pub max_in_flight_bytes: usize,
    /// Largest review, in bytes of objects; messages may be [`sallyport_proto::MESSAGE_OVERHEAD`] larger.
    pub max_body_bytes: usize,
    /// How long to go on serving once the shutdown has begun.
    pub drain: Duration,
    /// Time between looks at the policies and the certificates.
    pub reload_interval: Duration,
}

impl Config {
    /// The defaults of the flags, on the default ports of all interfaces.
    pub fn new(policy_dir: PathBuf, tls_dir: PathBuf, client_name: String) -> Self {
        let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        Self {
            policy_dir,
            authorizer: AuthorizerKind::None,
            kubeconfig: None,
            listen: SocketAddr::new(any, 9443),
            admin: SocketAddr::new(any, 9090),
            tls_dir,
            client_name,
            max_concurrent: MAX_CONCURRENT,
            max_in_flight_bytes: MAX_IN_FLIGHT_BYTES,
            max_body_bytes: MAX_BODY_BYTES,
            drain: DRAIN,
            reload_interval: RELOAD_INTERVAL,
        }
    }
}

impl From<&BackendArgs> for Config {
    fn from(args: &BackendArgs) -> Self {
        let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        Self {
            policy_dir: args.policy_dir.clone(),
            authorizer: args.authorizer,
            kubeconfig: args.kubeconfig.clone(),
            listen: args.listen,
            admin: args.telemetry.admin_address,
            tls_dir: args.tls_dir.clone(),
            client_name: args.client_name.clone(),
            max_concurrent: size(args.max_concurrent),
            max_in_flight_bytes: size(args.max_in_flight_bytes),
            max_body_bytes: size(args.max_body_bytes),
            drain: Duration::from_secs(args.drain),
            reload_interval: Duration::from_secs(args.reload_interval),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{Args, Command, FromArgMatches};

    use super::{BackendArgs, Config};

    fn parse(flags: &[&str]) -> Result<BackendArgs, clap::Error> {
        let command = BackendArgs::augment_args(Command::new("backend"));
        let needed = ["backend", "--policy-dir", "p", "--tls-dir", "t", "--client-name", "front"];
        command
            .try_get_matches_from(needed.iter().chain(flags))
            .and_then(|m| BackendArgs::from_arg_matches(&m))
    }

    #[test]
    fn without_flags_the_defaults_are_those_of_the_design() {
        let config = Config::from(&parse(&[]).unwrap());
        let defaults = Config::new("p".into(), "t".into(), "front".into());
        assert_eq!(format!("{config:?}"), format!("{defaults:?}"));
        assert_eq!((config.listen.port(), config.admin.port()), (9443, 9090));
        assert_eq!((config.max_body_bytes, config.max_in_flight_bytes), (8 << 20, 64 << 20));
        assert_eq!(config.drain, Duration::from_secs(35));
    }

    /// a bad value names its flag.
    #[test]
    fn a_bad_value_is_refused_with_the_name_of_its_flag() {
        for (flag, value) in [
            ("--listen", "9443"),
            ("--max-concurrent", "0"),
            ("--max-in-flight-bytes", "-1"),
            ("--max-body-bytes", "8MiB"),
            ("--drain", "1h"),
            ("--reload-interval", "0"),
            ("--authorizer", "table"),
        ] {
            let error = parse(&[&format!("{flag}={value}")]).unwrap_err().to_string();
            assert!(error.contains(flag), "{error}");
        }
    }
}
