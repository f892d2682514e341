//! Between the messages of the contract and the model of `sallyport-admission`, in both directions (G-05).
//!
//! Guarantee: nothing is lost on the way, and objects are never copied or decoded. Two things have no place in a
//! message: an operation that this version does not know is UNSPECIFIED, and a refusal has no patch (C-32).

use bytes::Bytes;
use sallyport_admission as model;

use crate::v1alpha1::{
    Cause, ExtraValue, FailurePolicy, GroupVersionKind, GroupVersionResource, MutateResponse, Operation,
    ReviewRequest, Status, UserInfo, ValidateResponse,
};

/// The JSON texts that go with a request, as received. Empty where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// The new object; absent on DELETE.
    pub object: Bytes,
    /// The object as it was; absent on CREATE and CONNECT.
    pub old_object: Bytes,
    /// The options of the operation; absent on CONNECT.
    pub options: Bytes,
}

/// What a message lacks that every review has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incomplete {
    /// No uid.
    #[error("uid is empty")]
    Uid,
    /// No kind.
    #[error("kind is missing")]
    Kind,
    /// No resource.
    #[error("resource is missing")]
    Resource,
}

impl ReviewRequest {
    /// The message that asks about a request.
    pub fn new<S>(request: &model::Request<S>, objects: Objects, failure_policy: FailurePolicy) -> Self
    where
        S: Clone + Into<String>,
    {
        let Objects { object, old_object, options } = objects;
        Self {
            uid: text(&request.uid),
            kind: Some((&request.kind).into()),
            resource: Some((&request.resource).into()),
            sub_resource: text(&request.sub_resource),
            request_kind: request.request_kind.as_ref().map(Into::into),
            request_resource: request.request_resource.as_ref().map(Into::into),
            request_sub_resource: text(&request.request_sub_resource),
            name: text(&request.name),
            namespace: text(&request.namespace),
            operation: Operation::from(request.operation).into(),
            user_info: Some((&request.user_info).into()),
            object,
            old_object,
            options,
            dry_run: request.dry_run,
            failure_policy: failure_policy.into(),
        }
    }

    /// The request that the message asks about, and its objects.
    ///
    /// # Errors
    /// When the message lacks what every review has.
    pub fn into_request(self) -> Result<(model::Request, Objects), Incomplete> {
        if self.uid.is_empty() {
            return Err(Incomplete::Uid);
        }
        let operation = self.operation().into();
        let request = model::Request {
            uid: self.uid,
            kind: self.kind.ok_or(Incomplete::Kind)?.into(),
            resource: self.resource.ok_or(Incomplete::Resource)?.into(),
            sub_resource: self.sub_resource,
            request_kind: self.request_kind.map(Into::into),
            request_resource: self.request_resource.map(Into::into),
            request_sub_resource: self.request_sub_resource,
            name: self.name,
            namespace: self.namespace,
            operation,
            user_info: self.user_info.unwrap_or_default().into(),
            dry_run: self.dry_run,
        };
        let objects = Objects { object: self.object, old_object: self.old_object, options: self.options };
        Ok((request, objects))
    }
}

impl From<model::Answer> for MutateResponse {
    fn from(answer: model::Answer) -> Self {
        let patch = if answer.allowed { answer.patch } else { Vec::new() };
        Self {
            allowed: answer.allowed,
            status: answer.status.map(Into::into),
            warnings: answer.warnings,
            audit_annotations: answer.audit_annotations.into_iter().collect(),
            json_patch: patch.into(),
        }
    }
}

impl From<MutateResponse> for model::Answer {
    fn from(response: MutateResponse) -> Self {
        Self {
            allowed: response.allowed,
            status: response.status.map(Into::into),
            warnings: response.warnings,
            audit_annotations: response.audit_annotations.into_iter().collect(),
            patch: response.json_patch.into(),
        }
    }
}

impl From<model::Answer> for ValidateResponse {
    /// The message has no room for a patch (C-27).
    fn from(answer: model::Answer) -> Self {
        Self {
            allowed: answer.allowed,
            status: answer.status.map(Into::into),
            warnings: answer.warnings,
            audit_annotations: answer.audit_annotations.into_iter().collect(),
        }
    }
}

impl From<ValidateResponse> for model::Answer {
    fn from(response: ValidateResponse) -> Self {
        Self {
            allowed: response.allowed,
            status: response.status.map(Into::into),
            warnings: response.warnings,
            audit_annotations: response.audit_annotations.into_iter().collect(),
            patch: Vec::new(),
        }
    }
}

