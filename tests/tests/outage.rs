//! What happens to creates when a backend is away: the registration's
//! failurePolicy decides, never the front.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::{Duration, Instant};

use sallyport_testkit::ControlPlane;
use sallyport_tests::suite::{in_force, pod};
use sallyport_tests::{Entry, Options, Suite};
use serde_json::json;

/// C-08, C-09, C-91, G-03, design 2.5.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_mutator_refuses_under_fail_and_passes_under_ignore() {
    sallyport_tests::install_tls_provider();
    let plane = ControlPlane::start().await.unwrap();
    let mut suite =
        Suite::start(&Options { recipes: vec!["hello-file"], ..Options::default() }).await.unwrap();
    let inspector = suite.inspector().await.unwrap();
    let entries = [
        Entry::pods("mutate", "Fail", ("door", "fail")),
        Entry::pods("mutate", "Ignore", ("door", "ignore")),
    ];
    suite.register(&plane, "sallyport", &inspector.url(), &entries).await.unwrap();
    for door in ["fail", "ignore"] {
        plane.kubectl(&["create", "namespace", door], None).await.unwrap().ok().unwrap();
        let label = format!("door={door}");
        plane.kubectl(&["label", "namespace", door, &label], None).await.unwrap().ok().unwrap();
        in_force(&plane, &inspector, door).await.unwrap();
    }
    let manifest = |name: &str| pod(name, &json!({"hello": "true"}), &json!({}));
    let create = async |namespace: &str, name: &str, timeout: &str| {
        let arguments = ["-n", namespace, "create", "-f", "-", "--request-timeout", timeout];
        plane.kubectl(&arguments, Some(&manifest(name))).await.unwrap()
    };
    assert!(create("fail", "before", "10s").await.success);

    suite.mutators[0].process.kill().unwrap();
    // Short client deadlines: the API server comes again each second until they pass.
    let refused = create("fail", "during", "3s").await;
    assert!(!refused.success, "{refused:?}");
    let passed = create("ignore", "during", "30s").await;
    assert!(passed.success, "{passed:?}");
    let reviews = inspector.of("during");
    assert!(reviews.iter().any(|passed| passed.target.starts_with("/mutate/fail")));
    assert!(reviews.iter().any(|passed| passed.target.starts_with("/mutate/ignore")));
    assert!(reviews.iter().all(|passed| passed.status == 503), "{reviews:?}");

    // A create in flight succeeds if the mutator returns in time (Retry-After).
    let waiting = create("fail", "patient", "30s");
    let back = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        suite.mutators[0].restart().await.unwrap();
    };
    let (patient, ()) = tokio::join!(waiting, back);
    assert!(patient.success, "{patient:?}");
    assert!(inspector.of("patient").iter().any(|passed| passed.status == 503), "it was turned away at first");

    // Once more away and back at the same address: reviews pass within 2 s, the front untouched.
    suite.mutators[0].process.kill().unwrap();
    assert!(!create("fail", "away", "2s").await.success);
    suite.mutators[0].restart().await.unwrap();
    let back = Instant::now();
    let after = create("fail", "after", "10s").await;
    assert!(after.success, "{after:?}");
    assert!(back.elapsed() < Duration::from_secs(2), "{:?}", back.elapsed());
    inspector.assert_clean();
}
