//! What the policies ask of `authorizer` in one review.
//!
//! Evaluation is synchronous, the answers are not: a question that has no answer yet is noted, and the evaluation
//! ends undecided. The questions are then put to whoever answers them and the review is evaluated again, until
//! nothing is left open. Each round has an answer more than the one before, and the questions are bounded in
//! number and size, so the rounds are too.
//!
//! The invariant: what was evaluated while a question was open decides nothing, and within a review one question
//! has one answer.

use std::sync::Arc;

use parking_lot::Mutex;
use sallyport_policy::{Attributes, Authorizer, Decision, Resource, Target, UserInfo};

/// Most different questions of one review.
pub(crate) const MAX_CHECKS: usize = 64;
/// Largest question, in bytes of what is asked about.
const MAX_QUESTION_BYTES: usize = 16 << 10;
/// Largest user that is asked for, in bytes of the names. The API server takes 3 MiB in all.
const MAX_USER_BYTES: usize = 1 << 20;

/// A question: whether somebody may do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) user: Arc<UserInfo>,
    pub(crate) verb: String,
    pub(crate) subject: Subject,
}

/// What a question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Path(String),
    Resource(Resource),
}

impl Check {
    fn is(&self, attributes: &Attributes<'_>) -> bool {
        let same = match (&self.subject, attributes.target) {
            (Subject::Path(path), Target::Path(asked)) => path == asked,
            (Subject::Resource(resource), Target::Resource(asked)) => resource == asked,
            _ => false,
        };
        same && self.verb == attributes.verb && *self.user == *attributes.user
    }
}

/// The questions of one review and their answers, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: Vec<(Check, Decision)>,
    open: Vec<Check>,
}

impl Answers {
    /// The questions without an answer, which the caller is to [`settle`](Self::settle).
    pub(crate) fn take_open(&mut self) -> Vec<Check> {
        std::mem::take(&mut self.0.get_mut().open)
    }

    /// Gives a question its answer.
    pub(crate) fn settle(&mut self, check: Check, decision: Decision) {
        self.0.get_mut().known.push((check, decision));
    }
}

impl Authorizer for Answers {
    fn check(&self, attributes: &Attributes<'_>) -> Option<Decision> {
        let State { known, open } = &mut *self.0.lock();
        if let Some((_, decision)) = known.iter().find(|(check, _)| check.is(attributes)) {
            return Some(decision.clone());
        }
        if open.iter().any(|check| check.is(attributes)) {
            return None;
        }
        if known.len() + open.len() >= MAX_CHECKS {
            return Some(errored(format!(
                "the policies ask the authorizer more than {MAX_CHECKS} different questions about this request"
            )));
        }
        let Attributes { user, verb, target } = attributes;
        if size(verb, target) > MAX_QUESTION_BYTES || user_size(user) > MAX_USER_BYTES {
            return Some(errored("the question to the authorizer is too large".to_owned()));
        }
        let mut users = known.iter().map(|(check, _)| check).chain(&*open).map(|check| &check.user);
        let user =
            users.find(|known| ***known == **user).map_or_else(|| Arc::new((*user).clone()), Arc::clone);
        let subject = match *target {
            Target::Path(path) => Subject::Path(path.to_owned()),
            Target::Resource(resource) => Subject::Resource(resource.clone()),
        };
        open.push(Check { user, verb: (*verb).to_owned(), subject });
        None
    }
}

/// No opinion, because of an error.
pub(crate) fn errored(error: String) -> Decision {
    Decision { error: Some(error), ..Decision::default() }
}

fn size(verb: &str, target: &Target<'_>) -> usize {
    let about = match target {
        Target::Path(path) => path.len(),
        Target::Resource(resource) => {
            let Resource { group, resource, subresource, namespace, name, field_selector, label_selector } =
                resource;
            [group, resource, subresource, namespace, name, field_selector, label_selector]
                .iter()
                .map(|text| text.len())
                .sum()
        }
    };
    verb.len() + about
}

