//! Whatever happens to what is stored, or to the API server, it ends in a good state.

use sallyport_testkit::eventually as holds;
use serde_json::json;

use crate::cluster::{Cluster, NAMESPACE, Rotator, eventually};

const FLAGS: [&str; 2] = ["--propagation", "1s"];

/// Waits until everything is good, and nothing is left of a rotation.
async fn good(cluster: &Cluster, what: &str) {
    eventually(&format!("a good state after: {what}"), async || {
        let is_good = cluster.faults(&FLAGS).await.is_empty();
        let authority = cluster.identity("sallyport-ca").await?;
        (is_good && authority.bundle.certificates().len() == 1).then_some(())
    })
    .await;
}

async fn started(cluster: &Cluster) -> Rotator {
    let rotator = cluster.rotator(&FLAGS).await;
    eventually("readiness", async || rotator.readiness.ready().then_some(())).await;
    rotator
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_of_every_kind_is_mended_r01_r03() {
    let cluster = Cluster::start().await;
    let rotator = started(&cluster).await;
    let patch = async |secret: &str, data: serde_json::Value| {
        let patch = json!({"data": data}).to_string();
        let arguments = ["patch", "secret", secret, "-n", NAMESPACE, "--type=merge", "-p", &patch];
        cluster.kubectl(&arguments, None).await;
    };
    let secrets =
        ["sallyport-ca", "sallyport-webhook-tls", "sallyport-mutator-tls", "sallyport-validator-tls"];
    for secret in secrets {
        for (what, data) in [
            ("no certificate", json!({"tls.crt": ""})),
            ("no key", json!({"tls.key": ""})),
            ("text", json!({"tls.crt": "bm90IGEgY2VydGlmaWNhdGU=", "tls.key": "bm90IGEga2V5"})),
            ("no bundle", json!({"ca.crt": null})),
            ("bytes", json!({"ca.crt": "/////w==", "tls.key": "//79"})),
        ] {
            patch(secret, data).await;
            good(&cluster, &format!("{secret}: {what}")).await;
        }
        cluster.kubectl(&["delete", "secret", secret, "-n", NAMESPACE], None).await;
        good(&cluster, &format!("{secret} deleted")).await;
    }
    let halves = json!({"next.crt": "aGFsZg==", "next.key": null});
    patch("sallyport-ca", halves).await;
    good(&cluster, "half a successor").await;
    // A Secret in the place of another's.
    let stolen = cluster.get("secret", "sallyport-mutator-tls").await.unwrap()["data"].clone();
    patch("sallyport-webhook-tls", stolen).await;
    good(&cluster, "another's certificate").await;
    cluster.kubectl(&[&["delete", "secret", "-n", NAMESPACE][..], &secrets].concat(), None).await;
    good(&cluster, "all deleted").await;
    rotator.stop().await;
}

/// The API server hangs in the middle of a rotation, longer than any call waits.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_away_is_waited_for() {
    let mut cluster = Cluster::start().await;
    let rotator = started(&cluster).await;
    let before = cluster.identity("sallyport-ca").await.unwrap();
    let ask = ["annotate", "secret", "sallyport-ca", "-n", NAMESPACE, "sallyport.dev/rotate=now"];
    cluster.kubectl(&ask, None).await;
    eventually("a successor", async || {
        let authority = cluster.identity("sallyport-ca").await?;
        (authority.bundle.certificates().len() == 2).then_some(())
    })
    .await;
    let failures = || rotator.metric("sallyport_rotator_failures_total");
    let known = failures();
    cluster.control_plane.api_server().suspend().unwrap();
    // A call has waited as long as it may, which is when the rotator notices.
    holds("it notices", || failures() > known).await;
    assert!(rotator.readiness.ready(), "what was good stays good");
    cluster.control_plane.api_server().resume().unwrap();
    eventually("another authority, alone", async || {
        let authority = cluster.identity("sallyport-ca").await?;
        (authority.pair != before.pair && authority.bundle.certificates().len() == 1).then_some(())
    })
    .await;
    good(&cluster, "the API server was away").await;
    rotator.stop().await;
}
