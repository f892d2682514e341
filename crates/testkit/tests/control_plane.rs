//! The control plane starts, does what an API server does, and leaves nothing behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use sallyport_testkit::{ControlPlane, TraceReceiver};

fn runs(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_starts_serves_kubectl_traces_and_leaves_nothing_behind() {
    let traces = TraceReceiver::start().await.unwrap();
    let mut plane = ControlPlane::builder().tracing(traces.address().to_string()).start().await.unwrap();

    let version = plane.kubectl(&["version", "--output=json"], None).await.unwrap().ok().unwrap();
    let version: serde_json::Value = serde_json::from_str(&version).unwrap();
    let server = version["serverVersion"]["gitVersion"].as_str().unwrap();
    assert!(server.starts_with("v1."), "the server's version is stamped: {server}");

    plane.kubectl(&["create", "namespace", "a"], None).await.unwrap().ok().unwrap();
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    let created = plane.kubectl(&["create", "--namespace=a", "--filename=-"], Some(pod)).await.unwrap();
    assert_eq!(created.ok().unwrap().trim(), "pod/p created");
    let again = plane.kubectl(&["create", "--namespace=a", "--filename=-"], Some(pod)).await.unwrap();
    assert!(!again.success && again.stderr.contains("already exists"), "{again:?}");

    let spans = traces
        .wait_for(Duration::from_secs(30), |spans| {
            spans.iter().any(|span| {
                span.name.contains("/pods") && span.attributes.values().any(|value| value == "POST")
            })
        })
        .await
        .unwrap();
    assert!(spans.iter().all(|span| span.trace_id.len() == 32 && span.span_id.len() == 16));

    let pids = [plane.api_server().pid(), plane.etcd().pid()];
    let directory = plane.kubeconfig().parent().unwrap().to_path_buf();
    assert!(pids.into_iter().all(runs) && directory.is_dir());
    plane.stop().unwrap();
    assert!(!pids.into_iter().any(runs), "{pids:?} are still there");
    assert!(!directory.exists());
}

#[tokio::test]
async fn a_control_plane_that_cannot_start_says_why() {
    let error = ControlPlane::builder()
        .api_server_arg("--no-such-flag")
        .start()
        .await
        .expect_err("the flag is unknown");
    assert!(format!("{error:#}").contains("unknown flag: --no-such-flag"), "{error:#}");
}
