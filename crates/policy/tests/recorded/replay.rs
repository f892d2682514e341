//! Reviewing the recorded requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sallyport_admission::warnings;
use sallyport_policy::{
    FailurePolicy, MutationSet, Objects, Operation, Outcome, PolicyState, Request, Review, ValidationSet,
};
use serde_json::Value;

use crate::comparison::{Answer, Difference};
use crate::corpus::{Corpus, Policies, Recorded};
use crate::objects;

/// Before it stands the API server's own name of the object.
const FORBIDDEN: &str = " is forbidden: ";
const AUDITED: &str = "validation.policy.admission.k8s.io/validation_failure";

impl Policies {
    pub fn compile(&self, objects: &Arc<Objects>) -> (ValidationSet, MutationSet) {
        (
            ValidationSet::build(self.validations.clone(), objects.clone(), None),
            MutationSet::build(self.mutations.clone(), objects.clone(), None),
        )
    }

    /// The one validating policy with this name.
    fn only(&self, name: &str) -> Self {
        let mut policies = self.clone();
        policies
            .validations
            .admission_policies
            .retain(|policy| policy.metadata.name.as_deref() == Some(name));
        policies
    }
}

/// All requests of a source, on as many threads as there are cores.
pub fn all(corpus: &Corpus) -> Vec<Answer> {
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let work = || {
            let mut answers = Vec::new();
            while let Some(set) = corpus.sets.get(next.fetch_add(1, Ordering::Relaxed)) {
                answers.extend(Replay::of(corpus, set).answers());
            }
            answers
        };
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

struct Replay<'c> {
    corpus: &'c Corpus,
    set: &'c Recorded,
    objects: Arc<Objects>,
    policies: Result<Policies, String>,
}

/// What both doors of one kind said together.
#[derive(Default)]
struct Answered {
    status: Option<sallyport_policy::Status>,
    warnings: Vec<String>,
    notes: Vec<(String, String)>,
    object: Value,
}

impl<'c> Replay<'c> {
    fn of(corpus: &'c Corpus, set: &'c Recorded) -> Self {
        Self { corpus, set, objects: corpus.surroundings(set), policies: corpus.policies(set) }
    }

    fn answers(&self) -> Vec<Answer> {
        let compiled = self.policies.clone().and_then(|policies| {
            let sets = policies.compile(&self.objects);
            let mut statuses = sets.0.policies().iter().chain(sets.1.policies());
            match statuses.find(|status| status.state != PolicyState::Active) {
                Some(status) => Err(format!("{}: {}", status.name, status.message)),
                None => Ok(sets),
            }
        });
        let cases = self.set.cases.iter();
        cases
            .map(|case| Answer {
                set: self.set.name.clone(),
                case: case["id"].as_str().unwrap().to_owned(),
                differences: match &compiled {
                    Ok((validations, mutations)) => self.differences(case, validations, mutations),
                    Err(why) => vec![(Difference::Unsupported, why.clone())],
                },
            })
            .collect()
    }

    fn differences(
        &self,
        case: &Value,
        validations: &ValidationSet,
        mutations: &MutationSet,
    ) -> Vec<(Difference, String)> {
        let question = Question::read(self.corpus, &case["review"]);
        let oracle = &case["oracle"];
        let answered =
            if self.set.mutates { question.mutate(mutations) } else { question.validate(validations) };
        let mut found = Vec::new();
        let allowed = oracle["allowed"] == true;
        if answered.status.is_none() != allowed {
            let (ours, theirs) = (format!("{:?}", answered.status), text(&oracle["message"]));
            found.push((Difference::Verdict, format!("{ours}, the API server {theirs:?}")));
            return found;
        }
        if let Some(status) = &answered.status {
            let ours = refusal(status);
            let theirs = (
                oracle["code"].as_u64().unwrap(),
                text(&oracle["reason"]),
                bare(text(&oracle["message"])),
                oracle["causes"].as_array().unwrap().iter().map(text).collect::<Vec<_>>(),
            );
            if ours != theirs && self.alone(&question, theirs.2).is_none_or(|other| refusal(&other) != theirs)
            {
                found.push((Difference::Message, format!("{ours:?}, the API server {theirs:?}")));
            }
        }
        if let Some(object) = oracle.get("object").filter(|_| allowed) {
            let ours = objects::differences(&answered.object, self.corpus.resolve(object));
            if !ours.is_empty() {
                found.push((Difference::Object, ours.join("; ")));
            }
        }
        if let Some(difference) = self.notes(&question, &answered, oracle) {
            found.push((Difference::Notes, difference));
        }
        found
    }

