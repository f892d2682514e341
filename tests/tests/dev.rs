//! `sallyport dev` against a real API server: what a policy's author does all day.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use sallyport_testkit::process::binary;
use sallyport_testkit::{ControlPlane, Program};
use sallyport_tests::root;
use sallyport_tests::suite::pod;
use serde_json::{Value, json};

const KINDS: &str = "mutatingwebhookconfigurations,validatingwebhookconfigurations";

async fn until(
    plane: &ControlPlane,
    what: &str,
    arguments: &[&str],
    stdin: &str,
    met: impl Fn(&str, &str) -> bool,
) {
    let mut last = None;
    for _ in 0..200 {
        let output = plane.kubectl(arguments, Some(stdin)).await.unwrap();
        if met(&output.stdout, &output.stderr) {
            return;
        }
        last = Some(output);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}: not within ten seconds; last: {last:?}");
}

/// Registers itself by url, follows edits of policies, unregisters on exit.
#[tokio::test(flavor = "multi_thread")]
async fn dev_registers_follows_edits_and_leaves_nothing_behind() {
    let plane = ControlPlane::start().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (policies, state) = (directory.path().join("policies"), directory.path().join("state"));
    std::fs::create_dir(&policies).unwrap();
    let recipe = |name: &str| root().join("policies").join(name).join("policy.yaml");
    std::fs::copy(recipe("hello-file"), policies.join("hello-file.yaml")).unwrap();
    let mut dev = Program::new(binary("sallyport").unwrap())
        .args(["dev", "--policy-dir"])
        .arg(&policies)
        .arg("--kubeconfig")
        .arg(plane.kubeconfig())
        .arg("--state-dir")
        .arg(&state)
        .start()
        .unwrap();
    let file = state.join("dev.json");
    dev.wait_until("dev.json is there", Duration::from_secs(30), async || file.exists().then_some(()))
        .await
        .unwrap();
    let told: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert!(told["webhook"].as_str().unwrap().starts_with("https://127.0.0.1:"), "{told}");
    assert!(told["admin"]["webhook"].is_string() && told["caFile"].is_string(), "{told}");

    let create = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
    let greeted = pod("greeted", &json!({"hello": "true"}), &json!({}));
    until(&plane, "the pod is changed", &create, &greeted, |out, _| out.contains("hello-added")).await;

    // A policy of another kind is dropped in: its door is registered and it is in force.
    std::fs::copy(recipe("deny-env"), policies.join("deny-env.yaml")).unwrap();
    let denied =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "denied"}, "spec": {"containers": [
        {"name": "loud", "image": "i", "env": [{"name": "A", "value": "b"}]}]}})
        .to_string();
    until(&plane, "the pod is refused", &create, &denied, |_, err| err.contains("loud is using env vars"))
        .await;

    dev.terminate().unwrap();
    assert!(dev.wait_exit(Duration::from_secs(60)).await.unwrap().success(), "{}", dev.log_tail());
    assert!(!file.exists(), "dev.json is there only as long as the suite is");
    let left = plane.kubectl(&["get", KINDS, "-o", "name"], None).await.unwrap().ok().unwrap();
    assert_eq!(left.trim(), "");
    plane.kubectl(&create, Some(&denied)).await.unwrap().ok().unwrap();
}
