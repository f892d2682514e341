//! A release of the chart.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::environment::{CONFIGURATIONS, Cluster, Helm, eventually, items};

/// The services that have a Deployment.
pub const SERVICES: [&str; 4] = ["webhook", "mutator", "validator", "cert-rotator"];

/// A release: its name, its namespace and the Helm that keeps it.
#[derive(Clone, Copy, Debug)]
pub struct Release {
    /// Its name; it contains the chart's, so objects are named after it alone.
    pub name: &'static str,
    /// Its namespace.
    pub namespace: &'static str,
    /// Which Helm.
    pub helm: Helm,
}

/// The release that most scenarios work on.
pub const MAIN: Release = Release { name: "sallyport", namespace: "sallyport", helm: Helm::Four };

/// Adds `more` to `values`, deeply; lists are replaced.
pub fn merge(values: &mut Value, more: &Value) {
    match (values, more) {
        (Value::Object(values), Value::Object(more)) => {
            for (key, value) in more {
                merge(values.entry(key).or_insert(Value::Null), value);
            }
        }
        (values, more) => *values = more.clone(),
    }
}

impl Release {
    /// The values that say where the images are, and nothing else.
    pub fn defaults(cluster: &Cluster) -> Value {
        json!({"image": {"registry": cluster.registry}})
    }

    /// All recipes in force.
    pub fn with_recipes(cluster: &Cluster) -> Value {
        let mut values = Self::defaults(cluster);
        let on = json!({"enabled": true});
        merge(
            &mut values,
            &json!({
                "recipes": {"sidecar-nginx": on, "hello-file": on, "deny-env": on},
                "registration": {"excludeNamespaces": ["platform"]},
            }),
        );
        values
    }

    /// Installs or upgrades, and waits until every pod is ready. How long it took is in the answer.
    pub async fn deploy(&self, cluster: &Cluster, values: &Value) -> Result<Duration> {
        let begun = Instant::now();
        self.upgrade(cluster, values, &["--wait", "--timeout", "120s"]).await?;
        Ok(begun.elapsed())
    }

    /// Installs or upgrades without waiting.
    pub async fn apply(&self, cluster: &Cluster, values: &Value) -> Result<()> {
        self.upgrade(cluster, values, &[]).await
    }

    async fn upgrade(&self, cluster: &Cluster, values: &Value, more: &[&str]) -> Result<()> {
        self.make_namespace(cluster).await?;
        let chart = cluster.chart.to_str().context("the chart's path is not UTF-8")?;
        let arguments = ["upgrade", "--install", self.name, chart, "-n", self.namespace, "-f", "-"];
        cluster.helm(self.helm, &[&arguments, more].concat(), values).await.map(drop)
    }

    /// Makes the release's namespace, where the Pod Security Standard "restricted" is enforced.
    pub async fn make_namespace(&self, cluster: &Cluster) -> Result<()> {
        let restricted = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        cluster.namespace(self.namespace, &restricted).await
    }

    /// Uninstalls.
    pub async fn uninstall(&self, cluster: &Cluster) -> Result<()> {
        cluster.helm(self.helm, &["uninstall", self.name, "-n", self.namespace], &Value::Null).await.map(drop)
    }

    /// The name of everything cluster-scoped that belongs to the release.
    pub fn cluster_name(&self) -> String {
        format!("{}.{}", self.name, self.namespace)
    }

    /// The name of a service's objects.
    pub fn object(&self, service: &str) -> String {
        format!("{}-{service}", self.name)
    }

    /// The selector of a service's pods.
    pub fn selector(&self, service: &str) -> String {
        format!("app.kubernetes.io/instance={},app.kubernetes.io/component={service}", self.name)
    }

    /// The pods of a service that are not being deleted.
    pub async fn pods(&self, cluster: &Cluster, service: &str) -> Result<Vec<String>> {
        let list = cluster.get(&["pods", "-n", self.namespace, "-l", &self.selector(service)]).await?;
        let living = items(&list).iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        Ok(living.filter_map(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned())).collect())
    }

    /// Waits until a Deployment has rolled out.
    pub async fn rolled_out(&self, cluster: &Cluster, service: &str) -> Result<()> {
        let deployment = format!("deployment/{}", self.object(service));
        let arguments = ["rollout", "status", "-n", self.namespace, &deployment, "--timeout", "120s"];
        cluster.kubectl(&arguments).await.map(drop)
    }

    /// Waits until `replicas` pods of a service are ready, and no others are left but terminating ones.
    pub async fn scaled(
        &self,
        cluster: &Cluster,
        service: &str,
        replicas: usize,
        patience: Duration,
    ) -> Result<Duration> {
        let deployment = self.object(service);
        let what = format!("{replicas} ready replicas of {deployment}");
        let ((), took) = eventually(&what, patience, async || {
            let live = cluster.get(&["deployment", "-n", self.namespace, &deployment]).await?;
            let is_there = |field: &str| live["status"][field].as_u64() == u64::try_from(replicas).ok();
            Ok((is_there("readyReplicas") && is_there("replicas")).then_some(()))
        })
        .await?;
        Ok(took)
    }

    /// Waits until both configurations carry a bundle.
    pub async fn registered(&self, cluster: &Cluster) -> Result<Duration> {
        let ((), took) = eventually("the registration", Duration::from_secs(90), async || {
            Ok((self.configurations(cluster).await?.len() == 2).then_some(()))
        })
        .await?;
        Ok(took)
    }

    /// The release's live webhook configurations; each entry has a bundle.
    pub async fn configurations(&self, cluster: &Cluster) -> Result<Vec<Value>> {
        let list = cluster.get(&[CONFIGURATIONS]).await?;
        let name = self.cluster_name();
        let ours: Vec<Value> =
            items(&list).iter().filter(|live| live["metadata"]["name"] == name.as_str()).cloned().collect();
        for configuration in &ours {
            for entry in configuration["webhooks"].as_array().into_iter().flatten() {
                ensure!(entry["clientConfig"]["caBundle"].is_string(), "an entry without a bundle: {entry}");
            }
        }
        Ok(ours)
    }
}
