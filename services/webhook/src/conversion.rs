//! From the wire form of a review to the neutral one that backends see, and
//! from their answers back (G-05). Object bytes are slices of the received
//! body: nothing is copied or decoded.

use crate::door::Door;
use bytes::Bytes;
use sallyport_admission::envelope::{GroupVersionKind, GroupVersionResource};
use sallyport_admission::{Answer, Cause, Operation, Review, Status, UserInfo};
use sallyport_proto::v1alpha1 as proto;
use serde_json::value::RawValue;

/// The call's message for a review that was read from `body`.
pub(crate) fn request(review: &Review<'_>, body: &Bytes, door: &Door) -> proto::ReviewRequest {
    let slice =
        |raw: Option<&RawValue>| raw.map(|raw| body.slice_ref(raw.get().as_bytes())).unwrap_or_default();
    proto::ReviewRequest {
        uid: review.uid.clone().into_owned(),
        kind: Some(kind(&review.kind)),
        resource: Some(resource(&review.resource)),
        sub_resource: review.sub_resource.clone().into_owned(),
        request_kind: review.request_kind.as_ref().map(kind),
        request_resource: review.request_resource.as_ref().map(resource),
        request_sub_resource: review.request_sub_resource.clone().into_owned(),
        name: review.name.clone().into_owned(),
        namespace: review.namespace.clone().into_owned(),
        operation: operation(&review.operation).into(),
        user_info: Some(user(&review.user_info)),
        object: slice(review.object),
        old_object: slice(review.old_object),
        options: slice(review.options),
        dry_run: review.dry_run,
        failure_policy: door.failure_policy.into(),
    }
}

fn kind(kind: &GroupVersionKind<'_>) -> proto::GroupVersionKind {
    proto::GroupVersionKind {
        group: kind.group.clone().into_owned(),
        version: kind.version.clone().into_owned(),
        kind: kind.kind.clone().into_owned(),
    }
}

fn resource(resource: &GroupVersionResource<'_>) -> proto::GroupVersionResource {
    proto::GroupVersionResource {
        group: resource.group.clone().into_owned(),
        version: resource.version.clone().into_owned(),
        resource: resource.resource.clone().into_owned(),
    }
}

fn operation(operation: &Operation<'_>) -> proto::Operation {
    match operation {
        Operation::Create => proto::Operation::Create,
        Operation::Update => proto::Operation::Update,
        Operation::Delete => proto::Operation::Delete,
        Operation::Connect => proto::Operation::Connect,
        Operation::Other(_) => proto::Operation::Unspecified,
    }
}

fn user(user: &UserInfo<'_>) -> proto::UserInfo {
    proto::UserInfo {
        username: user.username.clone().into_owned(),
        uid: user.uid.clone().into_owned(),
        groups: user.groups.iter().map(|group| group.clone().into_owned()).collect(),
        extra: user
            .extra
            .iter()
            .map(|(key, values)| {
                let values = values.iter().map(|value| value.clone().into_owned()).collect();
                (key.clone().into_owned(), proto::ExtraValue { values })
            })
            .collect(),
    }
}

/// The mutator's answer.
pub(crate) fn mutated(response: proto::MutateResponse) -> Answer {
    Answer {
        allowed: response.allowed,
        status: response.status.map(status),
        warnings: response.warnings,
        audit_annotations: response.audit_annotations.into_iter().collect(),
        patch: response.json_patch.into(),
    }
}

/// The validator's answer.
pub(crate) fn validated(response: proto::ValidateResponse) -> Answer {
    Answer {
        allowed: response.allowed,
        status: response.status.map(status),
        warnings: response.warnings,
        audit_annotations: response.audit_annotations.into_iter().collect(),
        patch: Vec::new(),
    }
}

fn status(status: proto::Status) -> Status {
    Status {
        code: u16::try_from(status.code).unwrap_or_default(),
        reason: status.reason,
        message: status.message,
        causes: status
            .causes
            .into_iter()
            .map(|cause| Cause { reason: cause.reason, message: cause.message, field: cause.field })
            .collect(),
    }
}
