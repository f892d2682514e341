//! The same policies in the engine, asked what the API server's webhooks were asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sallyport_policy::{
    FailurePolicy, MutationSet, Mutations, Namespaces, Objects, Operation, Outcome, Review, Status,
    ValidationSet, Validations,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Compiled policies of both kinds, with what they may see.
pub struct Engine {
    validations: Validations,
    objects: Arc<Objects>,
    others: Vec<Value>,
    validating: ValidationSet,
    mutating: MutationSet,
    /// Names of policies that cannot be read, or with bindings that cannot, and why.
    unread: Vec<(String, String)>,
}

/// What the policies of one kind said.
#[derive(Clone, Debug, Default)]
pub struct Said {
    pub status: Option<Status>,
    pub warnings: Vec<String>,
    pub notes: Vec<(String, String)>,
    /// The object that came out, if it was changed.
    pub changed: Option<Value>,
}

impl Engine {
    /// Compiles policies and bindings, given as the API server stores them.
    pub fn new(policies: &[Value], namespaces: Vec<Value>, others: Vec<Value>) -> Self {
        let (mut validations, mut mutations) = (Validations::default(), Mutations::default());
        let mut unread = Vec::new();
        for object in policies {
            let read = match object["kind"].as_str().unwrap_or_default() {
                "ValidatingAdmissionPolicy" => read(object, &mut validations.admission_policies),
                "ValidatingAdmissionPolicyBinding" => read(object, &mut validations.bindings),
                "MutatingAdmissionPolicy" => read(object, &mut mutations.admission_policies),
                "MutatingAdmissionPolicyBinding" => read(object, &mut mutations.bindings),
                other => panic!("a {other} among the policies"),
            };
            if let Err(error) = read {
                let name = object["spec"]["policyName"].as_str().or(object["metadata"]["name"].as_str());
                unread.push((name.unwrap_or_default().to_owned(), error.to_string()));
            }
        }
        let namespaces: Namespaces = namespaces.into_iter().collect();
        let objects = Arc::new(Objects::new(Arc::new(namespaces), others.clone()));
        assert!(objects.problems().is_empty(), "{:?}", objects.problems());
        let validating = ValidationSet::build(validations.clone(), objects.clone(), None);
        let mutating = MutationSet::build(mutations, objects.clone(), None);
        Self { validations, objects, others, validating, mutating, unread }
    }

    /// Names and problems of policies that do not compile.
    pub fn refused(&self) -> Vec<(&str, &str)> {
        let statuses = self.validating.policies().iter().chain(self.mutating.policies());
        let broken = statuses
            .filter(|status| !status.message.is_empty())
            .map(|status| (status.name.as_str(), status.message.as_str()));
        let unread = self.unread.iter().map(|(name, error)| (name.as_str(), error.as_str()));
        broken.chain(unread).collect()
    }

    pub fn mutate(&self, review: &Value) -> Said {
        ask(review, |review, door| self.mutating.review(review, door))
    }

    pub fn validate(&self, review: &Value) -> Said {
        ask(review, |review, door| self.validating.review(review, door))
    }

    /// What one validating policy may say under one of its bindings: of several findings the API server shows any,
    /// and it takes params in any order.
    pub fn validate_alone(&self, policy: &str, binding: &str, review: &Value) -> Vec<Said> {
        let mut validations = self.validations.clone();
        validations.admission_policies.retain(|it| it.metadata.name.as_deref() == Some(policy));
        validations.bindings.retain(|it| it.metadata.name.as_deref() == Some(binding));
        let reference = validations.bindings.first().and_then(|binding| binding.spec.param_ref.as_ref());
        let chosen = match reference.and_then(|reference| reference.selector.as_ref()) {
            Some(selector) => self.labelled(&selector.match_labels),
            None => BTreeSet::new(),
        };
        let alone = |name: Option<String>| {
            let mut validations = validations.clone();
            for binding in &mut validations.bindings {
                if let (Some(reference), Some(name)) = (&mut binding.spec.param_ref, &name) {
                    reference.name = Some(name.clone());
                    reference.selector = None;
                }
            }
            let set = ValidationSet::build(validations, self.objects.clone(), None);
            ask(review, |review, door| set.review(review, door))
        };
        [None].into_iter().chain(chosen.into_iter().map(Some)).map(alone).collect()
    }

    /// Names of the objects that have such labels.
    fn labelled(&self, labels: &BTreeMap<String, String>) -> BTreeSet<String> {
        let has = |object: &&Value| {
            labels.iter().all(|(key, value)| object["metadata"]["labels"][key.as_str()] == value.as_str())
        };
        let names = self.others.iter().filter(has).filter_map(|object| object["metadata"]["name"].as_str());
        names.map(str::to_owned).collect()
    }
}

/// Through text, as a source reads it.
fn read<T: DeserializeOwned>(object: &Value, into: &mut Vec<T>) -> serde_json::Result<()> {
    into.push(serde_json::from_str(&object.to_string())?);
    Ok(())
}

/// Through the door of `Fail`, then that of `Ignore`.
fn ask(review: &Value, answer: impl Fn(&Review<'_>, FailurePolicy) -> Outcome) -> Said {
    let question = &review["request"];
    let body = review.to_string();
    let parsed = sallyport_admission::Review::parse(body.as_bytes()).unwrap();
    let request = parsed.request.into_owned();
    assert_ne!(request.operation, Operation::Unknown, "{}", parsed.operation);
    let mut said = Said::default();
    for door in [FailurePolicy::Fail, FailurePolicy::Ignore] {
        let object = said.changed.as_ref().unwrap_or(&question["object"]).clone();
        let [bytes, old_object, options] =
            [&object, &question["oldObject"], &question["options"]].map(ToString::to_string);
        let review = Review {
            object: bytes.as_bytes(),
            old_object: old_object.as_bytes(),
            options: options.as_bytes(),
            ..Review::of(&request)
        };
        let outcome = answer(&review, door);
        said.warnings.extend(outcome.answer.warnings);
        said.notes.extend(outcome.answer.audit_annotations);
        said.status = said.status.or(outcome.answer.status);
        if !outcome.answer.patch.is_empty() {
            let patch: json_patch::Patch = serde_json::from_slice(&outcome.answer.patch).unwrap();
            let mut object = object;
            json_patch::patch(&mut object, &patch).unwrap();
            said.changed = Some(object);
        }
    }
    said
}
