//! One round of injection: looks at every target anew and writes what differs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use sallyport_error_chain::format_chain;
use sallyport_leadership::{AccessError, Backoff, Events, Verb, Watched, call};
use sallyport_registration::FIELD_MANAGER;
use serde_json::json;
use tracing::{error, info, warn};

use crate::annotations::INJECT_CA_FROM;
use crate::field::{Fields, MANAGER, is_managed_by};
use crate::metrics::Metrics;
use crate::overlap::wanted;
use crate::source::{SecretName, Unfit, bundle};
use crate::target::Target;

/// The shortest time between two writes to one object, whatever they are for: whoever may change an object or a
/// Secret decides how often something is due.
const SHORTEST_GAP: Duration = Duration::from_secs(1);
/// How many bundles are remembered as written to an object. Writing one of them again is a repair.
const REMEMBERED: usize = 8;
/// The wait after a first refused call; it doubles up to [`LONGEST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest wait after a refused call.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// After this time a round begins with no further object. They have their turn in the next: meanwhile the suite's
/// own certificates have theirs.
const BUDGET: Duration = Duration::from_secs(10);
/// The shortest time between two Events about one object's trouble.
const EVENT_GAP: Duration = Duration::from_secs(10);

/// What is injected where.
#[derive(Clone)]
pub struct Injection {
    /// The cluster.
    pub client: Client,
    /// The objects that may be written.
    pub targets: BTreeSet<Target>,
    /// The Secrets that may be read.
    pub secrets: BTreeSet<SecretName>,
    /// How long former authorities stay beside new ones.
    pub overlap: Duration,
    /// Where to tell of trouble.
    pub events: Events,
}

impl std::fmt::Debug for Injection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Injection")
            .field("targets", &self.targets)
            .field("secrets", &self.secrets)
            .field("overlap", &self.overlap)
            .finish_non_exhaustive()
    }
}

/// Why a target was not brought to what it should be.
#[derive(Debug, thiserror::Error)]
pub enum InjectionError {
    /// There is nothing that may be injected.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The API server refused or failed.
    #[error(transparent)]
    Access(#[from] AccessError),
}

/// What a round came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// When to look again at the latest; `None` when nothing is awaited.
    pub again: Option<Duration>,
    /// Whether the API server refused or failed.
    pub has_failed: bool,
}

/// What is remembered of a target: only how patient to be.
#[derive(Debug, Default)]
struct Patience {
    /// What was written of late.
    written: VecDeque<String>,
    backoff: Backoff,
    /// The last attempt to write.
    attempt: Option<Instant>,
    /// The attempt after which somebody was last told of another writer.
    contested: Option<Instant>,
    failures: u32,
    retry: Option<Instant>,
    /// The trouble that was told of, and when.
    told: Option<(String, Instant)>,
}

impl Patience {
    /// How long to wait before `bundle` is written because somebody else changes the object.
    fn contest(&self, bundle: &str, now: Instant) -> Duration {
        let is_repair = self.written.iter().any(|written| written == bundle);
        if is_repair { self.backoff.remaining(now) } else { Duration::ZERO }
    }

    /// How long to wait because the last attempt was just now.
    fn gap(&self, now: Instant) -> Duration {
        self.attempt.map_or(Duration::ZERO, |last| SHORTEST_GAP.saturating_sub(now.duration_since(last)))
    }

    /// Notes that `bundle` was written.
    fn note(&mut self, bundle: String, now: Instant) {
        if self.written.contains(&bundle) {
            self.backoff.written(now);
        } else {
            self.written.truncate(REMEMBERED - 1);
            self.written.push_front(bundle);
        }
    }

    /// Notes a refused call.
    fn refused(&mut self, now: Instant) {
        let wait = FIRST_RETRY.saturating_mul(1 << self.failures.min(8)).min(LONGEST_RETRY);
        self.failures = self.failures.saturating_add(1);
        self.retry = Some(now + wait.mul_f64(0.75 + fastrand::f64() / 4.0));
    }

    /// How long to wait because of refused calls.
    fn remaining(&self, now: Instant) -> Duration {
        self.retry.map_or(Duration::ZERO, |retry| retry.saturating_duration_since(now))
    }

