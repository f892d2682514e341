//! Certificates and registration against a real API server: and design §6.
//!
//! Each test has an API server of its own. The front is a small TLS server that answers every review with
//! "allowed", so that what the API server thinks of the certificates is part of what is shown.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use clap::Parser as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use prometheus::Registry;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sallyport_cert_rotator::{Args, Config, check as check_suite, connect, run_with};
use sallyport_pki::names::{Extras, Member, Suite};
use sallyport_pki::{Identity, Renewal, Stored, check};
use sallyport_telemetry::Readiness;
use sallyport_testkit::ControlPlane;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "suite";

/// Asks until there is an answer.
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
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

struct Cluster {
    control_plane: ControlPlane,
    client: Client,
}

impl Cluster {
    async fn start() -> Self {
        // One provider for the process; another test may have been first.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let control_plane = ControlPlane::start().await.unwrap();
        let client = connect(Some(control_plane.kubeconfig())).await.unwrap();
        let cluster = Self { control_plane, client };
        cluster.kubectl(&["create", "namespace", NAMESPACE], None).await;
        cluster
    }

    async fn kubectl(&self, arguments: &[&str], stdin: Option<&str>) -> String {
        self.control_plane.kubectl(arguments, stdin).await.unwrap().ok().unwrap()
    }

    async fn apply(&self, object: &Value) {
        self.kubectl(&["apply", "-f", "-"], Some(&object.to_string())).await;
    }

    async fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let arguments =
            ["get", kind, name, "-n", NAMESPACE, "-o", "json", "--show-managed-fields", "--ignore-not-found"];
        let text = self.kubectl(&arguments, None).await;
        (!text.trim().is_empty()).then(|| serde_json::from_str(&text).unwrap())
    }

    async fn identity(&self, secret: &str) -> Option<Identity> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secret = api.get_opt(secret).await.unwrap()?;
        let data = secret.data.unwrap_or_default();
        let stored = Stored(data.into_iter().map(|(key, ByteString(bytes))| (key, bytes)).collect());
        let identity = Identity::from_stored(&stored);
        (!identity.pair.certificate_pem.is_empty()).then_some(identity)
    }

    /// Versions of everything that a rotator writes.
    async fn versions(&self) -> BTreeMap<String, String> {
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

    async fn describe(&self, documents: &[Value]) {
        let text: Vec<String> = documents.iter().map(Value::to_string).collect();
        self.apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "registration", "namespace": NAMESPACE},
            "data": {"registration.yaml": text.join("\n---\n")},
        }))
        .await;
    }

    async fn config(&self, flags: &[&str]) -> Config {
        let kubeconfig = self.control_plane.kubeconfig().to_str().unwrap().to_owned();
        let common = ["sallyport-cert-rotator", "--kubeconfig", &kubeconfig, "--namespace", NAMESPACE];
        let args =
            Args::try_parse_from(common.iter().chain(&["--extra-addresses", "127.0.0.1"]).chain(flags));
        args.unwrap().into_config().await.unwrap()
    }

    /// What a check finds wrong, at once.
    async fn faults(&self, flags: &[&str]) -> String {
        let checked = check_suite(&self.config(flags).await, Duration::ZERO).await;
        checked.err().map(|error| error.to_string()).unwrap_or_default()
    }

    async fn rotator(&self, flags: &[&str]) -> Rotator {
        let config = self.config(flags).await;
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
        Rotator { registry, readiness, stop, task }
    }
}

struct Rotator {
    registry: Registry,
    readiness: Readiness,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Rotator {
    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }

    /// The value of a metric, summed over its labels.
    fn metric(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name);
        let metrics = family.map(prometheus::proto::MetricFamily::get_metric).unwrap_or_default();
        metrics.iter().map(|m| m.get_gauge().get_value() + m.get_counter().get_value()).sum()
    }
}

struct Front {
    address: SocketAddr,
    /// How many connections it has seen the end of, or the first request of.
    connections: Arc<AtomicUsize>,
    /// How many reviews it answered.
    reviews: Arc<AtomicUsize>,
}

