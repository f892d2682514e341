//! The rounds: certificates, then registration, then sleep until something changes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kube::Client;
use sallyport_telemetry::Condition;
use tokio::sync::Notify;
use tracing::{error, info};

use crate::deployment::{Deployment, Expected, Pods};
use crate::injection::{Injection, Injector};
use crate::issuance::{self, IssuanceError, Policy, Settled};
use crate::metrics::Metrics;
use crate::registration::controller::chain;
use crate::registration::live::Objects;
use crate::registration::{Controller, Source};
use crate::store::{Slot, Store, StoreError};
use crate::watches::{Watched, Watches};

/// The wait after a first failed round; it doubles up to [`LONGEST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest wait after a failed round.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How soon to look again whether a phase of a rotation is complete.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Events come in bursts; a round begins this long after the first.
const SETTLE: Duration = Duration::from_millis(100);

/// What a rotator does.
#[derive(Debug)]
pub struct Config {
    /// The suite's namespace.
    pub namespace: String,
    /// Where certificates are kept.
    pub store: Store,
    /// Which certificates.
    pub policy: Policy,
    /// The longest time between two rounds.
    pub interval: Duration,
    /// What is registered; `None` for certificates alone.
    pub registration: Option<Registration>,
    /// What is injected into objects of others; `None` for nothing.
    pub injection: Option<Injection>,
    /// The pods that are asked what they have loaded; `None` where there are none, and time alone has to do.
    pub pods: Option<Pods>,
    /// How long it takes at the most until what is stored has reached those who cannot be asked.
    pub propagation: Duration,
}

impl Config {
    /// What keeps the registration, if there is one.
    fn controller(&self, metrics: &Metrics) -> Option<Controller> {
        let registration = self.registration.as_ref()?;
        Some(Controller::new(
            Objects::new(registration.client.clone(), &self.namespace),
            registration.source.clone(),
            &self.namespace,
            registration.owner_cluster_role.clone(),
            metrics.clone(),
        ))
    }
}

/// Looks at everything and writes nothing: what is not as it should be, a line each.
pub(crate) async fn inspect(config: &Config, metrics: &Metrics) -> anyhow::Result<Vec<String>> {
    let now = SystemTime::now();
    let bundle = match issuance::inspect(&config.store, &config.policy, now).await? {
        Ok(bundle) => bundle,
        Err(step) => return Ok(vec![step.to_string()]),
    };
    match config.controller(metrics) {
        Some(controller) => Ok(controller.inspect(&bundle, now).await?),
        None => Ok(Vec::new()),
    }
}

/// A registration that is kept.
pub struct Registration {
    /// The cluster.
    pub client: Client,
    /// What is registered.
    pub source: Source,
    /// The `ClusterRole` that owns it.
    pub owner_cluster_role: Option<String>,
    /// Whether it is removed at the end: for a suite that lives no longer than its process.
    pub unregister_on_exit: bool,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration")
            .field("source", &self.source)
            .field("owner_cluster_role", &self.owner_cluster_role)
            .finish_non_exhaustive()
    }
}

struct Rotator {
    config: Config,
    metrics: Metrics,
    controller: Option<Controller>,
    injector: Option<Injector>,
    watches: Option<Watches>,
    certificates: Condition,
    deployment: Deployment,
    /// Why the rotation under way last did not go on, so that a long wait is one line in the log.
    last_lack: Option<String>,
    failures: u32,
}

/// Runs rounds until `shutdown` completes.
pub(crate) async fn run(
    config: Config,
    metrics: Metrics,
    certificates: Condition,
    mut shutdown: Pin<&mut impl Future<Output = ()>>,
) {
    let wake = Arc::new(Notify::new());
    let controller = config.controller(&metrics);
    let injector = config.injection.clone().map(|injection| Injector::new(injection, metrics.clone()));
    let client = match (&config.registration, &config.store) {
        (Some(registration), _) => Some(registration.client.clone()),
        (None, Store::Cluster(store)) => Some(store.client()),
        (None, Store::Directory(_)) => config.injection.as_ref().map(|injection| injection.client.clone()),
    };
    let watches = client.map(|client| Watches::new(client, &config.namespace, Arc::clone(&wake)));
    let deployment = Deployment::new(config.pods.clone(), config.propagation);
    let mut rotator = Rotator {
        config,
        metrics,
        controller,
        injector,
        watches,
        certificates,
        deployment,
        last_lack: None,
        failures: 0,
    };
    loop {
        // Both halves of a round may be dropped at any point: whatever was written, the next round goes on.
        let wait = tokio::select! {
            () = &mut shutdown => break,
            wait = async { rotator.round().await.min(rotator.inject().await) } => wait,
        };
        tokio::select! {
            () = &mut shutdown => break,
            () = tokio::time::sleep(wait) => {}
            () = wake.notified() => tokio::time::sleep(SETTLE.min(wait)).await,
        }
    }
    rotator.end().await;
}

