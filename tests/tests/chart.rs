//! The chart against a real API server: what Helm renders is accepted, the cert-rotator's rights suffice and
//! go no further, and a suite that is down keeps nothing down that it needs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::too_many_lines)] // a table or a scenario is read from top to bottom

use std::path::{Path, PathBuf};
use std::process::Stdio;

use sallyport_testkit::ControlPlane;
use sallyport_testkit::wait::answer;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

/// Names a directory that holds `helm` and `helm3`; nothing is built then.
const TOOLS_DIR: &str = "SALLYPORT_CHART_TOOLS";
/// The script that finds or builds them.
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testbed/tools");
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/sallyport");
/// The namespace of every release here.
const NAMESPACE: &str = "prod";
/// The cert-rotator of a release `sallyport` there.
const ROTATOR: &str = "--as=system:serviceaccount:prod:sallyport-cert-rotator";

/// Helm, in a home of its own.
struct Helm {
    tools: PathBuf,
    home: TempDir,
}

impl Helm {
    async fn find() -> Self {
        let tools = if let Some(dir) = std::env::var_os(TOOLS_DIR) {
            PathBuf::from(dir)
        } else {
            let output =
                Command::new(TOOLS).arg("chart").stdin(Stdio::null()).stderr(Stdio::inherit()).output().await;
            let output = output.expect("tests/testbed/tools starts");
            assert!(output.status.success(), "tests/testbed/tools chart failed");
            PathBuf::from(String::from_utf8(output.stdout).unwrap().lines().last().unwrap())
        };
        Self { tools, home: tempfile::tempdir().unwrap() }
    }

    /// Runs `program`, which is `helm` (4) or `helm3`. `Err` is what it said on standard error.
    async fn run(
        &self,
        program: &str,
        plane: Option<&ControlPlane>,
        arguments: &[&str],
    ) -> Result<String, String> {
        let mut command = Command::new(self.tools.join(program));
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        for variable in ["HOME", "HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME"] {
            command.env(variable, self.home.path());
        }
        if let Some(plane) = plane {
            command.env("KUBECONFIG", plane.kubeconfig());
        }
        let output =
            command.output().await.unwrap_or_else(|error| panic!("{program} does not start: {error}"));
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// What the chart renders with a file of values.
    async fn template(&self, values: &Path) -> String {
        let arguments =
            ["template", "sallyport", CHART, "--namespace", NAMESPACE, "--values", values.to_str().unwrap()];
        self.run("helm", None, &arguments).await.unwrap()
    }
}

/// The files of values that the chart's tests are about, by name.
fn switches() -> Vec<(String, PathBuf)> {
    let mut files: Vec<_> = std::fs::read_dir(Path::new(CHART).join("tests/values"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path))
        .collect();
    files.sort();
    assert!(files.len() >= 6, "the files of values are gone");
    files
}

fn values(name: &str) -> PathBuf {
    Path::new(CHART).join(format!("tests/values/{name}.yaml"))
}

async fn apply(plane: &ControlPlane, manifest: &str) {
    plane.kubectl(&["apply", "-f", "-"], Some(manifest)).await.unwrap().ok().unwrap();
}

/// A control plane with a namespace that enforces the restricted Pod Security Standard, and warns of it.
async fn control_plane() -> ControlPlane {
    let plane = ControlPlane::start().await.unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {
        "pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/warn": "restricted",
    }}});
    apply(&plane, &namespace.to_string()).await;
    plane
}

/// Definitions of the Prometheus operator's kinds, without a schema.
async fn define_monitoring(plane: &ControlPlane) {
    for (kind, plural) in [("PodMonitor", "podmonitors"), ("PrometheusRule", "prometheusrules")] {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
            "spec": {
                "group": "monitoring.coreos.com",
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }}}],
            },
        });
        apply(plane, &definition.to_string()).await;
        answer(&format!("{plural} are served"), async || {
            plane.kubectl(&["get", plural, "-n", NAMESPACE], None).await.unwrap().success.then_some(())
        })
        .await;
    }
}

/// The documents of a manifest as JSON; `kubectl` reads YAML as the API server does.
async fn documents(plane: &ControlPlane, manifest: &str) -> Vec<Value> {
    let arguments = ["create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-"];
    let text = plane.kubectl(&arguments, Some(manifest)).await.unwrap().ok().unwrap();
    serde_json::Deserializer::from_str(&text).into_iter::<Value>().map(Result::unwrap).collect()
}

