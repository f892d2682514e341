//! Keeping the registration as described: one round reads everything and writes what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use sallyport_error_chain::format_chain;
use sallyport_leadership::{AccessError, Backoff, Events, Watched, uid};
use sallyport_pki::Bundle;
use sallyport_registration::{
    Action, Cause, Described, Description, Difference, Entries, FIELD_MANAGER, Hold, Kind, Live, Observed,
    Owners, Promotion, Proof, SOON, Target, decide, difference, owner,
};
use serde_json::Value;
use tracing::{info, warn};

use super::live::Objects;
use super::promotion::{Lack, Patience, Pending, probe};
use super::proof::{Unproven, prove};
use super::source::{Source, SourceError};
use crate::metrics::Metrics;

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
    /// Since when each configuration that does not exist yet could be registered, but for its Service being known everywhere.
    proven: BTreeMap<Kind, Instant>,
    /// Only with promotion on.
    patience: Option<Patience>,
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
            patience: None,
            pending: Vec::new(),
        }
    }

    /// Holds entries that are described as Fail at Ignore until the way through the API server is proven.
    #[must_use]
    pub fn promoting(mut self) -> Self {
        self.patience = Some(Patience::new(self.events.clone()));
        self
    }

    /// Brings the cluster closer to the description; writes nothing when nothing differs.
    pub async fn round(&mut self, bundle: &Bundle, now: SystemTime) -> Result<Round, RegistrationError> {
        let description = self.source.read(self.objects.client(), &self.namespace).await?;
        let mut again: Option<Duration> = None;
        if let Some(service) = &description.service {
            again = sooner(again, self.keep(service, &description, bundle, now).await?);
        }
        self.pending.clear();
        for described in &description.configurations {
            again = sooner(again, self.keep(described, &description, bundle, now).await?);
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
        let owners = self.owner().await?;
        let service_owners = self.service_owners(&description).await?;
        if owners == Owners::Absent || service_owners == Owners::Absent {
            return Ok(absent());
        }
        let mut faults = Vec::new();
        for described in description.service.iter().chain(&description.configurations) {
            let (kind, name) = (described.kind, &described.name);
            let live = self.objects.get(kind, name).await?;
            let owners = if kind == Kind::Service { &service_owners } else { &owners };
            let observed = Observed::new(described, live.as_ref(), bundle, owners, self.stage(kind));
            faults.extend(observed.fault().map(|fault| format!("the {} {name} {fault}", kind.kind())));
            if let Err(reason) = prove(self.objects.client(), &described.targets, bundle, now).await {
                faults.push(format_chain(&reason));
            }
        }
        Ok(faults)
    }

    /// Whether entries of a kind begin at Ignore.
    fn stage(&self, kind: Kind) -> Promotion {
        if self.patience.is_some() && kind != Kind::Service { Promotion::Unproven } else { Promotion::Off }
    }

    /// Promotes what waits for it and is proven. Returns when to look again.
    async fn promote(
        &mut self,
        description: &Description,
        bundle: &Bundle,
        now: SystemTime,
    ) -> Result<Option<Duration>, AccessError> {
        let pending = std::mem::take(&mut self.pending);
        let Some(patience) = &mut self.patience else { return Ok(None) };
        let Some(first) = pending.first() else {
            patience.settled();
            return Ok(None);
        };
        let begun = Instant::now();
        let wait = patience.remaining(begun);
        // With somebody who keeps taking Fail back, the repair waits, and so does the proof for it.
        let contest = |of: &Pending| self.repair(&of.described).remaining(of.intent, begun);
        let fight = pending.iter().map(contest).min().unwrap_or_default();
        if !fight.is_zero() {
            for of in &pending {
                self.metrics.waiting(&of.described.label(), contest(of));
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
            match outcome.proves(of.described.kind, entries) {
                // What the API server made of it, the next round sees.
                Ok(()) => {
                    let waited = self.promote_one(of, bundle).await?;
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

    /// Promotes a configuration that a probe has proven, over what was read before.
    async fn promote_one(&mut self, of: &Pending, bundle: &Bundle) -> Result<Option<Duration>, AccessError> {
        let Pending { described, live, owners, .. } = of;
        info!(
            kind = described.kind.kind(),
            name = described.name,
            "proven through the API server: promoting to Fail"
        );
        let mut observed = Observed::new(described, Some(live), bundle, owners, Promotion::Proven);
        observed.proof = Proof::Proven(Duration::ZERO);
        observed.contest = self.contest(described, &observed);
        match decide(&observed) {
            // The API server shows it as promoted already, and another manager's: nothing to write, nor to hurry for.
            Action::Keep => Ok(Some(SOON)),
            action => self.act(described, Some(live), &observed, action).await,
        }
    }

    async fn unpromoted(&mut self, lack: &Lack, of: &Pending, begun: Instant) -> Duration {
        match &mut self.patience {
            Some(patience) => patience.lacks(format_chain(lack), of, begun).await,
            None => SOON,
        }
    }

    /// The Service is owned by the configurations, so that it is collected after them; until there is one, by
    /// what owns them.
    async fn service_owners(&self, description: &Description) -> Result<Owners, AccessError> {
        let mut owners = Vec::new();
        for configuration in description.configurations.iter().filter(|c| c.is_wanted()) {
            if let Some(live) = self.objects.get(configuration.kind, &configuration.name).await? {
                owners.push(live.as_owner(configuration.kind, &configuration.name));
            }
        }
        if owners.is_empty() { self.owner().await } else { Ok(Owners::Present(owners)) }
    }

    /// Brings one object closer to its description. Returns when to look again.
    async fn keep(
        &mut self,
        described: &Described,
        description: &Description,
        bundle: &Bundle,
        now: SystemTime,
    ) -> Result<Option<Duration>, AccessError> {
        // Owners are read live before each write: a remembered UID could be a former release's.
        let (live, owners) = if described.kind == Kind::Service {
            let owners = self.service_owners(description).await?;
            (self.objects.get(described.kind, &described.name).await?, owners)
        } else {
            let live = self.objects.get(described.kind, &described.name).await?;
            let owners = if described.is_wanted() { self.owner().await? } else { Owners::Unowned };
            (live, owners)
        };
        let live = live.as_ref();
        let mut observed = Observed::new(described, live, bundle, &owners, self.stage(described.kind));
        observed.contest = self.contest(described, &observed);
        self.show(described, &owners, &observed);
        loop {
            match decide(&observed) {
                Action::Prove => observed.proof = self.prove(described, live, bundle, now).await?,
                Action::Probe => {
                    self.pending.extend(live.map(|live| Pending {
                        described: described.clone(),
                        live: live.clone(),
                        owners: owners.clone(),
                        intent: observed.intent(),
                    }));
                    return Ok(None);
                }
                action => return self.act(described, live, &observed, action).await,
            }
        }
    }

    /// Shows in metrics how a configuration stands.
    fn show(&self, described: &Described, owners: &Owners, observed: &Observed<'_>) {
        let label = described.label();
        if described.kind == Kind::Service {
            return;
        }
        if !described.is_wanted() {
            self.metrics.forget(&label);
        } else if *owners == Owners::Absent {
            self.metrics.in_sync(&label, false);
        } else {
            self.metrics.in_sync(&label, observed.is_in_sync());
            if self.patience.is_some() {
                self.metrics.promoted(&label, observed.is_promoted());
            }
            if observed.is_in_sync() && observed.contest.is_zero() {
                self.metrics.waiting(&label, Duration::ZERO);
            }
        }
    }

    /// Looks whether the webhook that a configuration names is proven.
    async fn prove(
        &mut self,
        described: &Described,
        live: Option<&Live>,
        bundle: &Bundle,
        now: SystemTime,
    ) -> Result<Proof, AccessError> {
        match prove(self.objects.client(), &described.targets, bundle, now).await {
            // Only one that does not exist yet waits until its Service is known everywhere.
            Ok(()) if live.is_some() => Ok(Proof::Proven(Duration::ZERO)),
            Ok(()) => {
                let since = *self.proven.entry(described.kind).or_insert_with(Instant::now);
                Ok(Proof::Proven(since.elapsed()))
            }
            Err(reason) => {
                self.proven.remove(&described.kind);
                if let Unproven::Access(error) = reason {
                    return Err(error);
                }
                self.unproven(&described.name, format_chain(&reason));
                Ok(Proof::Lacking)
            }
        }
    }

    /// Does what was decided, but for looks. Returns when to look again.
    async fn act(
        &mut self,
        described: &Described,
        live: Option<&Live>,
        observed: &Observed<'_>,
        action: Action,
    ) -> Result<Option<Duration>, AccessError> {
        let (kind, name) = (described.kind, described.name.as_str());
        match action {
            Action::Keep | Action::Leave | Action::Prove | Action::Probe => Ok(None),
            Action::Wait(hold, wait) => {
                match hold {
                    Hold::NoOwner | Hold::Settling => self.unproven(name, hold.to_string()),
                    // Why is known only to who looked.
                    Hold::Unproven => {}
                    Hold::Contested => self.contested(described, live, wait).await,
                }
                Ok(Some(wait))
            }
            Action::Remove(cause) => {
                if let Some(live) = live {
                    self.objects.delete(kind, name, live).await?;
                    info!(kind = kind.kind(), name, "{cause}");
                }
                Ok((cause == Cause::FormerRelease).then_some(Duration::ZERO))
            }
            Action::Write(wanted) => {
                let again = self.write(described, &wanted, live, observed.intent()).await?;
                Ok(again.or((!observed.is_promoted()).then_some(Duration::ZERO)))
            }
        }
    }

    /// Tells of another writer.
    async fn contested(&self, described: &Described, live: Option<&Live>, wait: Duration) {
        let (kind, name) = (described.kind, described.name.as_str());
        warn!(
            kind = kind.kind(),
            name,
            wait_seconds = wait.as_secs_f64(),
            "somebody else changed the object again; waiting before it is repaired"
        );
        if kind != Kind::Service {
            self.metrics.waiting(&described.label(), wait);
        }
        let note = format!(
            "somebody else keeps changing the {} {name}; it is repaired in {} s",
            kind.kind(),
            wait.as_secs()
        );
        let related = live.map(|live| live.as_reference(kind, name));
        self.events.warning("RegistrationContested", note, related).await;
    }

    /// Writes `wanted`, which serves the end of that `intent`.
    async fn write(
        &mut self,
        described: &Described,
        wanted: &Value,
        over: Option<&Live>,
        intent: u64,
    ) -> Result<Option<Duration>, AccessError> {
        let (kind, name) = (described.kind, described.name.as_str());
        match self.objects.apply(kind, name, wanted, over).await {
            Ok(live) => {
                self.last_reason = None;
                self.proven.remove(&kind);
                let good = difference(wanted, &live.object, FIELD_MANAGER) == Difference::None;
                let repair = self.repairs.entry((kind, described.name.clone())).or_default();
                repair.note(intent, Instant::now());
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

    /// The owner that configurations are to have.
    async fn owner(&self) -> Result<Owners, AccessError> {
        let Some(name) = &self.owner_cluster_role else { return Ok(Owners::Unowned) };
        let roles: Api<ClusterRole> = Api::all(self.objects.client().clone());
        Ok(match uid(&roles, "clusterroles", name).await? {
            Some(uid) => {
                Owners::Present(vec![owner("rbac.authorization.k8s.io/v1", "ClusterRole", name, &uid)])
            }
            None => Owners::Absent,
        })
    }

    /// How long a repair has to wait because another writer keeps changing the object.
    fn contest(&self, described: &Described, observed: &Observed<'_>) -> Duration {
        self.repair(described).remaining(observed.intent(), Instant::now())
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

fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    [one, other].into_iter().flatten().min()
}
