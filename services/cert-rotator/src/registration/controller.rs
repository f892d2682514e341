//! Keeping the registration as described: one round reads everything and writes what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use sallyport_leadership::AccessError;
use sallyport_leadership::Backoff;
use sallyport_leadership::Events;
use sallyport_leadership::{Watched, chain, uid};
use sallyport_pki::Bundle;
use sallyport_registration::{
    Described, Description, Difference, Entries, FIELD_MANAGER, Kind, Live, Target, difference, held, owner,
};
use serde_json::Value;
use tracing::{info, warn};

use super::live::Objects;
use super::promotion::{Lack, Pending, Promotion, probe};
use super::proof::{Unproven, prove};
use super::source::{Source, SourceError};
use crate::metrics::Metrics;

/// How soon to look again while the front is not proven or somebody else was faster.
const SOON: Duration = Duration::from_secs(2);

/// How long a front behind a Service has to be proven before it is first registered. The proof is of its pods;
/// until kube-proxy has heard of them on the nodes of the API servers, the Service refuses connections.
const ROUTABLE: Duration = Duration::from_secs(5);

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// The description could not be read.
    #[error(transparent)]
    Description(#[from] SourceError),
    /// The API server refused or failed.
    #[error(transparent)]
    Access(#[from] AccessError),
}

/// What a round came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// The objects that are described, to be watched.
    pub watched: Vec<Watched>,
    /// When to look again at the latest; `None` when everything is as described.
    pub again: Option<Duration>,
    /// When to look again at entries that are to be promoted; `None` when none are.
    pub unpromoted: Option<Duration>,
}

/// Keeps one registration.
pub struct Controller {
    objects: Objects,
    source: Source,
    namespace: String,
    owner_cluster_role: Option<String>,
    metrics: Metrics,
    events: Events,
    repairs: BTreeMap<(Kind, String), Repair>,
    /// Why the front was last not proven, so that a long wait is one line in the log.
    last_reason: Option<String>,
    /// Since when each configuration that does not exist yet could be registered, but for [`ROUTABLE`].
    proven: BTreeMap<Kind, Instant>,
    /// Only with promotion on.
    promotion: Option<Promotion>,
    /// What this round found to wait for its promotion.
    pending: Vec<Pending>,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").field("source", &self.source).finish_non_exhaustive()
    }
}

/// What was last written to an object, and how patient to be about writing the same again. Something new, a
/// changed description or bundle, is no repair and never waits.
#[derive(Clone, Copy, Default)]
struct Repair {
    written: Option<u64>,
    backoff: Backoff,
}

impl Repair {
    fn remaining(&self, wanted: u64, now: Instant) -> Duration {
        if self.written == Some(wanted) { self.backoff.remaining(now) } else { Duration::ZERO }
    }

    fn note(&mut self, wanted: u64, now: Instant) {
        if self.written == Some(wanted) {
            self.backoff.written(now);
        } else {
            *self = Self { written: Some(wanted), backoff: Backoff::default() };
        }
    }
}

/// The owner that configurations are to have.
enum Owner {
    /// None was asked for.
    Unowned,
    /// This one.
    Present(Value, String),
    /// It was asked for and is not there: the release is being removed.
    Absent,
}

impl Controller {
    /// A controller of what `source` describes. What a person should know of is written to `events`.
    pub fn new(
        objects: Objects,
        source: Source,
        namespace: &str,
        owner_cluster_role: Option<String>,
        metrics: Metrics,
        events: Events,
    ) -> Self {
        Self {
            events,
            objects,
            source,
            namespace: namespace.to_owned(),
            owner_cluster_role,
            metrics,
            repairs: BTreeMap::new(),
            last_reason: None,
            proven: BTreeMap::new(),
            promotion: None,
            pending: Vec::new(),
        }
    }

    /// Holds entries that are described as Fail at Ignore until the way through the API server is proven.
    #[must_use]
    pub fn promoting(mut self) -> Self {
        self.promotion = Some(Promotion::new(self.events.clone()));
        self
    }

    /// Brings the cluster closer to the description; writes nothing when nothing differs.
    pub async fn round(&mut self, bundle: &Bundle, now: SystemTime) -> Result<Round, RegistrationError> {
        let description = self.source.read(self.objects.client(), &self.namespace).await?;
        let mut again: Option<Duration> = None;
        if let Some(service) = &description.service {
            again = sooner(again, self.keep_service(service, &description).await?);
        }
        self.pending.clear();
        for described in &description.configurations {
            again = sooner(again, self.keep_configuration(described, bundle, now).await?);
        }
        // The proof is of everything together, so everything is to be in its place.
        let unpromoted = if again.is_none() { self.promote(&description, bundle, now).await? } else { None };
        let watched = description
            .service
            .iter()
            .chain(&description.configurations)
            .map(|described| self.objects.watched(described.kind, &described.name))
            .collect();
        Ok(Round { watched, again, unpromoted })
    }

