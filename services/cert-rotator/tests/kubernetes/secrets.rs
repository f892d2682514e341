//! The Secrets: who makes them, and whose they are.

use sallyport_pki::names::Member;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn two_rotators_at_once_end_with_one_authority_r01() {
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
