//! Proving the way through the API server by a probe, and patience while it is not proven (R-07).

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};
use sallyport_leadership::{AccessError, Events, Verb, call};
use sallyport_registration::{Described, FIELD_MANAGER, Live, Outcome, Owners, Probe, Unproven};
use tracing::info;

use super::proof;

/// The wait after a first proof that failed; it doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait between two proofs.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// How long proofs fail until an Event says so. Fronts that start and caches of API servers take seconds.
const TELL_AFTER: Duration = Duration::from_secs(60);

/// Why entries stay at Ignore.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lack {
    /// The webhook is not proven by itself.
    #[error(transparent)]
    Front(#[from] proof::Unproven),
    /// The call failed, or somebody else refused it.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The probe does not prove it.
    #[error(transparent)]
    Probe(#[from] Unproven),
}

/// A configuration with entries that wait for the proof.
pub(super) struct Pending {
    /// The configuration.
    pub described: Described,
    /// As it is.
    pub live: Live,
    /// The owners that it is to have.
    pub owners: Owners,
    /// What it is to be once it is proven.
    pub intent: u64,
}

/// Sends a probe in a dry run and reads what the API server says.
pub(super) async fn probe(client: &Client, namespace: &str) -> Result<Outcome, Lack> {
    let probe = Probe::new(fastrand::u64(..));
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let params = PostParams { dry_run: true, field_manager: Some(FIELD_MANAGER.to_owned()) };
    let error =
        match call(Verb::Create, "configmaps", Probe::NAME, api.create(&params, &probe.object())).await {
            Ok(object) => return Ok(probe.accepted(&object)),
            Err(error) => error,
        };
    let refused = match &error {
        AccessError::Refused { source, .. } => probe.refused(&source.message),
        _ => None,
    };
    refused.ok_or_else(|| error.into())
}

/// How patient to be, and what was said.
pub(super) struct Patience {
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

impl Patience {
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
    use sallyport_registration::Description;
    use serde_json::Value;

    use super::*;

    #[tokio::test]
    async fn proofs_are_tried_ever_less_often() {
        let description = Description::parse(
            "{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: s}}",
            "n",
        );
        let described = description.unwrap().configurations.remove(0);
        let pending = Pending { described, live: Live::new(Value::Null), owners: Owners::Unowned, intent: 0 };
        let mut patience = Patience::new(Events::none());
        let start = Instant::now();
        assert_eq!(patience.remaining(start), Duration::ZERO);
        let mut now = start;
        let mut proofs = 0;
        while now.saturating_duration_since(start) < Duration::from_hours(1) {
            proofs += 1;
            let wait = patience.lacks("r".to_owned(), &pending, now).await;
            assert_eq!(patience.remaining(now), wait);
            now += wait;
        }
        assert!((200..300).contains(&proofs), "{proofs} in an hour");
        assert!(patience.waiting.as_ref().is_some_and(|waiting| waiting.is_told), "it has lasted");
        patience.settled();
        assert_eq!(patience.remaining(start), Duration::ZERO);
    }
}