    /// Removes what is registered: for a suite that lives no longer than its process.
    pub async fn unregister(&self) -> Result<(), RegistrationError> {
        let description = self.source.read(self.objects.client(), &self.namespace).await?;
        for described in description.configurations.iter().chain(&description.service) {
            let live = self.objects.get(described.kind, &described.name).await?;
            if let Some(live) = live.filter(Live::is_ours) {
                self.objects.delete(described.kind, &described.name, &live).await?;
                info!(kind = described.kind.kind(), name = described.name, "unregistered");
            }
        }
        Ok(())
    }

    /// What is not as described, a line each; none when everything is. Writes nothing.
    pub async fn inspect(&self, bundle: &Bundle, now: SystemTime) -> Result<Vec<String>, RegistrationError> {
        let description = self.source.read(self.objects.client(), &self.namespace).await?;
        let absent = || vec!["the ClusterRole that is to own the registration does not exist".to_owned()];
        let owners = match self.owner().await? {
            Owner::Unowned => Vec::new(),
            Owner::Present(owner, _) => vec![owner],
            Owner::Absent => return Ok(absent()),
        };
        let Some(service_owners) = self.service_owners(&description).await? else { return Ok(absent()) };
        let mut faults = Vec::new();
        for described in description.service.iter().chain(&description.configurations) {
            let (kind, name) = (described.kind, &described.name);
            let live = self.objects.get(kind, name).await?;
            let owners = if kind == Kind::Service { &service_owners } else { &owners };
            let full = described.complete(bundle, owners);
            let wanted = self.wanted(&full, live.as_ref());
            let fault = match live {
                Some(live) if described.is_wanted() => match difference(&wanted, &live.object, FIELD_MANAGER)
                {
                    Difference::None if wanted != full => Some("has entries that are not promoted to Fail"),
                    Difference::None => None,
                    Difference::Bundle => Some("has another caBundle"),
                    Difference::Fields => Some("is not as described"),
                },
                None if described.is_wanted() => Some("does not exist"),
                Some(live) if live.is_ours() => Some("is there, though it has no entries"),
                _ => None,
            };
            faults.extend(fault.map(|fault| format!("the {} {name} {fault}", kind.kind())));
            if let Err(reason) = prove(self.objects.client(), &described.targets, bundle, now).await {
                faults.push(chain(&reason));
            }
        }
        Ok(faults)
    }

    /// What is to be written over `live` now, of what is to be in the end.
    fn wanted(&self, full: &Value, live: Option<&Live>) -> Value {
        if self.promotion.is_some() { held(full, live) } else { full.clone() }
    }

