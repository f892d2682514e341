//! The registration from its birth to its repair: and design §6.
//!
//! The front is a small TLS server that answers every review with "allowed", so that what the API server thinks of
//! the certificates is part of what is shown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sallyport_pki::names::{Extras, Member, Suite};
use sallyport_pki::{Identity, Renewal, check};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::cluster::{Cluster, NAMESPACE, eventually};

pub struct Front {
    pub address: SocketAddr,
    /// How many connections it has seen the end of, or the first request of.
    connections: Arc<AtomicUsize>,
    /// How many reviews it answered.
    pub reviews: Arc<AtomicUsize>,
}

/// A front that serves an identity and allows everything.
pub async fn front(identity: &Identity) -> Front {
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

pub fn entry(name: &str, client_config: &Value) -> Value {
    json!({
        "name": name,
        "clientConfig": client_config,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "objectSelector": {"matchLabels": {"reviewed": "yes"}},
        "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
    })
}

pub fn configuration(kind: &str, entries: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": "sallyport", "labels": {"app.kubernetes.io/part-of": "sallyport"}},
        "webhooks": entries,
    })
}

pub fn bundles(configuration: &Value) -> Vec<String> {
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
    let flags = ["--registration-configmap", "registration", "--propagation", "3s"];
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

    // A lost authority: a new one takes office once it is trusted besides its predecessor.
    cluster.kubectl(&["delete", "secret", "sallyport-ca", "-n", NAMESPACE], None).await;
    let new = eventually("a new authority", async || {
        cluster.identity("sallyport-ca").await.filter(|new| new.pair != authority.pair)
    })
    .await;
    assert_eq!(new.bundle.certificates().len(), 2);
    assert_eq!(bundles(&get().await.unwrap()), vec![new.bundle.to_pem(); 2], "trusted before");
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
