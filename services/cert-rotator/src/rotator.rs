//! The rounds: certificates, then registration, then sleep until something changes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use sallyport_ca_injection::{Injection, Injector};
use sallyport_error_chain::format_chain;
use sallyport_leadership::{Candidacy, Conditions, Events, LeaseConfig, Standing, Type, Watched, Watches};
use sallyport_telemetry::Condition;
use tokio::sync::Notify;
use tracing::{error, info};

use crate::deployment::{Deployment, Expected, Pods};
use crate::issuance::{Issuance, IssuanceError, Policy, Settled};
use crate::metrics::Metrics;
use crate::offers::Offers;
use crate::registration::{Controller, Objects, Source};
use crate::state::Phase;
use crate::store::{Slot, Store, StoreError};

/// The wait after a first failed round; it doubles up to [`LONGEST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest wait after a failed round.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How soon to look again whether a phase of a rotation is complete.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Events come in bursts; a round begins this long after the first.
const SETTLE: Duration = Duration::from_millis(100);
/// How long a phase is waited for until it is told to people. The kubelet's usual delays are two minutes.
const STUCK: Duration = Duration::from_secs(15 * 60);

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
    /// The pods that are asked what they have loaded; `None` where there are none, and time alone has to do.
    pub pods: Option<Pods>,
    /// How long it takes at the most until what is stored has reached those who cannot be asked.
    pub propagation: Duration,
    /// What somebody else issues; `None` where the rotator issues.
    pub offers: Option<Offers>,
    /// What is injected into objects of others; `None` for nothing.
    pub injection: Option<Injection>,
    /// Where Events are written.
    pub events: Events,
    /// The Lease by which one of several leads; `None` if each works.
    pub lease: Option<LeaseConfig>,
}

impl Config {
    /// What makes certificates good.
    fn issuance<'a>(&'a self, metrics: &'a Metrics) -> Issuance<'a> {
        let Self { store, policy, offers, events, .. } = self;
        Issuance { store, offers: offers.as_ref(), policy, metrics, events }
    }

    /// What keeps the registration, if there is one.
    fn controller(&self, metrics: &Metrics) -> Option<Controller> {
        let registration = self.registration.as_ref()?;
        let controller = Controller::new(
            Objects::new(registration.client.clone(), &self.namespace),
            registration.source.clone(),
            &self.namespace,
            registration.owner_cluster_role.clone(),
            metrics.clone(),
            self.events.clone(),
        );
        Some(if registration.promote { controller.promoting() } else { controller })
    }
}

/// Looks at everything and writes nothing: what is not as it should be, a line each.
pub(crate) async fn inspect(config: &Config, metrics: &Metrics) -> anyhow::Result<Vec<String>> {
    let now = SystemTime::now();
    let bundle = match config.issuance(metrics).inspect(now).await? {
        Ok(bundle) => bundle,
        Err(faults) => return Ok(faults),
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
    /// Whether entries become Fail only after the way through the API server was proven.
    pub promote: bool,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration")
            .field("source", &self.source)
            .field("owner_cluster_role", &self.owner_cluster_role)
            .finish_non_exhaustive()
    }
}

/// One term of a rotator that leads. What it remembers ends with it.
struct Rotator<'a> {
    config: &'a Config,
    metrics: &'a Metrics,
    conditions: &'a Conditions,
    ready: &'a Condition,
    controller: Option<Controller>,
    injector: Option<Injector>,
    watches: Option<Watches>,
    deployment: Deployment,
    /// Why the rotation under way last did not go on, so that a long wait is one line in the log.
    last_lack: Option<String>,
    /// When somebody was last told that a phase is stuck.
    told_stuck: Option<Instant>,
    failures: u32,
}