    /// Promotes what waits for it and is proven. Returns when to look again.
    async fn promote(
        &mut self,
        description: &Description,
        bundle: &Bundle,
        now: SystemTime,
    ) -> Result<Option<Duration>, AccessError> {
        let pending = std::mem::take(&mut self.pending);
        let Some(promotion) = &mut self.promotion else { return Ok(None) };
        let Some(first) = pending.first() else {
            promotion.settled();
            return Ok(None);
        };
        let begun = Instant::now();
        let wait = promotion.remaining(begun);
        // With somebody who keeps taking Fail back, the repair waits, and so does the proof for it.
        let patience = |of: &Pending| self.repair(&of.described).remaining(fingerprint(&of.full), begun);
        let fight = pending.iter().map(patience).min().unwrap_or_default();
        if !fight.is_zero() {
            for of in &pending {
                self.metrics.waiting(&of.described.label(), patience(of));
            }
        }
        let wait = wait.max(fight);
        if !wait.is_zero() {
            return Ok(Some(wait));
        }
        let targets: BTreeSet<Target> =
            description.configurations.iter().flat_map(|described| described.targets.clone()).collect();
        let outcome = match prove(self.objects.client(), &targets, bundle, now).await {
            Ok(()) => probe(self.objects.client(), &self.namespace).await,
            Err(reason) => Err(reason.into()),
        };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(lack) => return Ok(Some(self.unpromoted(&lack, first, begun).await)),
        };
        let entries = Entries::of(&description.configurations);
        let (mut again, mut lacking) = (None, None);
        for of in &pending {
            let (kind, name) = (of.described.kind, of.described.name.as_str());
            match outcome.proves(kind, entries) {
                Ok(()) => {
                    info!(kind = kind.kind(), name, "proven through the API server: promoting to Fail");
                    let intent = fingerprint(&of.full);
                    let waited = self.write(&of.described, &of.full, Some(&of.live), intent).await?;
                    // What the API server made of it, the next round sees.
                    again = sooner(again, waited.or(Some(Duration::ZERO)));
                }
                Err(lack) => lacking = lacking.or(Some((of, lack.into()))),
            }
        }
        if let Some((of, lack)) = lacking {
            again = sooner(again, Some(self.unpromoted(&lack, of, begun).await));
        }
        Ok(again)
    }

    async fn unpromoted(&mut self, lack: &Lack, of: &Pending, begun: Instant) -> Duration {
        match &mut self.promotion {
            Some(promotion) => promotion.lacks(chain(lack), of, begun).await,
            None => SOON,
        }
    }

    /// The Service is owned by the configurations, so that it is collected after them; until there is one, by
    /// what owns them. `None` if that is absent.
    async fn service_owners(&self, description: &Description) -> Result<Option<Vec<Value>>, AccessError> {
        let mut owners = Vec::new();
        for configuration in description.configurations.iter().filter(|c| c.is_wanted()) {
            if let Some(live) = self.objects.get(configuration.kind, &configuration.name).await? {
                owners.push(live.as_owner(configuration.kind, &configuration.name));
            }
        }
        if owners.is_empty() {
            match self.owner().await? {
                Owner::Unowned => {}
                Owner::Present(owner, _) => owners.push(owner),
                Owner::Absent => return Ok(None),
            }
        }
        Ok(Some(owners))
    }

    async fn keep_service(
        &mut self,
        described: &Described,
        description: &Description,
    ) -> Result<Option<Duration>, AccessError> {
        let Some(owners) = self.service_owners(description).await? else { return Ok(None) };
        let wanted = described.complete(&Bundle::empty(), &owners);
        let live = self.objects.get(described.kind, &described.name).await?;
        let differs = live
            .as_ref()
            .is_none_or(|live| difference(&wanted, &live.object, FIELD_MANAGER) != Difference::None);
        if !differs {
            return Ok(None);
        }
        self.write(described, &wanted, live.as_ref(), fingerprint(&wanted)).await
    }

    async fn keep_configuration(
        &mut self,
        described: &Described,
        bundle: &Bundle,
        now: SystemTime,
    ) -> Result<Option<Duration>, AccessError> {
        let (kind, name) = (described.kind, described.name.as_str());
        let live = self.objects.get(kind, name).await?;
        if !described.is_wanted() {
            self.metrics.forget(&described.label());
            if let Some(live) = live.filter(Live::is_ours) {
                self.objects.delete(kind, name, &live).await?;
                info!(kind = kind.kind(), name, "removed the configuration: it has no entries any more");
            }
            return Ok(None);
        }
        let (owners, owner_uid) = match self.owner().await? {
            Owner::Unowned => (Vec::new(), None),
            Owner::Present(owner, uid) => (vec![owner], Some(uid)),
            Owner::Absent => {
                self.metrics.in_sync(&described.label(), false);
                if live.is_none() {
                    self.unproven(name, "the ClusterRole that is to own it does not exist".to_owned());
                    return Ok(Some(SOON));
                }
                // It is about to be collected with its owner; writing would only prolong its life.
                return Ok(None);
            }
        };
        if let (Some(live), Some(uid)) = (&live, &owner_uid) {
            let former = live.owners_of_kind("ClusterRole");
            if live.is_ours() && !former.is_empty() && !former.contains(&uid.as_str()) {
                self.objects.delete(kind, name, live).await?;
                info!(kind = kind.kind(), name, "removed the configuration of a former release of that name");
                return Ok(Some(Duration::ZERO));
            }
        }
        let full = described.complete(bundle, &owners);
        let wanted = self.wanted(&full, live.as_ref());
        let found =
            live.as_ref().map_or(Difference::Fields, |live| difference(&wanted, &live.object, FIELD_MANAGER));
        self.metrics.in_sync(&described.label(), found == Difference::None);
        if self.promotion.is_some() {
            self.metrics.promoted(&described.label(), wanted == full);
        }
        match found {
            Difference::None => {
                let repair = self.repair(described);
                if repair.remaining(fingerprint(&full), Instant::now()).is_zero() {
                    self.metrics.waiting(&described.label(), Duration::ZERO);
                }
                if let Some(live) = live.filter(|_| wanted != full) {
                    self.pending.push(Pending { described: described.clone(), full, live });
                }
                return Ok(None);
            }
            // The front cannot be reached until this is repaired, so nothing is waited for.
            Difference::Bundle => {}
            Difference::Fields => {
                if let Err(reason) = prove(self.objects.client(), &described.targets, bundle, now).await {
                    self.proven.remove(&kind);
                    if let Unproven::Access(error) = reason {
                        return Err(error);
                    }
                    self.unproven(name, chain(&reason));
                    return Ok(Some(SOON));
                }
                if live.is_none() && described.targets.iter().any(Target::is_service) {
                    let since = *self.proven.entry(kind).or_insert_with(Instant::now);
                    let remaining = ROUTABLE.saturating_sub(since.elapsed());
                    if !remaining.is_zero() {
                        self.unproven(name, "its Service may not be known on every node yet".to_owned());
                        return Ok(Some(remaining));
                    }
                }
            }
        }
        // Held and promoted are two steps to one end, so that whoever undoes both meets the same patience.
        let again = self.write(described, &wanted, live.as_ref(), fingerprint(&full)).await?;
        Ok(again.or((wanted != full).then_some(Duration::ZERO)))
    }

    /// Writes `wanted`, which serves the end of that `fingerprint`.
    async fn write(
        &mut self,
        described: &Described,
        wanted: &Value,
        over: Option<&Live>,
        fingerprint: u64,
    ) -> Result<Option<Duration>, AccessError> {
        let (kind, name) = (described.kind, described.name.as_str());
        let waiting = self.repair(described).remaining(fingerprint, Instant::now());
        if !waiting.is_zero() {
            warn!(
                kind = kind.kind(),
                name,
                wait_seconds = waiting.as_secs_f64(),
                "somebody else changed the object again; waiting before it is repaired"
            );
            if kind != Kind::Service {
                self.metrics.waiting(&described.label(), waiting);
            }
            let note = format!(
                "somebody else keeps changing the {} {name}; it is repaired in {} s",
                kind.kind(),
                waiting.as_secs()
            );
            self.events
                .warning("RegistrationContested", note, over.map(|live| live.as_reference(kind, name)))
                .await;
            return Ok(Some(waiting));
        }
        match self.objects.apply(kind, name, wanted, over).await {
            Ok(live) => {
                self.last_reason = None;
                self.proven.remove(&kind);
                let good = difference(wanted, &live.object, FIELD_MANAGER) == Difference::None;
                let repair = self.repairs.entry((kind, described.name.clone())).or_default();
                repair.note(fingerprint, Instant::now());
                if kind != Kind::Service {
                    self.metrics.in_sync(&described.label(), good);
                    self.metrics.written(&described.label());
                }
                info!(kind = kind.kind(), name, created = over.is_none(), "registered");
                if !good {
                    warn!(kind = kind.kind(), name, "the API server changed what was described");
                }
                // The Service is given its owners once there are some.
                Ok((over.is_none() && kind != Kind::Service).then_some(Duration::ZERO))
            }
            Err(error) if error.is_overtaken() => {
                info!(kind = kind.kind(), name, "somebody else changed the object first; reading again");
                Ok(Some(SOON))
            }
            Err(error) => Err(error),
        }
    }

    async fn owner(&self) -> Result<Owner, AccessError> {
        let Some(name) = &self.owner_cluster_role else { return Ok(Owner::Unowned) };
        let roles: Api<ClusterRole> = Api::all(self.objects.client().clone());
        Ok(match uid(&roles, "clusterroles", name).await? {
            Some(uid) => {
                Owner::Present(owner("rbac.authorization.k8s.io/v1", "ClusterRole", name, &uid), uid)
            }
            None => Owner::Absent,
        })
    }

    fn repair(&self, described: &Described) -> Repair {
        self.repairs.get(&(described.kind, described.name.clone())).copied().unwrap_or_default()
    }

    fn unproven(&mut self, name: &str, reason: String) {
        if self.last_reason.as_ref() != Some(&reason) {
            info!(name, reason, "not registered yet");
            self.last_reason = Some(reason);
        }
    }
}

/// Tells one wanted object from another, within this process.
fn fingerprint(wanted: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    wanted.to_string().hash(&mut hasher);
    hasher.finish()
}

fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    [one, other].into_iter().flatten().min()
}