/// A front that serves an identity and allows everything.
async fn front(identity: &Identity) -> Front {
    let chain = CertificateDer::pem_slice_iter(identity.pair.certificate_pem.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.pair.key_pem.as_bytes()).unwrap();
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (connections, reviews) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (seen, count) = (Arc::clone(&connections), Arc::clone(&reviews));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, seen, count) = (acceptor.clone(), Arc::clone(&seen), Arc::clone(&count));
            tokio::spawn(async move {
                let accepted = acceptor.accept(stream).await;
                seen.fetch_add(1, Ordering::SeqCst);
                let Ok(mut stream) = accepted else { return };
                let mut request = Vec::new();
                // The body has come when what follows the empty line is JSON.
                let review: Value = loop {
                    let mut buffer = [0; 4096];
                    let Ok(read @ 1..) = stream.read(&mut buffer).await else { return };
                    request.extend_from_slice(&buffer[..read]);
                    let body = request.windows(4).position(|window| window == b"\r\n\r\n");
                    let parsed = body.and_then(|start| serde_json::from_slice(&request[start + 4..]).ok());
                    if let Some(review) = parsed {
                        break review;
                    }
                };
                count.fetch_add(1, Ordering::SeqCst);
                let answer = json!({
                    "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                    "response": {"uid": review["request"]["uid"], "allowed": true},
                })
                .to_string();
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
                let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{answer}", answer.len());
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    Front { address, connections, reviews }
}

fn entry(name: &str, client_config: &Value) -> Value {
    json!({
        "name": name,
        "clientConfig": client_config,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "objectSelector": {"matchLabels": {"reviewed": "yes"}},
        "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
    })
}

fn configuration(kind: &str, entries: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": "sallyport", "labels": {"app.kubernetes.io/part-of": "sallyport"}},
        "webhooks": entries,
    })
}

