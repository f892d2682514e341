//! One of several replicas of a controller leads, by a Lease.
//!
//! Nothing depends on there being one at a time: every write is conditional on what was read, so two that both
//! believe to lead do the same work twice at worst. The Lease spares the second one that work, and shows who leads
//! and how things stand ([`Conditions`]).
//!
//! Times are measured here and by the monotonic clock alone: a Lease is free once it has not changed for its
//! duration, whatever its times say, so clocks that differ or jump do no harm.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use sallyport_error_chain::format_chain;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use crate::access::{AccessError, Verb, call};
use crate::conditions::{CONDITIONS_ANNOTATION, Conditions};
use crate::owner::{labels, service_account};

/// The longest duration of a Lease that somebody else wrote that is waited for.
const LONGEST: Duration = Duration::from_secs(5 * 60);
/// The shortest time between two writes.
const SETTLE: Duration = Duration::from_secs(1);

/// Where the Lease is.
#[derive(Clone)]
pub struct LeaseConfig {
    /// The cluster.
    pub client: Client,
    /// The field manager under which the Lease is written.
    pub manager: &'static str,
    /// The suite's namespace.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// How long the Lease stays with a leader that is not heard of.
    pub duration: Duration,
    /// The `ServiceAccount` that owns the Lease, so that it goes with the release.
    pub owner: Option<String>,
}

impl std::fmt::Debug for LeaseConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseConfig")
            .field("name", &self.name)
            .field("duration", &self.duration)
            .finish_non_exhaustive()
    }
}

/// What is known of the Lease's holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nothing yet.
    Unknown,
    /// Somebody else leads.
    Following,
    /// This candidate leads.
    Leading,
}

