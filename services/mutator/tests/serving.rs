//! Mutator and validator as their fronts meet them: over mutual TLS, on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hyper_util::rt::TokioIo;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};
use sallyport_backend::{Backend, Config, Kind};
use sallyport_net::{Credentials, Shutdown};
use sallyport_pki::{Algorithm, Authority, LeafRequest, ServiceName};
use sallyport_policy::{MutationSet, ValidationSet};
use sallyport_proto::v1alpha1::mutator_client::MutatorClient;
use sallyport_proto::v1alpha1::validator_client::ValidatorClient;
use sallyport_proto::v1alpha1::{GroupVersionKind, GroupVersionResource, Operation, ReviewRequest};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

const HOUR: Duration = Duration::from_secs(3600);
const FRONT: &str = "front.sallyport.svc";
const BACKEND: &str = "backend.sallyport.svc";

/// A trust bundle's authority, and directories of certificates that it issued.
struct Trust {
    authority: Authority,
    directory: TempDir,
}

impl Trust {
    fn new() -> Self {
        let authority = Authority::generate(Algorithm::default(), SystemTime::now(), HOUR).unwrap();
        Self { authority, directory: TempDir::new().unwrap() }
    }

    fn issue(&self, service: &str) -> PathBuf {
        let name = ServiceName::new(service, "sallyport", "cluster.local").unwrap();
        let request = LeafRequest::for_service(&name).with_client_auth();
        let leaf = self.authority.issue(&request, SystemTime::now(), HOUR).unwrap();
        let directory = self.directory.path().join(service);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("tls.crt"), &leaf.certificate_pem).unwrap();
        fs::write(directory.join("tls.key"), &leaf.key_pem).unwrap();
        fs::write(directory.join("ca.crt"), self.authority.key_pair().certificate_pem).unwrap();
        directory
    }
}

/// A running backend.
struct Running {
    trust: Trust,
    grpc: SocketAddr,
    admin: SocketAddr,
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn config(trust: &Trust, policies: &Path) -> Config {
    let mut config = Config::new(policies.to_owned(), trust.issue("backend"), FRONT.to_owned());
    let any = "127.0.0.1:0".parse().unwrap();
    (config.listen, config.admin) = (any, any);
    config.reload_interval = Duration::from_millis(100);
    config.drain = Duration::from_millis(300);
    config
}

async fn bind<S: Kind>(policies: &Path, set: impl FnOnce(&mut Config)) -> (Trust, Backend<S>) {
    let trust = Trust::new();
    let mut config = config(&trust, policies);
    set(&mut config);
    let backend = Backend::bind(config).await.unwrap();
    (trust, backend)
}

async fn mutator(policies: &Path, set: impl FnOnce(&mut Config)) -> Running {
    let (trust, backend) = bind::<MutationSet>(policies, set).await;
    let (grpc, admin, shutdown) = (backend.grpc_address(), backend.admin_address(), Shutdown::new());
    let serving = backend.serve(shutdown.clone());
    let task = tokio::spawn(async move { serving.await.unwrap() });
    Running { trust, grpc, admin, shutdown, task }
}

async fn validator(policies: &Path) -> Running {
    let (trust, backend) = bind::<ValidationSet>(policies, |_| {}).await;
    let (grpc, admin, shutdown) = (backend.grpc_address(), backend.admin_address(), Shutdown::new());
    let serving = backend.serve(shutdown.clone());
    let task = tokio::spawn(async move { serving.await.unwrap() });
    Running { trust, grpc, admin, shutdown, task }
}

/// The same client without a certificate of its own.
fn without_certificate(tls: &ClientConfig) -> Arc<ClientConfig> {
    #[derive(Debug)]
    struct Nothing;
    impl ResolvesClientCert for Nothing {
        fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
            None
        }
        fn has_certs(&self) -> bool {
            false
        }
    }
    let mut tls = tls.clone();
    tls.client_auth_cert_resolver = Arc::new(Nothing);
    Arc::new(tls)
}