    /// The refusal by the policy alone that the API server names: of several it shows any.
    fn alone(&self, question: &Question, message: &str) -> Option<sallyport_policy::Status> {
        let name = message.split('\'').nth(1)?;
        let (validations, _) = self.policies.as_ref().ok()?.only(name).compile(&self.objects);
        question.validate(&validations).status
    }

    fn notes(&self, question: &Question, answered: &Answered, oracle: &Value) -> Option<String> {
        let mut ours = answered.warnings.clone();
        let mut theirs: Vec<String> = oracle["warnings"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|warning| warnings::line(text(warning)))
            .collect();
        ours.sort();
        theirs.sort();
        if ours != theirs {
            return Some(format!("{ours:?}, the API server {theirs:?}"));
        }
        let theirs: Vec<(String, String)> = oracle["auditAnnotations"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| {
                let key =
                    if key == AUDITED { "validation_failure".to_owned() } else { key.replace('/', ".") };
                (key, text(value).to_owned())
            })
            .collect();
        if answered.notes == theirs {
            return None;
        }
        // Of several failures the API server keeps any.
        let policy =
            theirs.first().and_then(|(_, value)| value.split("\"policy\":\"").nth(1)?.split('"').next());
        if let (Some(policy), Ok(policies)) = (policy, &self.policies) {
            let (validations, _) = policies.only(policy).compile(&self.objects);
            if question.validate(&validations).notes == theirs {
                return None;
            }
        }
        Some(format!("{:?}, the API server {theirs:?}", answered.notes))
    }
}

fn refusal(status: &sallyport_policy::Status) -> (u64, &str, &str, Vec<&str>) {
    let causes = status.causes.iter().map(|cause| cause.message.as_str()).collect();
    (status.code.into(), &status.reason, &status.message, causes)
}

/// The message without the name of the object: a webhook does not repeat it.
fn bare(message: &str) -> &str {
    let message = message.split_once(FORBIDDEN).map_or(message, |(_, rest)| rest);
    message.strip_prefix("Internal error occurred: ").unwrap_or(message)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A request as the engine takes it.
struct Question {
    request: Request,
    object: Value,
    old_object: Value,
    options: Value,
}

impl Question {
    fn read(corpus: &Corpus, review: &Value) -> Self {
        let body = review.to_string();
        let parsed = sallyport_admission::Review::parse(body.as_bytes()).unwrap();
        let request = parsed.request.into_owned();
        assert_ne!(request.operation, Operation::Unknown, "{}", parsed.operation);
        Self {
            request,
            object: corpus.resolve(&review["request"]["object"]).clone(),
            old_object: corpus.resolve(&review["request"]["oldObject"]).clone(),
            options: review["request"]["options"].clone(),
        }
    }

    fn validate(&self, set: &ValidationSet) -> Answered {
        self.both_doors(|review, door| set.review(review, door))
    }

    fn mutate(&self, set: &MutationSet) -> Answered {
        self.both_doors(|review, door| set.review(review, door))
    }

    /// Through the door of `Fail`, then that of `Ignore`, as the API server would call them.
    fn both_doors(&self, ask: impl Fn(&Review<'_>, FailurePolicy) -> Outcome) -> Answered {
        let mut answered = Answered { object: self.object.clone(), ..Answered::default() };
        for door in [FailurePolicy::Fail, FailurePolicy::Ignore] {
            let [object, old_object, options] =
                [&answered.object, &self.old_object, &self.options].map(ToString::to_string);
            let review = Review {
                object: object.as_bytes(),
                old_object: old_object.as_bytes(),
                options: options.as_bytes(),
                ..Review::of(&self.request)
            };
            let outcome = ask(&review, door);
            answered.warnings.extend(outcome.answer.warnings);
            answered.notes.extend(outcome.answer.audit_annotations);
            answered.status = answered.status.or(outcome.answer.status);
            if !outcome.answer.patch.is_empty() {
                let patch: json_patch::Patch = serde_json::from_slice(&outcome.answer.patch).unwrap();
                json_patch::patch(&mut answered.object, &patch).unwrap();
            }
        }
        answered
    }
}
