//! A real API server with a release's objects in it, put there by hand.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use sallyport_pki::authority::{AUTHORITY_LIFE, Algorithm, Authority, LEAF_LIFE};
use sallyport_pki::names::{Extras, Member, Suite};
use sallyport_pki::{Bundle, Identity, KeyPair, Stored};
use sallyport_testkit::ControlPlane;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::process::{Run, run};

pub(crate) const NAMESPACE: &str = "sallyport";

/// An API server with the namespace of a release. Nothing else runs.
pub(crate) struct Cluster {
    pub(crate) runtime: Runtime,
    control_plane: ControlPlane,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let control_plane = runtime.block_on(ControlPlane::start()).unwrap();
        let cluster = Self { runtime, control_plane };
        cluster.kubectl(&["create", "namespace", NAMESPACE], None);
        cluster
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        self.control_plane.kubeconfig()
    }

    pub(crate) fn url(&self) -> &str {
        self.control_plane.url()
    }

    pub(crate) fn ca_file(&self) -> &Path {
        self.control_plane.ca_file()
    }

    pub(crate) fn kubectl(&self, arguments: &[&str], stdin: Option<&str>) -> String {
        let output = self.runtime.block_on(self.control_plane.kubectl(arguments, stdin));
        output.unwrap().ok().unwrap()
    }

    pub(crate) fn apply(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], Some(&list.to_string()));
    }

    pub(crate) fn status(&self, resource: &str, name: &str, status: &Value) {
        let patch = json!({"status": status}).to_string();
        let arguments = ["patch", resource, name, "-n", NAMESPACE, "--subresource=status", "--type=merge"];
        self.kubectl(&[&arguments[..], &["-p", &patch]].concat(), None);
    }

    pub(crate) fn get(&self, resource: &str, name: &str) -> Value {
        let text = self.kubectl(&["get", resource, name, "-n", NAMESPACE, "-o", "json"], None);
        serde_json::from_str(&text).unwrap()
    }

    /// Runs the command on this cluster.
    pub(crate) fn sallyport(&self, arguments: &[&str]) -> Run {
        let kubeconfig = self.kubeconfig().to_str().unwrap();
        run(arguments.iter().chain(&["--kubeconfig", kubeconfig]))
    }

    /// The Secrets of a release, as a rotator stores them.
    pub(crate) fn store(&self, now: SystemTime) -> Bundle {
        let authority = Authority::generate(Algorithm::EcdsaP256, now, AUTHORITY_LIFE).unwrap();
        let mut bundle = Bundle::empty();
        bundle.add(authority.certificate().clone());
        let suite = Suite::with_prefix("sallyport", NAMESPACE, "cluster.local").unwrap();
        let mut secrets = vec![secret("sallyport-ca", authority.key_pair(), &bundle)];
        for member in Member::ALL {
            let leaf = suite.leaf(member, &Extras::default()).unwrap();
            let pair = authority.issue(&leaf, now, LEAF_LIFE).unwrap();
            secrets.push(secret(&format!("sallyport-{}-tls", member.word()), pair, &bundle));
        }
        self.apply(&secrets);
        bundle
    }

    /// A pod of a service that runs somewhere, where nobody answers.
    pub(crate) fn pod(&self, name: &str, member: Member) {
        let labels = json!({"app.kubernetes.io/name": "sallyport", "app.kubernetes.io/instance": "sallyport",
                            "app.kubernetes.io/component": member.word()});
        let ports = json!([{"name": "admin", "containerPort": 9090}]);
        self.apply(&[json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "spec": {"nodeName": "somewhere", "automountServiceAccountToken": false,
                     "containers": [{"name": "main", "image": "none", "ports": ports}]},
        })]);
        let address = json!({"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]});
        self.status("pod", name, &address);
    }
}

fn secret(name: &str, pair: KeyPair, bundle: &Bundle) -> Value {
    let mut stored = Stored::default();
    Identity { pair, bundle: bundle.clone() }.store(&mut stored);
    let data: BTreeMap<_, _> = stored.0.iter().map(|(key, bytes)| (key, STANDARD.encode(bytes))).collect();
    json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
           "metadata": {"name": name, "namespace": NAMESPACE}, "data": data})
}

/// An instant as objects have it.
pub(crate) fn written(time: SystemTime) -> String {
    format!("{:.0}", Timestamp::try_from(time).unwrap())
}

/// The cert-rotators' Lease, renewed at that time, with conditions.
pub(crate) fn lease(renewed: SystemTime, conditions: &Value) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "sallyport-cert-rotator", "namespace": NAMESPACE,
                     "annotations": {"sallyport.dev/conditions": conditions.to_string()}},
        "spec": {"holderIdentity": "rotator-a", "leaseDurationSeconds": 15,
                 "renewTime": written(renewed).replace('Z', ".000000Z")},
    })
}