/// A candidacy that runs in the background; it ends with it.
pub struct Candidacy {
    standing: watch::Receiver<Standing>,
    resign: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Candidacy {
    /// Begins to stand for the Lease.
    pub fn start(config: LeaseConfig, conditions: Conditions) -> Self {
        let (tell, standing) = watch::channel(Standing::Unknown);
        let (resign, resigned) = oneshot::channel();
        let candidate = Candidate::new(config, conditions);
        Self { standing, resign: Some(resign), task: tokio::spawn(candidate.run(tell, resigned)) }
    }

    /// How it stands; completes with the next change.
    pub async fn changed(&mut self) -> Standing {
        if self.standing.changed().await.is_err() {
            // The task ends only with this.
            std::future::pending::<()>().await;
        }
        *self.standing.borrow_and_update()
    }

    /// Gives the Lease up, if it is held, so that the next one need not wait.
    pub async fn resign(mut self) {
        if let Some(resign) = self.resign.take() {
            let _ = resign.send(());
        }
        // The task makes one bounded call at most.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Candidacy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Candidate {
    leases: Api<Lease>,
    config: LeaseConfig,
    identity: String,
    conditions: Conditions,
    /// The version that was last seen, and since when.
    seen: Option<(Option<String>, Instant)>,
    /// When the last write that succeeded was begun, while this one leads.
    renewed: Option<Instant>,
}

impl Candidate {
    fn new(config: LeaseConfig, conditions: Conditions) -> Self {
        let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
        // Two processes of one name, such as two on a desk, are two candidates.
        let name = config.manager.strip_prefix("sallyport-").unwrap_or(config.manager);
        let identity = format!("{}_{:08x}", host.as_deref().unwrap_or(name), fastrand::u32(..));
        let leases = Api::namespaced(config.client.clone(), &config.namespace);
        Self { leases, config, identity, conditions, seen: None, renewed: None }
    }

    async fn run(mut self, tell: watch::Sender<Standing>, mut resigned: oneshot::Receiver<()>) {
        let mut last_error = String::new();
        loop {
            let attempt = tokio::select! {
                _ = &mut resigned => break,
                attempt = self.attempt() => attempt,
            };
            match attempt {
                Ok(()) => last_error.clear(),
                Err(error) => {
                    let text = format_chain(&error);
                    if text == last_error {
                        debug!(error = text, "the Lease is still out of reach");
                    } else {
                        warn!(error = text, "failed to reach the Lease");
                        last_error = text;
                    }
                }
            }
            // It stops to lead before anybody else can begin to.
            let leads = self.renewed.is_some_and(|renewed| renewed.elapsed() < self.config.duration * 2 / 3);
            if self.renewed.is_some() && !leads {
                warn!("the Lease could not be renewed in time");
                self.renewed = None;
            }
            let standing = match (leads, &self.seen) {
                (true, _) => Standing::Leading,
                (false, Some(_)) => Standing::Following,
                (false, None) => Standing::Unknown,
            };
            let changed = tell.send_if_modified(|told| std::mem::replace(told, standing) != standing);
            if changed {
                info!(lease = self.config.name, identity = self.identity, ?standing, "leader election");
            }
            // Candidates in step would meet again and again.
            let pause = (self.config.duration / 5).mul_f64(0.8 + 0.4 * fastrand::f64());
            tokio::select! {
                _ = &mut resigned => break,
                () = tokio::time::sleep(pause) => {}
                () = self.conditions.changed(), if leads => tokio::time::sleep(SETTLE.min(pause)).await,
            }
        }
        if self.renewed.is_some()
            && let Err(error) = self.release().await
        {
            debug!(error = format_chain(&error), "failed to give the Lease up");
        }
    }

    /// Reads the Lease, and writes it if it is held or free.
    async fn attempt(&mut self) -> Result<(), AccessError> {
        let begun = Instant::now();
        let name = self.config.name.clone();
        let live = call(Verb::Get, "leases", &name, self.leases.get_opt(&name)).await?;
        let Some(live) = live else {
            self.seen = None;
            let Some(lease) = self.new_lease().await? else {
                debug!(lease = name, "not made: the ServiceAccount that is to own it does not exist");
                return Ok(());
            };
            let params =
                PostParams { field_manager: Some(self.config.manager.to_owned()), ..PostParams::default() };
            let created = call(Verb::Create, "leases", &name, self.leases.create(&params, &lease)).await;
            return self.written(begun, created.map(drop));
        };
        let spec = live.spec.clone().unwrap_or_default();
        let version = live.metadata.resource_version.clone();
        let since = match &self.seen {
            Some((known, since)) if *known == version => *since,
            _ => {
                self.seen = Some((version.clone(), begun));
                begun
            }
        };
        let is_held = spec.holder_identity.as_deref() == Some(&self.identity);
        if !is_held && !is_free(&spec, since.elapsed()) {
            self.renewed = None;
            return Ok(());
        }
        if !is_held {
            self.conditions
                .adopt(live.metadata.annotations.as_ref().and_then(|all| all.get(CONDITIONS_ANNOTATION)));
        }
        let mut fields = json!({
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.config.duration.as_secs().max(1),
            "renewTime": MicroTime(Timestamp::now()),
        });
        if !is_held {
            fields["acquireTime"] = json!(MicroTime(Timestamp::now()));
            fields["leaseTransitions"] = json!(spec.lease_transitions.unwrap_or_default().saturating_add(1));
        }
        let patch = json!({
            "metadata": {"resourceVersion": version, "annotations": {CONDITIONS_ANNOTATION: self.conditions.render()}},
            "spec": fields,
        });
        let written = self.patch(&patch).await;
        self.written(begun, written)
    }

    /// Judges a write: whoever was overtaken reads again.
    fn written(&mut self, begun: Instant, written: Result<(), AccessError>) -> Result<(), AccessError> {
        match written {
            Ok(()) => {
                self.renewed = Some(begun);
                Ok(())
            }
            Err(error) if error.is_overtaken() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn release(&self) -> Result<(), AccessError> {
        let name = &self.config.name;
        let live = call(Verb::Get, "leases", name, self.leases.get_opt(name)).await?;
        let Some(live) = live else { return Ok(()) };
        if live.spec.and_then(|spec| spec.holder_identity).as_deref() != Some(&self.identity) {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"resourceVersion": live.metadata.resource_version},
            "spec": {"holderIdentity": "", "renewTime": MicroTime(Timestamp::now())},
        });
        match self.patch(&patch).await {
            Err(error) if !error.is_overtaken() => Err(error),
            _ => Ok(()),
        }
    }

    async fn patch(&self, patch: &Value) -> Result<(), AccessError> {
        let name = &self.config.name;
        let params =
            PatchParams { field_manager: Some(self.config.manager.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(patch);
        call(Verb::Patch, "leases", name, self.leases.patch(name, &params, &patch)).await.map(drop)
    }

    /// The Lease to make; `None` while there is nobody to own it: the release is being removed.
    async fn new_lease(&self) -> Result<Option<Lease>, AccessError> {
        let accounts: Api<ServiceAccount> =
            Api::namespaced(self.config.client.clone(), &self.config.namespace);
        let owner_references = match &self.config.owner {
            Some(name) => match service_account(&accounts, name).await? {
                Some(owner) => Some(vec![owner]),
                None => return Ok(None),
            },
            None => None,
        };
        Ok(Some(Lease {
            metadata: ObjectMeta {
                name: Some(self.config.name.clone()),
                labels: Some(labels(self.config.manager)),
                annotations: Some([(CONDITIONS_ANNOTATION.to_owned(), self.conditions.render())].into()),
                owner_references,
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: i32::try_from(self.config.duration.as_secs().max(1)).ok(),
                acquire_time: Some(MicroTime(Timestamp::now())),
                renew_time: Some(MicroTime(Timestamp::now())),
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            }),
        }))
    }
}

/// Whether a Lease that has not changed for `unchanged` may be taken.
fn is_free(spec: &LeaseSpec, unchanged: Duration) -> bool {
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let duration = Duration::from_secs(seconds.unwrap_or_default()).min(LONGEST);
    spec.holder_identity.as_ref().is_none_or(String::is_empty) || unchanged > duration
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_free_when_given_up_or_unchanged_for_its_duration() {
        let spec = |holder: Option<&str>, seconds| LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: seconds,
            // Times of the writer's clock say nothing.
            renew_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            ..LeaseSpec::default()
        };
        for (holder, seconds, unchanged, wanted) in [
            (Some("a"), Some(15), 0, false),
            (Some("a"), Some(15), 15, false),
            (Some("a"), Some(15), 16, true),
            (Some(""), Some(15), 0, true),
            (None, Some(15), 0, true),
            (Some("a"), None, 1, true),
            (Some("a"), Some(-1), 1, true),
            (Some("a"), Some(i32::MAX), 301, true),
        ] {
            let unchanged = Duration::from_secs(unchanged);
            assert_eq!(
                is_free(&spec(holder, seconds), unchanged),
                wanted,
                "{holder:?} {seconds:?} {unchanged:?}"
            );
        }
    }
}
