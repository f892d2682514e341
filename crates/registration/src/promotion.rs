//! Promotion: entries that are described with failurePolicy Fail begin with Ignore, and become Fail once the
//! way through the API server was proven.
//!
//! The proof is a dry run: an object that is to be refused, which entries of its own send to the ordinary doors. The
//! validator's refusal says whether the mutator has marked the object, so that one call proves both ways. What was
//! proven is not asked for again: the live failurePolicy is the memory. An entry is in force as Fail if it is live so
//! and nobody else made it so.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use crate::description::{Described, Kind};
use crate::entry::is_fail;
use crate::live::{FIELD_MANAGER, Live};

/// The entries that send the probe to the mutator and to the validator.
const MUTATE: &str = "probe.mutate.sallyport.dev";
const VALIDATE: &str = "probe.validate.sallyport.dev";
/// The probe's label, with a value that no other probe has.
const LABEL: &str = "sallyport.dev/probe";
/// Its name: the same each time, so that the same refusal reads the same.
const NAME: &str = "sallyport-probe";
/// The annotation by which the mutator marks it, with that value.
const MARK: &str = "sallyport.dev/probed";

/// Why a probe does not prove a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
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
pub fn held(full: &Value, live: Option<&Live>) -> Value {
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

/// Which entries for the probe are described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entries {
    mutate: bool,
    validate: bool,
}

impl Entries {
    /// Those of these configurations.
    pub fn of(configurations: &[Described]) -> Self {
        let has =
            |kind, name| configurations.iter().any(|described| described.kind == kind && described.has(name));
        Self { mutate: has(Kind::Mutating, MUTATE), validate: has(Kind::Validating, VALIDATE) }
    }
}

/// What came of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    is_refused: bool,
    is_marked: bool,
}

impl Outcome {
    /// Whether a configuration of `kind` is proven by this.
    pub fn proves(self, kind: Kind, entries: Entries) -> Result<(), Unproven> {
        match kind {
            _ if !entries.mutate && !entries.validate => Err(Unproven::NoEntry),
            Kind::Mutating if !entries.mutate => Err(Unproven::NoEntry),
            Kind::Validating if !entries.validate => Err(Unproven::NoEntry),
            // Without a validator nobody is there to refuse, and the mark in the API server's answer says it all.
            _ if entries.validate && !self.is_refused => Err(Unproven::NotRefused),
            Kind::Mutating if !self.is_marked => Err(Unproven::NotMarked),
            _ => Ok(()),
        }
    }
}

/// An object that is to be refused, to be created in a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    nonce: String,
}

impl Probe {
    /// The name of every probe's object.
    pub const NAME: &'static str = NAME;

    /// A probe that `nonce` tells from every other.
    pub fn new(nonce: u64) -> Self {
        Self { nonce: format!("{nonce:016x}") }
    }

    /// The object to create.
    pub fn object(&self) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                labels: Some(BTreeMap::from([(LABEL.to_owned(), self.nonce.clone())])),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    /// What comes of an object that the API server accepted.
    pub fn accepted(&self, object: &ConfigMap) -> Outcome {
        let mark = object.metadata.annotations.as_ref().and_then(|annotations| annotations.get(MARK));
        Outcome { is_refused: false, is_marked: mark == Some(&self.nonce) }
    }

    /// What comes of the API server's refusal; `None` if somebody else refused.
    pub fn refused(&self, message: &str) -> Option<Outcome> {
        refusal(message, &self.nonce).map(|is_marked| Outcome { is_refused: true, is_marked })
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
    fn fail_is_held_until_it_is_in_force_by_our_own_doing_r07() {
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
    fn only_our_own_refusal_of_this_probe_counts_r07() {
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
    fn only_what_was_proven_is_promoted_r07() {
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
}
