//! What an operator does to a running release, while others create pods: not one create may fail.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::environment::{Cluster, Helm, eventually};
use crate::life::{in_force, new_connections};
use crate::load::{Expect, Load};
use crate::release::{MAIN, Release, SERVICES, merge};

/// With Helm 4, over connections that the API server keeps, as it does by itself.
pub async fn kept_connections(cluster: Arc<Cluster>) -> Result<()> {
    disturbed(&cluster, MAIN, &json!({})).await
}

/// With Helm 3, over a new connection for each review: keep-alive hides a Service without endpoints.
pub async fn new_connections_each(cluster: Arc<Cluster>) -> Result<()> {
    // A release is kept by the Helm that made it.
    MAIN.uninstall(&cluster).await.ok();
    let release = Release { name: "sallyport", namespace: "three", helm: Helm::Three };
    disturbed(&cluster, release, &new_connections()).await?;
    release.uninstall(&cluster).await
}

async fn disturbed(cluster: &Cluster, release: Release, more: &Value) -> Result<()> {
    let mut values = Release::with_recipes(cluster);
    merge(&mut values, more);
    release.deploy(cluster, &values).await?;
    in_force(cluster, "hello-added", "OK").await?;

    let load = Load::start(cluster, Expect::Changed).await?;
    load.goes_on(100).await?;
    // A value that every pod template shows.
    merge(&mut values, &json!({"logging": {"level": "info,sallyport=debug"}}));
    release.deploy(cluster, &values).await?;
    load.goes_on(100).await?;
    load.finish("upgrade with a changed value").await?;

    let load = Load::start(cluster, Expect::Changed).await?;
    for service in SERVICES {
        let deployment = format!("deployment/{}", release.object(service));
        cluster.kubectl(&["rollout", "restart", "-n", release.namespace, &deployment]).await?;
        release.rolled_out(cluster, service).await?;
    }
    load.goes_on(100).await?;
    load.finish("rollout restart of each service").await?;

    let load = Load::start(cluster, Expect::Changed).await?;
    for service in SERVICES {
        let pods = release.pods(cluster, service).await?;
        cluster.kubectl(&["delete", "pod", "-n", release.namespace, "--wait=false", &pods[0]]).await?;
        // The budget of a service is one pod: its replacement comes before the next goes.
        release.rolled_out(cluster, service).await?;
    }
    load.goes_on(100).await?;
    load.finish("deletion of a pod of each service").await?;
    Ok(())
}

/// The only node is drained: the budgets keep one pod of each serving.
pub async fn a_drain(cluster: Arc<Cluster>) -> Result<()> {
    let cluster = &*cluster;
    MAIN.deploy(cluster, &Release::with_recipes(cluster)).await?;
    for service in SERVICES {
        MAIN.rolled_out(cluster, service).await?;
    }
    in_force(cluster, "hello-added", "OK").await?;
    let nodes = cluster.kubectl(&["get", "nodes", "-o", "name"]).await?;
    ensure!(nodes.lines().count() == 1, "this scenario drains the only node of a cluster");
    let node = nodes.trim().trim_start_matches("node/").to_owned();

    let load = Load::start(cluster, Expect::Changed).await?;
    let selector = format!("app.kubernetes.io/instance={}", MAIN.name);
    let drain = ["drain", &node, "--pod-selector", &selector, "--delete-emptydir-data", "--timeout", "10s"];
    let drained = cluster.kubectl(&drain).await;
    let serving = async || -> Result<Vec<usize>> {
        let mut serving = Vec::new();
        for service in ["webhook", "mutator", "validator"] {
            serving.push(MAIN.pods(cluster, service).await?.len());
        }
        Ok(serving)
    };
    let left = serving().await?;
    load.goes_on(100).await?;
    cluster.kubectl(&["uncordon", &node]).await?;
    let message = drained.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(message.contains("disruption budget"), "the drain did not stop at the budget: {message:?}");
    eprintln!("     pods left by the drain, ready or pending: {left:?}");
    for service in SERVICES {
        MAIN.rolled_out(cluster, service).await?;
    }
    eventually("the whole suite again", Duration::from_secs(60), async || {
        Ok(serving().await?.iter().all(|&count| count >= 2).then_some(()))
    })
    .await?;
    load.finish("a drain that stops at the budget").await?;
    Ok(())
}
