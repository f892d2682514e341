//! What came of a review, door by door.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::door::Door;
use crate::input::manifest::Identity;

/// What came of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Something was denied.
    pub(crate) denied: bool,
    /// Something could not be reviewed.
    pub(crate) failed: bool,
}

/// What a review is about, for people and machines.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) identity: Identity,
    pub(crate) operation: String,
}

impl Subject {
    pub(crate) fn of(review: &Value) -> Self {
        let request = review.get("request").unwrap_or(&Value::Null);
        let text = |path: &str| request.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let object = ["object", "oldObject"]
            .into_iter()
            .filter_map(|field| request.get(field))
            .find(|object| object.is_object())
            .unwrap_or(&Value::Null);
        let mut identity = Identity::of(object);
        identity.group = text("/kind/group");
        identity.version = text("/kind/version");
        identity.kind = text("/kind/kind");
        identity.namespace = text("/namespace");
        let name = text("/name");
        if !name.is_empty() {
            identity.name = name;
            identity.generate_name = String::new();
        }
        Self { identity, operation: text("/operation") }
    }
}

/// What came of a review.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// What each door said, in the order of asking.
    pub(crate) decisions: Vec<Decision>,
    /// The object as it left the mutating doors; `None` when no door changed it.
    pub(crate) object: Option<Value>,
}

/// What one door said.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    /// The door.
    pub(crate) door: Door,
    /// What it decided.
    pub(crate) verdict: Verdict,
    /// Shown to the client.
    pub(crate) warnings: Vec<String>,
    /// For the audit log.
    pub(crate) audit_annotations: BTreeMap<String, String>,
    /// RFC 6902 operations; empty for no change.
    pub(crate) patch: Vec<Value>,
}

/// A decision, or its absence.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// The request may go on.
    Allowed,
    /// It may not; the `metav1.Status` that says why.
    Denied(Map<String, Value>),
    /// There is no decision.
    Failed(Failure),
}

/// Why there is no decision.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The HTTP status; `None` when there was no answer.
    pub(crate) code: Option<u16>,
    /// What is wrong.
    pub(crate) message: String,
}

impl Outcome {
    /// Whether a door refused.
    pub(crate) fn denied(&self) -> bool {
        self.decisions.iter().any(|decision| matches!(decision.verdict, Verdict::Denied(_)))
    }

    /// The failure that the request failed with, if it did: one that the failurePolicy does not ignore.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.decisions.iter().find_map(|decision| match &decision.verdict {
            Verdict::Failed(failure) if !decision.door.tolerates_failure() => Some(failure),
            _ => None,
        })
    }

    /// Whether the request failed.
    pub(crate) fn failed(&self) -> bool {
        self.failure().is_some()
    }
}

impl Decision {
    /// The absence of a decision.
    pub(crate) fn failed(door: Door, failure: Failure) -> Self {
        Self {
            door,
            verdict: Verdict::Failed(failure),
            warnings: Vec::new(),
            audit_annotations: BTreeMap::new(),
            patch: Vec::new(),
        }
    }
}