fn text<S: Clone + Into<String>>(text: &S) -> String {
    text.clone().into()
}

impl<S: Clone + Into<String>> From<&model::GroupVersionKind<S>> for GroupVersionKind {
    fn from(kind: &model::GroupVersionKind<S>) -> Self {
        Self { group: text(&kind.group), version: text(&kind.version), kind: text(&kind.kind) }
    }
}

impl From<GroupVersionKind> for model::GroupVersionKind {
    fn from(kind: GroupVersionKind) -> Self {
        Self { group: kind.group, version: kind.version, kind: kind.kind }
    }
}

impl<S: Clone + Into<String>> From<&model::GroupVersionResource<S>> for GroupVersionResource {
    fn from(resource: &model::GroupVersionResource<S>) -> Self {
        Self {
            group: text(&resource.group),
            version: text(&resource.version),
            resource: text(&resource.resource),
        }
    }
}

impl From<GroupVersionResource> for model::GroupVersionResource {
    fn from(resource: GroupVersionResource) -> Self {
        Self { group: resource.group, version: resource.version, resource: resource.resource }
    }
}

impl From<model::Operation> for Operation {
    fn from(operation: model::Operation) -> Self {
        match operation {
            model::Operation::Create => Self::Create,
            model::Operation::Update => Self::Update,
            model::Operation::Delete => Self::Delete,
            model::Operation::Connect => Self::Connect,
            model::Operation::Unknown => Self::Unspecified,
        }
    }
}

impl From<Operation> for model::Operation {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Create => Self::Create,
            Operation::Update => Self::Update,
            Operation::Delete => Self::Delete,
            Operation::Connect => Self::Connect,
            Operation::Unspecified => Self::Unknown,
        }
    }
}

impl<S: Clone + Into<String>> From<&model::UserInfo<S>> for UserInfo {
    fn from(user: &model::UserInfo<S>) -> Self {
        let texts = |values: &[S]| values.iter().map(text).collect();
        Self {
            username: text(&user.username),
            uid: text(&user.uid),
            groups: texts(&user.groups),
            extra: user
                .extra
                .iter()
                .map(|(key, values)| (text(key), ExtraValue { values: texts(values) }))
                .collect(),
        }
    }
}

impl From<UserInfo> for model::UserInfo {
    fn from(user: UserInfo) -> Self {
        Self {
            username: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra.into_iter().map(|(key, extra)| (key, extra.values)).collect(),
        }
    }
}

