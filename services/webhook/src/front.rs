//! The front put together: credentials, backends, doors, server.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use prometheus::Registry;
use sallyport_error_chain::format_chain;
use sallyport_net::https::{self, Options};
use sallyport_net::listener::OpenConnections;
use sallyport_net::{
    AcceptLimits, Balancer, BalancerOptions, ByteBudget, Credentials, CredentialsError, Reload, Shutdown,
    Target,
};
use sallyport_telemetry::{CertificateMeters, Readiness};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tower_http::catch_panic::CatchPanicLayer;

use crate::arguments::Args;
use crate::door::{DOORS, Side};
use crate::metrics::{Metrics, Sampled};
use crate::review;
use crate::state::State;

/// Why the front cannot start.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    /// The certificates cannot be used.
    #[error("the certificates in {directory} (--tls-dir) cannot be used")]
    Credentials {
        /// The directory.
        directory: String,
        /// What is wrong with them.
        source: CredentialsError,
    },
    /// A backend's flags do not fit.
    #[error("--{flag} cannot be used")]
    Backend {
        /// The flag, without dashes.
        flag: String,
        /// What is wrong.
        source: CredentialsError,
    },
    /// A backend is given without a name to verify.
    #[error("--{flag} names addresses; give the name to verify with --{flag}-name")]
    BackendName {
        /// The flag, without dashes.
        flag: &'static str,
    },
    /// The address is taken or not ours.
    #[error("failed to listen on {address} (--listen)")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A metric is registered twice.
    #[error("failed to register metrics")]
    Metrics(#[from] prometheus::Error),
}

/// A front that listens.
#[derive(Debug)]
pub struct Front {
    listener: TcpListener,
    address: SocketAddr,
    credentials: Arc<Credentials>,
    state: Arc<State>,
    options: Options,
    open: OpenConnections,
    shutdown: Shutdown,
}

