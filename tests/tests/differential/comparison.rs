//! What is compared, and what may differ.

use std::collections::{BTreeMap, BTreeSet};

use sallyport_admission::warnings;
use sallyport_policy::Status;
use sallyport_tests::oracle::{Answer, cleaned};
use serde_json::Value;

use crate::engine::Engine;

/// Lines of case, kind of difference and reason; `#` begins a comment.
const LIST: &str = include_str!("differences.txt");
/// Before it stands the API server's own name of the object.
const FORBIDDEN: &str = " is forbidden: ";
const AUDITED: &str = "validation.policy.admission.k8s.io/validation_failure";

/// In what an answer differs, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Whether the policies of a case can be created.
    Creation,
    /// Allowed or not.
    Verdict,
    /// The object that comes out.
    Object,
    /// Code, reason, message or causes of a refusal.
    Message,
    /// Warnings or audit annotations.
    Notes,
}

const NAMES: [(Difference, &str); 5] = [
    (Difference::Creation, "creation"),
    (Difference::Verdict, "verdict"),
    (Difference::Object, "object"),
    (Difference::Message, "message"),
    (Difference::Notes, "notes"),
];

impl Difference {
    pub fn as_str(self) -> &'static str {
        NAMES.iter().find(|(kind, _)| *kind == self).unwrap().1
    }
}

/// The known differences with their reasons, by case and kind.
pub fn known() -> BTreeMap<(String, Difference), String> {
    let lines = LIST.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut parts = line.splitn(3, ' ');
            let (case, kind) = (parts.next().unwrap(), parts.next().expect("a kind of difference"));
            let kind = NAMES.iter().find(|(_, name)| *name == kind).unwrap_or_else(|| panic!("{line}")).0;
            let reason = parts.next().map(str::trim).filter(|reason| !reason.is_empty());
            ((case.to_owned(), kind), reason.unwrap_or_else(|| panic!("no reason: {line}")).to_owned())
        })
        .collect()
}

/// What has to come of a request, by the engine.
#[derive(Clone, Debug)]
pub struct Foreseen {
    /// Why policies refuse it.
    pub refused: Option<Status>,
    /// What the API server answers if they do not: to the object as the policies leave it.
    pub answer: Answer,
    /// Warnings that the API server gives by itself.
    pub own_warnings: BTreeSet<String>,
    pub warnings: BTreeSet<String>,
    pub notes: BTreeMap<String, String>,
    /// Whether policies change the object.
    pub is_changed: bool,
    /// The review that the validating policies were asked.
    pub validating: Option<Value>,
}

/// A refusal, as far as both tell it.
#[derive(Debug, PartialEq)]
struct Refusal {
    code: u16,
    reason: String,
    message: String,
    /// In no order: that is undefined.
    causes: BTreeSet<String>,
}

impl Refusal {
    fn ours(status: &Status) -> Self {
        Self {
            code: status.code,
            reason: status.reason.clone(),
            message: status.message.clone(),
            causes: status.causes.iter().map(|cause| cause.message.clone()).collect(),
        }
    }

    fn theirs(answer: &Answer) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let message = text(&answer.body["message"]);
        let message = message.split_once(FORBIDDEN).map_or(message.as_str(), |(_, rest)| rest);
        let causes = answer.body["details"]["causes"].as_array().into_iter().flatten();
        Self {
            code: answer.code,
            reason: text(&answer.body["reason"]),
            message: message.strip_prefix("Internal error occurred: ").unwrap_or(message).to_owned(),
            causes: causes.map(|cause| text(&cause["message"])).collect(),
        }
    }
}