impl Rotator {
    /// One round. Returns how long to wait at the most until the next.
    async fn round(&mut self) -> Duration {
        match self.try_round().await {
            Ok(wait) => {
                self.failures = 0;
                wait
            }
            Err((task, error)) => {
                self.metrics.failed(task);
                let doubled = FIRST_RETRY.saturating_mul(1 << self.failures.min(8)).min(LONGEST_RETRY);
                self.failures = self.failures.saturating_add(1);
                error!(task, retry_seconds = doubled.as_secs(), "{}", chain(error.as_ref()));
                doubled.mul_f64(0.75 + fastrand::f64() / 4.0)
            }
        }
    }

    async fn try_round(
        &mut self,
    ) -> Result<Duration, (&'static str, Box<dyn std::error::Error + Send + Sync>)> {
        self.watch(Vec::new());
        let Config { store, policy, .. } = &self.config;
        let settled = issuance::settle(store, policy, &self.metrics, SystemTime::now).await;
        // What was good stays good while the store does not answer, so readiness is not taken back.
        let settled = settled.map_err(|error| ("certificates", error.into()))?;
        self.certificates.set(true);
        let now = SystemTime::now();
        let due = settled.next_due.map(|due| due.duration_since(now).unwrap_or_default());
        let mut wait = due.unwrap_or(self.config.interval).min(self.config.interval).max(SETTLE);
        if let Some(controller) = &mut self.controller {
            let round = controller.round(&settled.bundle, now).await;
            let round = round.map_err(|error| ("registration", error.into()))?;
            wait = round.again.map_or(wait, |again| again.max(SETTLE).min(wait));
            let described = round.watched.into_iter().map(|(kind, name)| Watched::Described(kind, name));
            self.watch(described.collect());
            if settled.awaited.is_some() && round.again.is_some() {
                self.deployment.unsettled();
                self.lacks("the registration is not as described yet".to_owned());
                return Ok(wait.clamp(SETTLE, LOOK_AGAIN));
            }
        }
        if settled.awaited.is_none() {
            return Ok(wait);
        }
        let advanced = self.advance(&settled).await.map_err(|error| ("certificates", error.into()))?;
        Ok(if advanced { Duration::ZERO } else { LOOK_AGAIN })
    }

    /// One round of injection, whatever became of the other tasks. Returns how long to wait at the most until the
    /// next; its failures are its own, and so is their wait.
    async fn inject(&mut self) -> Duration {
        let Some(injector) = &mut self.injector else { return Duration::MAX };
        // Large, and of no use to those who do not inject.
        let round = Box::pin(injector.round(SystemTime::now())).await;
        if round.has_failed {
            self.metrics.failed("injection");
        }
        round.again.map_or(Duration::MAX, |again| again.max(SETTLE))
    }

    /// Takes the step that a rotation waits for, if its phase is seen to be complete. Returns whether it was taken.
    async fn advance(&mut self, settled: &Settled) -> Result<bool, IssuanceError> {
        let Some((phase, _)) = &settled.awaited else { return Ok(false) };
        let bundle = settled.bundle.fingerprint();
        let expected = Expected { phase: *phase, bundle, serials: &settled.serials };
        // Asked immediately before the step, which is conditional on what was expected.
        if let Some(lack) = self.deployment.lacks(&expected).await.map_err(StoreError::from)? {
            self.lacks(lack);
            return Ok(false);
        }
        self.last_lack = None;
        let Config { store, policy, .. } = &self.config;
        issuance::advance(store, policy, &self.metrics, settled, SystemTime::now()).await
    }

    fn lacks(&mut self, lack: String) {
        if self.last_lack.as_ref() != Some(&lack) {
            info!(reason = lack, "rotation: not going on yet");
            self.last_lack = Some(lack);
        }
    }

    /// Watches the places that are always of interest, and `described` once it is known.
    fn watch(&mut self, described: Vec<Watched>) {
        let Some(watches) = &mut self.watches else { return };
        if described.is_empty() && !watches.is_idle() {
            return;
        }
        let mut wanted = described;
        if let Store::Cluster(store) = &self.config.store {
            wanted.extend(Slot::ALL.map(|slot| Watched::Secret(store.names().of(slot).to_owned())));
        }
        if let Some(Registration { source: Source::ConfigMap(name), .. }) = &self.config.registration {
            wanted.push(Watched::ConfigMap(name.clone()));
        }
        wanted.extend(self.injector.iter().flat_map(Injector::watched));
        watches.keep(wanted);
    }

    async fn end(self) {
        let unregister = self.config.registration.as_ref().is_some_and(|r| r.unregister_on_exit);
        if let Some(controller) = self.controller.filter(|_| unregister)
            && let Err(error) = controller.unregister().await
        {
            error!("failed to unregister: {}", chain(&error));
        }
        info!("stopped");
    }
}
