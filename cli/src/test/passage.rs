//! One request through the policies, as an API server sends it through the doors of a front.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context as _;
use sallyport_policy::{Answer, Authorizer, AuthorizerTable, Request, Review, Status, Unconnected};
use serde_json::Value;

use crate::door::Door;
use crate::policies::Policies;

/// A request with its objects.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    request: Request,
    object: Option<Value>,
    old_object: Vec<u8>,
    options: Vec<u8>,
    /// What users may do, if that is known.
    authorizer: Option<Arc<AuthorizerTable>>,
}

/// What came of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observation {
    /// Why it is denied, if it is.
    pub(crate) denial: Option<Status>,
    pub(crate) warnings: Vec<String>,
    pub(crate) audit_annotations: BTreeMap<String, String>,
    /// The object as it leaves the mutating doors.
    pub(crate) object: Option<Value>,
    /// Whether that is another than was sent.
    pub(crate) changed: bool,
    /// Policies that could not be evaluated.
    pub(crate) errors: BTreeSet<String>,
}

impl Question {
    /// Reads an AdmissionReview as a front does. Without an authorizer nobody can be asked what users may do.
    pub(crate) fn read(review: &Value, authorizer: Option<Arc<AuthorizerTable>>) -> anyhow::Result<Self> {
        let text = serde_json::to_vec(review)?;
        let review = sallyport_admission::Review::parse(&text)?;
        let raw = |raw: Option<&serde_json::value::RawValue>| {
            raw.map(|raw| raw.get().as_bytes().to_vec()).unwrap_or_default()
        };
        let object = review.object.map(|object| serde_json::from_str(object.get())).transpose()?;
        let (old_object, options) = (raw(review.old_object), raw(review.options));
        Ok(Self { request: review.request.into_owned(), object, old_object, options, authorizer })
    }

    /// Who answers what policies ask of `authorizer`.
    fn authorizer(&self) -> &dyn Authorizer {
        match &self.authorizer {
            Some(table) => &**table,
            None => &Unconnected,
        }
    }

    /// Sends it through all doors.
    pub(crate) fn ask(&self, policies: &Policies) -> anyhow::Result<Observation> {
        let mut passage = Passage {
            question: self,
            policies,
            observation: Observation { object: self.object.clone(), ..Observation::default() },
        };
        if passage.mutate()? {
            for door in [Door::ValidateFail, Door::ValidateIgnore] {
                if !passage.ask_endpoint(door)? {
                    break;
                }
            }
        }
        Ok(passage.observation)
    }

    /// Sends another object through the mutating doors, as if it had been sent so.
    pub(crate) fn ask_again(&self, object: &Value, policies: &Policies) -> anyhow::Result<Observation> {
        let question = Self { object: Some(object.clone()), ..self.clone() };
        let observation = Observation { object: question.object.clone(), ..Observation::default() };
        let mut passage = Passage { question: &question, policies, observation };
        passage.mutate()?;
        Ok(passage.observation)
    }
}

struct Passage<'q> {
    question: &'q Question,
    policies: &'q Policies,
    observation: Observation,
}

impl Passage<'_> {
    /// Asks the mutating doors; false if the request ends there.
    fn mutate(&mut self) -> anyhow::Result<bool> {
        const DOORS: [Door; 2] = [Door::MutateFail, Door::MutateIgnore];
        // Who was asked before the other changed the object is asked again: reinvocationPolicy IfNeeded.
        let mut seen = Vec::new();
        for door in DOORS {
            if !self.ask_endpoint(door)? {
                return Ok(false);
            }
            seen.push(self.observation.object.clone());
        }
        for (door, seen) in DOORS.into_iter().zip(seen) {
            if self.observation.object != seen && !self.ask_endpoint(door)? {
                return Ok(false);
            }
        }
        self.observation.changed = self.observation.object != self.question.object;
        Ok(true)
    }

    /// Asks one door; false if the request ends there.
    fn ask_endpoint(&mut self, door: Door) -> anyhow::Result<bool> {
        let object = self.observation.object.as_ref().map(serde_json::to_vec).transpose()?;
        let review = Review {
            object: object.as_deref().unwrap_or_default(),
            old_object: &self.question.old_object,
            options: &self.question.options,
            ..Review::of(&self.question.request)
        };
        let review = Review { authorizer: self.question.authorizer(), ..review };
        let (outcome, errors) = self.policies.review(&review, door);
        let Answer { allowed, status, warnings, audit_annotations, patch } = outcome.answer;
        self.observation.errors.extend(errors);
        for warning in warnings {
            if !self.observation.warnings.contains(&warning) {
                self.observation.warnings.push(warning);
            }
        }
        self.observation.audit_annotations.extend(audit_annotations);
        if !patch.is_empty() {
            let patch: json_patch::Patch =
                serde_json::from_slice(&patch).context("the patch is no JSON Patch")?;
            let object = self.observation.object.as_mut().context("a patch, and there is no object")?;
            json_patch::patch(object, &patch).context("the patch does not apply")?;
        }
        if !allowed {
            self.observation.denial = Some(status.unwrap_or_default());
        }
        Ok(allowed)
    }
}