fn bundles(configuration: &Value) -> Vec<String> {
    let decode = |entry: &Value| {
        let text = entry["clientConfig"]["caBundle"].as_str().unwrap_or_default();
        String::from_utf8(base64::engine::general_purpose::STANDARD.decode(text).unwrap()).unwrap()
    };
    configuration["webhooks"].as_array().unwrap().iter().map(decode).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_by_address_from_its_birth_to_its_repair() {
    let cluster = Cluster::start().await;
    // a Secret made before, empty but for a key that is not ours, is filled and keeps that key.
    cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "sallyport-webhook-tls", "namespace": NAMESPACE},
            "stringData": {"mine": "kept"},
        }))
        .await;
    let flags = ["--registration-configmap", "registration"];
    let rotator = cluster.rotator(&flags).await;

    // Certificates do not wait for the description, which is not there yet.
    let identity = eventually("the front's certificate", || cluster.identity("sallyport-webhook-tls")).await;
    let suite = Suite::with_prefix("sallyport", NAMESPACE, "cluster.local").unwrap();
    let extras = Extras { dns_names: vec![], addresses: vec!["127.0.0.1".parse().unwrap()] };
    let authority = eventually("the authority", || cluster.identity("sallyport-ca")).await;
    eventually("readiness", async || rotator.readiness.ready().then_some(())).await;
    for member in Member::ALL {
        let secret = format!("sallyport-{}-tls", member.word());
        let identity = cluster.identity(&secret).await.unwrap();
        assert_eq!(identity.bundle, authority.bundle);
        let wanted = suite.leaf(member, &extras).unwrap();
        let now = std::time::SystemTime::now();
        check::leaf(&identity.pair, &authority.bundle, &wanted, now, Renewal::TwoThirds).unwrap();
    }
    let secret = cluster.get("secret", "sallyport-webhook-tls").await.unwrap();
    assert_eq!((&secret["type"], &secret["data"]["mine"]), (&json!("Opaque"), &json!("a2VwdA==")));
    let secret = cluster.get("secret", "sallyport-ca").await.unwrap();
    assert_eq!(secret["type"], "kubernetes.io/tls");

    // described, but the front does not answer: nothing is registered. Its address is taken by nobody.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let at = |address: SocketAddr, path: &str| json!({"url": format!("https://{address}/{path}")});
    let described = |address| {
        let mutating = [
            entry("fail.mutate.sallyport.dev", &at(address, "mutate/fail")),
            entry("ignore.mutate.sallyport.dev", &at(address, "mutate/ignore")),
        ];
        [
            configuration("MutatingWebhookConfiguration", &mutating),
            configuration("ValidatingWebhookConfiguration", &[]),
        ]
    };
    cluster.describe(&described(closed)).await;
    let families = || rotator.registry.gather();
    eventually("a look at the description", async || {
        families().iter().any(|f| f.name() == "sallyport_ca_bundle_in_sync").then_some(())
    })
    .await;
    let get = || cluster.get("mutatingwebhookconfiguration", "sallyport");
    assert_eq!(get().await, None, "never before the front is proven");

    // A front with a certificate of somebody else's is no proof either.
    let other = sallyport_pki::Authority::generate(
        sallyport_pki::Algorithm::EcdsaP256,
        std::time::SystemTime::now(),
        Duration::from_hours(1),
    )
    .unwrap();
    let leaf = suite.leaf(Member::Webhook, &extras).unwrap();
    let pair = other.issue(&leaf, std::time::SystemTime::now(), Duration::from_hours(1)).unwrap();
    let foreign = front(&Identity { pair, bundle: authority.bundle.clone() }).await;
    cluster.describe(&described(foreign.address)).await;
    // The second time it is asked, the first answer has been judged.
    eventually("two looks at it", async || (foreign.connections.load(Ordering::SeqCst) >= 2).then_some(()))
        .await;
    assert_eq!(get().await, None, "never while the front's certificate does not verify");

    // With the front up: registered, with the bundle in every entry.
    let Front { address, reviews, .. } = front(&identity).await;
    cluster.describe(&described(address)).await;
    let live = eventually("the registration", get).await;
    assert_eq!(bundles(&live), vec![authority.bundle.to_pem(); 2]);
    eventually("in sync", async || (rotator.metric("sallyport_ca_bundle_in_sync") > 0.0).then_some(())).await;
    assert_eq!(cluster.get("validatingwebhookconfiguration", "sallyport").await, None, "no entries");

    // The API server, with Go's verifier, accepts the certificate.
    let reviewed = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "reviewed", "namespace": NAMESPACE, "labels": {"reviewed": "yes"}},
    });
    eventually("a review through the registration", async || {
        cluster.kubectl(&["create", "--dry-run=server", "-f", "-"], Some(&reviewed.to_string())).await;
        (reviews.load(Ordering::SeqCst) >= 2).then_some(())
    })
    .await;

    // edited, it is repaired; what others added stays; deleted, it is made again.
    // One bundle is removed: the API server itself refuses to store one that is not PEM.
    let edit = json!([
        {"op": "remove", "path": "/webhooks/1/clientConfig/caBundle"},
        {"op": "add", "path": "/metadata/labels/theirs", "value": "stays"},
    ])
    .to_string();
    let patch = ["patch", "mutatingwebhookconfiguration", "sallyport", "--type=json", "-p", &edit];
    cluster.kubectl(&patch, None).await;
    let repaired = eventually("the repair", async || {
        get().await.filter(|live| bundles(live) == vec![authority.bundle.to_pem(); 2])
    })
    .await;
    assert_eq!(repaired["metadata"]["labels"]["theirs"], "stays");
    // Edited again at once: a fight, met with a wait that the metric shows, and then repaired.
    cluster.kubectl(&patch, None).await;
    eventually("a wait", async || {
        (rotator.metric("sallyport_registration_backoff_seconds") > 0.0).then_some(())
    })
    .await;
    eventually("the second repair", async || {
        get().await.filter(|live| bundles(live) == vec![authority.bundle.to_pem(); 2])
    })
    .await;
    cluster.kubectl(&["delete", "mutatingwebhookconfiguration", "sallyport"], None).await;
    let again = eventually("the new one", get).await;
    assert_ne!(again["metadata"]["uid"], live["metadata"]["uid"]);

    // An entry that is described no more goes; a configuration without entries goes.
    let one = [entry("fail.mutate.sallyport.dev", &at(address, "mutate/fail"))];
    cluster.describe(&[configuration("MutatingWebhookConfiguration", &one)]).await;
    eventually("one entry less", async || get().await.filter(|live| bundles(live).len() == 1)).await;
    cluster.describe(&[configuration("MutatingWebhookConfiguration", &[])]).await;
    eventually("no configuration", async || get().await.is_none().then_some(())).await;
    cluster.describe(&described(address)).await;
    eventually("the registration again", get).await;

    // A second start finds everything as it is to be and writes nothing.
    eventually("in sync", async || (rotator.metric("sallyport_ca_bundle_in_sync") > 0.0).then_some(())).await;
    rotator.stop().await;
    let before = cluster.versions().await;
    let second = cluster.rotator(&flags).await;
    eventually("in sync", async || (second.metric("sallyport_ca_bundle_in_sync") > 0.0).then_some(())).await;
    assert_eq!(cluster.versions().await, before);
    assert!(second.metric("sallyport_certificate_rotations_total") < 0.5);
    assert!(second.metric("sallyport_registration_writes_total") < 0.5);

    // A lost authority: a new one, and its predecessor stays in every bundle.
    cluster.kubectl(&["delete", "secret", "sallyport-ca", "-n", NAMESPACE], None).await;
    let new = eventually("a new authority", async || {
        cluster.identity("sallyport-ca").await.filter(|new| new.pair != authority.pair)
    })
    .await;
    assert_eq!(new.bundle.certificates().len(), 2);
    eventually("the bundle with both", async || {
        get().await.filter(|live| bundles(live) == vec![new.bundle.to_pem(); 2])
    })
    .await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_by_service_with_an_owner() {
    let cluster = Cluster::start().await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "sallyport"},
    });
    cluster.kubectl(&["create", "serviceaccount", "default", "-n", NAMESPACE], None).await;
    let flags = ["--registration-configmap", "registration", "--owner-cluster-role", "sallyport"];
    assert_eq!(
        cluster.faults(&flags).await,
        "the authority is to be replaced: nothing is stored",
        "the check of a cluster without anything"
    );
    assert!(cluster.versions().await.is_empty(), "a check writes nothing");
    let rotator = cluster.rotator(&flags).await;
    let identity = eventually("the front's certificate", || cluster.identity("sallyport-webhook-tls")).await;
    let Front { address, .. } = front(&identity).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "sallyport-webhook"},
        "spec": {"selector": {"app": "front"}, "ports": [{"name": "https", "port": 443, "targetPort": "https"}]},
    });
    let target =
        json!({"service": {"namespace": NAMESPACE, "name": "sallyport-webhook", "path": "/mutate/fail"}});
    let configuration =
        configuration("MutatingWebhookConfiguration", &[entry("fail.sallyport.dev", &target)]);
    cluster.describe(&[service, configuration]).await;

    // Without its owner nothing is created.
    let families = || rotator.registry.gather();
    eventually("a look at the description", async || {
        families().iter().any(|f| f.name() == "sallyport_ca_bundle_in_sync").then_some(())
    })
    .await;
    assert_eq!(cluster.get("service", "sallyport-webhook").await, None);

    // With it, the Service; but no configuration while no pod is ready.
    assert!(cluster.faults(&flags).await.contains("the ClusterRole that is to own"));
    cluster.apply(&role).await;
    let role_uid = cluster.get("clusterrole", "sallyport").await.unwrap()["metadata"]["uid"].clone();
    let service = eventually("the Service", || cluster.get("service", "sallyport-webhook")).await;
    assert_eq!(service["metadata"]["ownerReferences"][0]["uid"], role_uid);
    let get = || cluster.get("mutatingwebhookconfiguration", "sallyport");
    assert_eq!(get().await, None);
    let faults = cluster.faults(&flags).await;
    assert!(faults.contains("MutatingWebhookConfiguration sallyport does not exist"), "{faults}");
    assert!(faults.contains("has no ready pod"), "{faults}");
    cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "front", "namespace": NAMESPACE, "labels": {"app": "front"}},
            "spec": {"containers": [{"name": "front", "image": "front", "ports": [{"name": "https", "containerPort": address.port()}]}]},
        }))
        .await;
    let status = json!({"status": {
        "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }})
    .to_string();
    let patch =
        ["patch", "pod", "front", "-n", NAMESPACE, "--subresource=status", "--type=merge", "-p", &status];
    cluster.kubectl(&patch, None).await;
    let live = eventually("the registration", get).await;
    assert_eq!(live["metadata"]["ownerReferences"][0]["uid"], role_uid);
    assert_eq!(live["metadata"]["ownerReferences"][0]["blockOwnerDeletion"], Value::Null);

    // The Service is handed over to the configuration, to be collected after it.
    let uid = live["metadata"]["uid"].clone();
    let owners = async || {
        let service = cluster.get("service", "sallyport-webhook").await?;
        let owners = service["metadata"]["ownerReferences"].as_array()?.clone();
        let uids: Vec<Value> = owners.into_iter().map(|owner| owner["uid"].clone()).collect();
        (uids == [uid.clone()]).then_some(())
    };
    eventually("the Service's owner", owners).await;
    assert_eq!(cluster.faults(&flags).await, "", "the check of a cluster where all is well");

    // A new release under the same name: made anew, never edited.
    cluster.kubectl(&["delete", "clusterrole", "sallyport"], None).await;
    cluster.apply(&role).await;
    let role_uid = cluster.get("clusterrole", "sallyport").await.unwrap()["metadata"]["uid"].clone();
    // A ClusterRole is not watched: something has to happen for the next round to come at once.
    cluster.kubectl(&["annotate", "mutatingwebhookconfiguration", "sallyport", "touched=yes"], None).await;
    let anew = eventually("a registration of the new release", async || {
        get().await.filter(|live| live["metadata"]["ownerReferences"][0]["uid"] == role_uid)
    })
    .await;
    assert_ne!(anew["metadata"]["uid"], uid);
    assert_eq!(anew["metadata"]["annotations"], Value::Null);
    rotator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_rotators_at_once_end_with_one_authority_r_01() {
    let cluster = Cluster::start().await;
    let rotators = [cluster.rotator(&[]).await, cluster.rotator(&[]).await];
    for rotator in &rotators {
        eventually("readiness", async || rotator.readiness.ready().then_some(())).await;
    }
    let authority = cluster.identity("sallyport-ca").await.unwrap();
    assert_eq!(authority.bundle.certificates().len(), 1);
    let issued: f64 =
        rotators.iter().map(|rotator| rotator.metric("sallyport_certificate_rotations_total")).sum();
    assert!((3.5..4.5).contains(&issued), "one authority and three leaves, whoever made them");
    for member in Member::ALL {
        let identity = cluster.identity(&format!("sallyport-{}-tls", member.word())).await.unwrap();
        assert_eq!(identity.bundle, authority.bundle);
    }
    for rotator in rotators {
        rotator.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_belong_to_the_service_account_and_those_of_others_to_nobody() {
    let cluster = Cluster::start().await;
    let somebodys = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "sallyport-mutator-tls", "namespace": NAMESPACE},
        "data": {"tls.crt": "", "tls.key": ""},
    });
    cluster.apply(&somebodys).await;
    let rotator = cluster.rotator(&["--owner-service-account", "rotator"]).await;

    // Without its owner nothing is made: it would never be collected.
    eventually("a refusal", async || {
        (rotator.metric("sallyport_rotator_failures_total") > 0.0).then_some(())
    })
    .await;
    assert_eq!(cluster.get("secret", "sallyport-ca").await, None);
    assert!(!rotator.readiness.ready());

    cluster.kubectl(&["create", "serviceaccount", "rotator", "-n", NAMESPACE], None).await;
    let uid = cluster.get("serviceaccount", "rotator").await.unwrap()["metadata"]["uid"].clone();
    eventually("readiness", async || rotator.readiness.ready().then_some(())).await;
    let owner = json!([{"apiVersion": "v1", "kind": "ServiceAccount", "name": "rotator", "uid": uid}]);
    for (name, wanted) in [
        ("sallyport-ca", &owner),
        ("sallyport-webhook-tls", &owner),
        ("sallyport-mutator-tls", &Value::Null),
        ("sallyport-validator-tls", &owner),
    ] {
        let secret = cluster.get("secret", name).await.unwrap();
        assert_eq!(&secret["metadata"]["ownerReferences"], wanted, "{name}");
        assert_ne!(secret["data"]["tls.crt"], json!(""), "{name}");
    }
    rotator.stop().await;
}