    /// Whether somebody is to be told of this trouble: it is another than the last, and that was a while ago.
    fn is_news(&mut self, trouble: &str, now: Instant) -> bool {
        let is_news = self
            .told
            .as_ref()
            .is_none_or(|(told, when)| told != trouble && now.duration_since(*when) >= EVENT_GAP);
        if is_news {
            self.told = Some((trouble.to_owned(), now));
        }
        is_news
    }

    /// Notes that all is well: the same trouble would be news again.
    fn is_well(&mut self) {
        if let Some((told, _)) = &mut self.told {
            told.clear();
        }
        self.failures = 0;
        self.retry = None;
    }
}

/// Keeps `caBundle` in objects of others.
pub struct Injector {
    injection: Injection,
    metrics: Metrics,
    patience: BTreeMap<Target, Patience>,
    /// The target whose turn is first.
    first: usize,
}

impl std::fmt::Debug for Injector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Injector").field("injection", &self.injection).finish_non_exhaustive()
    }
}

/// Secrets that were read in a round.
type Secrets = BTreeMap<SecretName, Option<Secret>>;

impl Injector {
    /// An injector that has done nothing yet.
    pub fn new(injection: Injection, metrics: Metrics) -> Self {
        for target in &injection.targets {
            metrics.injects(&target.to_string());
        }
        Self { injection, metrics, patience: BTreeMap::new(), first: 0 }
    }

    /// What is to be watched: every target, and every Secret.
    pub fn watched(&self) -> impl Iterator<Item = Watched> {
        let targets = &self.injection.targets;
        let targets =
            targets.iter().map(|target| Watched::new(target.kind.api_resource(), None, &target.name));
        let secrets = &self.injection.secrets;
        let secrets = secrets.iter().map(|s| Watched::namespaced::<Secret>(&s.namespace, &s.name));
        targets.chain(secrets)
    }

    /// Looks at every target and brings those that agree to what they should be. Trouble with one is told in the
    /// log, in metrics and in an Event, and keeps none of the others from its turn.
    pub async fn round(&mut self, now: SystemTime) -> Round {
        let begun = Instant::now();
        let mut round = Round { again: None, has_failed: false };
        let mut secrets = Secrets::new();
        let mut targets: Vec<Target> = self.injection.targets.iter().cloned().collect();
        let count = targets.len();
        targets.rotate_left(self.first.min(count));
        for (turn, target) in targets.into_iter().enumerate() {
            if begun.elapsed() >= BUDGET {
                self.first = (self.first + turn) % count;
                round.again = Some(Duration::ZERO);
                break;
            }
            let waiting = self.patience.entry(target.clone()).or_default().remaining(Instant::now());
            let wait = if waiting.is_zero() {
                match self.keep(&target, &mut secrets, now).await {
                    Ok(wait) => wait,
                    Err(error) => {
                        round.has_failed |= matches!(error, InjectionError::Access(_));
                        self.failed(&target, error).await
                    }
                }
            } else {
                Some(waiting)
            };
            round.again = [round.again, wait].into_iter().flatten().min();
        }
        round
    }

