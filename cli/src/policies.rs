//! The policies of a directory as a user sees them: which are in force, and what is wrong with the others.

use crate::terminal::{self, BAD, NOTICE, STRONG, plain};
use sallyport_backend::PolicySet;
use sallyport_policy::{MutationSet, PolicyState, ValidationSet};
use sallyport_sources::{Directory, Snapshot};
use std::path::Path;
use std::sync::Arc;

/// The policies of one snapshot, compiled.
#[derive(Debug)]
pub(crate) struct Policies {
    snapshot: Arc<Snapshot>,
    mutations: MutationSet,
    validations: ValidationSet,
}

impl Policies {
    /// Reads a directory.
    pub(crate) fn load(directory: &Path) -> anyhow::Result<Self> {
        Ok(Self::compile(Arc::new(Directory::new(directory).load(None)?), None))
    }

    /// Compiles a snapshot; what is broken keeps the form that it has in `previous`.
    pub(crate) fn compile(snapshot: Arc<Snapshot>, previous: Option<&Self>) -> Self {
        Self {
            mutations: PolicySet::compile(&snapshot, previous.map(|previous| &previous.mutations)),
            validations: PolicySet::compile(&snapshot, previous.map(|previous| &previous.validations)),
            snapshot,
        }
    }

    /// The snapshot that they are from.
    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Says what is in force, and what is wrong.
    pub(crate) fn report(&self) {
        let mut names = in_force(&self.snapshot, &self.mutations);
        names.extend(in_force(&self.snapshot, &self.validations));
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        terminal::say(&format!("{STRONG}policies{STRONG:#} in force: {}", plain(&names)));
        self.report_problems();
    }

    /// Says what is wrong.
    pub(crate) fn report_problems(&self) {
        for problem in &self.snapshot.problems {
            terminal::say(&format!("{BAD}problem{BAD:#}: {}", plain(&problem.to_string())));
        }
        report_broken(&self.snapshot, &self.mutations);
        report_broken(&self.snapshot, &self.validations);
    }
}

fn in_force<S: PolicySet>(snapshot: &Snapshot, set: &S) -> Vec<String> {
    let policies = set.policies().iter().zip(S::origins(snapshot));
    let good = policies.filter(|(policy, _)| policy.state != PolicyState::Broken);
    good.map(|(policy, (kind, _))| format!("{} {}", kind.as_str(), policy.name)).collect()
}

fn report_broken<S: PolicySet>(snapshot: &Snapshot, set: &S) {
    for (policy, (kind, file)) in set.policies().iter().zip(S::origins(snapshot)) {
        let (style, consequence) = match policy.state {
            PolicyState::Active => continue,
            PolicyState::Stale => (NOTICE, "its last good form stays in force"),
            PolicyState::Broken => (BAD, "requests that it matches fail"),
        };
        let (kind, name) = (kind.as_str(), &policy.name);
        let text = format!("{file}: {kind} {name}: {} ({consequence})", policy.message);
        terminal::say(&format!("{style}problem{style:#}: {}", plain(&text)));
    }
}