impl Front {
    /// Loads certificates, prepares the backends and listens; accepts nothing
    /// before [`Front::serve`].
    ///
    /// # Errors
    /// What is to be set right, naming the flag.
    pub async fn bind(
        args: &Args,
        registry: &Registry,
        readiness: &Readiness,
        shutdown: Shutdown,
    ) -> Result<Self, FrontError> {
        let certificate = readiness.condition("certificate");
        let credentials = Credentials::load(&args.tls_dir).map_err(|source| FrontError::Credentials {
            directory: args.tls_dir.display().to_string(),
            source,
        })?;
        let metrics = Metrics::register(registry)?;
        let meters = CertificateMeters::register(registry, "webhook")?;
        meters.show(&credentials.status());
        let options = BalancerOptions { resolve: args.resolve, ..BalancerOptions::default() };
        let connect = |flag: &'static str, hosts: &[String], fallback: &[String], name: Option<&String>| {
            if hosts.is_empty() {
                return Ok(None);
            }
            let target = Target {
                hosts: hosts.to_vec(),
                fallback: fallback.to_vec(),
                server_name: server_name(flag, hosts, name)?,
            };
            let balancer = Balancer::new(target, &credentials, options)
                .map_err(|source| FrontError::Backend { flag: flag.to_owned(), source })?;
            // Ready once a backend was reached; losing it later shows as 503, never as
            // unready: refused connections are not retried by the API server, a 503 is.
            let reached = readiness.condition(flag);
            tokio::spawn(balancer.clone().run());
            tokio::spawn({
                let balancer = balancer.clone();
                async move {
                    balancer.reached().await;
                    reached.set(true);
                }
            });
            Ok::<_, FrontError>(Some(balancer))
        };
        let mutator = connect("mutator", &args.mutator, &args.mutator_fallback, args.mutator_name.as_ref())?;
        let validator =
            connect("validator", &args.validator, &args.validator_fallback, args.validator_name.as_ref())?;
        let listen = |source| FrontError::Listen { address: args.listen, source };
        let listener = sallyport_net::bind(args.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        // Only now, with every condition named and connections queueing: a probe may come at any time.
        certificate.set(true);
        let state = Arc::new(State {
            mutator,
            validator,
            permits: Semaphore::new(args.max_reviews_in_flight),
            budget: ByteBudget::new(args.max_bytes_in_flight.max(args.max_body_bytes)),
            metrics,
            max_body_bytes: args.max_body_bytes,
            max_message_bytes: args.max_body_bytes.saturating_add(sallyport_proto::MESSAGE_OVERHEAD),
            default_timeout: args.default_timeout,
        });
        let open = OpenConnections::default();
        register_samples(registry, &state, &open)?;
        let observe = move |reload: &Reload| meters.observe(reload);
        tokio::spawn(credentials.clone().watch(args.tls_reload, observe, shutdown.clone()));
        let options = Options {
            accept: AcceptLimits { connections: args.max_connections, ..AcceptLimits::default() },
            age: args.connection_life,
            drain_least: args.drain_least,
            drain_most: args.drain_most,
            ..Options::default()
        };
        Ok(Self { listener, address, credentials, state, options, open, shutdown })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificates in use.
    pub fn credentials(&self) -> &Arc<Credentials> {
        &self.credentials
    }

    /// Answers reviews until the shutdown has been drained.
    pub async fn serve(self) {
        // Made from loaded credentials; the same call succeeded for the backends' side.
        match self.credentials.https_config() {
            Ok(tls) => {
                let router = router(&self.state);
                https::serve(self.listener, tls, router, self.options, self.open, self.shutdown).await;
            }
            Err(error) => tracing::error!(error = format_chain(&error), "failed to configure TLS"),
        }
    }
}

fn router(state: &Arc<State>) -> Router {
    let mut router = Router::new();
    for door in &DOORS {
        let state = state.clone();
        let handler =
            move |request: http::Request<Body>| async move { review::handle(state, door, request).await };
        router = router.route(door.path, post(handler));
    }
    router
        .fallback(
            |request: http::Request<Body>| async move { review::respond_unknown_path(request.uri().path()) },
        )
        .method_not_allowed_fallback(|| async { review::respond_wrong_method() })
        .layer(CatchPanicLayer::custom(|_: Box<dyn Any + Send>| review::respond_panic()))
}

/// The name to verify: given, or the host's own.
fn server_name(flag: &'static str, hosts: &[String], name: Option<&String>) -> Result<String, FrontError> {
    if let Some(name) = name {
        return Ok(name.clone());
    }
    let host = hosts.first().and_then(|host| host.rsplit_once(':')).map(|(host, _)| host);
    match host.filter(|host| host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_err()) {
        Some(host) => Ok(host.to_owned()),
        None => Err(FrontError::BackendName { flag }),
    }
}

fn register_samples(
    registry: &Registry,
    state: &Arc<State>,
    open: &OpenConnections,
) -> Result<(), prometheus::Error> {
    let gauge = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
    let replicas = state.clone();
    Sampled::register(
        registry,
        "sallyport_backend_replicas",
        "Replicas of a backend that are known, and that answer.",
        &["backend", "state"],
        move |gauges| {
            for side in [Side::Mutate, Side::Validate] {
                if let Some(balancer) = replicas.backend(side) {
                    let (known, up) = balancer.replicas();
                    gauges.with_label_values(&[side.backend(), "known"]).set(gauge(known));
                    gauges.with_label_values(&[side.backend(), "answering"]).set(gauge(up));
                }
            }
        },
    )?;
    let open = open.clone();
    Sampled::register(registry, "sallyport_connections", "Connections open.", &[], move |gauges| {
        gauges.with_label_values::<&str>(&[]).set(gauge(open.count()));
    })?;
    let bytes = state.clone();
    Sampled::register(registry, "sallyport_bytes_in_flight", "Bytes of reviews held.", &[], move |gauges| {
        gauges.with_label_values::<&str>(&[]).set(gauge(bytes.budget.used()));
    })
}
