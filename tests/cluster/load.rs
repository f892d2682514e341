//! Others who create pods all the time, and what becomes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::environment::Cluster;

/// The namespace in which pods are created.
pub const NAMESPACE: &str = "load";
/// Workers whose creates store nothing.
const DRY: usize = 6;
/// Workers that create and delete.
const REAL: usize = 2;
/// The pause of a worker between two creates.
const PAUSE: Duration = Duration::from_millis(30);

/// Tells workers apart, over all loads.
static RUN: AtomicUsize = AtomicUsize::new(0);

/// What every pod that comes back must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The mutation of the recipe hello-file.
    Changed,
    /// Success alone: the registration may be gone.
    Success,
}

/// Creates that go on.
pub struct Load {
    stop: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
    tasks: JoinSet<Outcome>,
    begun: Instant,
}

#[derive(Default)]
struct Outcome {
    failures: Vec<String>,
    slowest: Duration,
}

/// A pod that no scheduler looks at, with labels.
pub fn manifest(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
        "spec": {
            "schedulerName": "nobody", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "localhost/none:1"}],
        },
    })
}

impl Load {
    /// Begins; pods carry the label that hello-file looks at.
    pub async fn start(cluster: &Cluster, expect: Expect) -> Result<Self> {
        cluster.namespace(NAMESPACE, &json!({})).await?;
        Ok(Self::with(cluster, expect, DRY, REAL, PAUSE))
    }

    /// Begins with as many workers as are asked for.
    pub fn with(cluster: &Cluster, expect: Expect, dry: usize, real: usize, pause: Duration) -> Self {
        let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for number in 0..dry + real {
            let worker = Worker {
                pods: Api::namespaced(cluster.client.clone(), NAMESPACE),
                // Of its own: a dry run under the name of a pod that is there would be refused.
                name: format!("load-{}", RUN.fetch_add(1, Ordering::Relaxed)),
                dry_run: number < dry,
                expect,
                pause,
                stop: Arc::clone(&stop),
                made: Arc::clone(&made),
            };
            tasks.spawn(worker.work());
        }
        Self { stop, made, tasks, begun: Instant::now() }
    }

    /// How many creates succeeded so far.
    pub fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// Goes on until `more` more creates have succeeded.
    pub async fn goes_on(&self, more: usize) -> Result<()> {
        let (wanted, begun) = (self.made() + more, Instant::now());
        while self.made() < wanted {
            ensure!(begun.elapsed() < Duration::from_secs(60), "creates do not go on");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Ends. Not one create may have failed.
    pub async fn finish(mut self, what: &str) -> Result<usize> {
        self.stop.store(true, Ordering::Relaxed);
        let (mut failures, mut slowest) = (Vec::new(), Duration::ZERO);
        while let Some(outcome) = self.tasks.join_next().await {
            let outcome = outcome?;
            failures.extend(outcome.failures);
            slowest = slowest.max(outcome.slowest);
        }
        let made = self.made();
        eprintln!(
            "     {what}: {made} creates in {:.0} s, {} failed, slowest {} ms",
            self.begun.elapsed().as_secs_f64(),
            failures.len(),
            slowest.as_millis(),
        );
        ensure!(
            failures.is_empty(),
            "{what}: {} of {made} creates failed, such as {}",
            failures.len(),
            failures[0]
        );
        ensure!(made > 0, "{what}: nothing was created");
        Ok(made)
    }
}

struct Worker {
    pods: Api<Pod>,
    name: String,
    dry_run: bool,
    expect: Expect,
    pause: Duration,
    stop: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
}

impl Worker {
    async fn work(self) -> Outcome {
        let mut outcome = Outcome::default();
        let pod: Pod = serde_json::from_value(manifest(&self.name, &json!({"hello": "true"}))).unwrap();
        let parameters = PostParams { dry_run: self.dry_run, ..PostParams::default() };
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        // Of an earlier run on the same cluster.
        let _ = self.pods.delete(&self.name, &at_once).await;
        while !self.stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            match self.pods.create(&parameters, &pod).await {
                Ok(created) => {
                    self.made.fetch_add(1, Ordering::Relaxed);
                    let labels = created.metadata.labels.unwrap_or_default();
                    if self.expect == Expect::Changed && !labels.contains_key("hello-added") {
                        outcome.failures.push("a pod came back unchanged".to_owned());
                    }
                    if !self.dry_run
                        && let Err(error) = self.pods.delete(&self.name, &at_once).await
                    {
                        outcome.failures.push(format!("delete: {error}"));
                    }
                }
                Err(error) => {
                    outcome.failures.push(format!("after {} ms: {error}", begun.elapsed().as_millis()));
                }
            }
            outcome.slowest = outcome.slowest.max(begun.elapsed());
            tokio::time::sleep(self.pause).await;
        }
        outcome
    }
}