    /// Brings one target to what it should be. Returns when to look again at the latest.
    async fn keep(
        &mut self,
        target: &Target,
        secrets: &mut Secrets,
        now: SystemTime,
    ) -> Result<Option<Duration>, InjectionError> {
        let label = target.to_string();
        let api = self.api(target);
        let live = call(Verb::Get, target.kind.resource(), &target.name, api.get_opt(&target.name)).await?;
        let live = live.filter(|object| object.metadata.deletion_timestamp.is_none());
        let asked = live
            .as_ref()
            .and_then(|object| Some((object, object.metadata.annotations.as_ref()?.get(INJECT_CA_FROM)?)));
        let Some((object, asked)) = asked else { return Ok(self.is_nothing_to_do(target)) };
        let fields = Fields::of(target.kind, object);
        if fields.all.is_empty() {
            return Ok(self.is_nothing_to_do(target));
        }
        if is_managed_by(object, FIELD_MANAGER) {
            return Err(Unfit::Registered.into());
        }
        let name: SecretName = asked.parse().map_err(|_| Unfit::Annotation)?;
        let current = bundle(&name, self.secret(&name, secrets).await?, now)?;
        let injected: Vec<_> = fields.all.iter().filter_map(|field| field.injected.as_ref()).collect();
        let wanted = wanted(&current, &injected, fields.since, self.injection.overlap, now);
        let again = wanted.until.map(|until| until.duration_since(now).unwrap_or_default());
        let is_good = |fields: &Fields| {
            let mut all = fields.all.iter();
            all.all(|field| field.injected.as_ref().is_some_and(|there| there.holds_same(&wanted.bundle)))
        };
        let is_in_sync = is_good(&fields);
        self.metrics.in_sync(&label, is_in_sync);
        let fingerprint = wanted.bundle.fingerprint();
        let instant = Instant::now();
        let patience = self.patience.entry(target.clone()).or_default();
        let contest = patience.contest(&fingerprint, instant);
        if is_in_sync {
            patience.is_well();
            if contest.is_zero() {
                self.metrics.waiting(&label, Duration::ZERO);
            }
            self.reduce(target, object, &fields).await?;
            // Once the contest is over, the metric is to say so.
            let contest = Some(contest).filter(|contest| !contest.is_zero());
            return Ok([again, contest].into_iter().flatten().min());
        }
        if !contest.is_zero() {
            self.contested(target, contest).await;
            return Ok(Some(contest));
        }
        let gap = patience.gap(instant);
        if !gap.is_zero() {
            return Ok(Some(gap));
        }
        patience.attempt = Some(instant);
        let partial = fields.partial(target, object, &wanted.bundle);
        let params = PatchParams::apply(MANAGER).force();
        let Some(applied) = self.patch(target, &params, &Patch::Apply(partial)).await? else {
            return Ok(Some(SHORTEST_GAP));
        };
        let fields = Fields::of(target.kind, &applied);
        let is_in_sync = is_good(&fields);
        let patience = self.patience.entry(target.clone()).or_default();
        patience.note(fingerprint, Instant::now());
        patience.is_well();
        self.metrics.in_sync(&label, is_in_sync);
        info!(target = label, secret = %name, authorities = wanted.bundle.certificates().len(), "injected");
        if !is_in_sync {
            warn!(target = label, "the API server changed what was injected");
        }
        self.reduce(target, &applied, &fields).await?;
        Ok(again)
    }

    /// Gives up what applying made this rotator own besides `caBundle`.
    async fn reduce(
        &self,
        target: &Target,
        object: &DynamicObject,
        fields: &Fields,
    ) -> Result<(), AccessError> {
        let Some(managed) = fields.reduced() else { return Ok(()) };
        let metadata = json!({
            "uid": object.metadata.uid,
            "resourceVersion": object.metadata.resource_version,
            "managedFields": managed,
        });
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        // Somebody else may be faster, who wakes the next round.
        self.patch(target, &params, &Patch::Merge(json!({"metadata": metadata}))).await?;
        Ok(())
    }

    /// Writes to a target; `None` if somebody else did since it was read.
    async fn patch(
        &self,
        target: &Target,
        params: &PatchParams,
        patch: &Patch<serde_json::Value>,
    ) -> Result<Option<DynamicObject>, AccessError> {
        let api = self.api(target);
        let written =
            call(Verb::Patch, target.kind.resource(), &target.name, api.patch(&target.name, params, patch));
        match written.await {
            Ok(object) => {
                self.metrics.written(&target.to_string());
                Ok(Some(object))
            }
            Err(error) if error.is_overtaken() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn secret<'s>(
        &self,
        name: &SecretName,
        secrets: &'s mut Secrets,
    ) -> Result<Option<&'s Secret>, InjectionError> {
        if !self.injection.secrets.contains(name) {
            return Err(Unfit::NotNamed(name.clone()).into());
        }
        if !secrets.contains_key(name) {
            let api: Api<Secret> = Api::namespaced(self.injection.client.clone(), &name.namespace);
            let secret = call(Verb::Get, "secrets", &name.to_string(), api.get_opt(&name.name)).await?;
            secrets.insert(name.clone(), secret);
        }
        Ok(secrets.get(name).and_then(Option::as_ref))
    }

    /// The object is not there, does not ask, or has no `caBundle`: it is none of ours.
    fn is_nothing_to_do(&mut self, target: &Target) -> Option<Duration> {
        self.metrics.forget(&target.to_string());
        self.patience.entry(target.clone()).or_default().is_well();
        None
    }

