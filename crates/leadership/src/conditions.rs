//! What state the suite's certificates are in, as conditions in Kubernetes' form.
//!
//! The leader shows them in an annotation of its Lease, where whoever may read that can see them without any right
//! on Secrets. They live as long as the Lease, so who follows as a leader goes on with the times of the one before.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// The annotation of the Lease.
pub const CONDITIONS_ANNOTATION: &str = "sallyport.dev/conditions";
/// The longest message, in bytes.
const MAX_MESSAGE: usize = 1000;
/// The longest annotation that is read, in bytes.
const MAX_TEXT: usize = 16 << 10;

/// What a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Type {
    /// Certificates and registration are as they should be.
    Ready,
    /// The authority is being replaced; the reason is the phase, the message what it waits for.
    Rotating,
    /// A phase has been waited for longer than is usual.
    Stuck,
    /// Somebody holds rotations and renewals; the message is why.
    Frozen,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    type_: Type,
    status: Status,
    reason: String,
    message: String,
    last_transition_time: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Status {
    True,
    False,
}

/// All conditions; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Conditions {
    held: Arc<Mutex<BTreeMap<Type, Condition>>>,
    changed: Arc<Notify>,
}

impl Conditions {
    /// Says how a condition stands. Returns whether its status changed.
    pub fn set(&self, type_: Type, is_true: bool, reason: &str, message: &str) -> bool {
        let status = if is_true { Status::True } else { Status::False };
        let message = cut(message, MAX_MESSAGE).to_owned();
        let mut held = self.held.lock();
        let former = held.get(&type_);
        let is_same_status = former.is_some_and(|former| former.status == status);
        if former.is_some_and(|former| is_same_status && former.reason == reason && former.message == message)
        {
            return false;
        }
        let since = former.filter(|_| is_same_status).map(|former| former.last_transition_time.clone());
        let last_transition_time = since.unwrap_or_else(now);
        held.insert(
            type_,
            Condition { type_, status, reason: reason.to_owned(), message, last_transition_time },
        );
        drop(held);
        self.changed.notify_one();
        !is_same_status
    }

    /// Goes on from what the leader before wrote; what is known here already stays.
    pub(crate) fn adopt(&self, annotation: Option<&String>) {
        let text = annotation.map(String::as_str).filter(|text| text.len() <= MAX_TEXT).unwrap_or_default();
        let former: Vec<Condition> = serde_json::from_str(text).unwrap_or_default();
        let mut held = self.held.lock();
        for condition in former {
            held.entry(condition.type_).or_insert(condition);
        }
    }

    /// Forgets everything: somebody else leads.
    pub fn clear(&self) {
        self.held.lock().clear();
    }

    /// The annotation's text.
    pub(crate) fn render(&self) -> String {
        let held = self.held.lock();
        serde_json::to_string(&held.values().collect::<Vec<_>>()).unwrap_or_default()
    }

    /// Completes after a change.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// The longest beginning of a text that has at most `bytes` bytes.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    let ends = text.char_indices().map(|(start, letter)| start + letter.len_utf8());
    &text[..ends.take_while(|end| *end <= bytes).last().unwrap_or_default()]
}

/// The present in RFC 3339, in whole seconds, as the API server writes times.
fn now() -> String {
    let seconds = Timestamp::now().as_second();
    Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_condition_is_that_of_its_last_change_of_status() {
        let conditions = Conditions::default();
        let former = r#"[{"type":"Rotating","status":"True","reason":"Published","message":"x",
            "lastTransitionTime":"2026-01-01T00:00:00Z"}]"#;
        conditions.adopt(Some(&former.to_owned()));
        assert!(!conditions.set(Type::Rotating, true, "Switched", "pod a: no answer"));
        let text = conditions.render();
        assert!(text.contains(
            r#""reason":"Switched","message":"pod a: no answer","lastTransitionTime":"2026-01-01"#
        ));
        assert!(conditions.set(Type::Rotating, false, "Done", ""));
        assert!(!conditions.render().contains("2026-01-01"), "{}", conditions.render());
    }

    #[test]
    fn what_others_wrote_into_the_annotation_harms_nobody() {
        for text in ["", "null", "{", "[{}]", r#"[{"type":"Other","status":"True"}]"#, &"[".repeat(1 << 20)] {
            let conditions = Conditions::default();
            conditions.adopt(Some(&text.to_owned()));
            assert_eq!(conditions.render(), "[]", "{text:.40}");
        }
    }

    #[test]
    fn a_long_message_is_cut() {
        let conditions = Conditions::default();
        conditions.set(Type::Ready, false, "CertificatesFailed", &"ü".repeat(MAX_MESSAGE));
        assert!(conditions.render().len() < MAX_MESSAGE + 200);
    }
}