/// Runs rounds until `shutdown` completes; with a Lease, while this rotator leads.
pub(crate) async fn run(
    config: Config,
    metrics: Metrics,
    certificates: Condition,
    mut shutdown: Pin<&mut impl Future<Output = ()>>,
) {
    let conditions = Conditions::default();
    let Some(lease) = config.lease.clone() else {
        metrics.leading(true);
        let mut rotator = Rotator::new(&config, &metrics, &conditions, &certificates);
        rotator.rounds(shutdown.as_mut()).await;
        rotator.end().await;
        info!("stopped");
        return;
    };
    let mut candidacy = Candidacy::start(lease, conditions.clone());
    let mut standing = Standing::Unknown;
    loop {
        match standing {
            Standing::Leading => {
                metrics.leading(true);
                let mut rotator = Rotator::new(&config, &metrics, &conditions, &certificates);
                let deposed = async {
                    while standing == Standing::Leading {
                        standing = candidacy.changed().await;
                    }
                };
                tokio::select! {
                    () = rotator.rounds(shutdown.as_mut()) => {
                        rotator.end().await;
                        break;
                    }
                    () = deposed => {}
                }
                metrics.leading(false);
                conditions.clear();
            }
            Standing::Following | Standing::Unknown => {
                // There is nothing to do for who follows, and it is ready to do it.
                if standing == Standing::Following {
                    certificates.set(true);
                }
                tokio::select! {
                    () = &mut shutdown => break,
                    now = candidacy.changed() => standing = now,
                }
            }
        }
    }
    candidacy.resign().await;
    info!("stopped");
}

impl<'a> Rotator<'a> {
    fn new(
        config: &'a Config,
        metrics: &'a Metrics,
        conditions: &'a Conditions,
        ready: &'a Condition,
    ) -> Self {
        Self {
            config,
            metrics,
            conditions,
            ready,
            controller: config.controller(metrics),
            injector: config.injection.clone().map(|injection| Injector::new(injection, metrics.injection())),
            watches: None,
            deployment: Deployment::new(config.pods.clone(), config.propagation),
            last_lack: None,
            told_stuck: None,
            failures: 0,
        }
    }

    /// Rounds until `shutdown` completes.
    async fn rounds(&mut self, mut shutdown: Pin<&mut impl Future<Output = ()>>) {
        let wake = Arc::new(Notify::new());
        let client = match (&self.config.registration, &self.config.store) {
            (Some(registration), _) => Some(registration.client.clone()),
            (None, Store::Cluster(store)) => Some(store.client()),
            (None, Store::Directory(_)) => {
                self.config.injection.as_ref().map(|injection| injection.client.clone())
            }
        };
        self.watches = client.map(|client| Watches::new(client, Arc::clone(&wake)));
        loop {
            // Both halves of a round may be dropped at any point: whatever was written, the next round goes on.
            let wait = tokio::select! {
                () = &mut shutdown => break,
                wait = async { self.round().await.min(self.inject().await) } => wait,
            };
            tokio::select! {
                () = &mut shutdown => break,
                () = tokio::time::sleep(wait) => {}
                () = wake.notified() => tokio::time::sleep(SETTLE.min(wait)).await,
            }
        }
    }

