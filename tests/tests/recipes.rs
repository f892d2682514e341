//! The seeds' walk-throughs on a real API server: the recipes do what the
//! systems that they stand for did, without those systems' faults.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use sallyport_testkit::ControlPlane;
use sallyport_tests::suite::{in_force, pod};
use sallyport_tests::{Entry, Inspector, Options, Suite};
use serde_json::{Value, json};

const INJECT: &str = "sidecar-injector-webhook.morven.me/inject";
const STATUS: &str = "sidecar-injector-webhook.morven.me/status";

struct World {
    plane: ControlPlane,
    suite: Suite,
    inspector: Inspector,
}

impl World {
    async fn start() -> Self {
        sallyport_tests::install_tls_provider();
        let plane = ControlPlane::start().await.unwrap();
        let recipes = vec!["sidecar-nginx", "hello-file", "deny-env"];
        let mut suite = Suite::start(&Options { recipes, ..Options::default() }).await.unwrap();
        let inspector = suite.inspector().await.unwrap();
        let labelled = ("sidecar-injector", "enabled");
        let entries = [Entry::pods("mutate", "Fail", labelled), Entry::pods("validate", "Fail", labelled)];
        suite.register(&plane, "sallyport", &inspector.url(), &entries).await.unwrap();
        for namespace in ["demo", "plain"] {
            plane.kubectl(&["create", "namespace", namespace], None).await.unwrap().ok().unwrap();
        }
        let label = ["label", "namespace", "demo", "sidecar-injector=enabled"];
        plane.kubectl(&label, None).await.unwrap().ok().unwrap();
        in_force(&plane, &inspector, "demo").await.unwrap();
        Self { plane, suite, inspector }
    }

    async fn create(&self, namespace: &str, manifest: &str, extra: &[&str]) -> Result<Value, String> {
        let mut arguments = vec!["-n", namespace, "create", "-o", "json", "-f", "-"];
        arguments.extend_from_slice(extra);
        let output = self.plane.kubectl(&arguments, Some(manifest)).await.unwrap();
        if output.success { Ok(serde_json::from_str(&output.stdout).unwrap()) } else { Err(output.stderr) }
    }

    async fn kubectl(&self, arguments: &[&str], stdin: Option<&str>) -> String {
        self.plane.kubectl(arguments, stdin).await.unwrap().ok().unwrap()
    }
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array()
        .map(|items| items.iter().filter_map(|item| item["name"].as_str()).collect())
        .unwrap_or_default()
}

/// One control plane for all walk-throughs: starting one takes seconds.
#[tokio::test(flavor = "multi_thread")]
async fn the_seeds_walk_throughs_on_a_real_api_server() {
    let mut world = World::start().await;
    seed_000_sidecar(&world).await;
    seed_000_keys_and_updates(&world).await;
    seed_001_hello(&world).await;
    deny_env(&world).await;
    dry_run_equals_the_real_thing(&world).await;
    names_and_namespaces_of_controllers(&world).await;
    deny_env_warns(&mut world).await;
    world.inspector.assert_clean();
}

