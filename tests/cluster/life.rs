//! From install to uninstall: what appears, what is left.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::environment::{CONFIGURATIONS, Cluster, Helm, PART_OF, eventually, items, none};
use crate::load::{self, Expect, Load};
use crate::release::{MAIN, Release, SERVICES, merge};

/// The most that an install may take until all pods are ready.
const INSTALL: Duration = Duration::from_secs(60);

/// A release beside [`MAIN`], with a policy of its own.
const SECOND: Release = Release { name: "sallyport", namespace: "platform", helm: Helm::Three };

/// Marks pods, so that one sees whether the second release is in force.
const MARK: &str = r#"
apiVersion: sallyport.dev/v1alpha1
kind: MutationPolicy
metadata:
  name: mark
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}
  mutations:
    - overlay:
        metadata:
          labels:
            marked: "yes"
"#;

/// Each answer of the front closes its connection, so that every review needs a new one.
pub fn new_connections() -> Value {
    json!({"webhook": {"args": ["--connection-life=0s"]}})
}

/// The labels that a dry run of a pod comes back with.
pub async fn labels_of_a_dry_run(cluster: &Cluster) -> Result<Value> {
    let pod = load::manifest("probe", &json!({"hello": "true"})).to_string();
    let arguments = ["create", "-n", load::NAMESPACE, "--dry-run=server", "-o", "json", "-f", "-"];
    let text = cluster.kubectl_with(&arguments, &pod).await?;
    Ok(serde_json::from_str::<Value>(&text)?["metadata"]["labels"].clone())
}

/// Waits until pods come back with a label.
pub async fn in_force(cluster: &Cluster, label: &str, value: &str) -> Result<Duration> {
    cluster.namespace(load::NAMESPACE, &json!({})).await?;
    let what = format!("pods labelled {label}={value}");
    let ((), took) = eventually(&what, Duration::from_secs(150), async || {
        Ok((labels_of_a_dry_run(cluster).await?[label] == value).then_some(()))
    })
    .await?;
    Ok(took)
}

/// Whatever is left of a release, of all kinds that the API server knows.
async fn leftovers(cluster: &Cluster, release: Release) -> Result<Vec<String>> {
    let kinds = cluster.kubectl(&["api-resources", "--verbs=list", "-o", "name"]).await?;
    // Events are a log of what was, metrics are about pods that are listed themselves.
    let kinds: Vec<&str> = kinds
        .lines()
        .filter(|kind| !kind.starts_with("events") && !kind.ends_with(".metrics.k8s.io"))
        .collect();
    let list = cluster.get(&[&kinds.join(","), "-A"]).await?;
    let mut left = Vec::new();
    for object in items(&list) {
        let (kind, metadata) = (object["kind"].as_str().unwrap_or_default(), &object["metadata"]);
        let (name, namespace) =
            (metadata["name"].as_str().unwrap_or_default(), metadata["namespace"].as_str());
        let is_inside = namespace == Some(release.namespace)
            // What every namespace has.
            && !matches!((kind, name), ("ConfigMap", "kube-root-ca.crt") | ("ServiceAccount", "default"));
        let is_ours = namespace.is_none() && name == release.cluster_name();
        if is_inside || is_ours {
            left.push(format!("{kind} {name}"));
        }
    }
    Ok(left)
}

/// Nothing is left once the last pod has drained.
pub async fn nothing_left(cluster: &Cluster, release: Release) -> Result<()> {
    let ((), took) = eventually("an end without leftovers", Duration::from_secs(150), async || {
        let left = leftovers(cluster, release).await?;
        none("leftovers", &left).map(Some)
    })
    .await?;
    eprintln!(
        "     nothing is left of {} in {} after {:.0} s",
        release.name,
        release.namespace,
        took.as_secs_f64()
    );
    Ok(())
}

