//! When Sallyport is not there: who is refused, who is not, and how the rest is freed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::environment::{CONFIGURATIONS, Cluster, Helm, PART_OF, eventually, items, run};
use crate::life::{in_force, new_connections, nothing_left};
use crate::load::{self, Expect, Load};
use crate::release::{MAIN, Release, SERVICES, merge};

/// The one command that frees a cluster, as the documents and the chart's notes give it.
const EMERGENCY: [&str; 4] = ["delete", CONFIGURATIONS, "-l", PART_OF];

/// A release whose images cannot be pulled is never registered, and refuses nobody.
pub async fn a_failed_install(cluster: Arc<Cluster>) -> Result<()> {
    let cluster = &*cluster;
    let broken = Release { name: "sallyport", namespace: "broken", helm: Helm::Four };
    let mut values = Release::with_recipes(cluster);
    merge(&mut values, &json!({"image": {"tag": "absent"}}));
    let load = Load::start(cluster, Expect::Success).await?;
    broken.apply(cluster, &values).await?;
    let what = "pods of each service that cannot pull their images";
    eventually(what, Duration::from_secs(60), async || {
        let list = cluster.get(&["pods", "-n", broken.namespace]).await?;
        let reason = |pod: &serde_json::Value| {
            let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
            waiting.as_str().unwrap_or_default().to_owned()
        };
        // Those that mount a Secret wait for it; the rotator, which is to make it, cannot be pulled.
        let failed = items(&list).iter().filter(|pod| reason(pod).contains("Pull")).count();
        Ok((failed >= 1 && items(&list).len() >= SERVICES.len()).then_some(()))
    })
    .await?;
    load.goes_on(500).await?;
    ensure!(broken.configurations(cluster).await?.is_empty(), "it was registered");
    load.finish("an install whose images cannot be pulled").await?;
    broken.uninstall(cluster).await?;
    nothing_left(cluster, broken).await
}

/// A dry run of a pod, a node, a lease and so on: what must go through while nobody decides.
async fn refused(cluster: &Cluster) -> Result<Vec<String>> {
    let pod = |namespace: &str| {
        let mut pod = load::manifest("probe", &json!({"hello": "true"}));
        pod["metadata"]["namespace"] = json!(namespace);
        pod["spec"]["securityContext"] =
            json!({"runAsNonRoot": true, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}});
        pod["spec"]["containers"][0]["securityContext"] =
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        pod
    };
    let lease = |namespace: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "probe", "namespace": namespace}, "spec": {"holderIdentity": "probe"},
        })
    };
    let rows = [
        ("a pod elsewhere", pod(load::NAMESPACE)),
        ("a pod in kube-system", pod("kube-system")),
        ("a pod of Sallyport", pod(MAIN.namespace)),
        ("a node", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "probe"}})),
        ("a node's lease", lease("kube-node-lease")),
        ("a lease elsewhere", lease(load::NAMESPACE)),
    ];
    // All at once: each that is refused may wait for its webhook first.
    let created = rows.map(|(what, object)| async move {
        let create = ["create", "--dry-run=server", "-f", "-"];
        (what, cluster.kubectl_with(&create, &object.to_string()).await)
    });
    let mut refused = Vec::new();
    for (what, created) in futures::future::join_all(created).await {
        if let Err(error) = created {
            ensure!(error.to_string().contains("failed calling webhook"), "{what}: {error}");
            refused.push(what.to_owned());
        }
    }
    Ok(refused)
}

/// Deletes every pod of a release at once.
async fn kill(cluster: &Cluster, release: Release) -> Result<()> {
    let selector = format!("app.kubernetes.io/instance={}", release.name);
    let now = [
        "delete",
        "pods",
        "-n",
        release.namespace,
        "-l",
        &selector,
        "--grace-period=0",
        "--force",
        "--wait=false",
    ];
    cluster.kubectl(&now).await.map(drop)
}

async fn ready_pods(cluster: &Cluster, release: Release) -> Result<usize> {
    let list = cluster.get(&["pods", "-n", release.namespace]).await?;
    let is_ready = |pod: &&serde_json::Value| {
        let conditions = pod["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
    };
    Ok(items(&list).iter().filter(is_ready).count())
}

async fn ctr(arguments: &[&str]) -> Result<String> {
    run("ctr", &[&["-a", "/run/containerd.sock", "-n", "k8s.io", "images"], arguments].concat(), None).await
}

/// All pods gone, images gone, `failurePolicy: Fail`, and the API server restarted in that state.
pub async fn everything(cluster: Arc<Cluster>) -> Result<()> {
    let cluster = &*cluster;
    let node = cluster.node()?.clone();
    let mut values = Release::with_recipes(cluster);
    // Rules that reach far: nodes and leases must be let through all the same.
    merge(
        &mut values,
        &json!({"registration": {"mutate": {"rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "nodes"], "operations": ["CREATE", "UPDATE"]},
            {"apiGroups": ["coordination.k8s.io"], "apiVersions": ["v1"], "resources": ["leases"], "operations": ["CREATE", "UPDATE"]},
        ]}}}),
    );
    // A webhook that is ending goes on answering over kept connections.
    merge(&mut values, &new_connections());
    MAIN.deploy(cluster, &values).await?;
    in_force(cluster, "hello-added", "OK").await?;

    let listed = ctr(&["list", "-q"]).await?;
    let images: Vec<&str> = listed.lines().filter(|name| name.contains("/sallyport-")).collect();
    ensure!(images.len() >= SERVICES.len(), "the images are not in the node's store: {listed}");
    ctr(&[&["rm"], images.as_slice()].concat()).await?;
    kill(cluster, MAIN).await?;
    let outcome = without_images(cluster, &node).await;
    // Whatever came of it, the next scenario needs the images.
    for archive in Cluster::image_archives()? {
        ctr(&["import", &archive]).await?;
    }
    kill(cluster, MAIN).await?;
    outcome?;
    for service in SERVICES {
        MAIN.rolled_out(cluster, service).await?;
    }
    let back = in_force(cluster, "hello-added", "OK").await?;
    eprintln!("     with the images back, the registration came back by itself: {:.0} s", back.as_secs_f64());
    Ok(())
}

