//! A review as the policy engine takes it, from a review as a front sends it.

use sallyport_policy::{Authorizer, FailurePolicy, Request, Review};
use sallyport_proto::conversion::Objects;
use sallyport_proto::v1alpha1;

use crate::fault::Fault;

/// What is asked. Owns the bytes of the objects, as received.
#[derive(Debug)]
pub(crate) struct Question {
    request: Request,
    objects: Objects,
    failure_policy: FailurePolicy,
}

impl Question {
    /// Takes a message apart.
    pub(crate) fn read(message: v1alpha1::ReviewRequest) -> Result<Self, Fault> {
        let failure_policy = match message.failure_policy() {
            v1alpha1::FailurePolicy::Ignore => FailurePolicy::Ignore,
            v1alpha1::FailurePolicy::Fail | v1alpha1::FailurePolicy::Unspecified => FailurePolicy::Fail,
        };
        let (request, objects) = message.into_request().map_err(Fault::Malformed)?;
        Ok(Self { request, objects, failure_policy })
    }

    /// For the engine, with who answers what policies ask of `authorizer`.
    pub(crate) fn review<'a>(&'a self, authorizer: &'a dyn Authorizer) -> Review<'a> {
        Review {
            request: &self.request,
            object: &self.objects.object,
            old_object: &self.objects.old_object,
            options: &self.objects.options,
            authorizer,
        }
    }

    /// Which policies are to run.
    pub(crate) fn failure_policy(&self) -> FailurePolicy {
        self.failure_policy
    }

    /// Bytes of JSON that an evaluation may have to parse.
    pub(crate) fn size(&self) -> usize {
        let Objects { object, old_object, options } = &self.objects;
        object.len() + old_object.len() + options.len()
    }

    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// The new object's JSON; empty where there is none.
    pub(crate) fn object(&self) -> &[u8] {
        &self.objects.object
    }
}

#[cfg(test)]
mod tests {
    use sallyport_policy::{FailurePolicy, Request};
    use sallyport_proto::conversion::Objects;
    use sallyport_proto::v1alpha1::{FailurePolicy as ProtoFailurePolicy, ReviewRequest};

    use super::Question;
    use crate::fault::Fault;

    fn message() -> ReviewRequest {
        let request = Request { uid: "u".to_owned(), ..Request::default() };
        let objects =
            Objects { object: "{}".into(), old_object: "{\"o\":1}".into(), options: "{\"p\":1}".into() };
        ReviewRequest::new(&request, objects, ProtoFailurePolicy::Ignore)
    }

    /// C-12, G-05; every field of the request is the conversion's to prove.
    #[test]
    fn request_objects_and_failure_policy_arrive() {
        let question = Question::read(message()).unwrap();
        assert_eq!(question.request().uid, "u");
        let review = question.review(&sallyport_policy::Unconnected);
        assert_eq!(
            (review.object, review.old_object, review.options),
            (&b"{}"[..], &b"{\"o\":1}"[..], &b"{\"p\":1}"[..])
        );
        assert_eq!((question.object(), question.size()), (&b"{}"[..], 16));
        assert_eq!(question.failure_policy(), FailurePolicy::Ignore);
    }

    #[test]
    fn an_unknown_failure_policy_is_fail_and_an_incomplete_message_a_fault() {
        let question = Question::read(ReviewRequest { failure_policy: 99, ..message() }).unwrap();
        assert_eq!(question.failure_policy(), FailurePolicy::Fail);
        let broken = Question::read(ReviewRequest { uid: String::new(), ..message() });
        let Err(fault @ Fault::Malformed(_)) = broken else { panic!() };
        assert_eq!(fault.to_string(), "malformed review: uid is empty");
    }
}
