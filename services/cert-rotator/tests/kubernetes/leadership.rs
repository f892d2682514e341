//! Several rotators and one Lease: who leads, and what it shows (R-12).

use std::time::Duration;

use serde_json::Value;

use crate::cluster::{Cluster, NAMESPACE, Rotator, eventually};

const FLAGS: [&str; 4] = ["--lease", "rotators", "--lease-duration", "3s"];

fn leads(rotator: &Rotator) -> bool {
    rotator.metric("sallyport_rotator_leader") > 0.5
}

async fn lease(cluster: &Cluster) -> Value {
    cluster.get("lease", "rotators").await.unwrap_or_default()
}

/// The status and the reason of a condition.
fn condition(lease: &Value, type_: &str) -> (String, String) {
    let text = lease["metadata"]["annotations"]["sallyport.dev/conditions"].as_str().unwrap_or("[]");
    let conditions: Vec<Value> = serde_json::from_str(text).unwrap();
    let found = conditions.iter().find(|condition| condition["type"] == type_).cloned().unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_leads_and_the_other_follows_at_once_or_after_the_lease_r12() {
    let cluster = Cluster::start().await;
    let first = cluster.rotator(&FLAGS).await;
    eventually("a leader", async || leads(&first).then_some(())).await;
    let second = cluster.rotator(&FLAGS).await;
    for rotator in [&first, &second] {
        eventually("readiness", async || rotator.readiness.ready().then_some(())).await;
    }
    assert!(!leads(&second), "two lead");
    let holder = lease(&cluster).await["spec"]["holderIdentity"].clone();
    let steps = |rotator: &Rotator| rotator.metric("sallyport_certificate_rotations_total");
    assert!(steps(&first) > 3.5 && steps(&second) < 0.5, "the one that follows has worked");
    eventually("the conditions", async || {
        (condition(&lease(&cluster).await, "Ready") == ("True".into(), "AsDescribed".into())).then_some(())
    })
    .await;

    // One that ends in order gives the Lease up. Its certificates are in the hands of the next.
    let before = std::time::Instant::now();
    first.stop().await;
    eventually("another leader", async || leads(&second).then_some(())).await;
    assert!(before.elapsed() < Duration::from_secs(3), "it had to wait: {:?}", before.elapsed());
    assert_ne!(lease(&cluster).await["spec"]["holderIdentity"], holder);
    cluster.kubectl(&["delete", "secret", "sallyport-mutator-tls", "-n", NAMESPACE], None).await;
    eventually("the Secret again", || cluster.identity("sallyport-mutator-tls")).await;

    // One that dies keeps it for its duration.
    let third = cluster.rotator(&FLAGS).await;
    eventually("readiness", async || third.readiness.ready().then_some(())).await;
    second.kill().await;
    eventually("another leader", async || leads(&third).then_some(())).await;
    let transitions = lease(&cluster).await["spec"]["leaseTransitions"].as_i64();
    assert_eq!(transitions, Some(2));

    // A Lease that somebody deletes, or takes, is got back; whoever has lost it shows nothing of what it saw.
    cluster.kubectl(&["delete", "lease", "rotators", "-n", NAMESPACE], None).await;
    eventually("the Lease again", async || {
        (lease(&cluster).await["spec"]["holderIdentity"].is_string() && leads(&third)).then_some(())
    })
    .await;
    let take = ["patch", "lease", "rotators", "-n", NAMESPACE, "--type=merge", "-p"];
    let patch = r#"{"spec":{"holderIdentity":"somebody","leaseDurationSeconds":4}}"#;
    cluster.kubectl(&[&take[..], &[patch]].concat(), None).await;
    eventually("the loss is noticed", async || (!leads(&third)).then_some(())).await;
    assert!(third.metric("sallyport_certificate_not_after_timestamp_seconds") < 0.5);
    eventually("the Lease of one that is not heard of", async || leads(&third).then_some(())).await;
    third.stop().await;
    assert_eq!(lease(&cluster).await["spec"]["holderIdentity"], "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freeze_is_shown_and_holds_a_rotation() {
    let cluster = Cluster::start().await;
    let flags = [&FLAGS[..], &["--propagation", "1s"]].concat();
    let rotator = cluster.rotator(&flags).await;
    eventually("readiness", async || rotator.readiness.ready().then_some(())).await;
    let before = cluster.identity("sallyport-ca").await.unwrap();
    let annotate = async |annotation: &str| {
        let command = ["annotate", "secret", "sallyport-ca", "-n", NAMESPACE, "--overwrite", annotation];
        cluster.kubectl(&command, None).await;
    };
    annotate("sallyport.dev/freeze=an audit").await;
    eventually("the condition", async || {
        (condition(&lease(&cluster).await, "Frozen") == ("True".into(), "Asked".into())).then_some(())
    })
    .await;
    annotate("sallyport.dev/rotate=now").await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(cluster.identity("sallyport-ca").await.unwrap(), before, "it did not hold");
    annotate("sallyport.dev/freeze-").await;
    eventually("another authority", async || {
        let identity = cluster.identity("sallyport-ca").await?;
        (identity.pair != before.pair && identity.bundle.certificates().len() == 1).then_some(())
    })
    .await;
    eventually("the condition", async || {
        let lease = lease(&cluster).await;
        let is_over = condition(&lease, "Rotating") == ("False".into(), "Done".into());
        (is_over && condition(&lease, "Frozen").0 == "False").then_some(())
    })
    .await;
    // Each step was told of.
    let list = cluster.kubectl(&["get", "events", "-n", NAMESPACE, "-o", "json"], None).await;
    let list: Value = serde_json::from_str(&list).unwrap();
    for reason in ["RotationStarted", "AuthorityPromoted", "RotationFinished", "CertificateIssued"] {
        let told = list["items"].as_array().unwrap().iter().find(|event| event["reason"] == reason);
        assert_eq!(told.unwrap()["involvedObject"]["name"], "sallyport-ca", "{reason}");
    }
    rotator.stop().await;
}
