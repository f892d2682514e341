//! The rotator without any cluster: certificates in directories.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use clap::Parser as _;
use prometheus::Registry;
use sallyport_cert_rotator::{Args, run_with};
use sallyport_pki::names::{Extras, Member, Suite};
use sallyport_pki::{Identity, Renewal, check, files};
use sallyport_telemetry::Readiness;
use sallyport_testkit::eventually;
use tokio::sync::oneshot;

fn is_good(root: &Path, member: Member) -> bool {
    let suite = Suite::with_prefix("sallyport", "sallyport", "cluster.local").unwrap();
    let wanted = suite.leaf(member, &Extras::loopback()).unwrap();
    let identity = Identity::from_stored(&files::read(&root.join(member.word())).unwrap());
    check::leaf(&identity.pair, &identity.bundle, &wanted, SystemTime::now(), Renewal::TwoThirds).is_ok()
}

#[tokio::test]
async fn certificates_are_made_mended_and_renewed_r01_r03() {
    let dir = tempfile::tempdir().unwrap();
    let flags = [
        "sallyport-cert-rotator",
        "--store-dir",
        dir.path().to_str().unwrap(),
        "--extra-names=localhost",
        "--extra-addresses=127.0.0.1,::1",
        "--interval=1s",
        "--leaf-life=10s",
    ];
    let config = Args::try_parse_from(flags).unwrap().into_config().await.unwrap();
    let (registry, readiness, (stop, stopped)) =
        (Registry::new(), Readiness::new(), oneshot::channel::<()>());
    let task = tokio::spawn({
        let readiness = readiness.clone();
        async move {
            let stopped = async move {
                let _ = stopped.await;
            };
            run_with(config, &registry, &readiness, stopped).await.unwrap();
        }
    });
    eventually("readiness", || readiness.ready()).await;
    let all_good = || Member::ALL.into_iter().all(|member| is_good(dir.path(), member));
    eventually("good certificates", all_good).await;
    let authority = fs::read(dir.path().join("ca/tls.crt")).unwrap();

    // Broken by somebody, mended.
    fs::write(dir.path().join("mutator/tls.crt"), "rubbish").unwrap();
    eventually("the repair", || is_good(dir.path(), Member::Mutator)).await;

    // A leaf of ten seconds is renewed after six or so.
    let serial = || fs::read(dir.path().join("webhook/tls.crt")).unwrap();
    let before = serial();
    eventually("a renewal", || serial() != before).await;
    assert_eq!(fs::read(dir.path().join("ca/tls.crt")).unwrap(), authority, "by the same authority");
    stop.send(()).unwrap();
    task.await.unwrap();
}