impl From<model::Status> for Status {
    fn from(status: model::Status) -> Self {
        Self {
            code: status.code.into(),
            reason: status.reason,
            message: status.message,
            causes: status.causes.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Status> for model::Status {
    /// A code that no HTTP status has becomes 0, which is no error status either.
    fn from(status: Status) -> Self {
        Self {
            code: u16::try_from(status.code).unwrap_or_default(),
            reason: status.reason,
            message: status.message,
            causes: status.causes.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<model::Cause> for Cause {
    fn from(cause: model::Cause) -> Self {
        Self { reason: cause.reason, message: cause.message, field: cause.field }
    }
}

impl From<Cause> for model::Cause {
    fn from(cause: Cause) -> Self {
        Self { reason: cause.reason, message: cause.message, field: cause.field }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sallyport_admission as model;

    use super::{Incomplete, Objects};
    use crate::v1alpha1::{FailurePolicy, MutateResponse, ReviewRequest, Status, ValidateResponse};

    /// Makes values up. Strings are numbered, so that one in another's place is noticed.
    struct Generator {
        random: fastrand::Rng,
        strings: usize,
    }

    impl Generator {
        fn text(&mut self) -> String {
            self.strings += 1;
            if self.random.bool() { format!("ü{}", self.strings) } else { String::new() }
        }

        fn name(&mut self) -> String {
            self.strings += 1;
            format!("n{}", self.strings)
        }

        fn many<T>(&mut self, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
            (0..self.random.usize(..4)).map(|_| one(self)).collect()
        }

        fn kind(&mut self) -> model::GroupVersionKind {
            model::GroupVersionKind { group: self.text(), version: self.text(), kind: self.text() }
        }

        fn resource(&mut self) -> model::GroupVersionResource {
            model::GroupVersionResource { group: self.text(), version: self.text(), resource: self.text() }
        }

        fn request(&mut self) -> model::Request {
            model::Request {
                uid: self.name(),
                kind: self.kind(),
                resource: self.resource(),
                sub_resource: self.text(),
                request_kind: self.random.bool().then(|| self.kind()),
                request_resource: self.random.bool().then(|| self.resource()),
                request_sub_resource: self.text(),
                name: self.text(),
                namespace: self.text(),
                operation: self.random.choice(model::Operation::ALL).unwrap(),
                user_info: model::UserInfo {
                    username: self.text(),
                    uid: self.text(),
                    groups: self.many(Self::text),
                    extra: self.many(|all| (all.name(), all.many(Self::text))).into_iter().collect(),
                },
                dry_run: self.random.bool(),
            }
        }

        fn objects(&mut self) -> Objects {
            Objects {
                object: self.text().into(),
                old_object: self.text().into(),
                options: self.text().into(),
            }
        }

        fn answer(&mut self) -> model::Answer {
            let allowed = self.random.bool();
            model::Answer {
                allowed,
                status: self.random.bool().then(|| model::Status {
                    code: self.random.u16(..),
                    reason: self.text(),
                    message: self.text(),
                    causes: self.many(|all| model::Cause {
                        reason: all.text(),
                        message: all.text(),
                        field: all.text(),
                    }),
                }),
                warnings: self.many(Self::text),
                audit_annotations: self.many(|all| (all.name(), all.text())).into_iter().collect(),
                patch: if allowed { self.text().into() } else { Vec::new() },
            }
        }
    }

    /// As a message travels.
    fn sent<M: prost::Message + Default>(message: &M) -> M {
        M::decode(message.encode_to_vec().as_slice()).unwrap()
    }

    /// C-12, G-05.
    #[test]
    fn nothing_is_lost_on_the_way() {
        let mut all = Generator { random: fastrand::Rng::with_seed(13), strings: 0 };
        for _ in 0..2_000 {
            let (request, objects) = (all.request(), all.objects());
            let message = ReviewRequest::new(&request, objects.clone(), FailurePolicy::Ignore);
            let arrived = sent(&message);
            assert_eq!(arrived.failure_policy(), FailurePolicy::Ignore);
            let (read, with) = arrived.into_request().unwrap();
            assert_eq!((&read, &with), (&request, &objects));
            assert_eq!(ReviewRequest::new(&read, with, FailurePolicy::Ignore), message);

            let answer = all.answer();
            let response = MutateResponse::from(answer.clone());
            let read = model::Answer::from(sent(&response));
            assert_eq!(read, answer);
            assert_eq!(MutateResponse::from(read), response);

            let answer = model::Answer { patch: Vec::new(), ..answer };
            let response = ValidateResponse::from(answer.clone());
            let read = model::Answer::from(sent(&response));
            assert_eq!(read, answer);
            assert_eq!(ValidateResponse::from(read), response);
        }
    }

    #[test]
    fn objects_are_not_copied() {
        let object = Bytes::from(vec![b' '; 100]);
        let objects = Objects { object: object.clone(), ..Objects::default() };
        let request = model::Request { uid: "u".to_owned(), ..model::Request::default() };
        let message = ReviewRequest::new(&request, objects, FailurePolicy::Fail);
        assert_eq!(message.object.as_ptr(), object.as_ptr());
        assert_eq!(message.into_request().unwrap().1.object.as_ptr(), object.as_ptr());
    }

    /// C-11: enumerators of a later version have a meaning, a message that lacks what every review has is refused.
    #[test]
    fn messages_of_others_are_read() {
        let request = model::Request { uid: "u".to_owned(), ..model::Request::default() };
        let message = ReviewRequest::new(&request, Objects::default(), FailurePolicy::Fail);
        let later = ReviewRequest { operation: 99, user_info: None, ..message.clone() };
        assert_eq!(later.into_request().unwrap().0, request);
        for (broken, expected) in [
            (ReviewRequest { uid: String::new(), ..message.clone() }, Incomplete::Uid),
            (ReviewRequest { kind: None, ..message.clone() }, Incomplete::Kind),
            (ReviewRequest { resource: None, ..message.clone() }, Incomplete::Resource),
        ] {
            assert_eq!(broken.into_request(), Err(expected));
        }
        let status = model::Status::from(Status { code: 70_000, ..Status::default() });
        assert_eq!(status.code, 0);
    }

    /// C-32.
    #[test]
    fn only_an_allowed_mutation_has_a_patch() {
        let answer = model::Answer { patch: b"[]".to_vec(), ..model::Answer::allow() };
        assert_eq!(MutateResponse::from(answer.clone()).json_patch, "[]");
        assert_eq!(MutateResponse::from(model::Answer { allowed: false, ..answer }).json_patch, "");
    }
}
