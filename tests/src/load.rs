//! Constant creates through both doors, each answer held against what it has to be.
//!
//! Nothing is tried again: a call that fails is a failure, with its text.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;

/// The most failures that are kept with their text.
const TEXTS: usize = 20;
/// Every so many creates one is of a pod that has to be refused: a door that nobody guards shows.
const FORBIDDEN_EVERY: usize = 8;
/// A create that has no answer by then has failed; the API server itself gives up on a webhook after 10 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Creates that came back as they have to: mutated, or refused for the reason that they have to be.
    pub good: usize,
    /// How many of those are pods that have to be refused.
    pub forbidden: usize,
    /// Creates that did not.
    pub failed: usize,
    /// What they got instead, the first of them, with the time.
    pub failures: Vec<String>,
    /// The longest that one took.
    pub slowest: Duration,
}

impl Outcome {
    fn note(&mut self, answer: Result<(), String>, is_forbidden: bool, took: Duration) {
        self.slowest = self.slowest.max(took);
        let Err(text) = answer else {
            self.good += 1;
            self.forbidden += usize::from(is_forbidden);
            return;
        };
        self.failed += 1;
        if self.failures.len() < TEXTS {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            self.failures.push(format!("at {:.3}, after {took:?}: {text}", now.as_secs_f64()));
        }
    }
}

/// Running creates.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    good: Arc<AtomicUsize>,
    outcome: Arc<Mutex<Outcome>>,
    workers: JoinSet<()>,
}

impl Load {
    /// Has `workers` create pods in `namespace`, each one after the other with `pause` between. Recipes hello-file
    /// and deny-env have to be in force there.
    pub fn start(client: &Client, namespace: &str, workers: usize, pause: Duration) -> Self {
        let (stop, good) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let outcome: Arc<Mutex<Outcome>> = Arc::default();
        let mut tasks = JoinSet::new();
        for worker in 0..workers {
            let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
            let (stop, good, outcome) = (stop.clone(), good.clone(), outcome.clone());
            tasks.spawn(async move {
                let mut number = worker;
                while !stop.load(Ordering::Relaxed) {
                    let is_forbidden = number.is_multiple_of(FORBIDDEN_EVERY);
                    number += 1;
                    let begun = Instant::now();
                    let answer = create(&pods, &format!("load-{worker}"), is_forbidden).await;
                    if answer.is_ok() {
                        good.fetch_add(1, Ordering::Relaxed);
                    }
                    outcome.lock().note(answer, is_forbidden, begun.elapsed());
                    tokio::time::sleep(pause).await;
                }
            });
        }
        Self { stop, good, outcome, workers: tasks }
    }

    /// How many came back as they have to so far.
    pub fn good(&self) -> usize {
        self.good.load(Ordering::Relaxed)
    }

    /// Ends it, and says what came of it.
    ///
    /// # Panics
    /// When a worker has.
    pub async fn finish(mut self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.workers.join_next().await {
            ended.expect("a worker");
        }
        let outcome = self.outcome.lock();
        outcome.clone()
    }
}

/// Creates one pod for show. Fails unless the answer is what it has to be.
///
/// # Panics
/// Never: the pod is one.
pub async fn create(pods: &Api<Pod>, name: &str, is_forbidden: bool) -> Result<(), String> {
    let env = if is_forbidden { json!([{"name": "A", "value": "b"}]) } else { json!(null) };
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"hello": "true"}},
        "spec": {"containers": [{"name": "app", "image": "registry.example/app:1", "env": env}]},
    }))
    .expect("a pod");
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    let answer = tokio::time::timeout(PATIENCE, pods.create(&parameters, &pod)).await;
    match answer.map_err(|_| format!("no answer within {PATIENCE:?}"))? {
        Err(kube::Error::Api(status)) if is_forbidden && status.message.contains("app is using env vars") => {
            Ok(())
        }
        Err(error) => Err(format!("{error:?}")),
        Ok(_) if is_forbidden => Err("a pod was let in that has to be refused".to_owned()),
        Ok(pod) => {
            let is_labelled = pod.metadata.labels.is_some_and(|labels| labels.contains_key("hello-added"));
            let volumes = pod.spec.and_then(|spec| spec.volumes).unwrap_or_default();
            let is_mutated = is_labelled && volumes.iter().any(|volume| volume.name == "hello-volume");
            if is_mutated { Ok(()) } else { Err("a pod came back unchanged".to_owned()) }
        }
    }
}
