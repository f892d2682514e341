//! Promotion (R-07): entries that are described with failurePolicy Fail begin with Ignore, and become Fail once the
//! way through the API server was proven.
//!
//! The proof is a dry run: an object that is to be refused, which entries of its own send to the ordinary doors. The
//! validator's refusal says whether the mutator has marked the object, so that one call proves both ways. What was
//! proven is not asked for again: the live failurePolicy is the memory. An entry is in force as Fail if it is live so
//! and nobody else made it so.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use sallyport_leadership::Events;
use sallyport_leadership::{AccessError, Verb, call};
use serde_json::{Map, Value, json};
use tracing::info;

use super::description::{Described, Kind};
use super::live::Live;
use super::proof;
use crate::FIELD_MANAGER;

/// The entries that send the probe to the mutator and to the validator.
const MUTATE: &str = "probe.mutate.sallyport.dev";
const VALIDATE: &str = "probe.validate.sallyport.dev";
/// The probe's label, with a value that no other probe has.
const LABEL: &str = "sallyport.dev/probe";
/// Its name: the same each time, so that the same refusal reads the same.
const NAME: &str = "sallyport-probe";
/// The annotation by which the mutator marks it, with that value.
const MARK: &str = "sallyport.dev/probed";

/// The wait after a first proof that failed; it doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait between two proofs.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// How long proofs fail until an Event says so. Fronts that start and caches of API servers take seconds.
const TELL_AFTER: Duration = Duration::from_secs(60);

/// Why entries stay at Ignore.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lack {
    /// The front is not proven by itself.
    #[error(transparent)]
    Front(#[from] proof::Unproven),
    /// The call failed, or somebody else refused it.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// There is no entry that would send the probe.
    #[error("the description has no entry {VALIDATE} or {MUTATE} to prove them by")]
    NoEntry,
    /// The API server accepted the probe.
    #[error("the probe was not refused: the API server got no answer from the webhook, or one that allows")]
    NotRefused,
    /// The API server accepted or refused the probe without the mutator's mark.
    #[error(
        "the probe was not marked: the API server got no answer from the mutator, or one without a patch"
    )]
    NotMarked,
}

/// `full` with every entry that is not in force as Fail held at Ignore.
pub(super) fn held(full: &Value, live: Option<&Live>) -> Value {
    let mut held = full.clone();
    for entry in held.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        if is_fail(entry)
            && !live.is_some_and(|live| is_in_force(live, entry))
            && let Some(entry) = entry.as_object_mut()
        {
            entry.insert("failurePolicy".to_owned(), json!("Ignore"));
        }
    }
    held
}

/// Whether an entry's failurePolicy is Fail, which is also the server's default.
fn is_fail(entry: &Value) -> bool {
    entry.get("failurePolicy").and_then(Value::as_str).is_none_or(|policy| policy == "Fail")
}

/// Whether the live entry of that name is Fail, and not by another writer's doing.
fn is_in_force(live: &Live, entry: &Value) -> bool {
    let name = entry.get("name");
    let mut entries = live.object.get("webhooks").and_then(Value::as_array).into_iter().flatten();
    let Some(found) = entries.find(|there| there.get("name") == name) else { return false };
    let mut owners = live
        .object
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|managed| owns_failure_policy(managed, name))
        .peekable();
    // A field that nobody owns lost its owners, with the value that it had.
    is_fail(found)
        && (owners.peek().is_none()
            || owners.any(|managed| managed.get("manager").and_then(Value::as_str) == Some(FIELD_MANAGER)))
}

fn owns_failure_policy(managed: &Value, name: Option<&Value>) -> bool {
    let is_it = |key: &str| {
        let keys =
            key.strip_prefix("k:").and_then(|keys| serde_json::from_str::<Map<String, Value>>(keys).ok());
        keys.is_some_and(|keys| keys.get("name") == name)
    };
    let entries = managed.pointer("/fieldsV1/f:webhooks").and_then(Value::as_object);
    entries.into_iter().flatten().any(|(key, fields)| is_it(key) && fields.get("f:failurePolicy").is_some())
}

/// A configuration with entries that wait for the proof.
pub(super) struct Pending {
    /// The configuration.
    pub described: Described,
    /// As it is to be once it is proven.
    pub full: Value,
    /// As it is.
    pub live: Live,
}

/// Which entries for the probe are described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entries {
    mutate: bool,
    validate: bool,
}

impl Entries {
    /// Those of these configurations.
    pub(super) fn of(configurations: &[Described]) -> Self {
        let has =
            |kind, name| configurations.iter().any(|described| described.kind == kind && described.has(name));
        Self { mutate: has(Kind::Mutating, MUTATE), validate: has(Kind::Validating, VALIDATE) }
    }
}

/// What came of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    is_refused: bool,
    is_marked: bool,
}