    /// Tells of another writer, once after each write.
    async fn contested(&mut self, target: &Target, wait: Duration) {
        let label = target.to_string();
        self.metrics.waiting(&label, wait);
        let patience = self.patience.entry(target.clone()).or_default();
        if patience.contested == patience.attempt {
            return;
        }
        patience.contested = patience.attempt;
        warn!(
            target = label,
            wait_seconds = wait.as_secs_f64(),
            "somebody else changed the caBundle again; waiting before it is repaired"
        );
        let note = format!(
            "somebody else keeps changing the caBundle of {label}; managedFields of the object say who"
        );
        self.injection.events.warning("CABundleContested", note, Some(reference(target))).await;
    }

    /// Tells of a failure. Returns when to look again at the latest.
    async fn failed(&mut self, target: &Target, failure: InjectionError) -> Option<Duration> {
        let label = target.to_string();
        let trouble = format_chain(&failure);
        self.metrics.failed(&label);
        let now = Instant::now();
        let patience = self.patience.entry(target.clone()).or_default();
        let again = match failure {
            // Whoever changes the object or the Secret wakes the next round.
            InjectionError::Unfit(_) => {
                self.metrics.in_sync(&label, false);
                None
            }
            InjectionError::Access(_) => {
                patience.refused(now);
                let wait = patience.remaining(now);
                error!(target = label, retry_seconds = wait.as_secs_f64(), "not injected: {trouble}");
                Some(wait)
            }
        };
        if patience.is_news(&trouble, now) {
            if again.is_none() {
                warn!(target = label, "not injected: {trouble}");
            }
            let note = format!("nothing is injected into {label}: {trouble}");
            self.injection.events.warning("CABundleNotInjected", note, Some(reference(target))).await;
        }
        again
    }

    fn api(&self, target: &Target) -> Api<DynamicObject> {
        Api::all_with(self.injection.client.clone(), &target.kind.api_resource())
    }
}

/// A target, as an Event refers to it.
fn reference(target: &Target) -> ObjectReference {
    ObjectReference {
        api_version: Some(target.kind.api_version().to_owned()),
        kind: Some(target.kind.kind().to_owned()),
        name: Some(target.name.clone()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_makes_us_write_is_written_after_ever_more_slowly_r05() {
        let start = Instant::now();
        for bundles in [1, 2, REMEMBERED] {
            let (mut patience, mut now, mut writes) = (Patience::default(), start, 0);
            // The other side undoes every write at once for an hour, or asks for another bundle of a few.
            while now.duration_since(start) < Duration::from_hours(1) {
                let bundle = (writes % bundles).to_string();
                let wait = patience.contest(&bundle, now).max(patience.gap(now));
                if wait.is_zero() {
                    patience.attempt = Some(now);
                    patience.note(bundle, now);
                    writes += 1;
                } else {
                    now += wait;
                }
            }
            assert!((10..40).contains(&writes), "{writes} writes in an hour with {bundles} bundles");
        }
        // Even ever new bundles are not written without a pause.
        let mut patience = Patience { attempt: Some(start), ..Patience::default() };
        patience.note("a".to_owned(), start);
        assert_eq!(patience.contest("b", start), Duration::ZERO);
        assert_eq!(patience.gap(start), SHORTEST_GAP);
        assert_eq!(patience.gap(start + SHORTEST_GAP), Duration::ZERO);
    }

    #[test]
    fn refused_calls_are_repeated_ever_more_slowly() {
        let (start, mut patience) = (Instant::now(), Patience::default());
        let mut waits = Vec::new();
        for _ in 0..12 {
            patience.refused(start);
            waits.push(patience.remaining(start));
        }
        assert!(waits[0] <= FIRST_RETRY && waits[11] <= LONGEST_RETRY && waits[11] >= LONGEST_RETRY / 2);
        patience.is_well();
        assert_eq!(patience.remaining(start), Duration::ZERO);
    }

    #[test]
    fn trouble_is_told_once_and_not_too_often() {
        let (start, mut patience) = (Instant::now(), Patience::default());
        assert!(patience.is_news("a", start));
        assert!(!patience.is_news("a", start + 2 * EVENT_GAP), "the same");
        assert!(!patience.is_news("b", start), "too soon");
        assert!(patience.is_news("b", start + EVENT_GAP));
        patience.is_well();
        assert!(!patience.is_news("b", start + EVENT_GAP), "again, but too soon");
        assert!(patience.is_news("b", start + 2 * EVENT_GAP));
    }
}
