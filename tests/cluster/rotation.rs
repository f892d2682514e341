//! The authority is rotated while others create pods: not one create may fail.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sallyport_testkit::process::binary;
use serde_json::Value;

use crate::environment::{Cluster, eventually, run};
use crate::life::in_force;
use crate::load::{Expect, Load};
use crate::release::{MAIN, Release};

/// With the kubelet at its default, each of the three times that everybody has to load something takes a minute or
/// more.
const PATIENCE: Duration = Duration::from_secs(480);

async fn authority(cluster: &Cluster) -> Result<Value> {
    let secret = MAIN.object("ca");
    cluster.get(&["secret", "-n", MAIN.namespace, &secret]).await
}

/// Runs the command on the release, as an administrator would, and fails unless it finds everything well.
async fn sallyport(command: &[&str]) -> Result<String> {
    let program = binary("sallyport")?;
    let release = ["--namespace", MAIN.namespace, "--release", MAIN.name];
    run(program.to_str().context("its path is not UTF-8")?, &[command, &release].concat(), None).await
}

/// R-04 on a real cluster, with the kubelet's own delays; in the middle a mutator is added, one is deleted, and the
/// rotator that leads dies.
pub async fn under_load(cluster: Arc<Cluster>) -> Result<()> {
    let cluster = &*cluster;
    let mut values = Release::with_recipes(cluster);
    crate::release::merge(&mut values, &serde_json::json!({"mutator": {"replicas": null}}));
    MAIN.deploy(cluster, &values).await?;
    in_force(cluster, "hello-added", "OK").await?;
    let before = authority(cluster).await?;

    let load = Load::start(cluster, Expect::Changed).await?;
    load.goes_on(100).await?;
    sallyport(&["certs", "rotate"]).await?;
    let ((), staged) = eventually("a successor", Duration::from_secs(30), async || {
        Ok(authority(cluster).await?["data"]["next.crt"].is_string().then_some(()))
    })
    .await?;
    // The rotator that leads dies; the other goes on.
    let lease = cluster.get(&["lease", "-n", MAIN.namespace, &MAIN.object("cert-rotator")]).await?;
    let holder = lease["spec"]["holderIdentity"].as_str().context("nobody leads")?;
    let leader = holder.rsplit_once('_').map_or(holder, |(pod, _)| pod);
    let kill = ["delete", "pod", "-n", MAIN.namespace, "--grace-period=0", "--force", "--wait=false", leader];
    cluster.kubectl(&kill).await?;
    let deployment = format!("deployment/{}", MAIN.object("mutator"));
    cluster.kubectl(&["scale", "-n", MAIN.namespace, &deployment, "--replicas=3"]).await?;
    MAIN.rolled_out(cluster, "mutator").await?;
    let ((), promoted) = eventually("the successor in office", PATIENCE, async || {
        let now = authority(cluster).await?;
        Ok((now["data"]["tls.crt"] != before["data"]["tls.crt"]).then_some(()))
    })
    .await?;
    let pods = MAIN.pods(cluster, "mutator").await?;
    cluster.kubectl(&["delete", "pod", "-n", MAIN.namespace, "--wait=false", &pods[0]]).await?;
    let ((), dropped) = eventually("the former authority dropped", PATIENCE, async || {
        let now = authority(cluster).await?;
        Ok((now["data"]["ca.crt"] == now["data"]["tls.crt"]).then_some(()))
    })
    .await?;
    // What is stored last reaches everybody as well: every pod is asked what it trusts. Until the rotation is done other
    // bundles are no fault, so one good answer is not enough.
    let good = std::cell::Cell::new(0);
    let (_, reached) = eventually("every pod with the last bundle", Duration::from_secs(180), async || {
        let status = sallyport(&["certs", "status"]).await;
        let is_good = status.is_ok_and(|it| it.contains("Rotating is False") && !it.contains("no answer"));
        good.set(if is_good { good.get() + 1 } else { 0 });
        Ok((good.get() >= 8).then_some(()))
    })
    .await?;
    load.goes_on(100).await?;
    load.finish("a rotation of the authority").await?;
    eprintln!(
        "     staged after {:.0} s, in office {:.0} s later, the former dropped {:.0} s after that, everywhere {:.0} s later",
        staged.as_secs_f64(),
        promoted.as_secs_f64(),
        dropped.as_secs_f64(),
        reached.as_secs_f64()
    );
    // Seen from outside, every pod asked: all is as it should be.
    let status = sallyport(&["certs", "status"]).await?;
    ensure!(!status.contains("no answer"), "a pod could not be asked:\n{status}");
    eprint!("{status}{}", sallyport(&["doctor"]).await?);
    let after = authority(cluster).await?;
    ensure!(after["data"]["tls.key"] != before["data"]["tls.key"], "the key is the same");
    ensure!(after["data"]["next.key"].is_null(), "the successor was left behind");
    Ok(())
}
