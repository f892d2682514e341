//! A rotation of the authority in its phases, waiting for pods that are asked what they have loaded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sallyport_pki::names::Member;
use sallyport_pki::{Certificate, Identity};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::cluster::{Cluster, NAMESPACE, Rotator, eventually};

/// What a process of a pod has loaded; `None` while it does not answer.
pub type Loaded = Arc<Mutex<Option<Identity>>>;

/// An admin endpoint that shows what is loaded, as every service does. Returns its port.
async fn admin(loaded: Loaded) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let read = stream.read(&mut request).await.unwrap_or_default();
            let shown = loaded.lock().clone().filter(|_| request[..read].starts_with(b"GET /tls "));
            let Some(identity) = shown else { continue };
            let leaf = Certificate::from_pem(identity.pair.certificate_pem.as_bytes()).unwrap();
            let page = json!({
                "serial": leaf.serial(), "notAfter": 0, "bundleSha256": identity.bundle.fingerprint(),
            })
            .to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", page.len());
            let _ = stream.write_all(format!("{head}{page}").as_bytes()).await;
        }
    });
    port
}

pub struct Pods<'a> {
    pub cluster: &'a Cluster,
    pub loaded: BTreeMap<&'static str, (Member, Loaded)>,
}

impl Pods<'_> {
    /// Makes a pod that runs somewhere, not ready, with an admin port.
    pub async fn add(&mut self, name: &'static str, member: Member) {
        let loaded = Loaded::default();
        let port = admin(Arc::clone(&loaded)).await;
        self.loaded.insert(name, (member, loaded));
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": NAMESPACE,
                "labels": {"app.kubernetes.io/name": "sallyport", "app.kubernetes.io/component": member.word()},
            },
            "spec": {
                "nodeName": "somewhere",
                "containers": [{"name": "main", "image": "none", "ports": [{"name": "admin", "containerPort": port}]}],
            },
        });
        self.cluster.apply(&pod).await;
        let status =
            json!({"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
        let patch = ["patch", "pod", name, "-n", NAMESPACE, "--subresource=status", "--type=merge", "-p"];
        self.cluster.kubectl(&[&patch[..], &[&status.to_string()]].concat(), None).await;
    }

    /// Has a pod load what is stored for it.
    async fn load(&self, name: &str) {
        let (member, loaded) = &self.loaded[name];
        let identity = self.cluster.identity(&format!("sallyport-{}-tls", member.word())).await;
        *loaded.lock() = identity;
    }
}

/// How many authorities are trusted, and the one in office.
async fn authority(cluster: &Cluster) -> (usize, String) {
    let identity = cluster.identity("sallyport-ca").await.unwrap();
    (identity.bundle.certificates().len(), identity.pair.certificate_pem)
}

/// Waits long enough for the rotator to have gone on several times, had it wanted to.
async fn stays(cluster: &Cluster, wanted: &(usize, String), rotator: &Rotator, phase: &str) {
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(&authority(cluster).await, wanted, "it did not wait");
    let families = rotator.registry.gather();
    let family = families.iter().find(|f| f.name() == "sallyport_rotation_awaited_since_timestamp_seconds");
    let waiting: Vec<String> = family
        .unwrap()
        .get_metric()
        .iter()
        .filter(|metric| metric.get_gauge().get_value() > 0.0)
        .map(|metric| metric.get_label()[0].value().to_owned())
        .collect();
    assert_eq!(waiting, [phase]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_waits_for_every_pod_in_each_phase_r04() {
    let cluster = Cluster::start().await;
    let rotator = cluster.rotator(&["--propagation", "1s"]).await;
    eventually("readiness", async || rotator.readiness.ready().then_some(())).await;
    let (_, first) = authority(&cluster).await;

    cluster.kubectl(&["create", "serviceaccount", "default", "-n", NAMESPACE], None).await;
    let mut pods = Pods { cluster: &cluster, loaded: BTreeMap::new() };
    for (name, member) in [
        ("front", Member::Webhook),
        ("mutator-0", Member::Mutator),
        ("mutator-1", Member::Mutator),
        ("validator", Member::Validator),
    ] {
        pods.add(name, member).await;
        pods.load(name).await;
    }

    // Somebody asks. The successor is trusted everywhere before it takes office: one pod is late, and not ready.
    let ask = ["annotate", "secret", "sallyport-ca", "-n", NAMESPACE, "sallyport.dev/rotate=please"];
    cluster.kubectl(&ask, None).await;
    eventually("a successor", async || (authority(&cluster).await.0 == 2).then_some(())).await;
    for member in Member::ALL {
        let secret = format!("sallyport-{}-tls", member.word());
        eventually("the bundle everywhere", async || {
            (cluster.identity(&secret).await?.bundle.certificates().len() == 2).then_some(())
        })
        .await;
    }
    for name in ["front", "mutator-0", "validator"] {
        pods.load(name).await;
    }
    stays(&cluster, &(2, first.clone()), &rotator, "published").await;
    // One that does not answer holds it up just as well.
    *pods.loaded["mutator-1"].1.lock() = None;
    stays(&cluster, &(2, first.clone()), &rotator, "published").await;
    pods.load("mutator-1").await;
    eventually("another authority in office", async || (authority(&cluster).await.1 != first).then_some(()))
        .await;
    let (_, second) = authority(&cluster).await;
    let secret = cluster.get("secret", "sallyport-ca").await.unwrap();
    assert_eq!(secret["data"]["next.key"], Value::Null, "the successor is in one place");
    assert_eq!(secret["metadata"]["annotations"]["sallyport.dev/rotated"], "please");

    // Both stay trusted until everybody serves the new leaves. A rotator that dies is continued by the next.
    rotator.stop().await;
    let rotator = cluster.rotator(&["--propagation", "1s"]).await;
    let issuer = sallyport_pki::Bundle::from_pem(second.as_bytes()).unwrap();
    for member in Member::ALL {
        let secret = format!("sallyport-{}-tls", member.word());
        eventually("leaves of the new authority", async || {
            let identity = cluster.identity(&secret).await?;
            let chain = Certificate::all_from_pem(identity.pair.certificate_pem.as_bytes()).unwrap();
            sallyport_pki::check::verifies(&chain, &issuer, std::time::SystemTime::now()).then_some(())
        })
        .await;
    }
    for name in ["front", "mutator-0", "mutator-1"] {
        pods.load(name).await;
    }
    stays(&cluster, &(2, second.clone()), &rotator, "switched").await;
    // A pod that is gone is waited for no more.
    cluster
        .kubectl(&["delete", "pod", "validator", "-n", NAMESPACE, "--grace-period=0", "--force"], None)
        .await;
    eventually("one authority", async || (authority(&cluster).await == (1, second.clone())).then_some(()))
        .await;
    eventually("nothing awaited", async || {
        (rotator.metric("sallyport_rotation_awaited_since_timestamp_seconds") < 0.5).then_some(())
    })
    .await;

    // The same request is answered once.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(authority(&cluster).await, (1, second));
    rotator.stop().await;
}
