//! The seeds' walk-throughs, with containers that run. Small images of our own stand in for nginx and busybox:
//! see `tests/images`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::environment::{Cluster, eventually};
use crate::life::in_force;
use crate::release::{MAIN, Release};

const NAMESPACE: &str = "walk";
const PATIENCE: Duration = Duration::from_secs(60);

fn pod(name: &str, labels: &Value, env: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent", "env": env}],
        },
    })
}

/// SYS-1, SYS-2 and SYS-8 as their seeds tell them.
pub async fn seeds_walk_through(cluster: Arc<Cluster>) -> Result<()> {
    let cluster = &*cluster;
    MAIN.deploy(cluster, &Release::with_recipes(cluster)).await?;
    in_force(cluster, "hello-added", "OK").await?;
    let _ = cluster.kubectl(&["delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=true"]).await;
    cluster.namespace(NAMESPACE, &json!({"sidecar-injector": "enabled"})).await?;
    let fixture = |path: &str| {
        let path = sallyport_tests::root().join("policies").join(path);
        std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))
    };
    let apply = ["apply", "-n", NAMESPACE, "-f", "-"];
    for path in [
        "sidecar-nginx/fixtures/configmap.yaml",
        "sidecar-nginx/fixtures/deployment.yaml",
        "hello-file/fixtures/configmap.yaml",
    ] {
        cluster.kubectl_with(&apply, &fixture(path)?).await?;
    }
    for (name, labels) in [("greeted", json!({"hello": "true"})), ("plain", json!({}))] {
        cluster.kubectl_with(&apply, &pod(name, &labels, &json!([])).to_string()).await?;
    }

    // SYS-1: two containers run, and the sidecar sees its mounted configuration.
    eventually("a pod of sleep with 2/2", PATIENCE, async || {
        let list = cluster.get(&["pods", "-n", NAMESPACE, "-l", "app=sleep"]).await?;
        let statuses =
            list["items"][0]["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
        Ok((statuses.len() == 2 && statuses.iter().all(|status| status["ready"] == true)).then_some(()))
    })
    .await?;
    let list = cluster.get(&["pods", "-n", NAMESPACE, "-l", "app=sleep"]).await?;
    ensure!(
        list["items"][0]["metadata"]["annotations"]["sidecar-injector-webhook.morven.me/status"]
            == "injected",
        "the status annotation is missing"
    );
    eventually("the configuration in the sidecar's log", PATIENCE, async || {
        let log =
            cluster.kubectl(&["logs", "-n", NAMESPACE, "deployment/sleep", "-c", "sidecar-nginx"]).await?;
        Ok(log.contains("served by the sidecar").then_some(()))
    })
    .await?;

    // SYS-2: the file is readable in the labelled pod, and absent in the other.
    let ready =
        ["wait", "-n", NAMESPACE, "--for=condition=Ready", "pod/greeted", "pod/plain", "--timeout=60s"];
    cluster.kubectl(&ready).await?;
    let cat = async |pod: &str| {
        cluster.kubectl(&["exec", "-n", NAMESPACE, pod, "--", "cat", "/etc/config/hello.txt"]).await
    };
    let greeting = cat("greeted").await?;
    ensure!(greeting == "Hello from a ConfigMap!\n", "another file: {greeting:?}");
    ensure!(cat("plain").await.is_err(), "the unlabelled pod has the file as well");
    let greeted = cluster.get(&["pod", "-n", NAMESPACE, "greeted"]).await?;
    ensure!(greeted["metadata"]["labels"]["hello-added"] == "OK", "the label is missing");

    // SYS-8: a container that sets environment variables is refused, with its name.
    let denied = pod("denied", &json!({}), &json!([{"name": "KEY", "value": "value"}])).to_string();
    let refusal = cluster.kubectl_with(&apply, &denied).await.err().context("it was let in")?.to_string();
    ensure!(refusal.contains("main is using env vars"), "another message: {refusal}");
    cluster.kubectl(&["delete", "namespace", NAMESPACE, "--wait=false"]).await?;
    Ok(())
}