/// SYS-1.1, 1.2, 1.4, 1.6, 1.8.
async fn seed_000_sidecar(world: &World) {
    // What a Deployment's pod template gives: labels, an annotation of its own.
    let manifest =
        pod("sleep-1", &json!({"app": "sleep"}), &json!({INJECT: "yes", "other.example/kept_key": "1"}));
    let created = world.create("demo", &manifest, &[]).await.unwrap();
    assert_eq!(names(&created["spec"]["containers"]), ["app", "sidecar-nginx"]);
    let sidecar = &created["spec"]["containers"][1];
    assert_eq!(sidecar["image"], "nginx:1.12.2");
    assert_eq!(sidecar["ports"][0]["containerPort"], 80);
    assert!(names(&sidecar["volumeMounts"]).contains(&"nginx-conf"), "{sidecar}");
    let volumes = created["spec"]["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == "nginx-conf").unwrap();
    assert_eq!(volume["configMap"]["name"], "nginx-configmap");
    let annotations = &created["metadata"]["annotations"];
    assert_eq!(annotations[STATUS], "injected");
    assert_eq!(annotations["other.example/kept_key"], "1", "other annotations survive");

    for (name, namespace, value) in [
        ("no-annotation", "demo", None),
        ("opted-out", "demo", Some("no")),
        ("odd-value", "demo", Some("perhaps")),
        ("other-namespace", "plain", Some("yes")),
    ] {
        let annotations = value.map_or(json!({}), |value| json!({INJECT: value}));
        let created = world.create(namespace, &pod(name, &json!({}), &annotations), &[]).await.unwrap();
        assert_eq!(names(&created["spec"]["containers"]), ["app"], "{name}");
    }
    // A second pass changes nothing (C-70): what was made comes back as a new pod.
    let mut again = created.clone();
    again["metadata"] = json!({"name": "sleep-again", "annotations": annotations});
    let twice = world.create("demo", &again.to_string(), &[]).await.unwrap();
    assert_eq!(names(&twice["spec"]["containers"]), ["app", "sidecar-nginx"]);
    let answers = world.inspector.of("sleep-again");
    let mutating: Vec<_> = answers.iter().filter(|passed| passed.target.starts_with("/mutate/")).collect();
    assert!(!mutating.is_empty());
    for passed in mutating {
        let answer: Value = serde_json::from_slice(&passed.response).unwrap();
        assert!(answer["response"].get("patch").is_none(), "{answer}");
    }
}

/// SYS-1.2, 1.4, 1.6; C-15, C-34.
async fn seed_000_keys_and_updates(world: &World) {
    // The status annotation forged: not "injected", so the pod is treated as any other.
    let forged = pod("forged", &json!({}), &json!({INJECT: "true", STATUS: "forged"}));
    let created = world.create("demo", &forged, &[]).await.unwrap();
    assert_eq!(created["metadata"]["annotations"][STATUS], "injected");
    assert_eq!(names(&created["spec"]["containers"]), ["app", "sidecar-nginx"]);

    // Opting in afterwards must not try to add containers to a pod that exists.
    let late = pod("late", &json!({}), &json!({}));
    world.create("demo", &late, &[]).await.unwrap();
    world.kubectl(&["-n", "demo", "annotate", "pod", "late", &format!("{INJECT}=yes")], None).await;
    let updated = world.kubectl(&["-n", "demo", "get", "pod", "late", "-o", "json"], None).await;
    let updated: Value = serde_json::from_str(&updated).unwrap();
    assert_eq!(names(&updated["spec"]["containers"]), ["app"]);
    assert_eq!(updated["metadata"]["annotations"][INJECT], "yes");

    // DELETE has no object (C-12): it passes both doors.
    world.kubectl(&["-n", "demo", "delete", "pod", "late", "--now"], None).await;
    let deletions = world.inspector.seen().into_iter().filter(|passed| {
        passed.request["request"]["operation"] == "DELETE" && passed.request["request"]["name"] == "late"
    });
    let deletions: Vec<_> = deletions.collect();
    for door in ["/mutate/fail", "/validate/fail"] {
        assert!(deletions.iter().any(|passed| passed.target.starts_with(door)), "{door}");
    }
    assert!(
        deletions
            .iter()
            .all(|passed| passed.request["request"]["object"].is_null() && passed.verdict.is_ok())
    );
}

/// SYS-2.1, 2.2, 2.3, 2.5.
async fn seed_001_hello(world: &World) {
    let created =
        world.create("demo", &pod("busybox-1", &json!({"hello": "true"}), &json!({})), &[]).await.unwrap();
    assert_eq!(created["metadata"]["labels"]["hello-added"], "OK");
    let volumes = created["spec"]["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == "hello-volume").unwrap();
    assert_eq!(volume["configMap"]["name"], "hello-configmap");
    for container in created["spec"]["containers"].as_array().unwrap() {
        let mounts = container["volumeMounts"].as_array().unwrap();
        assert!(
            mounts.iter().any(|mount| mount["name"] == "hello-volume" && mount["mountPath"] == "/etc/config")
        );
    }
    let plain = world.create("demo", &pod("busybox-2", &json!({}), &json!({})), &[]).await.unwrap();
    assert!(plain["metadata"]["labels"].get("hello-added").is_none());
    assert!(!plain.to_string().contains("hello-volume"));
}

/// SYS-8.1, 8.2, 8.4; C-40…C-42.
async fn deny_env(world: &World) {
    let with_env = |name: &str, containers: &[&str]| {
        let containers: Vec<_> = containers
            .iter()
            .map(|container| json!({"name": container, "image": "i", "env": [{"name": "A", "value": "b"}]}))
            .collect();
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}})
            .to_string()
    };
    let one = world.create("demo", &with_env("one", &["nginx-with-env"]), &[]).await.unwrap_err();
    assert!(one.contains("validate-fail.sallyport.test"), "{one}");
    assert!(one.contains("denied the request: nginx-with-env is using env vars"), "{one}");
    let two = world.create("demo", &with_env("two", &["first", "second"]), &[]).await.unwrap_err();
    assert!(two.contains("first is using env vars") && two.contains("second is using env vars"), "{two}");
    let answer =
        world.inspector.of("two").into_iter().find(|passed| passed.target.starts_with("/validate/")).unwrap();
    let answer: Value = serde_json::from_slice(&answer.response).unwrap();
    let causes = answer["response"]["status"]["details"]["causes"].as_array().unwrap();
    let fields: Vec<_> = causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["spec.containers[0].env", "spec.containers[1].env"]);

    // SYS-8.4: an ephemeral container is no way around it (users.md 18).
    world.create("demo", &pod("debugged", &json!({}), &json!({})), &[]).await.unwrap();
    let patch = json!({"spec": {"ephemeralContainers": [
        {"name": "debugger", "image": "i", "env": [{"name": "A", "value": "b"}]}]}});
    let arguments = [
        "-n",
        "demo",
        "patch",
        "pod",
        "debugged",
        "--subresource=ephemeralcontainers",
        "-p",
        &patch.to_string(),
    ];
    let refused = world.plane.kubectl(&arguments, None).await.unwrap();
    assert!(!refused.success && refused.stderr.contains("debugger is using env vars"), "{refused:?}");
}