    /// One round. Returns how long to wait at the most until the next.
    async fn round(&mut self) -> Duration {
        match self.try_round().await {
            Ok(wait) => {
                self.failures = 0;
                wait
            }
            Err((task, error)) => {
                self.metrics.failed(task);
                let reason = if task == "certificates" { "CertificatesFailed" } else { "RegistrationFailed" };
                self.conditions.set(Type::Ready, false, reason, &format_chain(error.as_ref()));
                let doubled = FIRST_RETRY.saturating_mul(1 << self.failures.min(8)).min(LONGEST_RETRY);
                self.failures = self.failures.saturating_add(1);
                error!(task, retry_seconds = doubled.as_secs(), "{}", format_chain(error.as_ref()));
                doubled.mul_f64(0.75 + fastrand::f64() / 4.0)
            }
        }
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

    async fn try_round(
        &mut self,
    ) -> Result<Duration, (&'static str, Box<dyn std::error::Error + Send + Sync>)> {
        self.watch(Vec::new());
        let settled = self.config.issuance(self.metrics).settle(SystemTime::now).await;
        // What was good stays good while the store does not answer, so readiness is not taken back.
        let settled = settled.map_err(|error| ("certificates", error.into()))?;
        self.ready.set(true);
        self.tell_frozen(&settled);
        let now = SystemTime::now();
        let due = settled.next_due.map(|due| due.duration_since(now).unwrap_or_default());
        let interval = self.config.interval;
        let mut wait = due.unwrap_or(interval).min(interval).max(SETTLE);
        let (mut is_registered, mut is_promoted) = (true, true);
        if let Some(controller) = self.controller.as_mut().filter(|_| !settled.bundle.is_empty()) {
            let round = controller.round(&settled.bundle, now).await;
            let round = round.map_err(|error| ("registration", error.into()))?;
            is_registered = round.again.is_none();
            is_promoted = round.unpromoted.is_none();
            // What waits for its promotion is registered as it is to be by now: no rotation waits for it.
            let sooner = [round.again, round.unpromoted].into_iter().flatten().min();
            wait = sooner.map_or(wait, |sooner| sooner.max(SETTLE).min(wait));
            self.watch(round.watched);
        }
        self.tell_ready(&settled, is_registered, is_promoted);
        let Some((phase, _)) = &settled.awaited else {
            self.tell_rotating(None).await;
            return Ok(wait);
        };
        let advanced = if settled.frozen.is_some() {
            self.lacks("it is frozen".to_owned());
            false
        } else if is_registered {
            self.advance(&settled).await.map_err(|error| ("certificates", error.into()))?
        } else {
            self.deployment.unsettled();
            self.lacks("the registration is not as described yet".to_owned());
            false
        };
        self.tell_rotating(Some(*phase).filter(|_| settled.frozen.is_none())).await;
        Ok(match (advanced, settled.frozen) {
            (true, _) => Duration::ZERO,
            (false, None) => wait.clamp(SETTLE, LOOK_AGAIN),
            (false, Some(_)) => wait,
        })
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
        self.config.issuance(self.metrics).advance(settled, SystemTime::now()).await
    }

    fn tell_ready(&self, settled: &Settled, is_registered: bool, is_promoted: bool) {
        if !settled.missing.is_empty() {
            self.conditions.set(Type::Ready, false, "NotIssued", &settled.missing.join("; "));
        } else if is_registered && is_promoted {
            self.conditions.set(Type::Ready, true, "AsDescribed", "");
        } else if is_registered {
            self.conditions.set(
                Type::Ready,
                false,
                "Promoting",
                "no refusal was seen yet: entries are Ignore",
            );
        } else {
            self.conditions.set(
                Type::Ready,
                false,
                "Registering",
                "the registration is not as described yet",
            );
        }
    }

    fn tell_frozen(&self, settled: &Settled) {
        match &settled.frozen {
            Some(reason) => self.conditions.set(Type::Frozen, true, "Asked", reason),
            None => self.conditions.set(Type::Frozen, false, "NotAsked", ""),
        };
    }

    /// Says what the rotation under way waits for, and whether that takes longer than is usual.
    async fn tell_rotating(&mut self, phase: Option<Phase>) {
        let waited = self.metrics.awaited(phase);
        let lack = self.last_lack.as_deref().unwrap_or_default();
        let Some(phase) = phase else {
            let (reason, lack) = if lack.is_empty() { ("Done", "") } else { ("Held", lack) };
            self.conditions.set(Type::Rotating, !lack.is_empty(), reason, lack);
            self.conditions.set(Type::Stuck, false, "NotWaiting", "");
            return;
        };
        let reason = match phase {
            Phase::Published => "Published",
            Phase::Switched => "Switched",
        };
        self.conditions.set(Type::Rotating, true, reason, lack);
        if waited < STUCK {
            self.conditions.set(Type::Stuck, false, reason, "");
            return;
        }
        self.conditions.set(Type::Stuck, true, reason, lack);
        if self.told_stuck.is_none_or(|told| told.elapsed() >= STUCK) {
            self.told_stuck = Some(Instant::now());
            let note = format!("the rotation has waited for {} minutes: {lack}", waited.as_secs() / 60);
            self.config.events.warning("RotationStuck", note, None).await;
        }
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
        wanted.extend(self.injector.iter().flat_map(Injector::watched));
        let namespace = &self.config.namespace;
        let secret = |name: &str| Watched::namespaced::<Secret>(namespace, name);
        let config_map = |name: &str| Watched::namespaced::<ConfigMap>(namespace, name);
        if let Some(offers) = &self.config.offers {
            wanted.extend(offers.secrets().map(|name| secret(name)));
            wanted.extend(offers.config_map().map(|name| config_map(name)));
        }
        if let Store::Cluster(store) = &self.config.store {
            wanted.extend(Slot::ALL.map(|slot| secret(store.names().of(slot))));
        }
        if let Some(Registration { source: Source::ConfigMap(name), .. }) = &self.config.registration {
            wanted.push(config_map(name));
        }
        watches.keep(wanted);
    }

    async fn end(self) {
        let unregister = self.config.registration.as_ref().is_some_and(|r| r.unregister_on_exit);
        if let Some(controller) = self.controller.filter(|_| unregister)
            && let Err(error) = controller.unregister().await
        {
            error!("failed to unregister: {}", format_chain(&error));
        }
    }
}