/// What the cert-rotator is told to register.
async fn registration(plane: &ControlPlane, rendered: &str) -> Vec<Value> {
    let described = documents(plane, rendered).await;
    let described = described.iter().find(|object| object["metadata"]["name"] == "sallyport-registration");
    let text = described.unwrap()["data"]["registration.yaml"].as_str().unwrap();
    let documents = documents(plane, text).await;
    assert_eq!(documents.len(), 3, "{text}");
    documents
}

#[tokio::test(flavor = "multi_thread")]
async fn every_switch_is_accepted_by_the_api_server_and_meets_restricted() {
    let (helm, plane) = (Helm::find().await, control_plane().await);
    define_monitoring(&plane).await;
    for (name, values) in switches() {
        let rendered = helm.template(&values).await;
        // Pods are refused while their class is not there: those of the Deployments come later, the test's is here.
        let described = documents(&plane, &rendered).await;
        for class in described.iter().filter(|object| object["kind"] == "PriorityClass") {
            apply(&plane, &class.to_string()).await;
        }
        // Not all is in one namespace: some rights are where the Secrets of others are.
        let dry_run = ["apply", "--dry-run=server", "-f", "-"];
        let applied = plane.kubectl(&dry_run, Some(&rendered)).await.unwrap();
        assert!(applied.success, "{name}: {}", applied.stderr);
        // Only the host's network does not meet the standard, and values.yaml says so.
        let violates = applied.stderr.contains("would violate PodSecurity");
        assert_eq!(violates, name == "host-network", "{name}: {}", applied.stderr);
        if !violates {
            assert_eq!(applied.stderr, "", "{name}: warnings");
        }
        for object in registration(&plane, &rendered).await {
            let applied = plane.kubectl(&dry_run, Some(&object.to_string())).await.unwrap();
            assert!(applied.success && applied.stderr.is_empty(), "{name}: {}", applied.stderr);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cert_rotator_may_do_its_work_and_nothing_else_c106() {
    let (helm, plane) = (Helm::find().await, control_plane().await);
    let rendered = helm.template(&values("mutator-off")).await;
    let described = registration(&plane, &rendered).await;
    apply(&plane, &rendered).await;

    let created = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "sallyport-ca", "namespace": NAMESPACE}});
    let allowed = async |arguments: &[&str], manifest: Option<&Value>| {
        let manifest = manifest.map(Value::to_string);
        let arguments: Vec<&str> = [&["-n", NAMESPACE, ROTATOR], arguments].concat();
        let output = plane.kubectl(&arguments, manifest.as_deref()).await.unwrap();
        let refused = output.stderr.contains("cannot ") && output.stderr.contains("forbidden");
        assert!(output.success || refused, "{arguments:?}: {}", output.stderr);
        output.success
    };
    let server_side = ["apply", "--server-side", "--field-manager=sallyport-cert-rotator", "-f", "-"];
    assert!(allowed(&["create", "-f", "-"], Some(&created)).await, "a Secret");
    let [service, mutating, validating] = described.as_slice() else { panic!("three documents") };
    for (what, object) in [("Service", service), ("mutating", mutating), ("validating", validating)] {
        assert!(allowed(&server_side, Some(object)).await, "make the {what}");
        assert!(allowed(&server_side, Some(object)).await, "change the {what}");
        let mut others = object.clone();
        others["metadata"]["name"] = json!("others");
        assert!(!allowed(&server_side, Some(&others)).await, "make another {what}");
    }
    let rows: [(&[&str], bool); 20] = [
        (&["get", "secret", "sallyport-ca"], true),
        (&["patch", "secret", "sallyport-ca", "--type=merge", "-p", "{\"data\":{\"a\":\"\"}}"], true),
        (&["get", "secrets", "--field-selector=metadata.name=sallyport-ca"], true),
        (&["get", "secrets"], false),
        (&["delete", "secret", "sallyport-ca"], false),
        (&["get", "configmap", "sallyport-registration"], true),
        (&["get", "configmap", "sallyport-policies"], false),
        (&["patch", "configmap", "sallyport-registration", "-p", "{}"], false),
        (&["get", "serviceaccount", "sallyport-cert-rotator"], true),
        (&["get", "serviceaccount", "sallyport-webhook"], false),
        (&["get", "pods", "-l", "app.kubernetes.io/component=webhook"], true),
        (&["get", "pods", "-A"], false),
        (&["delete", "pods", "--all"], false),
        (&["delete", "service", "sallyport-webhook"], false),
        (&["get", "service", "sallyport-validator"], false),
        (&["get", "clusterrole", "sallyport.prod"], true),
        (&["get", "clusterrole", "cluster-admin"], false),
        (&["delete", "clusterrole", "sallyport.prod"], false),
        (&["delete", "mutatingwebhookconfiguration", "sallyport.prod"], true),
        (&["get", "mutatingwebhookconfigurations"], false),
    ];
    for (arguments, wanted) in rows {
        assert_eq!(allowed(arguments, None).await, wanted, "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn injection_may_read_and_change_what_is_named_and_nothing_else_c106() {
    let (helm, plane) = (Helm::find().await, control_plane().await);
    define_monitoring(&plane).await;
    let may = async |verb: &str, what: &str, namespace: &str| {
        let arguments = ["auth", "can-i", verb, what, "-n", namespace, ROTATOR];
        let answer = plane.kubectl(&arguments, None).await.unwrap();
        match answer.stdout.trim() {
            "yes" => true,
            "no" => false,
            other => panic!("{verb} {what}: {other} {}", answer.stderr),
        }
    };
    let named = [
        "mutatingwebhookconfigurations.admissionregistration.k8s.io/theirs",
        "validatingwebhookconfigurations.admissionregistration.k8s.io/theirs",
        "customresourcedefinitions.apiextensions.k8s.io/widgets.example.com",
        "apiservices.apiregistration.k8s.io/v1.gadgets.example.com",
    ];
    let (own, elsewhere) = ("secrets/theirs-ca", "secrets/widgets-ca");

    // Off, as it is by default.
    apply(&plane, &helm.template(&values("defaults")).await).await;
    for object in named {
        assert!(!may("patch", object, NAMESPACE).await, "{object}");
    }
    assert!(!may("get", own, NAMESPACE).await && !may("get", elsewhere, "default").await);

    // A Pod, which the test of an installation is, cannot be changed.
    let rendered = documents(&plane, &helm.template(&values("everything-on")).await).await;
    for rights in rendered.iter().filter(|object| object["apiVersion"] == "rbac.authorization.k8s.io/v1") {
        apply(&plane, &rights.to_string()).await;
    }
    answer("the rights are in force", async || {
        let all = may("patch", named[0], NAMESPACE).await
            && may("get", own, NAMESPACE).await
            && may("get", elsewhere, "default").await;
        all.then_some(())
    })
    .await;
    for object in named {
        for verb in ["get", "list", "watch", "patch"] {
            assert!(may(verb, object, NAMESPACE).await, "{verb} {object}");
        }
        let resource = object.split_once('/').unwrap().0;
        for (verb, what) in [
            ("create", object),
            ("update", object),
            ("delete", object),
            ("list", resource),
            ("patch", &format!("{resource}/others")),
        ] {
            assert!(!may(verb, what, NAMESPACE).await, "{verb} {what}");
        }
    }
    for (what, namespace) in [(own, NAMESPACE), (elsewhere, "default")] {
        for verb in ["get", "list", "watch"] {
            assert!(may(verb, what, namespace).await, "{verb} {what}");
        }
        for verb in ["patch", "update", "delete"] {
            assert!(!may(verb, what, namespace).await, "{verb} {what}");
        }
    }
    for (what, namespace) in [(own, "default"), (elsewhere, NAMESPACE), ("secrets", "default")] {
        assert!(!may("get", what, namespace).await, "{what} in {namespace}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suite_that_is_down_keeps_down_nothing_that_it_needs_c100_c101() {
    let (helm, plane) = (Helm::find().await, control_plane().await);
    let rendered = helm.template(&values("widened-rules")).await;
    let described = registration(&plane, &rendered).await;
    let mirrored = json!({"kubernetes.io/config.mirror": "x"});
    let pod = |name: &str, namespace: &str, annotations: &Value| {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
            "spec": {"nodeName": "here", "containers": [{"name": "c", "image": "i", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
                "seccompProfile": {"type": "RuntimeDefault"}}}]}})
    };
    let lease = |namespace: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "l", "namespace": namespace}, "spec": {"holderIdentity": "me"}})
    };
    let role = |name: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": []})
    };
    // There before the suite went down.
    plane.kubectl(&["create", "namespace", "kube-node-lease"], None).await.unwrap();
    for object in [
        pod("plain", "default", &Value::Null),
        pod("mirror", "default", &mirrored),
        lease("default"),
        role("sallyport.prod"),
        role("others"),
    ] {
        apply(&plane, &object.to_string()).await;
    }

    // Nobody listens there: every review fails, and the failurePolicy is Fail.
    for mut object in described.into_iter().filter(|object| object["kind"] != "Service") {
        for entry in object["webhooks"].as_array_mut().unwrap() {
            assert_eq!(entry["failurePolicy"], "Fail");
            entry["clientConfig"] = json!({"url": "https://127.0.0.1:1/"});
        }
        apply(&plane, &object.to_string()).await;
    }
    let passes = async |arguments: &[&str], manifest: Option<&Value>| {
        let manifest = manifest.map(Value::to_string);
        let output = plane.kubectl(arguments, manifest.as_deref()).await.unwrap();
        let refused = output.stderr.contains("failed calling webhook");
        assert!(output.success || refused, "{arguments:?}: {}", output.stderr);
        output.success
    };
    let create = ["create", "--dry-run=server", "-f", "-"];
    answer("the registration is in force", async || {
        let plain = pod("another", "default", &Value::Null);
        (!passes(&create, Some(&plain)).await).then_some(())
    })
    .await;

    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "c"}, "spec": {"signerName": "example.com/s", "usages": ["client auth"],
        "request": CERTIFICATE_REQUEST}});
    let access = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default", "annotations": mirrored},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "plain", "namespace": "default", "annotations": mirrored}});
    let created = [
        ("a pod of the release", pod("p", NAMESPACE, &Value::Null), true),
        ("a pod of kube-system", pod("p", "kube-system", &Value::Null), true),
        ("a mirror pod", pod("p", "default", &mirrored), true),
        ("a node", node, true),
        ("a node's lease", lease("kube-node-lease"), true),
        ("a certificate request", request, true),
        ("a question for a right", access, true),
        ("a ClusterRole of others", role("more"), false),
        ("what only says that it is a mirror pod", deployment, false),
    ];
    for (what, object, wanted) in created {
        assert_eq!(passes(&create, Some(&object)).await, wanted, "{what}");
    }
    let evict = ["create", "--raw", "/api/v1/namespaces/default/pods/plain/eviction?dryRun=All", "-f", "-"];
    assert!(!passes(&evict, Some(&eviction)).await, "an eviction that only says it is of a mirror pod");
    let mark = r#"{"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}"#;
    let resize =
        ["patch", "pod", "plain", "-n", "default", "--subresource=resize", "--dry-run=server", "-p", mark];
    let rows: [(&[&str], bool); 8] = [
        (&resize, false),
        (&["delete", "pod", "mirror", "-n", "default", "--dry-run=server"], true),
        (&["delete", "pod", "plain", "-n", "default", "--dry-run=server"], false),
        (&["label", "lease", "l", "-n", "default", "a=b", "--dry-run=server"], true),
        (&["label", "pod", "plain", "-n", "default", "a=b", "--dry-run=server"], false),
        (&["delete", "clusterrole", "sallyport.prod", "--dry-run=server"], true),
        (&["delete", "clusterrole", "others", "--dry-run=server"], false),
        (&["delete", "mutatingwebhookconfigurations", "-l", "app.kubernetes.io/part-of=sallyport"], true),
    ];
    for (arguments, wanted) in rows {
        assert_eq!(passes(arguments, None).await, wanted, "{arguments:?}");
    }
}

