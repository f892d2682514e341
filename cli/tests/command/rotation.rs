//! `sallyport certs status`, `rotate`, `freeze` and `unfreeze`, against a real API server.

use std::time::{Duration, SystemTime};

use clap::Parser as _;
use sallyport_pki::names::Member;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE, lease, written};
use crate::process::run;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn annotation(cluster: &Cluster, name: &str) -> Option<String> {
    let secret = cluster.get("secret", "sallyport-ca");
    secret["metadata"]["annotations"][name].as_str().map(str::to_owned)
}

fn machine(cluster: &Cluster, status: i32) -> Value {
    serde_json::from_str(&cluster.sallyport(&["certs", "status", "-o", "json"]).ended(status).stdout).unwrap()
}

#[test]
fn status_shows_what_is_stored_and_its_exit_status_tells_faults() {
    let cluster = Cluster::start();
    let none = cluster.sallyport(&["certs", "status"]).ended(3);
    assert!(none.stdout.contains("authority: nothing is stored"), "{}", none.stdout);

    let now = SystemTime::now();
    cluster.store(now);
    cluster.pod("front", Member::Webhook);
    let good = cluster.sallyport(&["certs", "status"]).ended(0);
    for name in ["NAME", "authority", "webhook", "mutator", "validator", "in office", "all is well"] {
        assert!(good.stdout.contains(name), "{name}: {}", good.stdout);
    }
    // No kubelet is there, and an API server does not go to loopback: the pod is shown, and is no fault.
    assert!(good.stdout.contains("front could not be asked"), "{}", good.stdout);
    assert!(!good.stdout.contains("PRIVATE KEY") && !good.stdout.contains('\u{1b}'), "R-09");

    let conditions = json!([{"type": "Rotating", "status": "True", "reason": "Published",
        "message": "pod front: no answer", "lastTransitionTime": written(now - Duration::from_secs(1200))}]);
    cluster.apply(&[lease(now, &conditions)]);
    let stuck = machine(&cluster, 3);
    assert_eq!(stuck["conditions"][0]["reason"], "Published");
    let fault = stuck["faults"][0].as_str().unwrap();
    assert!(fault.starts_with("the rotation has waited for 2"), "{stuck}");
    assert!(fault.ends_with(" min: pod front: no answer"), "{stuck}");
    assert_eq!(stuck["certificates"][1]["servedBy"][0]["state"], "unknown");
    cluster.apply(&[lease(now, &json!([]))]);

    // Made eighty days ago, a leaf is in the last quarter of its life; a hundred, and it has expired.
    for (age, fault) in [(80, "should have been renewed"), (100, "has expired")] {
        cluster.store(now - DAY * age);
        let faults = machine(&cluster, 3)["faults"].to_string();
        assert!(faults.contains(fault), "{faults}");
    }
}

#[test]
fn a_freeze_comes_and_goes_and_a_request_is_an_annotation() {
    let cluster = Cluster::start();
    for command in ["rotate", "freeze", "unfreeze"] {
        let refused = cluster.sallyport(&["certs", command]).ended(1);
        assert!(refused.stderr.contains("there is no Secret sallyport-ca"), "{command}: {}", refused.stderr);
    }
    cluster.store(SystemTime::now());

    cluster.sallyport(&["certs", "freeze", "--reason", "holidays"]).ended(0);
    assert_eq!(annotation(&cluster, "sallyport.dev/freeze").as_deref(), Some("holidays"));
    assert_eq!(machine(&cluster, 0)["freeze"], "holidays");
    let held = cluster.sallyport(&["certs", "rotate"]).ended(0);
    assert!(held.stderr.contains("rotations are held (holidays)"), "{}", held.stderr);
    cluster.sallyport(&["certs", "unfreeze"]).ended(0);
    assert_eq!(annotation(&cluster, "sallyport.dev/freeze"), None);
    assert!(cluster.sallyport(&["certs", "unfreeze"]).ended(0).stderr.contains("nothing was held"));
    cluster.sallyport(&["certs", "freeze", "--reason", " "]).ended(1);

    // Each time a new value, in which the time can be read.
    let first = annotation(&cluster, "sallyport.dev/rotate").unwrap();
    assert!(first.starts_with(&written(SystemTime::now())[..10]), "{first}");
    let late = cluster.sallyport(&["certs", "rotate", "--wait", "2s"]).ended(3);
    assert!(late.stderr.contains("not done within 2 s"), "{}", late.stderr);
    let second = annotation(&cluster, "sallyport.dev/rotate").unwrap();
    assert_ne!(first, second);
    assert_eq!(machine(&cluster, 0)["request"], second);
    // Keys and certificates are as they were: nothing but annotations is written.
    assert_eq!(cluster.get("secret", "sallyport-ca")["data"].as_object().unwrap().len(), 3);
}

