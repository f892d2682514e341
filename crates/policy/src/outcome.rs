//! What a set of policies decided, and how its policies fare.

use std::collections::BTreeMap;
use std::time::Duration;

use sallyport_admission::warnings;
pub use sallyport_admission::{Answer, Cause, Status};
use sallyport_api::FailurePolicy;

use crate::error::PolicyError;

/// Longest message of a status, in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 8 * 1024;
/// Most causes of one status.
const MAX_CAUSES: usize = 256;

/// What a set of policies decided about a review.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The answer. It has a status if and only if the request is refused, and a patch only if it is not; the keys
    /// of its audit annotations are valid.
    pub answer: Answer,
    /// One entry for each policy that matched, in the order of the names.
    pub results: Vec<PolicyResult>,
}

/// What one policy did with a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyResult {
    /// Index of the policy in `policies()` of its set.
    pub policy: usize,
    /// What it did.
    pub result: ResultKind,
    /// How long it took.
    pub duration: Duration,
}

/// What a policy did with a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResultKind {
    /// Its mutations changed the object.
    Applied,
    /// Its mutations had nothing to change.
    Unchanged,
    /// Its validations hold.
    Allowed,
    /// A validation failed and the request is refused for it.
    Denied,
    /// A validation failed and the client is warned.
    Warned,
    /// A validation failed and the audit log has it.
    Audited,
    /// One of its matchConditions is false.
    Skipped,
    /// It could not be evaluated; its failure policy decided what follows.
    Error,
}

impl ResultKind {
    /// As written in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Warned => "warned",
            Self::Audited => "audited",
            Self::Skipped => "skipped",
            Self::Error => "error",
        }
    }

    /// The result of a policy that runs or is evaluated several times: the graver, of two alike the first.
    pub(crate) fn graver(first: Option<Self>, second: Self) -> Option<Self> {
        first.filter(|first| first.gravity() >= second.gravity()).or(Some(second))
    }

    fn gravity(self) -> u8 {
        match self {
            Self::Error => 6,
            Self::Denied => 5,
            Self::Warned => 4,
            Self::Audited => 3,
            Self::Applied => 2,
            Self::Allowed | Self::Unchanged => 1,
            Self::Skipped => 0,
        }
    }
}

/// How a policy of a set fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyStatus {
    /// Name of the policy.
    pub name: String,
    /// The failure policy in force.
    pub failure_policy: FailurePolicy,
    /// Whether it is in force as written.
    pub state: PolicyState,
    /// What is wrong; empty for an active policy.
    pub message: String,
    /// Whether what is in force asks `authorizer` what somebody may do.
    pub asks_authorizer: bool,
}

/// Whether a policy is in force as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyState {
    /// It is.
    Active,
    /// What is written is wrong; its last good form is in force.
    Stale,
    /// It is wrong and never was good: an error for the requests it matches.
    Broken,
}

impl PolicyState {
    /// As written in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Stale => "stale",
            Self::Broken => "broken",
        }
    }
}

/// Gathers what the policies say about one review.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    refusal: Option<(u16, String)>,
    /// Whether one of the API server's own policies has refused.
    denied: bool,
    messages: Vec<String>,
    causes: Vec<Cause>,
    warnings: Vec<String>,
    pub(crate) audit_annotations: BTreeMap<String, String>,
    pub(crate) results: Vec<PolicyResult>,
}

impl Gathering {
    /// A refusal by `policy`, of one or more `messages`. The first refusal of a review gives code and reason.
    pub(crate) fn refuse(
        &mut self,
        policy: &str,
        code: u16,
        reason: &str,
        messages: &[String],
        causes: Vec<Cause>,
    ) {
        self.refusal.get_or_insert_with(|| (code, reason.to_owned()));
        self.messages.push(signed(messages, policy));
        let room = MAX_CAUSES.saturating_sub(self.causes.len());
        self.causes.extend(causes.into_iter().take(room));
    }