/// A certificate signing request, as the API server wants it: PEM in base64.
const CERTIFICATE_REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIR01HNENBUUF3RERFS01BZ0dBMVVF\
    QXd3Qll6QlpNQk1HQnlxR1NNNDlBZ0VHQ0NxR1NNNDlBd0VIQTBJQQpCSjc1YzJ1dVBtc2gvODhnQVpvb3N0bW9OUnBnekNuKzVyaG03RkNGTFMrVTVO\
    NHNMY3JUNlFsdTZ3aVI5QWZ2CmlvdTZVNE9DZjlXUjBuZC9LWjloUTJXZ0FEQUtCZ2dxaGtqT1BRUURBZ05JQURCRkFpQWxBdEdlczhhRDlNSWwKTjAz\
    TVVUZE9Md00vS1FTMHhXZ0NmT3V4WFRkTkhnSWhBUFR1WHp2NWpyTWtCSDcrVHFsbDNPUlNsSndBeS9EOApsUlVtQjRIUWNaMU4KLS0tLS1FTkQgQ0VS\
    VElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";

/// What a Helm does on an upgrade about a number of pods that `kubectl scale` has set meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scaled {
    /// It sets its own.
    Reset,
    /// It refuses, naming the field: two managers want different values.
    Conflict,
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrades_restart_nothing_for_policies_and_an_uninstall_leaves_nothing() {
    let (helm, plane) = (Helm::find().await, control_plane().await);
    for (program, scaled) in [("helm3", Scaled::Reset), ("helm", Scaled::Conflict)] {
        let run = async |arguments: &[&str]| {
            helm.run(program, Some(&plane), &[arguments, &["--namespace", NAMESPACE]].concat()).await
        };
        let upgrade = async |value: &str| {
            run(&["upgrade", "sallyport", CHART, "--reset-values", "--set", value]).await.map(drop)
        };
        let read = async |path: &str| {
            let get = ["get", "deployments", "-n", NAMESPACE, "-o", path];
            plane.kubectl(&get, None).await.unwrap().ok().unwrap()
        };
        let scale = async |deployment: &str, replicas: u8| {
            let replicas = format!("--replicas={replicas}");
            let scale = ["scale", "deployment", deployment, &replicas, "-n", NAMESPACE];
            plane.kubectl(&scale, None).await.unwrap().ok().unwrap();
        };
        let generations = "jsonpath={.items[*].metadata.generation}";
        let replicas = "jsonpath={.items[*].spec.replicas}";

        run(&["install", "sallyport", CHART]).await.unwrap();
        assert_eq!(read(generations).await, "1 1 1 1", "{program}");
        // In the order of their names: cert-rotator, mutator, validator, webhook.
        assert_eq!(read(replicas).await, "2 2 2 2", "{program}");
        for policy in [
            "recipes.hello-file.enabled=true",
            "policies.mine\\.yaml=apiVersion: v1\nkind: Namespace\nmetadata: {name: a}",
        ] {
            upgrade(policy).await.unwrap();
            assert_eq!(read(generations).await, "1 1 1 1", "{program}: {policy} changed a Deployment");
        }
        upgrade("mutator.replicas=4").await.unwrap();
        assert_eq!(read(replicas).await, "2 4 2 2", "{program}: one service alone");

        scale("sallyport-mutator", 5).await;
        let other = upgrade("mutator.replicas=3").await;
        match (scaled, other) {
            (Scaled::Reset, Ok(())) => assert_eq!(read(replicas).await, "2 3 2 2", "{program}"),
            (Scaled::Conflict, Err(message)) => assert!(message.contains(".spec.replicas"), "{message}"),
            (scaled, other) => panic!("{program} was to {scaled:?}, but {other:?}"),
        }
        scale("sallyport-mutator", 5).await;
        upgrade("mutator.replicas=5").await.unwrap();
        assert_eq!(read(replicas).await, "2 5 2 2", "{program}: the number that is there");

        // The emergency's command, and an upgrade that does not start the cert-rotator again.
        scale("sallyport-cert-rotator", 0).await;
        upgrade("mutator.replicas=5,certRotator.replicas=0").await.unwrap();
        assert_eq!(read(replicas).await, "0 5 2 2", "{program}: the cert-rotator stays away");

        run(&["uninstall", "sallyport"]).await.unwrap();
        let kinds = "deployments,services,configmaps,secrets,serviceaccounts,roles,rolebindings,\
                     poddisruptionbudgets,horizontalpodautoscalers,networkpolicies,clusterroles,\
                     clusterrolebindings,priorityclasses,pods,jobs";
        let left = ["get", kinds, "-A", "-o", "name", "-l", "app.kubernetes.io/part-of=sallyport"];
        assert_eq!(plane.kubectl(&left, None).await.unwrap().ok().unwrap(), "", "{program} left something");
    }
}