/// Install, use and uninstall of two releases of one name, by Helm 4 and by Helm 3, side by side.
pub async fn two_releases(cluster: Arc<Cluster>) -> Result<()> {
    let cluster = &*cluster;
    cluster.namespace(load::NAMESPACE, &json!({})).await?;
    for (release, other) in [(MAIN, SECOND), (SECOND, MAIN)] {
        // With the values as they are: ready at once, and nothing registered, as there is no policy.
        let took = release.deploy(cluster, &Release::defaults(cluster)).await?;
        eprintln!("     {:?}: all pods ready after {:.1} s", release.helm, took.as_secs_f64());
        ensure!(took <= INSTALL, "{:?} took {} s", release.helm, took.as_secs());
        ensure!(release.configurations(cluster).await?.is_empty(), "registered without a policy");
        for service in SERVICES {
            ensure!(!release.pods(cluster, service).await?.is_empty(), "no pod of the {service}");
        }
        let mut values = if release.namespace == MAIN.namespace {
            Release::with_recipes(cluster)
        } else {
            let mut values = Release::defaults(cluster);
            merge(&mut values, &json!({"policies": {"mark.yaml": MARK}}));
            values
        };
        merge(&mut values, &json!({"registration": {"excludeNamespaces": [other.namespace]}}));
        merge(&mut values, &new_connections());
        release.deploy(cluster, &values).await?;
    }
    MAIN.registered(cluster).await?;
    let doors = MAIN.configurations(cluster).await?;
    let paths: Vec<&Value> = doors
        .iter()
        .filter_map(|c| c["webhooks"].as_array())
        .flatten()
        .map(|w| &w["clientConfig"]["service"]["path"])
        .collect();
    ensure!(paths == ["/mutate/fail", "/validate/fail"], "an entry for a door without policies: {paths:?}");
    in_force(cluster, "hello-added", "OK").await?;
    in_force(cluster, "marked", "yes").await?;
    let second = SECOND.configurations(cluster).await?;
    ensure!(second.len() == 1, "the second release has a mutating policy alone: {}", second.len());

    for release in [MAIN, SECOND] {
        let arguments = ["test", release.name, "-n", release.namespace, "--timeout", "60s"];
        cluster.helm(release.helm, &arguments, &Value::Null).await?;
    }

    for (release, beside) in [(SECOND, "hello-added"), (MAIN, "")] {
        let load = Load::start(cluster, Expect::Success).await?;
        load.goes_on(200).await?;
        release.uninstall(cluster).await?;
        let ((), gone) = eventually("no registration", Duration::from_secs(30), async || {
            Ok(release.configurations(cluster).await?.is_empty().then_some(()))
        })
        .await?;
        load.goes_on(400).await?;
        load.finish(&format!("uninstall by {:?}", release.helm)).await?;
        eprintln!("     the registration went {:.1} s after helm uninstall returned", gone.as_secs_f64());
        if !beside.is_empty() {
            in_force(cluster, beside, "OK").await?;
        }
    }
    let labels = labels_of_a_dry_run(cluster).await?;
    ensure!(labels == json!({"hello": "true"}), "somebody still changes pods: {labels}");
    nothing_left(cluster, SECOND).await?;
    nothing_left(cluster, MAIN).await
}

/// `kubectl replace --force` deletes the owner of the registration, and with it the registration.
pub async fn replaced_owner(cluster: Arc<Cluster>) -> Result<()> {
    let cluster = &*cluster;
    MAIN.deploy(cluster, &Release::with_recipes(cluster)).await?;
    MAIN.registered(cluster).await?;
    let uids = async || -> Result<Vec<Value>> {
        Ok(MAIN.configurations(cluster).await?.iter().map(|live| live["metadata"]["uid"].clone()).collect())
    };
    let before = uids().await?;
    let role = cluster.get(&["clusterrole", &MAIN.cluster_name()]).await?;
    cluster.kubectl_with(&["replace", "--force", "-f", "-"], &role.to_string()).await?;
    let ((), took) = eventually("the registration, made anew", Duration::from_secs(120), async || {
        let after = uids().await?;
        Ok((after.len() == 2 && after.iter().all(|uid| !before.contains(uid))).then_some(()))
    })
    .await?;
    eprintln!("     the registration was back after {:.1} s", took.as_secs_f64());
    in_force(cluster, "hello-added", "OK").await?;
    let listed = cluster.kubectl(&["get", CONFIGURATIONS, "-l", PART_OF, "-o", "name"]);
    ensure!(listed.await?.lines().count() == 2, "the emergency command would not find both");
    Ok(())
}
