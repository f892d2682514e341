//! The policies of a directory as a user sees them: which are in force, and what is wrong with the others.

use std::path::Path;
use std::sync::Arc;

use anstyle::Style;
use sallyport_backend::PolicySet;
use sallyport_policy::{FailurePolicy, MutationSet, Outcome, PolicyState, ResultKind, Review, ValidationSet};
use sallyport_sources::{Directory, Snapshot};

use crate::door::Door;
use crate::output::terminal::{self, BAD, NOTICE, STRONG, plain};

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

    /// What is wrong, in the words of [`Policies::print_problems`].
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = self.source_problems();
        problems.extend(list_broken(&self.snapshot, &self.mutations).map(|(_, text)| text));
        problems.extend(list_broken(&self.snapshot, &self.validations).map(|(_, text)| text));
        problems
    }

    /// What is wrong with files, and with the objects that policies of both kinds may see.
    fn source_problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.snapshot.problems.iter().map(ToString::to_string).collect();
        problems.extend(self.validations.object_problems(&self.snapshot));
        problems
    }

    /// Runs those that a front would ask at a door. Beside the outcome: which of them could not be evaluated.
    pub(crate) fn review(&self, review: &Review<'_>, door: Door) -> (Outcome, Vec<String>) {
        let policy = if door.tolerates_failure() { FailurePolicy::Ignore } else { FailurePolicy::Fail };
        let (outcome, statuses) = if door.mutates() {
            (self.mutations.review(review, policy), self.mutations.policies())
        } else {
            (self.validations.review(review, policy), self.validations.policies())
        };
        let erred = outcome.results.iter().filter(|result| result.result == ResultKind::Error);
        let names = erred.filter_map(|result| Some(statuses.get(result.policy)?.name.clone())).collect();
        (outcome, names)
    }

    /// Says what is in force, and what is wrong.
    pub(crate) fn print(&self) {
        let mut names = list_in_force(&self.snapshot, &self.mutations);
        names.extend(list_in_force(&self.snapshot, &self.validations));
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        terminal::print_note(&format!("{STRONG}policies{STRONG:#} in force: {}", plain(&names)));
        self.print_problems();
    }

    /// Says what is wrong.
    pub(crate) fn print_problems(&self) {
        for problem in self.source_problems() {
            terminal::print_note(&format!("{BAD}problem{BAD:#}: {}", plain(&problem)));
        }
        print_broken(&self.snapshot, &self.mutations);
        print_broken(&self.snapshot, &self.validations);
    }
}

fn list_in_force<S: PolicySet>(snapshot: &Snapshot, set: &S) -> Vec<String> {
    let policies = set.policies().iter().zip(S::origins(snapshot));
    let good = policies.filter(|(policy, _)| policy.state != PolicyState::Broken);
    good.map(|(policy, (kind, _))| format!("{} {}", kind.as_str(), policy.name)).collect()
}

fn print_broken<S: PolicySet>(snapshot: &Snapshot, set: &S) {
    for (style, text) in list_broken(snapshot, set) {
        terminal::print_note(&format!("{style}problem{style:#}: {}", plain(&text)));
    }
}

/// What is wrong with the policies that do not compile.
fn list_broken<S: PolicySet>(snapshot: &Snapshot, set: &S) -> impl Iterator<Item = (Style, String)> {
    set.policies().iter().zip(S::origins(snapshot)).filter_map(|(policy, (kind, file))| {
        let (style, consequence) = match policy.state {
            PolicyState::Active => return None,
            PolicyState::Stale => (NOTICE, "its last good form stays in force"),
            PolicyState::Broken => (BAD, "requests that it matches fail"),
        };
        let (kind, name) = (kind.as_str(), &policy.name);
        Some((style, format!("{file}: {kind} {name}: {} ({consequence})", policy.message)))
    })
}