async fn connect(address: SocketAddr, tls: Arc<ClientConfig>) -> Result<Channel, tonic::transport::Error> {
    let connector = tower::service_fn(move |_: tonic::transport::Uri| {
        let connector = TlsConnector::from(tls.clone());
        async move {
            let stream = TcpStream::connect(address).await?;
            let stream = connector.connect(BACKEND.try_into().unwrap(), stream).await?;
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    });
    Endpoint::from_static("http://backend").connect_with_connector(connector).await
}

impl Running {
    async fn channel(&self) -> Channel {
        let credentials = Credentials::load(self.trust.issue("front")).unwrap();
        connect(self.grpc, credentials.client_config().unwrap()).await.unwrap()
    }

    async fn mutator(&self) -> MutatorClient<Channel> {
        MutatorClient::new(self.channel().await).max_encoding_message_size(64 << 20)
    }

    /// A page of the admin endpoint.
    async fn page(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Waits until the metrics satisfy `condition`; fails after ten seconds.
    async fn metrics_until(&self, condition: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let metrics = self.page("/metrics").await;
            if condition(&metrics) {
                return metrics;
            }
            assert!(Instant::now() < deadline, "{metrics}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn recipe(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies").join(name)
}

fn review(object: &Value) -> ReviewRequest {
    ReviewRequest {
        uid: "705ab4f5-6393-11e8-b7cc-42010a800002".into(),
        kind: Some(GroupVersionKind { version: "v1".into(), kind: "Pod".into(), ..Default::default() }),
        resource: Some(GroupVersionResource {
            version: "v1".into(),
            resource: "pods".into(),
            ..Default::default()
        }),
        namespace: "default".into(),
        operation: Operation::Create.into(),
        object: object.to_string().into(),
        ..Default::default()
    }
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "sleep",
            "annotations": {"sidecar-injector-webhook.morven.me/inject": "yes"},
        },
        "spec": {"containers": [{"name": "sleep", "image": "tutum/curl", "env": [{"name": "A"}]}]},
    })
}

