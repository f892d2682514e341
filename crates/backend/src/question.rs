//! A review as the policy engine takes it, from a review as a front sends it.

use bytes::Bytes;
use sallyport_policy::{
    Authorizer, FailurePolicy, GroupVersionKind, GroupVersionResource, Operation, Request, Review, UserInfo,
};
use sallyport_proto::v1alpha1;

use crate::fault::Fault;

/// What is asked. Owns the bytes of the objects, as received.
#[derive(Debug)]
pub(crate) struct Question {
    request: Request,
    object: Bytes,
    old_object: Bytes,
    options: Bytes,
    failure_policy: FailurePolicy,
}

impl Question {
    /// Takes a message apart.
    pub(crate) fn read(message: v1alpha1::ReviewRequest) -> Result<Self, Fault> {
        let failure_policy = match message.failure_policy() {
            v1alpha1::FailurePolicy::Ignore => FailurePolicy::Ignore,
            v1alpha1::FailurePolicy::Fail | v1alpha1::FailurePolicy::Unspecified => FailurePolicy::Fail,
        };
        let operation = match message.operation() {
            v1alpha1::Operation::Create => Operation::Create,
            v1alpha1::Operation::Update => Operation::Update,
            v1alpha1::Operation::Delete => Operation::Delete,
            v1alpha1::Operation::Connect => Operation::Connect,
            v1alpha1::Operation::Unspecified => Operation::Unknown,
        };
        if message.uid.is_empty() {
            return Err(Fault::Malformed("uid is empty"));
        }
        let kind = message.kind.map(kind).ok_or(Fault::Malformed("kind is missing"))?;
        let resource = message.resource.map(resource).ok_or(Fault::Malformed("resource is missing"))?;
        let user = message.user_info.unwrap_or_default();
        let request = Request {
            uid: message.uid,
            kind,
            resource,
            sub_resource: message.sub_resource,
            request_kind: message.request_kind.map(self::kind),
            request_resource: message.request_resource.map(self::resource),
            request_sub_resource: message.request_sub_resource,
            name: message.name,
            namespace: message.namespace,
            operation,
            user_info: UserInfo {
                username: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra.into_iter().map(|(key, extra)| (key, extra.values)).collect(),
            },
            dry_run: message.dry_run,
        };
        Ok(Self {
            request,
            object: message.object,
            old_object: message.old_object,
            options: message.options,
            failure_policy,
        })
    }

    /// For the engine, with who answers what policies ask of `authorizer`.
    pub(crate) fn review<'a>(&'a self, authorizer: &'a dyn Authorizer) -> Review<'a> {
        Review {
            request: &self.request,
            object: &self.object,
            old_object: &self.old_object,
            options: &self.options,
            authorizer,
        }
    }

    /// Which policies are to run.
    pub(crate) fn failure_policy(&self) -> FailurePolicy {
        self.failure_policy
    }

    /// Bytes of JSON that an evaluation may have to parse.
    pub(crate) fn size(&self) -> usize {
        self.object.len() + self.old_object.len() + self.options.len()
    }

    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// The new object's JSON; empty where there is none.
    pub(crate) fn object(&self) -> &[u8] {
        &self.object
    }
}

fn kind(kind: v1alpha1::GroupVersionKind) -> GroupVersionKind {
    GroupVersionKind { group: kind.group, version: kind.version, kind: kind.kind }
}

fn resource(resource: v1alpha1::GroupVersionResource) -> GroupVersionResource {
    GroupVersionResource { group: resource.group, version: resource.version, resource: resource.resource }
}

#[cfg(test)]
mod tests {
    use super::Question;
    use crate::fault::Fault;
    use sallyport_policy::{FailurePolicy, Operation};
    use sallyport_proto::v1alpha1::{
        ExtraValue, FailurePolicy as ProtoFailurePolicy, GroupVersionKind, GroupVersionResource,
        ReviewRequest, UserInfo,
    };

    fn message() -> ReviewRequest {
        let kind = |kind: &str| {
            Some(GroupVersionKind { kind: kind.into(), version: "v1".into(), group: "g".into() })
        };
        let resource = |resource: &str| {
            Some(GroupVersionResource { resource: resource.into(), version: "v2".into(), group: "h".into() })
        };
        ReviewRequest {
            uid: "u".into(),
            kind: kind("Kind"),
            resource: resource("kinds"),
            sub_resource: "status".into(),
            request_kind: kind("Original"),
            request_resource: resource("originals"),
            request_sub_resource: "scale".into(),
            name: "n".into(),
            namespace: "ns".into(),
            operation: 2,
            user_info: Some(UserInfo {
                username: "me".into(),
                uid: "1".into(),
                groups: vec!["a".into(), "b".into()],
                extra: [("k".to_owned(), ExtraValue { values: vec!["v".into()] })].into(),
            }),
            object: "{}".into(),
            old_object: "{\"o\":1}".into(),
            options: "{\"p\":1}".into(),
            dry_run: true,
            failure_policy: ProtoFailurePolicy::Ignore.into(),
        }
    }

    /// C-12, G-05: nothing is lost on the way.
    #[test]
    fn every_field_arrives() {
        let question = Question::read(message()).unwrap();
        let request = question.request();
        assert_eq!(
            (request.uid.as_str(), request.name.as_str(), request.namespace.as_str()),
            ("u", "n", "ns")
        );
        assert_eq!((request.kind.kind.as_str(), request.kind.group.as_str()), ("Kind", "g"));
        assert_eq!((request.resource.resource.as_str(), request.resource.version.as_str()), ("kinds", "v2"));
        assert_eq!(request.request_kind.as_ref().unwrap().kind, "Original");
        assert_eq!(request.request_resource.as_ref().unwrap().resource, "originals");
        assert_eq!(
            (request.sub_resource.as_str(), request.request_sub_resource.as_str()),
            ("status", "scale")
        );
        assert_eq!((request.operation, request.dry_run), (Operation::Update, true));
        let user = &request.user_info;
        assert_eq!((user.username.as_str(), user.uid.as_str(), user.groups.len()), ("me", "1", 2));
        assert_eq!(user.extra["k"], ["v"]);
        let review = question.review(&sallyport_policy::Unconnected);
        assert_eq!(
            (review.object, review.old_object, review.options),
            (&b"{}"[..], &b"{\"o\":1}"[..], &b"{\"p\":1}"[..])
        );
        assert_eq!((question.failure_policy(), question.size()), (FailurePolicy::Ignore, 16));
    }

    #[test]
    fn unknown_enumerators_have_a_meaning_and_missing_messages_are_faults() {
        let question =
            Question::read(ReviewRequest { operation: 99, failure_policy: 99, ..message() }).unwrap();
        assert_eq!(
            (question.request().operation, question.failure_policy()),
            (Operation::Unknown, FailurePolicy::Fail)
        );
        assert!(Question::read(ReviewRequest { user_info: None, request_kind: None, ..message() }).is_ok());
        for broken in [
            ReviewRequest { uid: String::new(), ..message() },
            ReviewRequest { kind: None, ..message() },
            ReviewRequest { resource: None, ..message() },
        ] {
            assert!(matches!(Question::read(broken), Err(Fault::Malformed(_))));
        }
    }
}