/// In what the API server's answer and audit log differ from what was foreseen.
pub fn differences(
    engine: &Engine,
    ours: &Foreseen,
    theirs: &Answer,
    notes: &BTreeMap<String, String>,
) -> Vec<(Difference, String)> {
    let mut found = Vec::new();
    if let Some(status) = &ours.refused {
        let (mine, other) = (Refusal::ours(status), Refusal::theirs(theirs));
        if !theirs.is_refusal() || *theirs == ours.answer {
            found.push((
                Difference::Verdict,
                format!("{mine:?}, the API server lets it pass: {}", theirs.code),
            ));
        } else if mine != other && !is_among(engine, ours, &mine, &other) {
            found.push((Difference::Message, format!("{mine:?}, the API server {other:?}")));
        }
    } else if ours.answer.is_refusal() != theirs.is_refusal() {
        let texts =
            [&ours.answer, theirs].map(|answer| format!("{} {}", answer.code, answer.body["message"]));
        found.push((Difference::Verdict, format!("{}, the API server {}", texts[0], texts[1])));
    } else if theirs.is_refusal() {
        let (mine, other) = (Refusal::theirs(&ours.answer), Refusal::theirs(theirs));
        if mine != other {
            found.push((Difference::Message, format!("{mine:?}, the API server {other:?}")));
        }
    } else {
        let [mine, other] = [&ours.answer, theirs].map(|answer| comparable(answer.body.clone()));
        let mut paths = Vec::new();
        compare(&mine, &other, "", &mut paths);
        if !paths.is_empty() {
            found.push((Difference::Object, paths.join("; ")));
        }
    }
    // As a webhook's warnings have to be.
    let cleaned = |warnings: &BTreeSet<String>| -> BTreeSet<String> {
        warnings.difference(&ours.own_warnings).map(|warning| warnings::line(warning)).collect()
    };
    let (mine, other) = (cleaned(&ours.warnings), cleaned(&theirs.warnings));
    if mine != other {
        found.push((Difference::Notes, format!("{mine:?}, the API server {other:?}")));
    }
    let theirs: BTreeMap<String, String> = notes
        .iter()
        .map(|(key, value)| {
            let key = if key == AUDITED { "validation_failure".to_owned() } else { key.replace('/', ".") };
            (key, value.clone())
        })
        .collect();
    if in_any_order(&ours.notes) != in_any_order(&theirs) && !is_another_failure(engine, ours, &theirs) {
        found.push((Difference::Notes, format!("{:?}, the API server {theirs:?}", ours.notes)));
    }
    found
}

/// Audit annotations with the values that several bindings give in order: theirs is undefined.
fn in_any_order(notes: &BTreeMap<String, String>) -> BTreeMap<&str, BTreeSet<&str>> {
    notes.iter().map(|(key, value)| (key.as_str(), value.split(", ").collect())).collect()
}

/// Whether theirs is what one of the policies says: of several refusals the API server shows any.
fn is_among(engine: &Engine, ours: &Foreseen, mine: &Refusal, theirs: &Refusal) -> bool {
    if mine.causes == theirs.causes && mine.causes.len() > 1 {
        return mine.causes.contains(&theirs.message)
            && (mine.code, &mine.reason) == (theirs.code, &theirs.reason);
    }
    let mut quoted = theirs.message.split('\'').skip(1).step_by(2);
    let (Some(policy), Some(binding), Some(review)) = (quoted.next(), quoted.next(), &ours.validating) else {
        return false;
    };
    let alone = engine.validate_alone(policy, binding, review);
    alone.into_iter().filter_map(|said| said.status).any(|status| Refusal::ours(&status) == *theirs)
}

/// Whether the failure in the audit log is another one of several: the API server keeps any.
fn is_another_failure(engine: &Engine, ours: &Foreseen, theirs: &BTreeMap<String, String>) -> bool {
    const KEY: &str = "validation_failure";
    let without = |notes: &BTreeMap<String, String>| {
        let mut notes = notes.clone();
        notes.remove(KEY);
        notes
    };
    let failure = theirs.get(KEY).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let (Some(failure), Some(review)) = (failure, &ours.validating) else { return false };
    let (Some(policy), Some(binding)) = (failure[0]["policy"].as_str(), failure[0]["binding"].as_str())
    else {
        return false;
    };
    let alone = engine.validate_alone(policy, binding, review);
    let mut failures = alone.iter().flat_map(|said| &said.notes).filter(|(key, _)| key == KEY);
    ours.notes.contains_key(KEY)
        && without(&ours.notes) == without(theirs)
        && failures.any(|(_, failure)| Some(failure) == theirs.get(KEY))
}

/// Finds where objects differ, and how.
fn compare(ours: &Value, theirs: &Value, path: &str, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(mine), Value::Object(other)) => {
            for name in mine.keys().chain(other.keys().filter(|name| !mine.contains_key(*name))) {
                compare(&ours[name], &theirs[name], &format!("{path}/{name}"), found);
            }
        }
        (Value::Array(mine), Value::Array(other)) if mine.len() == other.len() => {
            for (index, (mine, other)) in mine.iter().zip(other).enumerate() {
                compare(mine, other, &format!("{path}/{index}"), found);
            }
        }
        _ if ours == theirs => {}
        _ => found.push(format!("{path}: {ours}, the API server {theirs}")),
    }
}

/// An answer's object, without what is made anew for each.
fn comparable(object: Value) -> Value {
    let mut object = cleaned(object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && metadata.contains_key("generateName")
    {
        metadata.remove("name");
    }
    object
}