fn operations(patch: &[u8]) -> Vec<Value> {
    if patch.is_empty() { Vec::new() } else { serde_json::from_slice(patch).unwrap() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutator_patches_and_a_validator_denies() {
    let mutator = mutator(&recipe("sidecar-nginx"), |_| {}).await;
    let answer = mutator.mutator().await.mutate(review(&pod())).await.unwrap().into_inner();
    assert!(answer.allowed);
    let paths: Vec<_> =
        operations(&answer.json_patch).iter().map(|operation| operation["path"].clone()).collect();
    assert!(
        paths.contains(&json!("/spec/containers/-")) || paths.contains(&json!("/spec/containers/1")),
        "{paths:?}"
    );

    let validator = validator(&recipe("deny-env")).await;
    let mut client = ValidatorClient::new(validator.channel().await);
    let answer = client.validate(review(&pod())).await.unwrap().into_inner();
    let status = answer.status.unwrap();
    assert_eq!((answer.allowed, status.code), (false, 402));
    assert!(status.message.starts_with("sleep is using env vars"), "{}", status.message);
    assert_eq!(status.causes[0].field, "spec.containers[0].env");
    for (running, policy) in [(&mutator, "sidecar-nginx"), (&validator, "deny-env")] {
        let metrics = running.page("/metrics").await;
        let duration = format!("sallyport_policy_evaluation_duration_seconds_count{{policy=\"{policy}\"}} 1");
        assert!(metrics.contains(&duration), "{metrics}");
        assert!(
            metrics.contains("sallyport_backend_request_duration_seconds_count{code=\"Ok\"} 1"),
            "{metrics}"
        );
        assert!(metrics.contains("sallyport_reviews_in_flight 0"), "{metrics}");
        assert!(metrics.contains("sallyport_certificate_not_after_timestamp_seconds{"), "{metrics}");
        assert_eq!(running.page("/readyz").await, "ok\n");
        assert!(running.page("/tls").await.contains("\"serial\":\""));
    }
}

/// Design §6: a backend accepts only the front's name, and only from its own trust bundle.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_front_is_let_in() {
    let running = mutator(&recipe("sidecar-nginx"), |_| {}).await;
    let stranger = running.trust.issue("stranger");
    // Has the front's name, and trusts the backend; but another authority signed it.
    let elsewhere = Trust::new();
    let imposter = elsewhere.issue("front");
    fs::copy(stranger.join("ca.crt"), imposter.join("ca.crt")).unwrap();
    let tls = |directory: &Path| Credentials::load(directory).unwrap().client_config().unwrap();
    let anonymous = without_certificate(&tls(&stranger));
    for (who, tls) in [("a stranger", tls(&stranger)), ("an imposter", tls(&imposter)), ("nobody", anonymous)]
    {
        // With TLS 1.3 the refusal may reach the client only with its first call.
        let refused = match connect(running.grpc, tls).await {
            Ok(channel) => MutatorClient::new(channel).mutate(review(&pod())).await.is_err(),
            Err(_) => true,
        };
        assert!(refused, "{who}");
    }
    assert!(running.mutator().await.mutate(review(&pod())).await.is_ok());
}

/// G-01: 7 MiB pass every limit of the default configuration; what is larger than a message may be is refused.
#[tokio::test(flavor = "multi_thread")]
async fn large_reviews_are_answered_and_larger_ones_refused() {
    let running = mutator(&recipe("sidecar-nginx"), |_| {}).await;
    let mut client = running.mutator().await;
    let mut large = pod();
    large["metadata"]["annotations"]["padding"] = json!("x".repeat(7 << 20));
    let answer = client.mutate(review(&large)).await.unwrap().into_inner();
    assert!(!operations(&answer.json_patch).is_empty());
    large["metadata"]["annotations"]["padding"] = json!("x".repeat((9 << 20) + 1));
    let status = client.mutate(review(&large)).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    assert!(client.mutate(review(&pod())).await.is_ok());
}

/// G-03: more bytes than the budget has are turned away as UNAVAILABLE and come back.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_in_flight_are_bounded() {
    let running = mutator(&recipe("sidecar-nginx"), |config| config.max_in_flight_bytes = 100 << 10).await;
    let mut client = running.mutator().await;
    let mut large = pod();
    large["metadata"]["annotations"]["padding"] = json!("x".repeat(300 << 10));
    for _ in 0..3 {
        let status = client.mutate(review(&large)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(client.mutate(review(&pod())).await.is_ok());
    }
    let metrics = running.page("/metrics").await;
    assert!(
        metrics.contains("sallyport_backend_request_duration_seconds_count{code=\"Unavailable\"} 3"),
        "{metrics}"
    );
}

/// G-02: a call that comes too late is not decided. tonic's own timer says CANCELLED where it is first.
#[tokio::test(flavor = "multi_thread")]
async fn late_and_malformed_reviews_are_not_decided() {
    let running = mutator(&recipe("sidecar-nginx"), |_| {}).await;
    let mut client = running.mutator().await;
    let mut late = Request::new(review(&pod()));
    late.metadata_mut().insert("grpc-timeout", "1n".parse().unwrap());
    let code = client.mutate(late).await.unwrap_err().code();
    assert!(matches!(code, Code::DeadlineExceeded | Code::Cancelled), "{code:?}");

    let malformed = ReviewRequest { uid: String::new(), ..review(&pod()) };
    assert_eq!(client.mutate(malformed).await.unwrap_err().code(), Code::InvalidArgument);
    let unreadable = ReviewRequest { object: "{".into(), ..review(&pod()) };
    let answer = client.mutate(unreadable).await.unwrap().into_inner();
    assert!(!answer.allowed, "an object that a policy cannot read is that policy's error");
}

fn label_policy(name: &str, value: &str) -> String {
    format!(
        "apiVersion: sallyport.dev/v1alpha1\nkind: MutationPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
         matchConstraints:\n    resourceRules:\n    - {{apiGroups: [''], apiVersions: [v1], resources: [pods]}}\n  \
         mutations:\n  - overlay: {{metadata: {{labels: {{{name}: {value}}}}}}}\n"
    )
}

/// Design §4 and §5: edits are in force soon, bad ones leave the last good form, removed policies leave nothing.
#[tokio::test(flavor = "multi_thread")]
async fn policies_are_replaced_while_serving() {
    let policies = TempDir::new().unwrap();
    let file = |name: &str| policies.path().join(format!("{name}.yaml"));
    fs::write(file("color"), label_policy("color", "red")).unwrap();
    fs::write(file("size"), label_policy("size", "big")).unwrap();
    let running = mutator(policies.path(), |_| {}).await;
    let mut client = running.mutator().await;
    let labels = async |client: &mut MutatorClient<Channel>| {
        let answer = client.mutate(review(&pod())).await.unwrap().into_inner();
        operations(&answer.json_patch)
            .iter()
            .map(|operation| operation["value"].to_string())
            .collect::<String>()
    };
    let states = |active: u8, stale: u8, broken: u8| {
        move |metrics: &str| {
            [("active", active), ("stale", stale), ("broken", broken)].iter().all(|(state, count)| {
                metrics.contains(&format!("sallyport_policies{{state=\"{state}\"}} {count}\n"))
            })
        }
    };
    let before = labels(&mut client).await;
    assert!(before.contains("red") && before.contains("big"), "{before}");
    running.metrics_until(states(2, 0, 0)).await;

    // Unreadable YAML, an unknown field, an expression that does not compile: the last good form stays.
    let bad_field = label_policy("color", "blue").replace("mutations:", "mutation:");
    let bad_expression = label_policy("color", "'${{ 1 + }}'");
    for broken in ["a: [", bad_field.as_str(), bad_expression.as_str()] {
        fs::write(file("color"), broken).unwrap();
        running.metrics_until(states(1, 1, 0)).await;
        assert!(labels(&mut client).await.contains("red"), "{broken}");
        fs::write(file("color"), label_policy("color", "red")).unwrap();
        running.metrics_until(states(2, 0, 0)).await;
    }

    // A policy that never was good fails the requests that it matches; one that cannot be read matches none.
    fs::write(file("new"), bad_expression.replace("color", "new")).unwrap();
    running.metrics_until(states(2, 0, 1)).await;
    let answer = client.mutate(review(&pod())).await.unwrap().into_inner();
    assert!(!answer.allowed && answer.status.unwrap().message.contains("new"));
    fs::write(file("new"), bad_field.replace("color", "new")).unwrap();
    running.metrics_until(states(2, 0, 1)).await;
    fs::remove_file(file("new")).unwrap();
    running.metrics_until(states(2, 0, 0)).await;

    fs::write(file("color"), label_policy("color", "green")).unwrap();
    fs::remove_file(file("size")).unwrap();
    let metrics = running.metrics_until(|metrics| !metrics.contains("policy=\"size\"")).await;
    assert!(metrics.contains("policy=\"color\""), "{metrics}");
    let after = labels(&mut client).await;
    assert!(after.contains("green") && !after.contains("big"), "{after}");
}

/// Design §2: backends go on serving after SIGTERM until no front can still know them, then end.
#[tokio::test(flavor = "multi_thread")]
async fn a_draining_backend_serves_and_then_ends() {
    let mut running = mutator(&recipe("sidecar-nginx"), |config| config.drain = Duration::from_secs(2)).await;
    let mut client = running.mutator().await;
    running.shutdown.trigger();
    assert!(client.mutate(review(&pod())).await.is_ok(), "on an open connection");
    assert!(running.mutator().await.mutate(review(&pod())).await.is_ok(), "on a new connection");
    let mut health = tonic_health::pb::health_client::HealthClient::new(running.channel().await);
    let status = health.check(tonic_health::pb::HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(status.status(), tonic_health::pb::health_check_response::ServingStatus::Serving);
    assert_eq!(running.page("/readyz").await, "ok\n", "kube-proxy falls back to terminating endpoints");
    drop((client, health));
    tokio::time::timeout(Duration::from_secs(10), &mut running.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(running.grpc).await.is_err());
}

/// Sets one thing wrong.
type Change = Box<dyn Fn(&mut Config)>;

/// what cannot be used is named when the backend starts.
#[tokio::test]
async fn a_backend_that_cannot_start_says_why() {
    let trust = Trust::new();
    let policies = recipe("sidecar-nginx");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|address| (taken, address)).unwrap();
    let rows: [(&str, Change); 5] = [
        ("--policy-dir", Box::new(|config| config.policy_dir = "/nonexistent".into())),
        ("--tls-dir", Box::new(|config| config.tls_dir = "/nonexistent".into())),
        ("--client-name", Box::new(|config| config.client_name = "no name".into())),
        ("--listen", Box::new(move |config| config.listen = taken.1)),
        ("--admin-address", Box::new(move |config| config.admin = taken.1)),
    ];
    for (flag, change) in &rows {
        let mut config = config(&trust, &policies);
        change(&mut config);
        let error = Backend::<MutationSet>::bind(config).await.unwrap_err();
        assert!(error.to_string().contains(flag), "{error}");
    }
    drop(taken.0);
}
