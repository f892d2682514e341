//! A front with its backends, made anew for each test.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use prometheus::{Encoder, Registry, TextEncoder};
use rustls::RootCertStore;
use sallyport_net::Shutdown;
use sallyport_pki::names::{DEFAULT_CLUSTER_DOMAIN, Extras};
use sallyport_pki::{Bundle, Suite as Names, offline};
use sallyport_telemetry::{Readiness, TelemetryArgs};
use sallyport_testkit::eventually;
use sallyport_testkit::verdict::{self, Door, Verdict};
use sallyport_webhook::{Args, Front};
use serde_json::Value;
use tempfile::TempDir;

use crate::admission::bytes;
use crate::backend::Backend;
use crate::client::{Answer, Client, connect, tls};

pub const MUTATE: &str = "/mutate/fail";
pub const VALIDATE: &str = "/validate/fail";

/// The name that the API server verifies.
pub const NAME: &str = "sallyport-webhook.sallyport.svc";

/// A running suite.
pub struct Suite {
    pub address: SocketAddr,
    pub mutator: Backend,
    pub validator: Backend,
    pub readiness: Readiness,
    registry: Registry,
    bundle: Bundle,
    pub directory: TempDir,
    pub shutdown: Shutdown,
}

/// A directory with certificates for all, and the authority.
pub fn certificates() -> (TempDir, Bundle, String) {
    let directory = tempfile::tempdir().unwrap();
    let names = Names::with_prefix("sallyport", "sallyport", DEFAULT_CLUSTER_DOMAIN).unwrap();
    let bundle =
        offline::write_suite(directory.path(), &names, &Extras::loopback(), SystemTime::now()).unwrap();
    (directory, bundle, names.client_name())
}

/// Flags as by default, on loopback.
pub fn arguments(directory: &Path, mutator: SocketAddr, validator: SocketAddr) -> Args {
    Args {
        listen: "127.0.0.1:0".parse().unwrap(),
        tls_dir: directory.join("webhook"),
        tls_reload: Duration::from_millis(50),
        mutator: vec![mutator.to_string()],
        mutator_fallback: vec![],
        mutator_name: Some("sallyport-mutator.sallyport.svc".into()),
        validator: vec![validator.to_string()],
        validator_fallback: vec![],
        validator_name: Some("sallyport-validator.sallyport.svc".into()),
        resolve: Duration::from_secs(5),
        max_body_bytes: 8 << 20,
        max_bytes_in_flight: 64 << 20,
        max_reviews_in_flight: 1024,
        max_connections: 4096,
        default_timeout: Duration::from_secs(10),
        connection_life: Duration::from_secs(60),
        drain_least: Duration::from_millis(300),
        drain_most: Duration::from_secs(10),
        telemetry: TelemetryArgs::default(),
    }
}

impl Suite {
    /// A suite that is ready.
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// A suite with flags of one's own.
    pub async fn with(change: impl FnOnce(&mut Args)) -> Self {
        let suite = Self::unready(change).await;
        suite.ready().await;
        suite
    }

    /// A suite that has just been started.
    pub async fn unready(change: impl FnOnce(&mut Args)) -> Self {
        let (directory, bundle, client_name) = certificates();
        let mutator = Backend::start(&directory.path().join("mutator"), &client_name).await;
        let validator = Backend::start(&directory.path().join("validator"), &client_name).await;
        let mut args = arguments(directory.path(), mutator.address, validator.address);
        change(&mut args);
        let (registry, readiness, shutdown) = (Registry::new(), Readiness::new(), Shutdown::new());
        let front = Front::bind(&args, &registry, &readiness, shutdown.clone()).await.unwrap();
        let address = front.address();
        tokio::spawn(front.serve());
        Self { address, mutator, validator, readiness, registry, bundle, directory, shutdown }
    }

    pub async fn ready(&self) {
        eventually("the front is ready", || self.readiness.ready()).await;
    }

    pub fn backend(&self, path: &str) -> &Backend {
        if path.starts_with("/mutate") { &self.mutator } else { &self.validator }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        for certificate in self.bundle.certificates() {
            roots.add(certificate.der().clone()).unwrap();
        }
        roots
    }

    /// A new connection, speaking `protocol`.
    pub async fn stream(&self, protocol: &[u8]) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
        connect(self.address, NAME, tls(self.roots(), protocol)).await.unwrap()
    }

    /// A new HTTP/1.1 connection.
    pub async fn client(&self) -> Client {
        Client::new(self.stream(b"http/1.1").await)
    }

    /// Posts on a new connection.
    pub async fn post(&self, path: &str, body: &[u8]) -> Answer {
        self.client().await.post(path, body).await
    }

    /// Posts a review and has the answer judged: it must be a decision that the API server takes without a remark.
    pub async fn review(&self, path: &str, review: &Value) -> Verdict {
        let body = bytes(review);
        judge(path, &body, &self.post(path, &body).await)
    }

    /// One sample of the metrics; 0 when a counter of that family has not counted this yet.
    pub fn metric(&self, sample: &str) -> f64 {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        // A sample without labels is there from the start: one that is not has another name.
        assert!(value.is_some() || sample.contains('{'), "no sample is named {sample}");
        value.map_or(0.0, |value| value.parse().unwrap())
    }
}

/// The API server's reading of an answer that it must take, without a remark.
pub fn judge(path: &str, request: &[u8], answer: &Answer) -> Verdict {
    let door = if path.starts_with("/mutate") { Door::Mutating } else { Door::Validating };
    let kind = answer.header("content-type");
    let verdict = verdict::check(door, request, answer.status, kind, &answer.body)
        .unwrap_or_else(|broken| panic!("{broken}; the answer: {}", String::from_utf8_lossy(&answer.body)));
    assert_eq!(verdict.remarks, Vec::<String>::new());
    verdict
}

/// An answer that is no decision: the status as expected, and nothing that could be taken for a review.
pub fn undecided(answer: &Answer, status: u16) -> &str {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")), "{answer:?}");
    assert!(
        serde_json::from_slice::<Value>(&answer.body).is_err(),
        "JSON with status {status}: {}",
        answer.text()
    );
    answer.text()
}
