//! Mutual TLS between front and backends: who is let in, and what a rotation does to whom.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, HandshakeKind};
use sallyport_net::{AcceptLimits, Credentials, Shutdown};
use sallyport_pki::Certificate;

use crate::authority::{Ca, Member, name, serial};
use crate::server::{Echo, connect, echo, eventually, plain_client, provider, reaches, roots, shown};

async fn backend(member: &Member) -> Echo {
    let tls = member.credentials.mutual_server_config(&name("front")).unwrap();
    Echo::start(tls, AcceptLimits::default()).await
}

fn watched(member: &Member) -> &Member {
    tokio::spawn(member.credentials.clone().watch(Duration::from_millis(10), |_| {}, Shutdown::new()));
    member
}

/// A client of `ca`'s with a leaf of its own, for one version of TLS; it resumes sessions when it can.
fn client(
    ca: &Ca,
    issuer: &Ca,
    service: &str,
    version: &'static rustls::SupportedProtocolVersion,
) -> Arc<ClientConfig> {
    let pair = issuer.leaf(service);
    let chain = vec![Certificate::from_pem(pair.certificate_pem.as_bytes()).unwrap().der().clone()];
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap();
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots(ca))
        .with_client_auth_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

#[tokio::test]
async fn only_the_named_client_of_the_own_authority_is_let_in() {
    let (ca, foreign) = (Ca::new(), Ca::new());
    let member = ca.member("mutator");
    let server = backend(&member).await;
    let to = name("mutator");
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        for (who, config) in [
            ("no certificate", plain_client(&ca, &[b"h2"])),
            ("another name of the same authority", client(&ca, &ca, "validator", version)),
            ("the right name of a foreign authority", client(&ca, &foreign, "front", version)),
        ] {
            assert!(!reaches(server.address, &to, config).await, "{who}, {version:?}");
        }
    }
    assert_eq!(server.accepted(), 0, "refused in the handshake: the server never saw a connection");
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        assert!(reaches(server.address, &to, client(&ca, &ca, "front", version)).await, "{version:?}");
    }
    assert!(reaches(server.address, &to, ca.member("front").credentials.client_config().unwrap()).await);
    assert_eq!(server.accepted(), 3);
}

#[tokio::test]
async fn a_client_believes_only_the_named_server_of_its_authority() {
    let (ca, foreign) = (Ca::new(), Ca::new());
    let server = backend(&ca.member("mutator")).await;
    let front = ca.member("front").credentials.client_config().unwrap();
    assert!(reaches(server.address, &name("mutator"), front.clone()).await);
    assert!(!reaches(server.address, &name("validator"), front.clone()).await, "another name");
    // The server's authority is not the client's, but the client's is the server's.
    let torn = backend(&Member::new(&foreign.leaf("mutator"), &ca.pem())).await;
    assert!(!reaches(torn.address, &name("mutator"), front).await, "a foreign authority");
}

#[test]
fn a_client_name_that_is_no_dns_name_is_refused_r13() {
    let member = Ca::new().member("mutator");
    let error = member.credentials.mutual_server_config("not a name").unwrap_err().to_string();
    assert!(error.contains("not a name"), "{error}");
}

#[tokio::test]
async fn leaves_are_swapped_on_both_sides_without_touching_open_connections_g07() {
    let ca = Ca::new();
    let (front, mutator) = (ca.member("front"), ca.member("mutator"));
    let server = backend(watched(&mutator)).await;
    let config = watched(&front).credentials.client_config().unwrap();
    let to = name("mutator");
    let mut open = connect(server.address, &to, config.clone()).await.unwrap();
    echo(&mut open).await.unwrap();
    let before = shown(&open);

    let (pair, own) = (ca.leaf("mutator"), ca.leaf("front"));
    mutator.publish(&pair, &ca.pem());
    front.publish(&own, &ca.pem());
    wait_for(&mutator.credentials, &serial(&pair)).await;
    wait_for(&front.credentials, &serial(&own)).await;
    let mut fresh = connect(server.address, &to, config).await.unwrap();
    echo(&mut fresh).await.unwrap();
    assert_eq!(shown(&fresh), serial(&pair));
    assert_ne!(shown(&fresh), before);
    echo(&mut open).await.unwrap();
}

async fn wait_for(credentials: &Credentials, serial: &str) {
    eventually("the new leaf is in use", || credentials.status().serial == serial).await;
}

async fn wait_for_bundle(credentials: &Credentials, bundle: &str) {
    let wanted = sallyport_pki::Bundle::from_pem(bundle.as_bytes()).unwrap().fingerprint();
    eventually("the new bundle is in use", || credentials.status().bundle_sha256 == wanted).await;
}

#[tokio::test]
async fn trust_moves_from_one_authority_over_both_to_the_other_g07_r04() {
    let (old, new) = (Ca::new(), Ca::new());
    let both = old.pem() + &new.pem();
    let (front_old, mutator_old) = (old.leaf("front"), old.leaf("mutator"));
    let (front, mutator) = (Member::new(&front_old, &old.pem()), Member::new(&mutator_old, &old.pem()));
    let server = backend(watched(&mutator)).await;
    let config = watched(&front).credentials.client_config().unwrap();
    let to = name("mutator");
    let (front_new, mutator_new) = (new.leaf("front"), new.leaf("mutator"));
    let mut open = connect(server.address, &to, config.clone()).await.unwrap();

    // Each step on one side only, then on the other: every state in between must work.
    for (what, member, pair, bundle) in [
        ("both trusted by the client", &front, &front_old, &both),
        ("both trusted by the server", &mutator, &mutator_old, &both),
        ("the server's leaf is new", &mutator, &mutator_new, &both),
        ("the client's leaf is new", &front, &front_new, &both),
        ("the old one is out at the client", &front, &front_new, &new.pem()),
        ("the old one is out at the server", &mutator, &mutator_new, &new.pem()),
    ] {
        member.publish(pair, bundle);
        wait_for(&member.credentials, &serial(pair)).await;
        wait_for_bundle(&member.credentials, bundle).await;
        assert!(reaches(server.address, &to, config.clone()).await, "{what}");
    }
    echo(&mut open).await.unwrap();

    // And the old authority is worth nothing any more, on either side.
    assert!(!reaches(server.address, &to, client(&new, &old, "front", &rustls::version::TLS13)).await);
    mutator.publish(&mutator_old, &new.pem());
    wait_for(&mutator.credentials, &serial(&mutator_old)).await;
    assert!(!reaches(server.address, &to, config).await);
}

#[tokio::test]
async fn the_mutual_listener_never_resumes_a_session() {
    let ca = Ca::new();
    let member = ca.member("mutator");
    let mutual = backend(&member).await;
    // The public listener may; it proves that this client would.
    let public = Echo::start(member.credentials.https_config().unwrap(), AcceptLimits::default()).await;
    let to = name("mutator");
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        for (address, second) in
            [(mutual.address, HandshakeKind::Full), (public.address, HandshakeKind::Resumed)]
        {
            let config = client(&ca, &ca, "front", version);
            for expected in [HandshakeKind::Full, second] {
                let mut stream = connect(address, &to, config.clone()).await.unwrap();
                echo(&mut stream).await.unwrap(); // reads the tickets too
                let kind = stream.get_ref().1.handshake_kind().unwrap();
                assert_eq!(kind, expected, "{version:?}, {address}");
            }
        }
    }
}