#[test]
fn a_rotation_that_is_asked_for_is_followed_to_its_end_r04() {
    let cluster = Cluster::start();
    let kubeconfig = cluster.kubeconfig().to_str().unwrap().to_owned();
    let flags =
        ["cert-rotator", "--kubeconfig", &kubeconfig, "--namespace", NAMESPACE, "--propagation", "1s"];
    let args = sallyport_cert_rotator::Args::try_parse_from(flags).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let rotator = cluster.runtime.spawn(async move {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let admin = sallyport_telemetry::Admin::new("cert-rotator");
        let config = args.into_config().await.unwrap();
        let stopped = async move {
            let _ = stopped.await;
        };
        sallyport_cert_rotator::run_with(config, admin.registry(), admin.readiness(), stopped).await.unwrap();
    });
    crate::process::wait("certificates are stored", Duration::from_secs(60), || {
        let status = cluster.sallyport(&["certs", "status", "-o", "json"]);
        status.status == Some(0)
    });
    let before = machine(&cluster, 0);
    let rotated = cluster.sallyport(&["certs", "rotate", "--wait", "60s"]).ended(0);
    for phase in ["asked for another authority", "published", "done", "rotated in"] {
        assert!(rotated.stderr.contains(phase), "{phase}: {}", rotated.stderr);
    }
    let after = machine(&cluster, 0);
    assert_eq!(after["certificates"].as_array().unwrap().len(), 4, "the former one is gone");
    for index in 0..4 {
        assert_ne!(before["certificates"][index]["serial"], after["certificates"][index]["serial"]);
        assert_eq!(after["certificates"][index]["issuer"]["standing"], "in office");
    }
    assert_eq!(after["request"], Value::Null, "it is answered");
    stop.send(()).unwrap();
    cluster.runtime.block_on(rotator).unwrap();
}

#[test]
fn who_may_not_read_is_told_so() {
    let cluster = Cluster::start();
    cluster.store(SystemTime::now());
    cluster.kubectl(&["create", "serviceaccount", "viewer", "-n", NAMESPACE], None);
    let token = cluster.kubectl(&["create", "token", "viewer", "-n", NAMESPACE], None);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "none",
        "clusters": [{"name": "c", "cluster":
            {"server": cluster.url(), "certificate-authority": cluster.ca_file()}}],
        "users": [{"name": "viewer", "user": {"token": token.trim()}}],
        "contexts": [{"name": "view", "context": {"cluster": "c", "user": "viewer"}}],
    });
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let access = ["--kubeconfig", file, "--context", "view"];
    let certs = run(["certs", "status"].iter().chain(&access)).ended(1);
    assert!(certs.stderr.contains("no Secret of the release sallyport"), "{}", certs.stderr);
    assert!(certs.stderr.contains("not allowed"), "{}", certs.stderr);
    let refused = run(["certs", "rotate"].iter().chain(&access)).ended(1);
    assert!(refused.stderr.contains("failed to annotate the Secret sallyport-ca"), "{}", refused.stderr);

    let doctor = run(["doctor", "-o", "json"].iter().chain(&access)).ended(0);
    let diagnosis: Value = serde_json::from_str(&doctor.stdout).unwrap();
    assert_eq!(diagnosis["summary"]["failure"], 0, "{diagnosis}");
    assert_eq!(diagnosis["checks"][0]["status"], "ok", "whoever has a token may ask for the version");
    assert_eq!(diagnosis["checks"][3]["status"], "notChecked");
    // A context that is not there, or no kubeconfig: an error, before anything is asked.
    run(["certs", "status", "--kubeconfig", file]).ended(1);
    run(["doctor", "--kubeconfig", "/nonexistent"]).ended(1);
}

#[test]
fn files_and_clusters_do_not_mix() {
    for arguments in [
        &["certs", "--service", "a", "status"] as &[_],
        &["certs", "status", "--output", "yaml"],
        &["certs", "rotate", "--wait", "soon"],
        &["certs", "thaw"],
    ] {
        run(arguments).ended(2);
    }
    for arguments in [
        &["certs", "status", "--namespace", "Upper"] as &[_],
        &["certs", "freeze", "--release", "a/b"],
        &["doctor", "--fullname", "../x"],
    ] {
        assert!(run(arguments).ended(1).stderr.contains("DNS-1123"), "{arguments:?}");
    }
    for command in ["status", "rotate", "freeze", "unfreeze"] {
        assert!(run(["certs", command, "--help"]).ended(0).stdout.contains("Examples:"), "{command}");
    }
}