/// C-81, SYS-5.9.
async fn dry_run_equals_the_real_thing(world: &World) {
    let manifest = pod("same", &json!({"hello": "true"}), &json!({INJECT: "on"}));
    let dry = world.create("demo", &manifest, &["--dry-run=server"]).await.unwrap();
    let real = world.create("demo", &manifest, &[]).await.unwrap();
    assert_eq!(dry["spec"], real["spec"]);
    for part in ["labels", "annotations"] {
        assert_eq!(dry["metadata"][part], real["metadata"][part]);
    }
    assert_eq!(names(&real["spec"]["containers"]), ["app", "sidecar-nginx"]);
}

/// C-12, users.md 17: no name yet, and the object's own namespace left empty.
async fn names_and_namespaces_of_controllers(world: &World) {
    let kubeconfig = Kubeconfig::read_from(world.plane.kubeconfig()).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(kube::Client::try_from(config).unwrap(), "demo");
    let template = |prefix: &str, spec: Value| -> Pod {
        serde_json::from_value(json!({
            "metadata": {"generateName": prefix, "annotations": {INJECT: "yes"}}, "spec": spec,
        }))
        .unwrap()
    };
    let generated =
        template("generated-", json!({"containers": [{"name": "app", "image": "registry.example/app:1"}]}));
    let created = pods.create(&PostParams::default(), &generated).await.unwrap();
    assert_eq!(created.spec.unwrap().containers.len(), 2);
    let reviews = world.inspector.of("generated-");
    assert!(!reviews.is_empty());
    assert_eq!(reviews[0].request["request"]["namespace"], "demo");

    let denied =
        template("denied-", json!({"containers": [{"name": "c", "image": "i", "env": [{"name": "A"}]}]}));
    let error = pods.create(&PostParams::default(), &denied).await.unwrap_err().to_string();
    assert!(error.contains("c is using env vars"), "{error}");
}

/// SYS-8.5; C-50: the client sees the warning and the pod is created.
async fn deny_env_warns(world: &mut World) {
    let file = world.suite.policies().join("deny-env.yaml");
    let policy = std::fs::read_to_string(&file).unwrap();
    let warning = policy.replacen("\nspec:\n", "\nspec:\n  validationActions: [Warn]\n", 1);
    std::fs::write(&file, warning).unwrap();
    let manifest =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "warned"}, "spec": {"containers": [
        {"name": "loud", "image": "i", "env": [{"name": "A", "value": "b"}]}]}})
        .to_string();
    let arguments = ["-n", "demo", "create", "--dry-run=server", "-f", "-"];
    let mut last = None;
    for _ in 0..100 {
        let output = world.plane.kubectl(&arguments, Some(&manifest)).await.unwrap();
        if output.success {
            assert!(output.stderr.contains("Warning: loud is using env vars"), "{output:?}");
            return;
        }
        last = Some(output);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the edited policy did not come into force: {last:?}");
}
