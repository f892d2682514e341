//! Promotion with all four services: what the policies of the probe say is what the rotator understands.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use sallyport_testkit::ControlPlane;
use sallyport_tests::registration::NAMESPACE;
use sallyport_tests::{Entry, Options, Suite};

const NAME: &str = "sallyport";

/// R-07: each side is promoted by its own half of the proof.
#[tokio::test(flavor = "multi_thread")]
async fn each_side_is_promoted_once_it_has_answered_through_the_api_server_r07() {
    sallyport_tests::install_tls_provider();
    let plane = ControlPlane::start().await.unwrap();
    plane.kubectl(&["create", "namespace", NAMESPACE], None).await.unwrap().ok().unwrap();
    let mut suite = Suite::start(&Options::default()).await.unwrap();
    let inspector = suite.inspector().await.unwrap();
    suite.mutators[0].process.kill().unwrap();
    let entries = ["mutate", "validate"]
        .map(|side| [Entry::pods(side, "Fail", ("reviewed", "yes")), Entry::probe(side)]);
    suite.register(&plane, NAME, &inspector.url(), &entries.concat()).await.unwrap();

    suite.promoted(&plane, "validatingwebhookconfiguration", NAME, "Fail Ignore").await.unwrap();
    suite.promoted(&plane, "mutatingwebhookconfiguration", NAME, "Ignore Ignore").await.unwrap();
    suite.mutators[0].restart().await.unwrap();
    suite.promoted(&plane, "mutatingwebhookconfiguration", NAME, "Fail Ignore").await.unwrap();

    // Nobody else's dry run, label or not, is refused elsewhere; and a real create is let through everywhere.
    let rows: [(&str, &[&str], bool); 3] = [
        (NAMESPACE, &["--dry-run=server"], false),
        (NAMESPACE, &[], true),
        ("default", &["--dry-run=server"], true),
    ];
    for (namespace, flags, wanted) in rows {
        let manifest = r#"{"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "mine", "labels": {"sallyport.dev/probe": "mine"}}}"#;
        let create = [&["-n", namespace, "create", "-f", "-"], flags].concat();
        let created = plane.kubectl(&create, Some(manifest)).await.unwrap();
        assert_eq!(created.success, wanted, "{namespace} {flags:?}: {}", created.stderr);
        let ours = created.stderr.contains("probe mine is refused and was marked");
        assert_eq!(ours, !wanted, "{}", created.stderr);
    }
    inspector.assert_clean();
}
