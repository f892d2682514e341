//! A backend from its start to its end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sallyport_net::{AcceptLimits, Credentials, CredentialsError, Shutdown, grpc_incoming};
use sallyport_proto::MESSAGE_OVERHEAD;
use sallyport_sources::{Directory, Snapshot, SourceError};
use sallyport_telemetry::{Admin, AdminServer, CertificateMeters, TelemetryError, certificate};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::access_review::{AccessReviews, ApiServer, ConnectError};
use crate::arguments::{AuthorizerKind, BackendArgs, Config};
use crate::gate::{Gate, Gated};
use crate::meters::{AccessReviewMeters, CallMeters, PolicyMeters};
use crate::policies::{self, Policies};
use crate::reviewer::Reviewer;
use crate::service::Kind;

/// Flow control: one stream takes a window of 1 MiB, so that eight unread ones do not hold up the others.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;
/// A front that vanished without a word is noticed after these two.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long calls under way may take once the draining is over: the longest webhook timeout (C-60).
const LAST_CALLS: Duration = Duration::from_secs(30);

/// So many of all reviews at once may wait for what an authorizer says: one in four.
const SHARE_OF_ASKING: usize = 4;

/// Why a backend cannot start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The policies cannot be read at all.
    #[error("--policy-dir (SALLYPORT_POLICY_DIR) cannot be used")]
    Policies(#[from] SourceError),
    /// The certificates cannot be used.
    #[error("--tls-dir (SALLYPORT_TLS_DIR) {} cannot be used", path.display())]
    Certificates {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        source: CredentialsError,
    },
    /// The client's name is no DNS name.
    #[error("--client-name (SALLYPORT_CLIENT_NAME) cannot be used")]
    ClientName(#[source] CredentialsError),
    /// The API server cannot be asked what users may do.
    #[error("--authorizer=api-server (SALLYPORT_AUTHORIZER) cannot be used")]
    Authorizer(#[from] ConnectError),
    /// An address cannot be bound.
    #[error("failed to listen on {flag} {address}")]
    Listen {
        /// The flag that named the address.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The metrics cannot be made.
    #[error("failed to register the metrics")]
    Metrics(#[from] prometheus::Error),
    /// Logs and traces cannot be set up.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The process cannot be told to stop.
    #[error("failed to install signal handlers")]
    Signals(#[source] io::Error),
    /// The gRPC server ended by itself.
    #[error("the gRPC server failed")]
    Serve(#[from] tonic::transport::Error),
}

/// Runs a backend as a process of its own until a signal has drained it.
///
/// # Errors
/// When it cannot start: the message names what to set right.
pub async fn run<S: Kind>(args: &BackendArgs) -> Result<(), BackendError> {
    let tracing = sallyport_telemetry::install(S::SERVICE, &args.telemetry)?;
    let shutdown = Shutdown::on_signals().map_err(BackendError::Signals)?;
    let backend = Backend::<S>::bind(Config::from(args)).await?;
    backend.serve(shutdown).await?;
    tracing::info!("drained");
    tracing.shutdown().await;
    Ok(())
}

/// A backend that is bound and not yet serving.
#[derive(Debug)]
pub struct Backend<S> {
    config: Config,
    credentials: Arc<Credentials>,
    certificate: CertificateMeters,
    policies: Arc<Policies<S>>,
    access_reviews: Option<AccessReviews>,
    snapshot: Arc<Snapshot>,
    gate: Gate,
    listener: TcpListener,
    grpc_address: SocketAddr,
    admin: AdminServer,
    admin_address: SocketAddr,
}

impl<S: Kind> Backend<S> {
    /// Loads certificates and policies and binds the addresses. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When any of these fails. A policy that cannot be used is no such failure.
    pub async fn bind(config: Config) -> Result<Self, BackendError> {
        let path = || config.tls_dir.clone();
        let credentials = Credentials::load(&config.tls_dir)
            .map_err(|source| BackendError::Certificates { path: path(), source })?;
        // Tried now, so that a bad name is an error at start.
        credentials.mutual_server_config(&config.client_name).map_err(BackendError::ClientName)?;

        let mut admin = Admin::new(S::SERVICE);
        let calls = CallMeters::new()?;
        calls.register(admin.registry())?;
        let policy_meters = PolicyMeters::new()?;
        policy_meters.register(admin.registry())?;
        let certificate = CertificateMeters::register(admin.registry(), S::SERVICE)?;
        certificate.show(&credentials.status());
        admin.page(certificate::PAGE, certificate::page(credentials.clone()));

        let access_reviews = match config.authorizer {
            AuthorizerKind::None => None,
            AuthorizerKind::ApiServer => {
                let meters = AccessReviewMeters::new()?;
                meters.register(admin.registry())?;
                let api_server = ApiServer::connect(config.kubeconfig.as_deref()).await?;
                Some(AccessReviews::new(api_server, config.max_concurrent / SHARE_OF_ASKING, meters))
            }
        };
        let snapshot = Arc::new(Directory::new(&config.policy_dir).load(None)?);
        let policies = Arc::new(Policies::<S>::new(&snapshot, policy_meters, access_reviews.is_some()));
        // Both were loaded above, or this point is not reached; named, for those who read /readyz.
        for condition in ["certificate", "policies"] {
            admin.readiness().condition(condition).set(true);
        }

        let listen_failed =
            |source| BackendError::Listen { flag: "--listen", address: config.listen, source };
        let listener = sallyport_net::bind(config.listen).await.map_err(listen_failed)?;
        let grpc_address = listener.local_addr().map_err(listen_failed)?;
        let admin_failed =
            |source| BackendError::Listen { flag: "--admin-address", address: config.admin, source };
        let admin = admin.bind(config.admin).await.map_err(admin_failed)?;
        let admin_address = admin.local_addr().map_err(admin_failed)?;
        let gate = Gate::new(config.max_concurrent, config.max_in_flight_bytes, calls);
        Ok(Self {
            config,
            credentials,
            certificate,
            policies,
            access_reviews,
            snapshot,
            gate,
            listener,
            grpc_address,
            admin,
            admin_address,
        })
    }

    /// Where gRPC is served.
    pub fn grpc_address(&self) -> SocketAddr {
        self.grpc_address
    }

    /// Where metrics and health are served, over plain HTTP.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// What answers reviews.
    pub fn reviewer(&self) -> Reviewer<S> {
        Reviewer::new(self.policies.clone(), self.access_reviews.clone())
    }

    /// Serves until the shutdown has begun and the drain time has passed, then finishes the calls under way.
    ///
    /// # Errors
    /// When the server ends by itself.
    pub async fn serve(self, shutdown: Shutdown) -> Result<(), BackendError> {
        let message_limit = self.config.max_body_bytes.saturating_add(MESSAGE_OVERHEAD);
        let service = S::server(self.reviewer(), message_limit);
        let tls = self
            .credentials
            .mutual_server_config(&self.config.client_name)
            .map_err(BackendError::ClientName)?;
        let interval = self.config.reload_interval;
        let (admin_end, admin_ended) = tokio::sync::oneshot::channel::<Infallible>();
        let admin = tokio::spawn(self.admin.serve(async {
            // Ends when the sender is dropped.
            let _ = admin_ended.await;
        }));
        let certificate = self.certificate.clone();
        // Both go on while draining, and end when they are dropped.
        let mut background = JoinSet::new();
        let observer = move |reload: &_| certificate.observe(reload);
        background.spawn(self.credentials.watch(interval, observer, Shutdown::new()));
        let directory = Directory::new(&self.config.policy_dir);
        background.spawn(policies::follow(self.policies, directory, self.snapshot, interval));

        let (_health, health_service) = tonic_health::server::health_reporter();
        let drain = self.config.drain;
        let (drained, mut drain_over) = tokio::sync::oneshot::channel::<Infallible>();
        let server = tonic::transport::Server::builder()
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .add_service(health_service)
            .add_service(Gated::new(self.gate, service))
            .serve_with_incoming_shutdown(
                grpc_incoming(self.listener, tls, AcceptLimits::default()),
                async move {
                    shutdown.started().await;
                    tracing::info!(
                        seconds = drain.as_secs(),
                        "draining: serving until no front calls any more"
                    );
                    tokio::time::sleep(drain).await;
                    drop(drained);
                },
            );
        let last_calls = async {
            let _ = (&mut drain_over).await;
            tokio::time::sleep(LAST_CALLS).await;
        };
        tracing::info!(
            grpc = %self.grpc_address,
            admin = %self.admin_address,
            client = self.config.client_name,
            "serving"
        );
        let ended = tokio::select! {
            ended = server => ended.map_err(BackendError::from),
            () = last_calls => {
                tracing::warn!("calls under way did not end in time and are cut off");
                Ok(())
            }
        };
        drop(admin_end);
        let _ = admin.await;
        ended
    }
}