async fn without_images(cluster: &Cluster, node: &std::path::Path) -> Result<()> {
    eventually("no ready pod", Duration::from_secs(60), async || {
        Ok((ready_pods(cluster, MAIN).await? == 0).then_some(()))
    })
    .await?;
    let only = ["a pod elsewhere", "a lease elsewhere"];
    let (now, _) = eventually("a pod elsewhere that is refused", Duration::from_secs(60), async || {
        let now = refused(cluster).await?;
        Ok(now.contains(&only[0].to_owned()).then_some(now))
    })
    .await?;
    ensure!(now.iter().all(|what| only.contains(&what.as_str())), "refused: {now:?}");

    let pid_file = node.join("pids/kube-apiserver");
    let pid = || std::fs::read_to_string(&pid_file).context("the API server's process id");
    let former = pid()?;
    // As when its machine is restarted.
    run("kill", &["-KILL", former.trim()], None).await?;
    eventually("another API server", Duration::from_secs(60), async || {
        let is_another = pid()? != former;
        Ok((is_another && cluster.kubectl(&["get", "--raw", "/readyz"]).await.is_ok()).then_some(()))
    })
    .await?;
    // The node reports itself again, which takes leases and node updates.
    eventually("a ready node", Duration::from_secs(60), async || {
        let ready = ["wait", "--for=condition=Ready", "node", "--all", "--timeout=1s"];
        Ok(cluster.kubectl(&ready).await.ok())
    })
    .await?;
    let now = refused(cluster).await?;
    ensure!(now.iter().all(|what| only.contains(&what.as_str())), "refused after the restart: {now:?}");

    cluster.kubectl(&EMERGENCY).await?;
    eventually("nobody refused", Duration::from_secs(30), async || {
        Ok(refused(cluster).await?.is_empty().then_some(()))
    })
    .await?;
    Ok(())
}

/// Two releases that exclude each other's namespaces die at once; neither keeps the other down.
pub async fn two_releases(cluster: Arc<Cluster>) -> Result<()> {
    let cluster = &*cluster;
    let second = Release { name: "sallyport", namespace: "platform", helm: Helm::Four };
    MAIN.deploy(cluster, &Release::with_recipes(cluster)).await?;
    let mut values = Release::with_recipes(cluster);
    merge(&mut values, &json!({"registration": {"excludeNamespaces": [MAIN.namespace]}}));
    second.deploy(cluster, &values).await?;
    MAIN.registered(cluster).await?;
    second.registered(cluster).await?;
    tokio::try_join!(kill(cluster, MAIN), kill(cluster, second))?;
    for release in [MAIN, second] {
        for service in SERVICES {
            release.rolled_out(cluster, service).await?;
        }
    }
    in_force(cluster, "hello-added", "OK").await?;
    let load = Load::start(cluster, Expect::Changed).await?;
    load.goes_on(100).await?;
    load.finish("two releases after both were dead").await?;
    second.uninstall(cluster).await
}

/// `kubectl delete namespace` leaves what is cluster-wide in force; the documented command ends that.
pub async fn a_deleted_namespace(cluster: Arc<Cluster>) -> Result<()> {
    let cluster = &*cluster;
    let doomed = Release { name: "sallyport", namespace: "doomed", helm: Helm::Four };
    MAIN.uninstall(cluster).await.ok();
    // Pods are tried there as well.
    MAIN.make_namespace(cluster).await?;
    let mut values = Release::with_recipes(cluster);
    // The namespace waits for its webhooks, and those for idle connections.
    merge(&mut values, &new_connections());
    doomed.deploy(cluster, &values).await?;
    doomed.registered(cluster).await?;
    in_force(cluster, "hello-added", "OK").await?;
    cluster.kubectl(&["delete", "namespace", doomed.namespace, "--wait=false"]).await?;
    eventually("creates that are refused", Duration::from_secs(60), async || {
        Ok((!refused(cluster).await?.is_empty()).then_some(()))
    })
    .await?;
    cluster.kubectl(&EMERGENCY).await?;
    eventually("nobody refused", Duration::from_secs(30), async || {
        Ok(refused(cluster).await?.is_empty().then_some(()))
    })
    .await?;
    let rest = ["delete", "clusterroles,clusterrolebindings,priorityclasses", "-l", PART_OF];
    cluster.kubectl(&rest).await?;
    cluster.kubectl(&["wait", "--for=delete", "namespace", doomed.namespace, "--timeout=150s"]).await?;
    nothing_left(cluster, doomed).await
}
