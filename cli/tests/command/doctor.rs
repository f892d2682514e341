//! `sallyport doctor` against a real API server, with a release's objects put there by hand.

use std::time::{Duration, SystemTime};

use sallyport_pki::Bundle;
use sallyport_pki::names::Member;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE, lease};
use crate::process::run;

const NAME: &str = "sallyport.sallyport";
/// A leader that is heard of for as long as a test may take.
const PATIENCE: Duration = Duration::from_secs(3600);

fn labels() -> Value {
    json!({"app.kubernetes.io/name": "sallyport", "app.kubernetes.io/instance": "sallyport",
           "app.kubernetes.io/part-of": "sallyport"})
}

fn deployment(component: &str) -> Value {
    let selector = json!({"app.kubernetes.io/component": component});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": format!("sallyport-{component}"), "namespace": NAMESPACE, "labels": labels()},
        "spec": {"replicas": 2, "selector": {"matchLabels": selector}, "template": {
            "metadata": {"labels": selector},
            "spec": {"containers": [{"name": "main", "image": "none", "args": ["--validator=v"]}]},
        }},
    })
}

fn configuration(ca_bundle: Option<&str>, uid: Option<&str>) -> Value {
    let mut entry = json!({
        "name": "fail.validate.sallyport.dev",
        "clientConfig": {"service": {"name": "sallyport-webhook", "namespace": NAMESPACE,
                                     "path": "/validate/fail", "port": 443}},
        "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn",
                                                    "values": [NAMESPACE, "kube-system", "kube-node-lease"]}]},
        "matchConditions": [{"name": "not-a-mirror-pod",
            "expression": "!('kubernetes.io/config.mirror' in object.metadata.?annotations.orValue({}))"}],
    });
    if let Some(ca_bundle) = ca_bundle {
        entry["clientConfig"]["caBundle"] = json!(ca_bundle);
    }
    let mut metadata = json!({"name": NAME, "labels": {"app.kubernetes.io/part-of": "sallyport"}});
    if let Some(uid) = uid {
        metadata["ownerReferences"] = json!([{"apiVersion": "rbac.authorization.k8s.io/v1",
                                              "kind": "ClusterRole", "name": NAME, "uid": uid}]);
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
           "metadata": metadata, "webhooks": [entry]})
}

/// Everything of a release that runs and is registered.
fn install(cluster: &Cluster) -> (Bundle, String) {
    let bundle = cluster.store(SystemTime::now());
    cluster.apply(&[json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                           "metadata": {"name": NAME, "labels": labels()}, "rules": []})]);
    let role = cluster.get("clusterrole", NAME);
    let uid = role["metadata"]["uid"].as_str().unwrap().to_owned();
    let components = ["webhook", "validator", "cert-rotator"];
    cluster.apply(&components.map(deployment));
    for component in components {
        let ready = json!({"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        cluster.status("deployment", &format!("sallyport-{component}"), &ready);
    }
    let described = configuration(None, None).to_string();
    cluster.apply(&[
        json!({"apiVersion": "v1", "kind": "ConfigMap",
               "metadata": {"name": "sallyport-registration", "namespace": NAMESPACE},
               "data": {"registration.yaml": described}}),
        json!({"apiVersion": "v1", "kind": "Service",
               "metadata": {"name": "sallyport-webhook", "namespace": NAMESPACE},
               "spec": {"selector": {"app": "w"}, "ports": [{"name": "https", "port": 443}]}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
               "metadata": {"name": "sallyport-webhook-a", "namespace": NAMESPACE,
                            "labels": {"kubernetes.io/service-name": "sallyport-webhook"}},
               "ports": [{"name": "https", "port": 8443}],
               "endpoints": [{"addresses": ["10.1.0.1"]}, {"addresses": ["10.1.0.2"]}]}),
        lease(SystemTime::now() + PATIENCE, &json!([])),
        configuration(Some(&bundle.to_ca_bundle()), Some(&uid)),
    ]);
    (bundle, uid)
}

fn diagnose(cluster: &Cluster, flags: &[&str], status: i32) -> Value {
    let arguments = [&["doctor", "-o", "json"], flags].concat();
    serde_json::from_str(&cluster.sallyport(&arguments).ended(status).stdout).unwrap()
}

fn check<'a>(diagnosis: &'a Value, name: &str) -> &'a Value {
    diagnosis["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).unwrap()
}

