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
    /// Whether somebody answers what policies ask of `authorizer`.
    connected: bool,
}

impl<S: PolicySet> Policies<S> {
    /// Compiles the first set.
    pub(crate) fn new(snapshot: &Snapshot, meters: PolicyMeters, connected: bool) -> Self {
        let loaded = compile::<S>(snapshot, None, &meters, connected);
        Self { current: ArcSwap::from_pointee(loaded), meters, connected }
    }

    /// The set in force now.
    pub(crate) fn current(&self) -> Arc<Loaded<S>> {
        self.current.load_full()
    }

    /// Puts the policies of a snapshot into force.
    pub(crate) fn replace(&self, snapshot: &Snapshot) {
        let before = self.current();
        let loaded = compile(snapshot, Some(&before.set), &self.meters, self.connected);
        let mut gone = names(&before.set);
        let present = names(&loaded.set);
        gone.retain(|name| !present.contains(name));
        self.current.store(Arc::new(loaded));
        self.meters.remove_policies(&gone);
    }
}

fn names<S: PolicySet>(set: &S) -> BTreeSet<String> {
    set.policies().iter().map(|policy| policy.name.clone()).collect()
}

/// Puts each new snapshot of the directory into force. Never returns.
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

fn compile<S: PolicySet>(
    snapshot: &Snapshot,
    previous: Option<&S>,
    meters: &PolicyMeters,
    connected: bool,
) -> Loaded<S> {
    for problem in &snapshot.problems {
        tracing::warn!("{problem}");
    }
    let set = S::compile(snapshot, previous);
    for problem in set.object_problems(snapshot) {
        tracing::warn!("{problem}");
    }

    let unreadable = snapshot.unusable(S::KIND).len() + snapshot.unusable(S::ADMISSION_KIND).len();
    let kept = S::stale(snapshot);
    let mut states = States { broken: unreadable, ..States::default() };
    for policy in set.policies() {
        let name = policy.name.as_str();
        let message = policy.message.as_str();
        let unconnected = policy.asks_authorizer && !connected;
        if unconnected {
            tracing::warn!(
                policy = name,
                "policy asks the authorizer and none is connected: every check has no opinion and an error, until \
                 the backend runs with --authorizer=api-server"
            );
        }
        match policy.state {
            PolicyState::Active if unconnected => states.unconnected += 1,
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
    meters.set_states(states);
    tracing::info!(
        kind = S::KIND.as_str(),
        active = states.active,
        unconnected = states.unconnected,
        stale = states.stale,
        broken = states.broken,
        digest = snapshot.digest_hex(),
        "policies loaded"
    );
    let meters = set.policies().iter().map(|policy| meters.policy_meter(&policy.name)).collect();
    Loaded { set, meters }
}

#[cfg(test)]
mod tests {
    use prometheus::{Registry, TextEncoder};
    use sallyport_policy::ValidationSet;
    use sallyport_sources::Directory;
    use serde_json::json;

    use super::Policies;
    use crate::meters::PolicyMeters;

    /// A policy that asks what users may do is no ordinary active one where nobody answers.
    #[test]
    fn policies_without_the_authorizer_that_they_ask_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let may = "authorizer.path('/healthz').check('get').allowed()";
        let rows = [("direct", json!([]), may), ("plain", json!([]), "true")];
        let through = json!([{"name": "may", "expression": may}]);
        for (name, variables, expression) in rows.into_iter().chain([("variable", through, "variables.may")])
        {
            let policy = json!({
                "apiVersion": "sallyport.dev/v1alpha1", "kind": "ValidationPolicy", "metadata": {"name": name},
                "spec": {
                    "matchConstraints":
                        {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]},
                    "variables": variables, "validations": [{"expression": expression}],
                },
            });
            std::fs::write(directory.path().join(format!("{name}.json")), policy.to_string()).unwrap();
        }
        let snapshot = Directory::new(directory.path()).load(None).unwrap();
        for (connected, active, unconnected) in [(true, 3, 0), (false, 1, 2)] {
            let (meters, registry) = (PolicyMeters::new().unwrap(), Registry::new());
            meters.register(&registry).unwrap();
            let policies = Policies::<ValidationSet>::new(&snapshot, meters, connected);
            for _ in 0..2 {
                let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
                for (state, count) in [("active", active), ("unconnected", unconnected), ("broken", 0)] {
                    let line = format!("sallyport_policies{{state=\"{state}\"}} {count}\n");
                    assert!(text.contains(&line), "{connected}: {line}{text}");
                }
                policies.replace(&snapshot);
            }
        }
    }
}