fn user_size(user: &UserInfo) -> usize {
    let texts = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
    let extra = user.extra.iter().map(|(key, values)| key.len() + texts(values)).sum::<usize>();
    user.username.len() + user.uid.len() + texts(&user.groups) + extra
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sallyport_policy::{Attributes, Authorizer, Decision, Resource, Target, UserInfo};

    use super::{Answers, MAX_CHECKS, MAX_QUESTION_BYTES, MAX_USER_BYTES};

    fn user(name: &str) -> UserInfo {
        UserInfo { username: name.to_owned(), ..UserInfo::default() }
    }

    fn ask(answers: &Answers, user: &UserInfo, verb: &str, path: &str) -> Option<Decision> {
        answers.check(&Attributes { user, verb, target: Target::Path(path) })
    }

    #[test]
    fn a_question_is_open_once_until_it_is_settled() {
        let (ann, bob) = (user("ann"), user("bob"));
        let mut answers = Answers::default();
        let pods = Resource { resource: "pods".to_owned(), ..Resource::default() };
        let about_pods = |answers: &Answers, resource: &Resource| {
            answers.check(&Attributes { user: &ann, verb: "get", target: Target::Resource(resource) })
        };
        for _ in 0..2 {
            assert_eq!(ask(&answers, &ann, "get", "/a"), None);
            assert_eq!(ask(&answers, &bob, "get", "/a"), None);
            assert_eq!(ask(&answers, &ann, "put", "/a"), None);
            assert_eq!(ask(&answers, &ann, "get", "/b"), None);
            assert_eq!(about_pods(&answers, &pods), None);
            let named = Resource { name: "x".to_owned(), ..pods.clone() };
            assert_eq!(about_pods(&answers, &named), None);
        }
        let open = answers.take_open();
        assert_eq!(open.len(), 6);
        assert!(Arc::ptr_eq(&open[0].user, &open[2].user), "a user is kept once");
        assert!(answers.take_open().is_empty());
        for (index, check) in open.into_iter().enumerate() {
            answers.settle(check, Decision { reason: index.to_string(), ..Decision::default() });
        }
        let reason = |decision: Option<Decision>| decision.unwrap().reason;
        assert_eq!(reason(ask(&answers, &ann, "get", "/a")), "0");
        assert_eq!(reason(ask(&answers, &bob, "get", "/a")), "1");
        assert_eq!(reason(ask(&answers, &ann, "put", "/a")), "2");
        assert_eq!(reason(ask(&answers, &ann, "get", "/b")), "3");
        assert_eq!(reason(about_pods(&answers, &pods)), "4");
        assert!(answers.take_open().is_empty());
    }

    #[test]
    fn questions_are_bounded_in_number_and_in_size() {
        let ann = user("ann");
        let mut answers = Answers::default();
        let large = "x".repeat(MAX_QUESTION_BYTES);
        for error in [
            ask(&answers, &ann, "get", &large),
            ask(&answers, &ann, &large, "/"),
            ask(&answers, &user(&"x".repeat(MAX_USER_BYTES + 1)), "get", "/"),
        ] {
            assert!(error.unwrap().error.unwrap().contains("too large"));
        }
        assert!(answers.take_open().is_empty());
        for index in 0..MAX_CHECKS {
            assert_eq!(ask(&answers, &ann, "get", &format!("/{index}")), None);
            if index % 2 == 0 {
                for check in answers.take_open() {
                    answers.settle(check, Decision::default());
                }
            }
        }
        let beyond = ask(&answers, &ann, "get", "/beyond").unwrap();
        assert!(!beyond.allowed && beyond.error.unwrap().contains("64"));
        assert_eq!(ask(&answers, &ann, "get", "/0"), Some(Decision::default()));
        assert_eq!(ask(&answers, &ann, "get", &format!("/{}", MAX_CHECKS - 1)), None);
    }
}