    /// A refusal because `policy` could not be evaluated.
    pub(crate) fn refuse_error(&mut self, policy: &str, error: &PolicyError) {
        let (code, reason) = error.status();
        self.refusal.get_or_insert_with(|| (code, reason.to_owned()));
        self.messages.push(format!("policy {policy}: {}", error.explain()));
    }

    /// A refusal by one of the API server's own policies. Of these the first alone is told, as there, and
    /// is a cause of its own.
    pub(crate) fn deny(&mut self, code: u16, reason: &str, message: &str) {
        if std::mem::replace(&mut self.denied, true) {
            return;
        }
        self.refusal.get_or_insert_with(|| (code, reason.to_owned()));
        self.messages.push(shorten(message, MAX_MESSAGE_BYTES));
        self.blame(message);
    }

    /// A refusal by the API server itself in place of all that its policies say. An internal error is a cause of
    /// its own, as there.
    pub(crate) fn abort(&mut self, code: u16, reason: &str, message: String) {
        self.refusal = Some((code, reason.to_owned()));
        self.denied = false;
        self.causes.clear();
        if code == 500 {
            self.blame(&message);
        }
        self.messages = vec![message];
    }

    /// One more cause of a refusal.
    pub(crate) fn blame(&mut self, message: &str) {
        if self.causes.len() < MAX_CAUSES {
            let message = shorten(message, MAX_MESSAGE_BYTES);
            self.causes.push(Cause { message, ..Cause::default() });
        }
    }

    /// Whether one of the API server's own policies has refused.
    pub(crate) fn denied(&self) -> bool {
        self.denied
    }

    /// A refusal that no single policy is to blame for.
    pub(crate) fn fail(&mut self, message: String) {
        self.refusal.get_or_insert_with(|| (500, "InternalError".to_owned()));
        self.messages.push(message);
    }

    /// A warning, as a clean line; repeated ones are dropped, and so are those beyond the bound.
    pub(crate) fn warn(&mut self, text: &str) {
        let line = warnings::line(text);
        let is_new = !line.is_empty() && !self.warnings.contains(&line);
        if is_new && self.warnings.len() < warnings::MAX_GATHERED {
            self.warnings.push(line);
        }
    }

    pub(crate) fn refused(&self) -> bool {
        self.refusal.is_some()
    }

    /// The outcome, with `patch` unless the request is refused.
    pub(crate) fn finish(self, patch: Option<Vec<u8>>) -> Outcome {
        let allowed = self.refusal.is_none();
        let status = self.refusal.map(|(code, reason)| Status {
            code,
            reason,
            message: join(&self.messages, MAX_MESSAGE_BYTES),
            causes: self.causes,
        });
        let answer = Answer {
            allowed,
            status,
            warnings: self.warnings,
            audit_annotations: self.audit_annotations,
            patch: patch.filter(|_| allowed).unwrap_or_default(),
        };
        Outcome { answer, results: self.results }
    }
}

/// `messages` followed by the policy that says them.
pub(crate) fn signed(messages: &[String], policy: &str) -> String {
    format!("{} (policy {policy})", join(messages, MAX_MESSAGE_BYTES / 2))
}

/// Joins with `; ` as many as there is room for, and says how many are left out. Repeated ones count once.
pub(crate) fn join(messages: &[String], room: usize) -> String {
    let mut joined = String::new();
    let mut seen: Vec<&str> = Vec::new();
    let mut left_out = 0;
    for message in messages {
        if seen.contains(&message.as_str()) {
            continue;
        }
        let separator = if joined.is_empty() { "" } else { "; " };
        if !joined.is_empty() && joined.len() + separator.len() + message.len() > room {
            left_out += 1;
            continue;
        }
        joined.push_str(separator);
        joined.push_str(&shorten(message, room));
        seen.push(message);
    }
    if left_out > 0 {
        joined.push_str("; and ");
        joined.push_str(&left_out.to_string());
        joined.push_str(" more");
    }
    joined
}

/// The beginning of `text`, at most `bytes` long.
pub(crate) fn shorten(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let mut end = bytes.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", text.get(..end).unwrap_or_default())
}
