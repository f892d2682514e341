//! The policies in force.
//!
//! A new set is compiled beside the old one and put in its place in one step.
//! Whoever evaluates holds the set it began with.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use sallyport_policy::PolicyState;
use sallyport_sources::{Directory, Snapshot, SourceError};

use crate::engine::PolicySet;
use crate::meters::{PolicyMeter, PolicyMeters, States};

/// A set and what its evaluations are counted by.
#[derive(Debug)]
pub(crate) struct Loaded<S> {
    pub(crate) set: S,
    /// By the index of the policy in the set.
    pub(crate) meters: Vec<PolicyMeter>,
}

/// The policies in force.
#[derive(Debug)]
pub(crate) struct Policies<S> {
    current: ArcSwap<Loaded<S>>,
    meters: PolicyMeters,
}

impl<S: PolicySet> Policies<S> {
    /// Compiles the first set.
    pub(crate) fn new(snapshot: &Snapshot, meters: PolicyMeters) -> Self {
        let loaded = load::<S>(snapshot, None, &meters);
        Self { current: ArcSwap::from_pointee(loaded), meters }
    }

    /// The set in force now.
    pub(crate) fn current(&self) -> Arc<Loaded<S>> {
        self.current.load_full()
    }

    /// Puts the policies of a snapshot into force.
    pub(crate) fn replace(&self, snapshot: &Snapshot) {
        let before = self.current();
        let loaded = load(snapshot, Some(&before.set), &self.meters);
        let mut gone = names(&before.set);
        let present = names(&loaded.set);
        gone.retain(|name| !present.contains(name));
        self.current.store(Arc::new(loaded));
        self.meters.forget(&gone);
    }
}

fn names<S: PolicySet>(set: &S) -> BTreeSet<String> {
    set.policies().iter().map(|policy| policy.name.clone()).collect()
}

/// Follows the directory, forever.
pub(crate) async fn follow<S: PolicySet>(
    policies: Arc<Policies<S>>,
    directory: Directory,
    first: Arc<Snapshot>,
    interval: Duration,
) {
    sallyport_sources::watch(directory, first, interval, |next| {
        let policies = policies.clone();
        async move {
            match next {
                // Compiling takes as long as the policies are many: off the threads that answer reviews.
                Ok(snapshot) => {
                    let compiled = tokio::task::spawn_blocking(move || policies.replace(&snapshot)).await;
                    if compiled.is_err() {
                        tracing::error!("compiling the policies panicked, the last ones stay in force");
                    }
                }
                Err(error) => report_lost(&error),
            }
        }
    })
    .await;
}

fn report_lost(error: &SourceError) {
    let error = error as &dyn std::error::Error;
    tracing::error!(error, "the policies cannot be read, the last ones stay in force");
}

fn load<S: PolicySet>(snapshot: &Snapshot, previous: Option<&S>, meters: &PolicyMeters) -> Loaded<S> {
    for problem in &snapshot.problems {
        tracing::warn!("{problem}");
    }
    let set = S::compile(snapshot, previous);
    for problem in set.object_problems(snapshot) {
        tracing::warn!("{problem}");
    }

    let unreadable = snapshot.unusable(S::KIND).len() + snapshot.unusable(S::ADMISSION_KIND).len();
    let kept = S::stale(snapshot);
    let mut states = States { active: 0, stale: 0, broken: unreadable };
    for policy in set.policies() {
        let name = policy.name.as_str();
        let message = policy.message.as_str();
        match policy.state {
            PolicyState::Active => states.active += 1,
            PolicyState::Stale => {
                states.stale += 1;
                tracing::warn!(
                    policy = name,
                    reason = message,
                    "policy does not compile, its last good form stays in force"
                );
            }
            PolicyState::Broken => {
                states.broken += 1;
                tracing::warn!(
                    policy = name,
                    reason = message,
                    "policy does not compile and fails the requests it matches"
                );
            }
        }
    }
    // What the source kept compiles as it did before.
    let kept = kept.min(states.active);
    states.active -= kept;
    states.stale += kept;
    meters.states(states);
    tracing::info!(
        kind = S::KIND.as_str(),
        active = states.active,
        stale = states.stale,
        broken = states.broken,
        digest = snapshot.digest_hex(),
        "policies loaded"
    );
    let meters = set.policies().iter().map(|policy| meters.policy(&policy.name)).collect();
    Loaded { set, meters }
}