#[test]
fn a_release_is_diagnosed_from_its_absence_to_its_faults() {
    let cluster = Cluster::start();
    let absent = diagnose(&cluster, &[], 3);
    assert_eq!(check(&absent, "api-server")["status"], "ok");
    assert_eq!(check(&absent, "clock")["status"], "ok");
    assert!(check(&absent, "deployments").to_string().contains("--release"), "{absent}");

    let (bundle, uid) = install(&cluster);
    cluster.pod("front", Member::Webhook);
    let well = cluster.sallyport(&["doctor", "--strict"]).ended(0);
    let served = "not checked  served";
    assert!(
        well.stdout.contains(served) && well.stdout.contains("front: could not be asked"),
        "{}",
        well.stdout
    );
    assert!(well.stdout.ends_with("15 ok, 0 with warnings, 0 failed, 1 not checked\n"), "{}", well.stdout);

    // SYS-4: a foreign authority in caBundle, a Service that is gone; then nobody who answers.
    let foreign = cluster.store(SystemTime::now());
    let stale = diagnose(&cluster, &[], 3);
    assert!(check(&stale, "ca-bundles").to_string().contains("of a foreign authority"), "{stale}");
    assert_ne!(bundle, foreign);
    cluster.apply(&[configuration(Some(&foreign.to_ca_bundle()), Some(&uid))]);
    diagnose(&cluster, &[], 0);
    cluster.kubectl(&["delete", "service", "sallyport-webhook", "-n", NAMESPACE], None);
    let gone = diagnose(&cluster, &[], 3);
    assert_eq!(check(&gone, "service")["status"], "failure");
    assert!(check(&gone, "service").to_string().contains("it does not exist"), "{gone}");
    cluster.apply(&[json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "sallyport-webhook", "namespace": NAMESPACE},
        "spec": {"selector": {"app": "w"}, "ports": [{"name": "https", "port": 443}]}})]);

    // The webhook of somebody else is warned of, and held to all if it is named.
    let mut other = configuration(Some(&bundle.to_ca_bundle()), None);
    other["metadata"] = json!({"name": "other"});
    other["webhooks"][0]["clientConfig"]["service"]["name"] = json!("nobody");
    other["webhooks"][0]["name"] = json!("other.example.com");
    cluster.apply(&[other]);
    let warned = diagnose(&cluster, &[], 0);
    let finding = &check(&warned, "others")["findings"][0];
    assert!(finding["object"].as_str().unwrap().ends_with("Service sallyport/nobody"), "{warned}");
    assert!(finding["problem"].as_str().unwrap().starts_with("it does not exist"), "{warned}");
    assert_eq!(check(&warned, "others")["status"], "warning");
    diagnose(&cluster, &["--strict"], 3);
    diagnose(&cluster, &["--webhook", "other"], 3);
    cluster.kubectl(&["delete", "validatingwebhookconfiguration", "other"], None);

    // A leader that is silent; then no registration.
    cluster.apply(&[lease(SystemTime::now() - Duration::from_secs(600), &json!([]))]);
    assert_eq!(check(&diagnose(&cluster, &[], 3), "leader")["status"], "failure");
    cluster.apply(&[lease(SystemTime::now() + PATIENCE, &json!([]))]);
    cluster.kubectl(&["delete", "validatingwebhookconfiguration", NAME], None);
    let unregistered = diagnose(&cluster, &[], 3);
    assert!(check(&unregistered, "registration").to_string().contains("not registered"), "{unregistered}");
}

#[test]
fn an_api_server_that_does_not_answer_is_a_failure_and_nothing_else_is_judged() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("https://{closed}")}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let output = run(["doctor", "-o", "json", "--kubeconfig", file]).ended(3).stdout;
    let diagnosis: Value = serde_json::from_str(&output).unwrap();
    let checks = diagnosis["checks"].as_array().unwrap();
    assert_eq!(checks[0]["status"], "failure");
    assert!(checks[1..].iter().all(|check| check["status"] == "notChecked"), "{diagnosis}");
    run(["certs", "status", "--kubeconfig", file]).ended(1);
}

#[test]
fn its_help_has_the_command_for_emergencies() {
    let help = run(["doctor", "--help"]).ended(0).stdout;
    for text in ["Examples:", "Exit status:", "    -l app.kubernetes.io/part-of=sallyport", "--strict"] {
        assert!(help.contains(text), "{text}");
    }
}