impl Outcome {
    /// Whether a configuration of `kind` is proven by this.
    pub(super) fn proves(self, kind: Kind, entries: Entries) -> Result<(), Lack> {
        match kind {
            _ if !entries.mutate && !entries.validate => Err(Lack::NoEntry),
            Kind::Mutating if !entries.mutate => Err(Lack::NoEntry),
            Kind::Validating if !entries.validate => Err(Lack::NoEntry),
            // Without a validator nobody is there to refuse, and the mark in the API server's answer says it all.
            _ if entries.validate && !self.is_refused => Err(Lack::NotRefused),
            Kind::Mutating if !self.is_marked => Err(Lack::NotMarked),
            _ => Ok(()),
        }
    }
}

/// Sends a probe in a dry run and reads what the API server says.
pub(super) async fn probe(client: &Client, namespace: &str) -> Result<Outcome, Lack> {
    let nonce = format!("{:016x}", fastrand::u64(..));
    let object = ConfigMap {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            labels: Some(BTreeMap::from([(LABEL.to_owned(), nonce.clone())])),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let params = PostParams { dry_run: true, field_manager: Some(FIELD_MANAGER.to_owned()) };
    match call(Verb::Create, "configmaps", NAME, api.create(&params, &object)).await {
        Ok(object) => {
            let mark = object.metadata.annotations.and_then(|mut annotations| annotations.remove(MARK));
            Ok(Outcome { is_refused: false, is_marked: mark == Some(nonce) })
        }
        Err(AccessError::Refused { source, .. }) if refusal(&source.message, &nonce).is_some() => {
            let is_marked = refusal(&source.message, &nonce) == Some(true);
            Ok(Outcome { is_refused: true, is_marked })
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether the API server's `message` is our refusal of the probe `nonce`: `None` if not, else whether the probe was
/// marked.
fn refusal(message: &str, nonce: &str) -> Option<bool> {
    let ours = message.strip_prefix("admission webhook ")?.strip_prefix(&format!("{VALIDATE:?}"))?;
    let (_, rest) = ours
        .strip_prefix(" denied the request: ")?
        .split_once(&format!("probe {nonce} is refused and was "))?;
    if rest.starts_with("not marked") { Some(false) } else { rest.starts_with("marked").then_some(true) }
}

/// How patient to be, and what was said.
pub(super) struct Promotion {
    events: Events,
    waiting: Option<Waiting>,
}

/// Proofs that fail.
struct Waiting {
    since: Instant,
    failures: u32,
    next: Instant,
    reason: String,
    is_told: bool,
}

impl Promotion {
    /// Nothing has been tried.
    pub(super) fn new(events: Events) -> Self {
        Self { events, waiting: None }
    }

    /// How long until the next proof may be tried.
    pub(super) fn remaining(&self, now: Instant) -> Duration {
        self.waiting.as_ref().map_or(Duration::ZERO, |waiting| waiting.next.saturating_duration_since(now))
    }

    /// Nothing waits any more.
    pub(super) fn settled(&mut self) {
        self.waiting = None;
    }

    /// Notes that `of` is not proven. Returns how long to wait. Each reason is one line in the log, and one Event if
    /// it lasts.
    pub(super) async fn lacks(&mut self, reason: String, of: &Pending, now: Instant) -> Duration {
        let waiting = self.waiting.get_or_insert_with(|| Waiting {
            since: now,
            failures: 0,
            next: now,
            reason: String::new(),
            is_told: false,
        });
        let (kind, name) = (of.described.kind.kind(), &of.described.name);
        if waiting.reason != reason {
            info!(kind, name, reason, "not promoted to failurePolicy Fail yet");
            waiting.reason = reason;
            waiting.is_told = false;
            // Something has moved, so more may soon.
            waiting.failures = 0;
        }
        let wait = FIRST_WAIT.saturating_mul(1 << waiting.failures.min(8)).min(LONGEST_WAIT);
        waiting.failures = waiting.failures.saturating_add(1);
        waiting.next = now + wait;
        if !waiting.is_told && now.saturating_duration_since(waiting.since) > TELL_AFTER {
            waiting.is_told = true;
            let note = format!("{kind} {name} keeps failurePolicy Ignore: {}", waiting.reason);
            self.events
                .warning("NotPromoted", note, Some(of.live.as_reference(of.described.kind, name)))
                .await;
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, failure_policy: &Value) -> Value {
        json!({"name": name, "failurePolicy": failure_policy, "clientConfig": {"url": "https://h/"}})
    }

    fn live(failure_policy: &str, manager: Option<&str>) -> Live {
        let fields = json!({"f:webhooks": {"k:{\"name\":\"x\"}": {"f:failurePolicy": {}}}});
        let owned = manager.map(|manager| json!({"manager": manager, "fieldsV1": fields}));
        let object = json!({
            "metadata": {"managedFields": owned.into_iter().collect::<Vec<_>>()},
            "webhooks": [entry("x", &json!(failure_policy))],
        });
        Live { object, uid: "u".to_owned() }
    }

    #[test]
    fn fail_is_held_until_it_is_in_force_by_our_own_doing_r_07() {
        let others = Some("kubectl-edit");
        let rows = [
            ("it does not exist", "x", json!("Fail"), None, "Ignore"),
            ("it is live as Ignore", "x", json!("Fail"), Some(live("Ignore", Some(FIELD_MANAGER))), "Ignore"),
            ("it was promoted", "x", json!("Fail"), Some(live("Fail", Some(FIELD_MANAGER))), "Fail"),
            ("others made it Fail", "x", json!("Fail"), Some(live("Fail", others)), "Ignore"),
            ("others made it Ignore", "x", json!("Fail"), Some(live("Ignore", others)), "Ignore"),
            ("its owners were lost", "x", json!("Fail"), Some(live("Fail", None)), "Fail"),
            (
                "another entry was promoted",
                "y",
                json!("Fail"),
                Some(live("Fail", Some(FIELD_MANAGER))),
                "Ignore",
            ),
            ("Fail is the server's default", "x", Value::Null, None, "Ignore"),
            ("Ignore is described", "x", json!("Ignore"), Some(live("Fail", Some(FIELD_MANAGER))), "Ignore"),
        ];
        for (what, name, described, live, wanted) in rows {
            let full = json!({"webhooks": [entry(name, &described)]});
            assert_eq!(held(&full, live.as_ref())["webhooks"][0]["failurePolicy"], wanted, "{what}");
        }
    }

    #[test]
    fn only_our_own_refusal_of_this_probe_counts_r_07() {
        let ours = "admission webhook \"probe.validate.sallyport.dev\" denied the request: ";
        let rows = [
            (format!("{ours}probe 1f is refused and was marked (policy sallyport-probe)"), Some(true)),
            (format!("{ours}probe 1f is refused and was not marked (policy sallyport-probe)"), Some(false)),
            (format!("{ours}no (policy a); probe 1f is refused and was marked"), Some(true)),
            (format!("{ours}probe 2f is refused and was marked"), None),
            (format!("{ours}no configmaps today"), None),
            (ours.replace("validate", "mutate") + "probe 1f is refused and was marked", None),
            (
                "admission webhook \"others.example\" denied the request: probe 1f is refused and was marked"
                    .into(),
                None,
            ),
            (
                "failed calling webhook \"probe.validate.sallyport.dev\": probe 1f is refused and was marked"
                    .into(),
                None,
            ),
            ("configmaps is forbidden: User \"u\" cannot create resource \"configmaps\"".into(), None),
        ];
        for (message, wanted) in rows {
            assert_eq!(refusal(&message, "1f"), wanted, "{message}");
        }
    }

    #[test]
    fn only_what_was_proven_is_promoted_r_07() {
        let entries = |mutate, validate| Entries { mutate, validate };
        let both = entries(true, true);
        let outcome = |is_refused, is_marked| Outcome { is_refused, is_marked };
        let rows = [
            (both, outcome(true, true), true, true),
            (both, outcome(true, false), false, true),
            (both, outcome(false, true), false, false),
            (both, outcome(false, false), false, false),
            (entries(true, false), outcome(false, true), true, false),
            (entries(true, false), outcome(false, false), false, false),
            (entries(false, true), outcome(true, false), false, true),
            (entries(false, true), outcome(false, false), false, false),
            (entries(false, false), outcome(true, true), false, false),
        ];
        for (entries, outcome, mutating, validating) in rows {
            for (kind, wanted) in [(Kind::Mutating, mutating), (Kind::Validating, validating)] {
                let proven = outcome.proves(kind, entries);
                assert_eq!(proven.is_ok(), wanted, "{kind:?} {entries:?} {outcome:?}: {proven:?}");
            }
        }
    }

    #[tokio::test]
    async fn proofs_are_tried_ever_less_often() {
        let description = super::super::Description::parse(
            "{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: s}}",
            "n",
        );
        let described = description.unwrap().configurations.remove(0);
        let pending = Pending { described, full: Value::Null, live: live("Ignore", None) };
        let mut promotion = Promotion::new(Events::none());
        let start = Instant::now();
        assert_eq!(promotion.remaining(start), Duration::ZERO);
        let mut now = start;
        let mut proofs = 0;
        while now.saturating_duration_since(start) < Duration::from_hours(1) {
            proofs += 1;
            let wait = promotion.lacks("r".to_owned(), &pending, now).await;
            assert_eq!(promotion.remaining(now), wait);
            now += wait;
        }
        assert!((200..300).contains(&proofs), "{proofs} in an hour");
        assert!(promotion.waiting.as_ref().is_some_and(|waiting| waiting.is_told), "it has lasted");
        promotion.settled();
        assert_eq!(promotion.remaining(start), Duration::ZERO);
    }
}
