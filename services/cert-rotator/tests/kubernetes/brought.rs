//! Certificates that somebody else issues: carried to the services in phases.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sallyport_pki::names::{Extras, Member, Suite};
use sallyport_pki::{Algorithm, Authority, Bundle, Certificate, check};
use serde_json::json;

use crate::cluster::{Cluster, NAMESPACE, eventually};

const FLAGS: [&str; 10] = [
    "--brought-webhook-secret",
    "issued-webhook",
    "--brought-mutator-secret",
    "issued-mutator",
    "--brought-validator-secret",
    "issued-validator",
    "--brought-bundle",
    "issuers",
    // Long enough that each phase is seen, also on a machine with other work.
    "--propagation",
    "12s",
];

fn authority() -> Authority {
    Authority::generate(Algorithm::EcdsaP256, SystemTime::now(), Duration::from_secs(24 * 3600)).unwrap()
}

/// Issues a member's certificate, as cert-manager would: without the authority, if that is known otherwise.
async fn issue(cluster: &Cluster, authority: &Authority, member: Member, with_authority: bool) {
    let suite = Suite::with_prefix("sallyport", NAMESPACE, "cluster.local").unwrap();
    let request = suite.leaf(member, &Extras::loopback()).unwrap();
    let pair = authority.issue(&request, SystemTime::now(), Duration::from_secs(12 * 3600)).unwrap();
    let mut data = json!({
        "tls.crt": STANDARD.encode(pair.certificate_pem),
        "tls.key": STANDARD.encode(pair.key_pem),
    });
    if with_authority {
        data["ca.crt"] = json!(STANDARD.encode(authority.certificate().to_pem()));
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": format!("issued-{}", member.word()), "namespace": NAMESPACE},
        "data": data,
    });
    cluster.apply(&secret).await;
}

/// Whether a member's certificate is of that authority, and everybody trusts as many.
async fn is_given_out(cluster: &Cluster, authority: &Authority, authorities: usize) -> Option<()> {
    let mut issuer = Bundle::empty();
    issuer.add(authority.certificate().clone());
    for member in Member::ALL {
        let identity = cluster.identity(&format!("sallyport-{}-tls", member.word())).await?;
        let chain = Certificate::all_from_pem(identity.pair.certificate_pem.as_bytes()).ok()?;
        let is_there = check::verifies(&chain, &issuer, SystemTime::now())
            && identity.bundle.certificates().len() == authorities;
        if !is_there {
            return None;
        }
    }
    Some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_others_are_carried_to_the_services_in_phases_r12() {
    let cluster = Cluster::start().await;
    let rotator = cluster.rotator(&FLAGS).await;
    let first = authority();
    for member in [Member::Webhook, Member::Mutator] {
        issue(&cluster, &first, member, true).await;
    }
    eventually("what is there", || cluster.identity("sallyport-mutator-tls")).await;
    assert!(cluster.faults(&FLAGS).await.contains("brought for the validator: nothing is stored"));
    // One whose authority is known from elsewhere.
    issue(&cluster, &first, Member::Validator, false).await;
    let issuers = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "issuers", "namespace": NAMESPACE},
        "data": {"service-ca.crt": first.certificate().to_pem()},
    });
    cluster.apply(&issuers).await;
    eventually("all", || is_given_out(&cluster, &first, 1)).await;
    eventually("no fault", async || cluster.faults(&FLAGS).await.is_empty().then_some(())).await;
    let secret = cluster.get("secret", "sallyport-ca").await.unwrap();
    assert_eq!(secret["data"]["tls.key"], "", "no key is made here");

    // Another authority from one moment to the next: trusted first, served second, alone at last.
    let second = authority();
    for member in Member::ALL {
        issue(&cluster, &second, member, true).await;
    }
    eventually("both trusted", || is_given_out(&cluster, &first, 2)).await;
    eventually("the other served", || is_given_out(&cluster, &second, 2)).await;
    eventually("the other alone", || is_given_out(&cluster, &second, 1)).await;

    // What cannot serve is told of and harms nobody. Secrets that are damaged are mended.
    let broken = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "issued-mutator", "namespace": NAMESPACE},
        "data": {"tls.crt": STANDARD.encode("broken"), "tls.key": ""},
    });
    cluster.apply(&broken).await;
    eventually("the fault", async || {
        cluster.faults(&FLAGS).await.contains("brought for the mutator").then_some(())
    })
    .await;
    is_given_out(&cluster, &second, 1).await.unwrap();
    cluster.kubectl(&["delete", "secret", "sallyport-webhook-tls", "-n", NAMESPACE], None).await;
    eventually("the Secret again", || is_given_out(&cluster, &second, 1)).await;
    let before = cluster.versions().await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(cluster.versions().await, before, "it writes although nothing differs");
    rotator.stop().await;
}
