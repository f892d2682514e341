//! The mutators scale alone: by hand, and by load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::environment::{Cluster, eventually, items};
use crate::life::in_force;
use crate::load::{Expect, Load};
use crate::release::{MAIN, Release, merge};

/// How many times the reviews of the idlest of four mutators the busiest may have. It is below 1.2 on a machine that
/// does nothing else; load that sticks to one mutator has no bound at all.
const SPREAD: f64 = 2.0;

/// How many evaluations each mutator has made.
async fn evaluations(cluster: &Cluster) -> Result<BTreeMap<String, f64>> {
    let mut counts = BTreeMap::new();
    for pod in MAIN.pods(cluster, "mutator").await? {
        let path = format!("/api/v1/namespaces/{}/pods/{pod}:9090/proxy/metrics", MAIN.namespace);
        let text = cluster.kubectl(&["get", "--raw", &path]).await?;
        let line = text.lines().find(|line| {
            line.starts_with("sallyport_policy_evaluation_duration_seconds_count")
                && line.contains("hello-file")
        });
        let count = line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default();
        counts.insert(pod, count);
    }
    Ok(counts)
}

/// Reviews of each mutator between two counts: the least and the most.
fn spread(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> (f64, f64) {
    let counts = after.iter().map(|(pod, count)| count - before.get(pod).copied().unwrap_or_default());
    counts.fold((f64::INFINITY, 0.0), |(least, most), count| (count.min(least), count.max(most)))
}

/// `kubectl scale` from 1 to 4 and back; nothing else changes, nothing is lost, and load spreads.
pub async fn by_hand(cluster: Arc<Cluster>) -> Result<()> {
    let cluster = &*cluster;
    let mut values = Release::with_recipes(cluster);
    merge(&mut values, &json!({"mutator": {"replicas": null}}));
    MAIN.deploy(cluster, &values).await?;
    in_force(cluster, "hello-added", "OK").await?;
    let others = async || -> Result<Vec<String>> {
        Ok([MAIN.pods(cluster, "webhook").await?, MAIN.pods(cluster, "validator").await?].concat())
    };
    let before = others().await?;
    let scale = async |replicas: usize| {
        let deployment = format!("deployment/{}", MAIN.object("mutator"));
        let replicas = format!("--replicas={replicas}");
        cluster.kubectl(&["scale", "-n", MAIN.namespace, &deployment, &replicas]).await
    };

    scale(1).await?;
    MAIN.scaled(cluster, "mutator", 1, Duration::from_secs(60)).await?;
    let load = Load::start(cluster, Expect::Changed).await?;
    load.goes_on(100).await?;
    scale(4).await?;
    let up = MAIN.scaled(cluster, "mutator", 4, Duration::from_secs(60)).await?;
    // The fronts look the name up every 5 s; DNS answers may be 30 s old.
    let ((), heard) = eventually("reviews at all four mutators", Duration::from_secs(60), async || {
        let counts = evaluations(cluster).await?;
        Ok((counts.len() == 4 && counts.values().all(|&count| count > 20.0)).then_some(()))
    })
    .await?;
    let counts = evaluations(cluster).await?;
    load.goes_on(3000).await?;
    let (least, most) = spread(&counts, &evaluations(cluster).await?);
    eprintln!(
        "     1 to 4 ready in {:.0} s, all at work {:.0} s later; then {least} to {most} reviews a pod: {:.3}",
        up.as_secs_f64(),
        heard.as_secs_f64(),
        most / least,
    );
    ensure!(most / least < SPREAD, "the load does not spread: {least} to {most}");
    scale(1).await?;
    MAIN.scaled(cluster, "mutator", 1, Duration::from_secs(60)).await?;
    load.goes_on(600).await?;
    load.finish("mutators 1, 4, 1 by hand").await?;
    ensure!(others().await? == before, "scaling the mutators touched other pods");
    Ok(())
}

/// The `HorizontalPodAutoscaler` of the mutators alone, up under load and down without.
pub async fn by_load(cluster: Arc<Cluster>) -> Result<()> {
    let cluster = &*cluster;
    let mut values = Release::with_recipes(cluster);
    let quick = json!({
        "scaleUp": {"stabilizationWindowSeconds": 0},
        "scaleDown": {
            "stabilizationWindowSeconds": 5,
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 5}],
        },
    });
    merge(
        &mut values,
        &json!({"mutator": {
            "resources": {"requests": {"cpu": "10m"}},
            "autoscaling": {
                "enabled": true, "minReplicas": 1, "maxReplicas": 4, "targetCPUUtilizationPercentage": 60,
                "behavior": quick,
            },
        }}),
    );
    MAIN.deploy(cluster, &values).await?;
    in_force(cluster, "hello-added", "OK").await?;
    let replicas = async |service: &str| -> Result<u64> {
        let live = cluster.get(&["deployment", "-n", MAIN.namespace, &MAIN.object(service)]).await?;
        live["spec"]["replicas"].as_u64().context("no replicas")
    };
    let autoscalers = cluster.get(&["hpa", "-n", MAIN.namespace]).await?;
    ensure!(items(&autoscalers).len() == 1, "one autoscaler was asked for, the mutators'");
    let others = [replicas("webhook").await?, replicas("validator").await?];

    MAIN.scaled(cluster, "mutator", 1, Duration::from_secs(120)).await?;
    let load = Load::with(cluster, Expect::Changed, 24, 2, Duration::from_millis(1));
    let up = MAIN.scaled(cluster, "mutator", 4, Duration::from_secs(150)).await?;
    load.goes_on(500).await?;
    load.finish(&format!("mutators 1 to 4 by load, in {:.0} s", up.as_secs_f64())).await?;
    let load = Load::with(cluster, Expect::Changed, 1, 0, Duration::from_millis(300));
    let down = MAIN.scaled(cluster, "mutator", 1, Duration::from_secs(180)).await?;
    load.goes_on(50).await?;
    load.finish(&format!("mutators 4 to 1 without, in {:.0} s", down.as_secs_f64())).await?;
    ensure!([replicas("webhook").await?, replicas("validator").await?] == others, "others were scaled too");
    Ok(())
}
