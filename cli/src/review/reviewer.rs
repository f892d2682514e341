//! Reviews through the doors of a front, each seeing what those before it changed.

use std::collections::BTreeMap;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sallyport_error_chain::format_chain;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::client::Client;
use super::decision::{Decision, Failure, Outcome, Verdict};
use crate::door::Door;

/// Sends reviews through the doors of a front.
pub(crate) struct Reviewer {
    pub(super) client: Client,
    pub(super) doors: &'static [Door],
}

/// The part of an answer that is read. What else an AdmissionReview may hold is of no use here.
#[derive(Deserialize)]
struct Answer {
    response: Option<Response>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    status: Option<Map<String, Value>>,
    #[serde(default)]
    patch: Option<String>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
    #[serde(default)]
    audit_annotations: Option<BTreeMap<String, String>>,
}

impl Reviewer {
    /// Sends a review through the doors. `review` is the body as it is sent to the first door; its parsed form
    /// is made when it is needed, unless it is there already.
    pub(crate) async fn review(&self, review: Bytes, parsed: Option<Value>) -> Outcome {
        let mut passage = Passage { body: review, parsed, outcome: Outcome::default(), changes: 0 };
        let (mutating, validating): (Vec<_>, Vec<_>) =
            self.doors.iter().copied().partition(|door| door.mutates());
        let mut seen = Vec::with_capacity(mutating.len());
        for door in &mutating {
            if !self.ask_endpoint(*door, &mut passage).await {
                return passage.outcome;
            }
            seen.push(passage.changes);
        }
        // reinvocationPolicy: IfNeeded. Who was asked before somebody else changed the object is asked again.
        for (door, seen) in mutating.into_iter().zip(seen) {
            if passage.changes != seen && !self.ask_endpoint(door, &mut passage).await {
                return passage.outcome;
            }
        }
        for door in validating {
            if !self.ask_endpoint(door, &mut passage).await {
                break;
            }
        }
        passage.outcome
    }

    /// Asks one door. False if the request ends here.
    async fn ask_endpoint(&self, door: Door, passage: &mut Passage) -> bool {
        let decision = match self.client.post(door.name(), &passage.body).await {
            Ok(reply) if reply.status == 200 => passage.apply_answer(door, &reply.body),
            Ok(reply) => {
                let message = String::from_utf8_lossy(&reply.body).trim().to_owned();
                Decision::failed(door, Failure { code: Some(reply.status), message })
            }
            Err(error) => Decision::failed(door, Failure { code: None, message: format_chain(&error) }),
        };
        let goes_on = match &decision.verdict {
            Verdict::Allowed => true,
            Verdict::Denied(_) => false,
            Verdict::Failed(_) => door.tolerates_failure(),
        };
        passage.outcome.decisions.push(decision);
        goes_on
    }
}

/// A review on its way.
struct Passage {
    body: Bytes,
    parsed: Option<Value>,
    outcome: Outcome,
    /// How often the object was changed.
    changes: usize,
}

impl Passage {
    /// Takes an answer with its patch.
    fn apply_answer(&mut self, door: Door, answer: &[u8]) -> Decision {
        match self.read_decision(door, answer) {
            Ok(decision) => decision,
            Err(error) => {
                let message = format!("the answer cannot be used: {}", format_chain(error.as_ref()));
                Decision::failed(door, Failure { code: None, message })
            }
        }
    }

    fn read_decision(&mut self, door: Door, answer: &[u8]) -> anyhow::Result<Decision> {
        let answer: Answer = serde_json::from_slice(answer).context("it is no AdmissionReview")?;
        let response = answer.response.context("it has no response")?;
        let mut patch = Vec::new();
        if response.allowed
            && let Some(encoded) = &response.patch
        {
            let text = STANDARD.decode(encoded).context("its patch is not base64")?;
            patch = serde_json::from_slice(&text).context("its patch is no list")?;
            if !patch.is_empty() {
                self.apply_patch(&text)?;
            }
        }
        Ok(Decision {
            door,
            verdict: if response.allowed {
                Verdict::Allowed
            } else {
                Verdict::Denied(response.status.unwrap_or_default())
            },
            warnings: response.warnings.unwrap_or_default(),
            audit_annotations: response.audit_annotations.unwrap_or_default(),
            patch,
        })
    }

    fn apply_patch(&mut self, patch: &[u8]) -> anyhow::Result<()> {
        let patch: json_patch::Patch = serde_json::from_slice(patch).context("its patch is no JSON Patch")?;
        let mut review = match self.parsed.take() {
            Some(review) => review,
            None => serde_json::from_slice(&self.body).context("the review cannot be read again")?,
        };
        let object = review.pointer_mut("/request/object").context("there is no object to patch")?;
        json_patch::patch(object, &patch).context("its patch does not apply")?;
        self.outcome.object = Some(object.clone());
        self.body = Bytes::from(serde_json::to_vec(&review)?);
        self.parsed = Some(review);
        self.changes += 1;
        Ok(())
    }
}
