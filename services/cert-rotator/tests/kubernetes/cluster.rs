//! An API server with a namespace, a rotator, and how to look at both.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Parser as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::GetParams;
use kube::{Api, Client};
use prometheus::Registry;
use sallyport_cert_rotator::{Args, Config, check as check_suite, run_with};
use sallyport_leadership::connect;
use sallyport_pki::{Identity, Stored};
use sallyport_telemetry::Readiness;
use sallyport_testkit::ControlPlane;
pub use sallyport_testkit::wait::{PATIENCE, answer as eventually};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub const NAMESPACE: &str = "suite";

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

    /// An object, if it is there. Without kubectl, whose start costs more than the answer of those who are waited for.
    pub async fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let (group, plural) = match kind {
            "secret" | "service" | "configmap" | "serviceaccount" => ("api/v1", format!("{kind}s")),
            "lease" => ("apis/coordination.k8s.io/v1", "leases".to_owned()),
            "clusterrole" => ("apis/rbac.authorization.k8s.io/v1", "clusterroles".to_owned()),
            "csr" | "certificatesigningrequest" => {
                ("apis/certificates.k8s.io/v1", "certificatesigningrequests".to_owned())
            }
            "mutatingwebhookconfiguration" | "validatingwebhookconfiguration" => {
                ("apis/admissionregistration.k8s.io/v1", format!("{kind}s"))
            }
            "crd" => ("apis/apiextensions.k8s.io/v1", "customresourcedefinitions".to_owned()),
            "apiservice" => ("apis/apiregistration.k8s.io/v1", "apiservices".to_owned()),
            "certificates.cert-manager.io" => ("apis/cert-manager.io/v1", "certificates".to_owned()),
            _ => panic!("{kind}: where is it served?"),
        };
        let is_namespaced =
            ["secrets", "services", "configmaps", "serviceaccounts", "leases", "certificates"]
                .contains(&&*plural);
        let path = if is_namespaced {
            format!("/{group}/namespaces/{NAMESPACE}/{plural}")
        } else {
            format!("/{group}/{plural}")
        };
        let request = kube::core::Request::new(path).get(name, &GetParams::default()).unwrap();
        match self.client.request(request).await {
            Ok(object) => Some(object),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{kind} {name}: {error}"),
        }
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
