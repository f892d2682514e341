//! Events: what a person who looks at the cluster should know of, in the suite's namespace.
//!
//! All are about the authority's Secret, because everything here is done for the sake of its certificates; the
//! object that something happened to is named in the note and referred to as related. An Event that cannot be
//! written is no reason to do less.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use sallyport_error_chain::format_chain;
use tracing::debug;

use crate::conditions::cut;

/// The longest note, in bytes; the API server refuses longer ones.
const MAX_NOTE: usize = 1000;
/// How long writing one may take.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// Writes Events; repetitions are counted in one.
#[derive(Clone)]
pub struct Events(Option<(Recorder, ObjectReference)>);

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Events").field(&self.0.as_ref().map(|(_, regarding)| &regarding.name)).finish()
    }
}

impl Events {
    /// Writes nothing: there is no cluster.
    pub fn none() -> Self {
        Self(None)
    }

    /// Writes Events of the controller `manager` about the Secret `secret` in `namespace`.
    pub fn new(client: Client, manager: &str, namespace: &str, secret: &str) -> Self {
        let reporter = Reporter {
            controller: format!("sallyport.dev/{manager}"),
            instance: std::env::var("HOSTNAME").ok(),
        };
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Secret".to_owned()),
            name: Some(secret.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectReference::default()
        };
        Self(Some((Recorder::new(client, reporter), regarding)))
    }

    /// Something that a person may want to know.
    pub async fn normal(&self, reason: &str, note: String) {
        self.publish(EventType::Normal, reason, note, None).await;
    }

    /// Something that a person should look at; `related` is the object that it happened to.
    pub async fn warning(&self, reason: &str, note: String, related: Option<ObjectReference>) {
        self.publish(EventType::Warning, reason, note, related).await;
    }

    async fn publish(
        &self,
        type_: EventType,
        reason: &str,
        note: String,
        secondary: Option<ObjectReference>,
    ) {
        let Some((recorder, regarding)) = &self.0 else { return };
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(cut(&note, MAX_NOTE).to_owned()),
            // What a controller does; there is no finer word for it here.
            action: "Reconcile".to_owned(),
            secondary,
        };
        let written = tokio::time::timeout(TIMEOUT, recorder.publish(&event, regarding)).await;
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(reason, error = format_chain(&error), "failed to write an Event"),
            Err(_) => debug!(reason, "giving up on writing an Event"),
        }
    }
}
