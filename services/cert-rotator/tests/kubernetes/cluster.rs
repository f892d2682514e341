//! An API server with a namespace, a rotator, and how to look at both.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use clap::Parser as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use prometheus::Registry;
use sallyport_cert_rotator::{Args, Config, check as check_suite, run_with};
use sallyport_leadership::connect;
use sallyport_pki::{Identity, Stored};
use sallyport_telemetry::Readiness;
use sallyport_testkit::ControlPlane;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub const PATIENCE: Duration = Duration::from_secs(60);
pub const NAMESPACE: &str = "suite";

/// Asks until there is an answer.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("never: {what}"))
}

pub struct Cluster {
    pub control_plane: ControlPlane,
    pub client: Client,
}

impl Cluster {
    pub async fn start() -> Self {
        // One provider for the process; another test may have been first.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let control_plane = ControlPlane::start().await.unwrap();
        let client = connect(Some(control_plane.kubeconfig())).await.unwrap();
        let cluster = Self { control_plane, client };
        cluster.kubectl(&["create", "namespace", NAMESPACE], None).await;
        cluster
    }

    pub async fn kubectl(&self, arguments: &[&str], stdin: Option<&str>) -> String {
        self.control_plane.kubectl(arguments, stdin).await.unwrap().ok().unwrap()
    }

    pub async fn apply(&self, object: &Value) {
        self.kubectl(&["apply", "-f", "-"], Some(&object.to_string())).await;
    }

    pub async fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let arguments =
            ["get", kind, name, "-n", NAMESPACE, "-o", "json", "--show-managed-fields", "--ignore-not-found"];
        let text = self.kubectl(&arguments, None).await;
        (!text.trim().is_empty()).then(|| serde_json::from_str(&text).unwrap())
    }

    pub async fn identity(&self, secret: &str) -> Option<Identity> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secret = api.get_opt(secret).await.unwrap()?;
        let data = secret.data.unwrap_or_default();
        let stored = Stored(data.into_iter().map(|(key, ByteString(bytes))| (key, bytes)).collect());
        let identity = Identity::from_stored(&stored);
        (!identity.pair.certificate_pem.is_empty()).then_some(identity)
    }

    /// Versions of everything that a rotator writes.
    pub async fn versions(&self) -> BTreeMap<String, String> {
        let mut versions = BTreeMap::new();
        for (kind, name) in [
            ("secret", "sallyport-ca"),
            ("secret", "sallyport-webhook-tls"),
            ("secret", "sallyport-mutator-tls"),
            ("secret", "sallyport-validator-tls"),
            ("service", "sallyport-webhook"),
            ("mutatingwebhookconfiguration", "sallyport"),
            ("validatingwebhookconfiguration", "sallyport"),
        ] {
            if let Some(object) = self.get(kind, name).await {
                let version = object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
                versions.insert(format!("{kind}/{name}"), version);
            }
        }
        versions
    }

    pub async fn describe(&self, documents: &[Value]) {
        let text: Vec<String> = documents.iter().map(Value::to_string).collect();
        self.apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "registration", "namespace": NAMESPACE},
            "data": {"registration.yaml": text.join("\n---\n")},
        }))
        .await;
    }

    pub async fn config(&self, flags: &[&str]) -> Config {
        let kubeconfig = self.control_plane.kubeconfig().to_str().unwrap().to_owned();
        let common = ["sallyport-cert-rotator", "--kubeconfig", &kubeconfig, "--namespace", NAMESPACE];
        let args =
            Args::try_parse_from(common.iter().chain(&["--extra-addresses", "127.0.0.1"]).chain(flags));
        args.unwrap().into_config().await.unwrap()
    }

    /// What a check finds wrong, at once.
    pub async fn faults(&self, flags: &[&str]) -> String {
        let checked = check_suite(&self.config(flags).await, Duration::ZERO).await;
        checked.err().map(|error| error.to_string()).unwrap_or_default()
    }

    pub async fn rotator(&self, flags: &[&str]) -> Rotator {
        Rotator::start(self.config(flags).await)
    }
}

pub struct Rotator {
    pub registry: Registry,
    pub readiness: Readiness,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Rotator {
    pub fn start(config: Config) -> Self {
        let (registry, readiness, (stop, stopped)) =
            (Registry::new(), Readiness::new(), oneshot::channel::<()>());
        let task = tokio::spawn({
            let (registry, readiness) = (registry.clone(), readiness.clone());
            async move {
                let stopped = async move {
                    let _ = stopped.await;
                };
                run_with(config, &registry, &readiness, stopped).await.unwrap();
            }
        });
        Self { registry, readiness, stop, task }
    }

    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }

    /// Ends it as a crash would.
    pub async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    /// The value of a metric, summed over its labels.
    pub fn metric(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name);
        let metrics = family.map(prometheus::proto::MetricFamily::get_metric).unwrap_or_default();
        metrics.iter().map(|m| m.get_gauge().get_value() + m.get_counter().get_value()).sum()
    }
}
